//! A real balancer for tests. Owns its process, which ends with the test.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// nginx before some servers, which it asks in turn.
pub struct Nginx {
    pub port: u16,
    shell: Child,
    _directory: tempfile::TempDir,
}

/// Whether it is on this machine. CI has to have it.
#[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
pub fn is_here() -> bool {
    let here = Command::new("nginx").arg("-v").output().is_ok();
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(here || !ci, "nginx is not installed; .ci/run does it");
    if !here {
        println!("skipped: there is no nginx here; Debian's package is `nginx-light`");
    }
    here
}

/// Has nginx read a file of settings, which must be sound.
pub fn check(text: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut check = Command::new("nginx");
    check
        .arg("-t")
        .arg("-p")
        .arg(directory.path())
        .arg("-c")
        .arg(&file);
    let said = check.output().unwrap();
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
}

impl Nginx {
    /// Starts it before servers, whatever becomes of them.
    pub fn before(servers: &[String]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let upstream: String = servers
            .iter()
            .map(|server| format!("server {server} max_fails=0;"))
            .collect();
        let places: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|place| format!("{place}_temp_path {place};"))
            .collect();
        let config = format!(
            "daemon off; worker_processes 1; pid nginx.pid; error_log log error;
             events {{ worker_connections 1024; }}
             http {{
               access_log off; client_max_body_size 64m; {places}
               upstream replicas {{ {upstream} }}
               server {{
                 listen 127.0.0.1:{port};
                 location / {{
                   proxy_pass http://replicas; proxy_http_version 1.1;
                   proxy_set_header Connection \"\"; proxy_set_header Host 127.0.0.1;
                   proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 10m;
                 }}
               }}
             }}"
        );
        let file = directory.path().join("nginx.conf");
        std::fs::File::create(&file)
            .unwrap()
            .write_all(config.as_bytes())
            .unwrap();
        // The shell ends it when the test process has gone, however that happened.
        let mut shell = Command::new("sh")
            .args([
                "-c",
                "nginx -p . -c nginx.conf & read _; kill $!; wait",
                "sh",
            ])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let runs = shell.try_wait().unwrap().is_none();
            assert!(runs && begun.elapsed() < PATIENCE, "nginx did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self {
            port,
            shell,
            _directory: directory,
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
