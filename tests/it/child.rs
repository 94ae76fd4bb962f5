//! The real binary under limits of the system's, its log in a file that nobody has to read, and what
//! the system says of its memory. Also the benches'. Asserts only that it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Until a process that was started serves.
const START: Duration = Duration::from_secs(30);

/// A serving process. Dropping it kills it.
pub struct Serving {
    child: Child,
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

impl Serving {
    /// Starts `serve` behind `first`, a line of shell such as `ulimit -n 256`.
    pub fn start(upstream: SocketAddr, first: &str, env: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut command = Command::new("sh");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PLIMSOLL") {
                command.env_remove(name);
            }
        }
        let child = command
            .current_dir(directory.path())
            .arg("-c")
            .arg(format!("{first}\nexec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0"])
            .arg(format!("--upstream=http://{upstream}/v1"))
            // Its store is in the directory, and not where this user keeps state.
            .env_remove("HOME")
            .env_remove("XDG_STATE_HOME")
            .env("_RJEM_MALLOC_CONF", "dirty_decay_ms:0")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut serving = Self {
            child,
            listen: ([127, 0, 0, 1], 0).into(),
            admin: ([127, 0, 0, 1], 0).into(),
            log,
            _directory: directory,
        };
        let line = serving.line("listen");
        (serving.listen, serving.admin) = (address(&line, "listen"), address(&line, "admin"));
        serving
    }

    /// The first line of its log that says something, once it does.
    pub fn line(&mut self, what: &str) -> String {
        let until = Instant::now() + START;
        loop {
            let log = self.log();
            if let Some(line) = log.lines().find(|line| line.contains(what)) {
                return line.to_owned();
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{what}: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listen)
    }

    /// A file that the system keeps of it.
    pub fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }

    /// How many files it has open.
    pub fn open_files(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        files.unwrap().count()
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) {
        let (name, id) = (format!("-{name}"), self.child.id().to_string());
        let sent = Command::new("kill").args([name, id]).status().unwrap();
        assert!(sent.success());
    }

    /// Bytes that are resident, now and at most so far.
    pub fn resident(&self) -> (u64, u64) {
        let status = self.proc("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            kib.unwrap_or_default() * 1024
        };
        (field("VmRSS:"), field("VmHWM:"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already; there is nobody left to tell.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// An address that a line of the log names.
fn address(line: &str, name: &str) -> SocketAddr {
    let (_, rest) = line.split_once(&format!("{name}=")).unwrap();
    let rest = rest.trim_start_matches('"');
    let text = rest.split([' ', '"', '\n']).next().unwrap();
    text.parse().unwrap()
}
