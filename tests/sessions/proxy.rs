//! The proxy as a process that is killed and started again on the same data. Asserts nothing.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use plimsoll_scripted::ClientRequest;

/// A client that opens a new connection for each request, because the process behind it changes.
pub static HTTP: LazyLock<reqwest::Client> = LazyLock::new(|| {
    let _already = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(0)
        .build()
        .unwrap()
});

/// Sends a request of a client's.
pub async fn post(url: &str, request: &ClientRequest) -> reqwest::Response {
    let mut post = HTTP
        .post(url)
        .bearer_auth("sk-one-key")
        .header("content-type", "application/json")
        .body(request.body.clone());
    for (name, value) in &request.headers {
        post = post.header(name, value);
    }
    post.send().await.unwrap()
}

/// When the hidden tools are offered and asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guide {
    /// As it is by default: offered from the first request, asked for with the first pass.
    Default,
    /// Both from the first request, as it was published.
    Published,
    /// Both with the first pass.
    Line,
}

impl Guide {
    fn env(self) -> Vec<(&'static str, String)> {
        let one = |name, value: &str| vec![(name, value.to_owned())];
        match self {
            Self::Default => Vec::new(),
            Self::Published => one("PLIMSOLL__DELIMITER__GUIDE_AT", "0"),
            Self::Line => one("PLIMSOLL__DELIMITER__OFFER", "line"),
        }
    }
}

/// The proxy's process.
pub struct Process {
    child: Child,
    command: Vec<String>,
    env: Vec<(&'static str, String)>,
    listen: u16,
    admin: u16,
    data: tempfile::TempDir,
}

/// Two free ports, held until both are known, or one might be given twice.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

impl Process {
    /// Starts a proxy before an upstream.
    pub async fn start(upstream: &str, ceiling: u32, guide: Guide) -> Self {
        let given = |variable: &str, setting| Some((setting, std::env::var(variable).ok()?));
        let floor = given("PLIMSOLL_FLOOR", "PLIMSOLL__BUDGET__FLOOR");
        let policies = given("PLIMSOLL_POLICIES", "PLIMSOLL__BUDGET__POLICIES");
        let env = guide.env().into_iter().chain(floor).chain(policies);
        Self::with(upstream, ceiling, env.collect()).await
    }

    /// Starts a proxy with these variables.
    pub async fn with(upstream: &str, ceiling: u32, env: Vec<(&'static str, String)>) -> Self {
        let data = tempfile::tempdir().unwrap();
        let [listen, admin] = free_ports();
        let command = vec![
            "serve".to_owned(),
            format!("--listen=127.0.0.1:{listen}"),
            format!("--admin=127.0.0.1:{admin}"),
            format!("--upstream={upstream}"),
            format!("--data={}", data.path().display()),
            format!("--budget={ceiling}"),
            "--log=warn".to_owned(),
        ];
        let child = spawn(&command, &env);
        let process = Self {
            child,
            command,
            env,
            listen,
            admin,
            data,
        };
        process.ready().await;
        process
    }

    /// Kills it where it stands and starts another on the same data.
    pub async fn kill_and_restart(&mut self) {
        self.kill();
        self.start_again().await;
    }

    /// Kills it where it stands.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub fn end(&mut self) {
        let id = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        assert!(asked.unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }

    /// Starts it again where it was.
    pub async fn start_again(&mut self) {
        self.child = spawn(&self.command, &self.env);
        self.ready().await;
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.listen)
    }

    /// The address of chat completions.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/chat/completions", self.listen)
    }

    /// The value of a metric, summed over its labels.
    pub async fn metric(&self, name: &str) -> f64 {
        let url = format!("http://127.0.0.1:{}/metrics", self.admin);
        let text = HTTP.get(url).send().await.unwrap().text().await.unwrap();
        text.lines()
            .filter(|line| {
                line.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(['{', ' ']))
            })
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    async fn ready(&self) {
        let url = format!("http://127.0.0.1:{}/readyz", self.admin);
        for _ in 0..600 {
            if HTTP
                .get(&url)
                .send()
                .await
                .is_ok_and(|answer| answer.status().is_success())
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "the proxy did not come up with data in {}",
            self.data.path().display()
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(command: &[String], env: &[(&str, String)]) -> Child {
    let mut process = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    process
        .args(command)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    process.spawn().unwrap()
}
