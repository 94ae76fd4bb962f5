//! A real Redis server for tests. Owns its process, which ends with the test. Never uses a server that is already there.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long a server may take to start, and a cluster to agree.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether there are servers on this machine. Where there are none, says that the test is skipped;
/// CI has to have them.
#[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
pub fn are_here() -> bool {
    let here = Command::new("redis-server")
        .arg("--version")
        .output()
        .is_ok();
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(
        here || !ci,
        "redis-server is not installed; .ci/run does it"
    );
    if !here {
        println!("skipped: there is no redis-server here; Debian's package is `redis-server`");
    }
    here
}

/// A port that nobody is likely to use: below those that the system gives to connections, and
/// different for each test process.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() % 800 * 12;
    let number = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
    // The nodes of a cluster talk to each other at a port that is 10,000 higher.
    u16::try_from(10_000 + (first + number) % 10_000).unwrap()
}

/// A running server with a directory of its own.
pub struct RedisServer {
    pub port: u16,
    settings: Vec<String>,
    directory: tempfile::TempDir,
    running: Option<Running>,
}

struct Running {
    pid: String,
    shell: Child,
    _held: ChildStdin,
}

impl RedisServer {
    /// Starts a server with these settings, such as `["--appendonly", "yes"]`.
    pub fn start(settings: &[&str]) -> Self {
        let mut server = Self {
            port: 0,
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            directory: tempfile::tempdir().unwrap(),
            running: None,
        };
        // Somebody else may have the port.
        while server.running.is_none() {
            server.port = next_port();
            server.launch();
        }
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts the server again, with the same port and files.
    pub fn restart(&mut self) {
        self.kill();
        let begun = Instant::now();
        self.launch();
        // While it was gone somebody else may have taken the port for a moment.
        while self.running.is_none() {
            assert!(
                begun.elapsed() < PATIENCE,
                "redis-server did not start again: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(200));
            self.launch();
        }
    }

    /// Starts the server. It may end at once, if somebody else has the port.
    fn launch(&mut self) {
        // The shell ends the server when the test process has gone, however that happened: the
        // pipe is closed then.
        let mut shell = Command::new("sh")
            .args([
                "-c",
                "redis-server \"$@\" >log 2>&1 & echo $!; read _; kill -9 $! 2>/dev/null",
                "sh",
            ])
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .args(&self.settings)
            .current_dir(self.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pid = String::new();
        BufReader::new(shell.stdout.take().unwrap())
            .read_line(&mut pid)
            .unwrap();
        let held = shell.stdin.take().unwrap();
        let running = Running {
            pid: pid.trim().to_owned(),
            shell,
            _held: held,
        };
        let begun = Instant::now();
        loop {
            // Somebody else's server may answer at the port.
            let ours = format!("process_id:{}\r", running.pid);
            if self.cli(&["INFO", "server"]).contains(&ours) && self.cli(&["PING"]).trim() == "PONG"
            {
                self.running = Some(running);
                return;
            }
            if has_ended(&running.pid) {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "redis-server did not start: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the server, as a machine does that loses power, but for what the system still writes.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            signal("-KILL", &running.pid);
            drop(running._held);
            running.shell.wait().unwrap();
        }
    }

    /// Lets the server hang, or go on.
    pub fn hang(&self, hang: bool) {
        if let Some(running) = &self.running {
            signal(if hang { "-STOP" } else { "-CONT" }, &running.pid);
        }
    }

    /// What `redis-cli` prints for a command.
    pub fn cli(&self, command: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(command)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn log(&self) -> String {
        let mut log = String::new();
        if let Ok(mut file) = std::fs::File::open(self.directory.path().join("log")) {
            let _ = file.read_to_string(&mut log);
        }
        log
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.hang(false);
        self.kill();
    }
}

fn has_ended(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.map_or(true, |state| state.contains(") Z "))
}

fn signal(signal: &str, pid: &str) {
    let _ = Command::new("kill").args([signal, pid]).status();
}
