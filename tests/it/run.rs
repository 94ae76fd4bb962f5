//! `plimsoll run`: what a signal does to the agent, whose exit code is given, and where state is kept.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::process::plimsoll;
use super::support::soon;

/// A run under way. Dropping it kills it.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A shell script as the agent, in `directory`, with the state in `state`.
fn run(directory: &Path, state: &Path, arguments: &[&str], script: &str) -> Command {
    let mut command = plimsoll(directory);
    command
        .env("XDG_STATE_HOME", state)
        .args(["run", "--upstream", "http://127.0.0.1:9/v1"])
        .args(arguments)
        .args(["--", "sh", "-c", script]);
    command
}

/// The same, hearing every signal: whatever runs the tests may have some ignored by all that it starts.
fn hearing(inner: &Command) -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal")
        .arg(inner.get_program())
        .args(inner.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(directory) = inner.get_current_dir() {
        command.current_dir(directory);
    }
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

impl Run {
    fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// The exit code and what was said on stderr.
    async fn ended(mut self) -> (Option<i32>, String) {
        soon(async {
            while self.0.try_wait().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
        }
        (self.0.wait().unwrap().code(), said)
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
    }
}

/// Waits for a file that an agent makes.
pub async fn made(file: &Path) {
    soon(async {
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Says that it is there, and works until a signal comes.
fn until(signal: &str) -> String {
    format!("trap 'echo heard; exit 7' {signal}; touch ready; while :; do sleep 0.02; done")
}

#[tokio::test]
async fn signals_reach_the_agent_which_ends_in_its_own_way() {
    for signal in ["TERM", "HUP", "INT", "USR1"] {
        let directory = tempfile::tempdir().unwrap();
        let script = until(signal);
        let run = run(directory.path(), directory.path(), &[], &script);
        let run = Run::start(hearing(&run));
        made(&directory.path().join("ready")).await;
        run.signal(&format!("-{signal}"));
        let (code, said) = run.ended().await;
        assert_eq!(code, Some(7), "{signal}: {said}");
        assert!(said.contains("nothing was managed"), "{signal}: {said}");
    }
}

#[tokio::test]
async fn an_agent_that_does_not_end_is_killed_after_its_grace() {
    for signal in ["TERM", "INT"] {
        let directory = tempfile::tempdir().unwrap();
        let script = format!("trap '' {signal}; touch ready; while :; do sleep 0.02; done");
        let grace = ["--grace", "200ms"];
        let run = run(directory.path(), directory.path(), &grace, &script);
        let run = Run::start(hearing(&run));
        made(&directory.path().join("ready")).await;
        run.signal(&format!("-{signal}"));
        assert_eq!(run.ended().await.0, Some(128 + 9), "{signal}");
    }
}

#[tokio::test]
async fn a_signal_that_asks_for_no_end_kills_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'touch heard' USR1; touch ready; \
                  while [ ! -e end ]; do sleep 0.02; done; exit 5";
    let grace = ["--grace", "1ms"];
    let run = Run::start(run(directory.path(), directory.path(), &grace, script));
    made(&directory.path().join("ready")).await;
    run.signal("-USR1");
    made(&directory.path().join("heard")).await;
    std::fs::write(directory.path().join("end"), "").unwrap();
    assert_eq!(run.ended().await.0, Some(5));
}

/// `nohup` and shells have signals ignored by those that they start.
#[tokio::test]
async fn a_signal_that_was_ignored_at_the_start_stays_so_for_both() {
    let directory = tempfile::tempdir().unwrap();
    let script = "touch ready; while [ ! -e end ]; do sleep 0.02; done; exit 5";
    let inner = run(
        directory.path(),
        directory.path(),
        &["--grace", "1ms"],
        script,
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(directory.path())
        .env("XDG_STATE_HOME", directory.path())
        .stderr(Stdio::piped());
    let run = Run::start(command);
    made(&directory.path().join("ready")).await;
    run.signal("-HUP");
    // Were it heard, the agent would be gone in a moment.
    tokio::time::sleep(Duration::from_millis(100)).await;
    std::fs::write(directory.path().join("end"), "").unwrap();
    let (code, said) = run.ended().await;
    assert_eq!(code, Some(5), "{said}");
}

#[tokio::test]
async fn the_exit_code_is_the_agents() {
    let directory = tempfile::tempdir().unwrap();
    for (script, wanted) in [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", 128 + 11)] {
        let run = Run::start(run(directory.path(), directory.path(), &[], script));
        let (code, said) = run.ended().await;
        assert_eq!(code, Some(wanted), "{script}: {said}");
    }
}

#[tokio::test]
async fn runs_at_once_keep_their_records_apart_and_out_of_the_work() {
    let (work, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pool = state.path().join("plimsoll/run");
    let held = "touch ready; while [ ! -e end ]; do sleep 0.02; done";
    let first = Run::start(run(work.path(), state.path(), &[], held));
    made(&work.path().join("ready")).await;
    let second = Run::start(run(work.path(), state.path(), &[], "exit 0"));
    let (code, said) = second.ended().await;
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("memory"), "{said}");
    std::fs::write(work.path().join("end"), "").unwrap();
    assert_eq!(first.ended().await.0, Some(0));
    assert!(pool.join("1/tenant.key").exists() && pool.join("2/tenant.key").exists());
    assert!(!pool.join("3").exists(), "no more than are needed");

    // The next one from here goes on where the last one was.
    let before = std::fs::read_dir(pool.join("1/used")).unwrap().count();
    let third = Run::start(run(work.path(), state.path(), &[], "exit 0"));
    assert_eq!(third.ended().await.0, Some(0));
    assert_eq!(
        std::fs::read_dir(pool.join("1/used")).unwrap().count(),
        before
    );
    assert!(!pool.join("3").exists());

    let left: Vec<_> = std::fs::read_dir(work.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "the agent's own files alone: {left:?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(pool.join("1")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn what_is_named_wins_and_what_can_not_be_kept_stays_in_memory() {
    let (work, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let named = run(work.path(), state.path(), &["--data", "./mine"], "exit 0");
    let (code, said) = Run::start(named).ended().await;
    assert_eq!(code, Some(0), "{said}");
    let mut named = run(work.path(), state.path(), &[], "exit 0");
    named.env("PLIMSOLL__STORE__PATH", "./other");
    assert_eq!(Run::start(named).ended().await.0, Some(0));
    for place in ["mine", "other"] {
        assert!(
            work.path().join(place).join("tenant.key").exists(),
            "{place}"
        );
    }
    assert!(!state.path().join("plimsoll").exists());

    let mut homeless = run(work.path(), state.path(), &[], "exit 3");
    homeless
        .env_remove("XDG_STATE_HOME")
        .env("HOME", state.path());
    assert_eq!(Run::start(homeless).ended().await.0, Some(3));
    let kept = state.path().join(".local/state/plimsoll/run/1/tenant.key");
    assert!(kept.exists());

    let nowhere = Path::new("/proc/nowhere");
    let (code, said) = Run::start(run(work.path(), nowhere, &[], "exit 3"))
        .ended()
        .await;
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("in memory only") && said.contains("--data"),
        "{said}"
    );
    let mut homeless = run(work.path(), nowhere, &[], "exit 3");
    homeless.env_remove("XDG_STATE_HOME").env_remove("HOME");
    assert_eq!(Run::start(homeless).ended().await.0, Some(3));
    assert!(!work.path().join("data").exists());
}

/// Linux says in a process's status whether it may be given huge pages.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_proxy_goes_without_huge_pages_and_the_agent_does_not() {
    let directory = tempfile::tempdir().unwrap();
    // The shell's parent is the proxy, which has a moment to go back to its own ways.
    let script = "sleep 0.5; grep THP_enabled /proc/self/status /proc/$PPID/status >&2";
    let (code, said) = Run::start(hearing(&run(
        directory.path(),
        directory.path(),
        &[],
        script,
    )))
    .ended()
    .await;
    assert_eq!(code, Some(0), "{said}");
    let enabled: Vec<_> = said
        .lines()
        .filter_map(|line| line.split_once("THP_enabled:"))
        .collect();
    let values: Vec<_> = enabled.iter().map(|(_, value)| value.trim()).collect();
    assert_eq!(values, ["1", "0"], "{said}");
}
