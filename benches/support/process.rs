//! The real `plimsoll serve` as a child process with its store on disk, and what the system and
//! its own metrics say of it. Never sends it a completion.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A serving process. Dropping it kills it.
pub struct Process {
    child: Child,
    command: Command,
    listen: u16,
    admin: u16,
    _data: tempfile::TempDir,
}

/// Two free ports, held until both are known, or one might be given twice.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

impl Process {
    /// Starts one before an upstream, with the defaults of every setting but these variables
    /// (`BUDGET__TOKENS`, say), and waits until it serves.
    pub async fn start(
        client: &reqwest::Client,
        upstream: &str,
        settings: &[(&str, &str)],
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        let [listen, admin] = free_ports();
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PLIMSOLL") {
                command.env_remove(name);
            }
        }
        // In its own directory there is no configuration that it might find.
        command
            .current_dir(data.path())
            .arg("serve")
            .arg(format!("--listen=127.0.0.1:{listen}"))
            .arg(format!("--admin=127.0.0.1:{admin}"))
            .arg(format!("--upstream={upstream}"))
            .arg(format!("--data={}", data.path().join("data").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        for (name, value) in settings {
            command.env(format!("PLIMSOLL__{name}"), value);
        }
        let mut process = Self {
            child: command.spawn().unwrap(),
            command,
            listen,
            admin,
            _data: data,
        };
        process.ready(client).await;
        process
    }

    /// Kills it and starts it anew on what it stored.
    pub async fn restart(&mut self, client: &reqwest::Client) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = self.command.spawn().unwrap();
        self.ready(client).await;
    }

    /// Where agents connect.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.listen).into()
    }

    /// Resident memory in KiB, now and at its highest.
    pub fn resident(&self) -> (u64, u64) {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
                .unwrap_or_default()
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    /// Seconds of processor that it has taken: to the nanosecond, or to some hundredths if threads have ended.
    #[allow(dead_code, reason = "not every bench asks")]
    pub fn processor(&self) -> f64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let taken = |thread: std::io::Result<std::fs::DirEntry>| {
            // A thread may end meanwhile.
            let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        };
        let of_threads = threads.filter_map(taken).sum::<f64>() / 1e9;
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks = ticks.filter_map(|field| field.parse::<f64>().ok());
        of_threads.max(ticks.sum::<f64>() / 100.0)
    }

    /// Whether it says that it lives.
    #[allow(dead_code, reason = "not every bench asks")]
    pub async fn lives(&self, client: &reqwest::Client) -> bool {
        let url = format!("http://127.0.0.1:{}/livez", self.admin);
        let answer = client.get(url).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// Open descriptors and threads.
    pub fn handles(&self) -> (usize, usize) {
        let count = |what: &str| {
            let entries = std::fs::read_dir(format!("/proc/{}/{what}", self.child.id()));
            entries.map_or(0, Iterator::count)
        };
        (count("fd"), count("task"))
    }

    /// The value of a metric, summed over its labels.
    pub async fn metric(&self, client: &reqwest::Client, name: &str) -> f64 {
        let url = format!("http://127.0.0.1:{}/metrics", self.admin);
        let text = client.get(url).send().await.unwrap().text().await.unwrap();
        text.lines()
            .filter(|line| {
                line.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(['{', ' ']))
            })
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .fold(0.0, |sum, value| sum + value)
    }

    /// What the admin port says that the store holds.
    #[allow(dead_code, reason = "not every bench asks")]
    pub async fn store(&self, client: &reqwest::Client) -> String {
        let url = format!("http://127.0.0.1:{}/api/store", self.admin);
        client.get(url).send().await.unwrap().text().await.unwrap()
    }

    /// Waits until it serves; it must not have ended before.
    async fn ready(&mut self, client: &reqwest::Client) {
        let url = format!("http://127.0.0.1:{}/readyz", self.admin);
        loop {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the proxy ended before it served");
            let answer = client.get(&url).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; there is nobody left to tell.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
