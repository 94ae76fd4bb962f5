//! The real binary: starting, refusing to start, draining, ending, and what its log gives away.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use tokio::sync::mpsc;

use crate::support::{EMPTY, channel_body, client, soon, upstream};

/// The binary in `directory`, with no variable of ours set. Nothing says where the user's state is, so a store is in
/// `./data`.
pub fn plimsoll(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PLIMSOLL") {
            command.env_remove(name);
        }
    }
    command
        .env_remove("HOME")
        .env_remove("XDG_STATE_HOME")
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A serving process. Dropping it kills it, and waits until it has let go of its data directory.
pub struct Process {
    child: Child,
    pub listen: SocketAddr,
    admin: SocketAddr,
    log: BufReader<std::process::ChildStderr>,
    /// What it said before it served.
    pub before: String,
}

impl Process {
    /// Starts on free ports and waits for the line that says where it serves.
    pub fn start(
        directory: &Path,
        upstream: SocketAddr,
        arguments: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        Self::of(plimsoll(directory), upstream, arguments, env)
    }

    /// The same, from a command that is to become the binary.
    pub fn of(
        mut command: Command,
        upstream: SocketAddr,
        arguments: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let base = format!("http://{upstream}/v1");
        let mut child = command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--upstream",
                &base,
            ])
            .args(arguments)
            // What upstreams are asked beside turns is told by tests of its own.
            .env("PLIMSOLL__UPSTREAM__ASK_MODELS", "false")
            .envs(env.iter().copied())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut before) = (String::new(), String::new());
        while !(line.contains("serving") && line.contains("listen")) {
            before += &line;
            line.clear();
            assert!(
                log.read_line(&mut line).unwrap() > 0,
                "ended before it served: {before}"
            );
        }
        let address = |name: &str| {
            let (_, rest) = line.split_once(name).unwrap();
            let rest = rest.trim_start_matches(['=', '"', ':']);
            rest.split([' ', '"', '\n'])
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        let (listen, admin) = (address("listen"), address("admin"));
        Self {
            child,
            listen,
            admin,
            log,
            before,
        }
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it logged before it served.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// An address of the admin port.
    pub fn admin(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listen)
    }

    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    /// Bytes of memory that it has in use.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib: u64 = line
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        kib << 10
    }

    /// A line of what the kernel says of it.
    #[cfg(target_os = "linux")]
    fn status(&self, name: &str) -> Option<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_start_matches(':').trim().to_owned())
    }

    /// A request whose answer has begun.
    async fn ask(&self) -> reqwest::Response {
        let request = client().post(self.url("/v1/chat/completions"));
        soon(request.body(EMPTY).send()).await.unwrap()
    }

    /// Waits until it says that it is draining.
    async fn draining(&self) {
        let ready = format!("http://{}/readyz", self.admin);
        soon(async { while client().get(&ready).send().await.unwrap().status() != 503 {} }).await;
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// The exit code, and the rest of the log.
    pub async fn end(mut self) -> (Option<i32>, String) {
        let waiting = tokio::task::spawn_blocking(move || {
            let mut rest = String::new();
            self.log.read_to_string(&mut rest).unwrap();
            (self.child.wait().unwrap().code(), rest)
        });
        soon(waiting).await.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _code = self.child.wait();
    }
}

/// An upstream whose one answer is a body that the test feeds.
async fn held() -> (mpsc::Sender<&'static str>, SocketAddr) {
    let (sender, body) = channel_body();
    let body = Arc::new(Mutex::new(Some(body)));
    let addr = upstream(move |_| {
        let body = body.lock().unwrap().take();
        async { Response::new(body.unwrap_or_else(|| Body::from("ok"))) }
    })
    .await;
    (sender, addr)
}

/// Huge pages take twice the memory, and the allocator asks for them.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_has_no_huge_pages() {
    let directory = tempfile::tempdir().unwrap();
    let (_, addr) = held().await;
    let process = Process::start(directory.path(), addr, &[], &[]);
    // Kernels without huge pages have no such line.
    if let Some(enabled) = process.status("THP_enabled") {
        assert_eq!(enabled, "0");
    }
}

#[tokio::test]
async fn only_what_leaves_this_machine_goes_by_a_proxy_of_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let said =
        |request: Request| async move { Response::new(Body::from(request.uri().to_string())) };
    let here = upstream(said).await;
    // An address that is kept for documents, and on which nothing ever answers.
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 80));
    let proxy = format!("http://{here}");
    let env = [("HTTP_PROXY", proxy.as_str()), ("NO_PROXY", "")];
    for (upstream, asked) in [
        (elsewhere, "http://192.0.2.1/v1/files"),
        (here, "/v1/files"),
    ] {
        let process = Process::start(directory.path(), upstream, &[], &env);
        let response = soon(client().get(process.url("/v1/files")).send()).await;
        assert_eq!(soon(response.unwrap().text()).await.unwrap(), asked);
    }
}

#[tokio::test]
async fn sigterm_drains_and_exits_with_0() {
    let directory = tempfile::tempdir().unwrap();
    let (sender, addr) = held().await;
    let process = Process::start(directory.path(), addr, &[], &[]);
    let mut open = process.ask().await;
    sender.send("one ").await.unwrap();
    assert_eq!(soon(open.chunk()).await.unwrap().unwrap(), "one ");

    process.signal("-TERM");
    process.draining().await;
    soon(async { while tokio::net::TcpStream::connect(process.listen).await.is_ok() {} }).await;

    sender.send("two").await.unwrap();
    drop(sender);
    assert_eq!(
        soon(open.text()).await.unwrap(),
        "two",
        "an open request is finished"
    );
    let (code, log) = process.end().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("all requests finished"), "{log}");
    assert!(directory.path().join("data/tenant.key").exists());
}

#[tokio::test]
async fn an_idle_connection_holds_up_no_exit() {
    let directory = tempfile::tempdir().unwrap();
    let (sender, addr) = held().await;
    drop(sender);
    let process = Process::start(directory.path(), addr, &[], &[]);
    let pooled = client();
    soon(pooled.get(process.url("/v1/models")).send())
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    process.signal("-INT");
    let (code, log) = process.end().await;
    assert_eq!(code, Some(0));
    assert!(log.contains("all requests finished"), "{log}");
}

#[tokio::test]
async fn at_the_deadline_open_requests_are_cut() {
    let directory = tempfile::tempdir().unwrap();
    let (sender, addr) = held().await;
    let process = Process::start(
        directory.path(),
        addr,
        &[],
        &[("PLIMSOLL__SERVER__DRAIN", "100ms")],
    );
    let mut open = process.ask().await;
    sender.send("one").await.unwrap();
    assert_eq!(soon(open.chunk()).await.unwrap().unwrap(), "one");
    process.signal("-TERM");
    assert!(
        soon(open.chunk()).await.is_err(),
        "a cut must not look like an end"
    );
    let (code, log) = process.end().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("were cut"), "{log}");
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (sender, addr) = held().await;
    let process = Process::start(directory.path(), addr, &[], &[]);
    let open = process.ask().await;
    process.signal("-TERM");
    process.draining().await;
    process.signal("-TERM");
    assert_eq!(process.end().await.0, Some(130));
    assert!(soon(open.bytes()).await.is_err());
    drop(sender);
}

/// A terminal that closes, or a supervisor that asks for a reload.
#[tokio::test]
async fn a_hang_up_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (sender, addr) = held().await;
    let process = Process::start(directory.path(), addr, &[], &[]);
    let mut open = process.ask().await;
    sender.send("one ").await.unwrap();
    assert_eq!(soon(open.chunk()).await.unwrap().unwrap(), "one ");
    process.signal("-HUP");
    process.signal("-HUP");
    sender.send("two").await.unwrap();
    drop(sender);
    assert_eq!(soon(open.text()).await.unwrap(), "two");
    let again = soon(client().get(process.url("/v1/models")).send()).await;
    assert_eq!(again.unwrap().status(), 200);
    process.signal("-TERM");
    let (code, log) = process.end().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("a hang-up changes nothing"), "{log}");
    assert!(log.contains("all requests finished"), "{log}");
}

#[tokio::test]
async fn no_log_level_gives_away_keys_or_content() {
    for format in ["text", "json"] {
        let directory = tempfile::tempdir().unwrap();
        let (sender, addr) = held().await;
        drop(sender);
        let env = [
            ("PLIMSOLL__LOG__FORMAT", format),
            (
                "PLIMSOLL__TENANT__KEY",
                "tenant-secret-0123456789abcdefghij",
            ),
        ];
        let process = Process::start(directory.path(), addr, &["--log", "trace"], &env);
        for path in ["/v1/chat/completions", "/v1/embeddings"] {
            let request = client()
                .post(process.url(path))
                .header("authorization", "Bearer sk-secret")
                .header("x-api-key", "xk-secret")
                .body(r#"{"messages":[{"role":"user","content":"said-secret"}]}"#);
            soon(request.send()).await.unwrap().bytes().await.unwrap();
        }
        process.signal("-TERM");
        let (code, log) = process.end().await;
        assert_eq!(code, Some(0));
        assert!(log.len() > 1_000, "trace says something: {log}");
        let leak = log.lines().find(|line| line.contains("secret"));
        assert_eq!(leak, None, "{format}");
        if format == "json" {
            for line in log.lines() {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
        }
    }
}

/// Runs to the end.
pub fn run(
    directory: &Path,
    arguments: &[&str],
    env: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = plimsoll(directory)
        .args(arguments)
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn check_says_what_is_wrong_and_where() {
    let directory = tempfile::tempdir().unwrap();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/config/plimsoll.toml");
    let (code, out, _) = run(directory.path(), &["check", shipped], &[]);
    assert_eq!((code, out), (Some(0), format!("{shipped}: ok\n")));

    std::fs::write(
        directory.path().join("p.toml"),
        "[budget]\ntokns = 1\nfloor = 2.0\n",
    )
    .unwrap();
    let (code, out, _) = run(directory.path(), &["check", "p.toml"], &[]);
    assert_eq!(code, Some(1));
    assert_eq!(
        out,
        "p.toml:2: unknown key `budget.tokns`; did you mean `budget.tokens`?\n\
         p.toml:3: `budget.floor`: must be auto, budget, or a fraction greater than 0 and at most 1, such as 0.7\n"
    );
    let (code, _, err) = run(directory.path(), &["check", "nowhere.toml"], &[]);
    assert_eq!(code, Some(1));
    assert!(err.contains("can't read nowhere.toml"), "{err}");
}

#[test]
fn serve_refuses_what_it_cannot_do() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("config")).unwrap();
    std::fs::write(
        directory.path().join("config/plimsoll.toml"),
        "[sever]\nlisten = 1\n",
    )
    .unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    type Row<'a> = (&'a Path, &'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let table: [Row<'_>; 7] = [
        (
            directory.path(),
            &["serve"],
            &[],
            "config/plimsoll.toml:2: unknown section `sever`; did you mean `server`?",
        ),
        (
            elsewhere.path(),
            &["serve", "--config", "no.toml"],
            &[],
            "can't read no.toml",
        ),
        (
            elsewhere.path(),
            &["serve", "--budget", "12"],
            &[],
            "--budget: `budget.tokens`: must be a whole number of tokens, at least 4000",
        ),
        (
            elsewhere.path(),
            &["serve", "--listen", "here"],
            &[],
            "--listen: `server.listen`",
        ),
        (
            elsewhere.path(),
            &["serve"],
            &[("PLIMSOLL__SERVER__LISTE", "x")],
            "PLIMSOLL__SERVER__LISTE in the environment: unknown key",
        ),
        (
            elsewhere.path(),
            &["serve", "--listen", &address, "--admin", "127.0.0.1:0"],
            &[],
            "free it or choose another by --listen",
        ),
        (
            elsewhere.path(),
            &["serve", "--data", "/proc/nowhere"],
            &[],
            "make --data writable",
        ),
    ];
    for (place, arguments, env, hint) in table {
        let (code, _, err) = run(place, arguments, env);
        assert_eq!(code, Some(1), "{arguments:?}: {err}");
        assert!(err.contains(hint), "{arguments:?}: {err}");
    }
    assert_eq!(
        run(elsewhere.path(), &["serve", "--liste", "x"], &[]).0,
        Some(2)
    );
}
