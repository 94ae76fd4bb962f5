//! A server whose stderr is closed, broken, full or never read: requests are answered, signals are
//! heard, and what could not be said is counted.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::process::plimsoll;
use super::support::{client, soon, upstream};

/// Enough lines to fill any pipe's buffer several times.
const REQUESTS: usize = 300;

/// Where the lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stderr {
    Closed,
    Broken,
    Full,
    Unread,
}

/// A serving process that can't be asked over its log.
struct Silent {
    child: Killed,
    listen: SocketAddr,
    admin: SocketAddr,
    // Held, so that the pipe is neither read nor broken.
    _unread: Option<std::io::PipeReader>,
}

/// An address that was free a moment ago.
fn free() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A pipe that takes nothing more.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    use std::io::Write as _;
    let (reader, mut writer) = std::io::pipe().unwrap();
    // What the system gives a pipe; a test as root or with a larger one only blocks later.
    writer.write_all(&[b'\n'; 64 << 10]).unwrap();
    (reader, writer)
}

/// The command with its stderr in this state.
fn deaf(directory: &Path, stderr: Stderr) -> (Command, Option<std::io::PipeReader>) {
    let mut command = plimsoll(directory);
    command.stdout(Stdio::null());
    let mut unread = None;
    match stderr {
        Stderr::Closed => {
            let program = command.get_program().to_owned();
            let cleared: Vec<_> = command
                .get_envs()
                .filter(|(_, value)| value.is_none())
                .map(|(name, _)| name.to_owned())
                .collect();
            command = Command::new("sh");
            for name in cleared {
                command.env_remove(name);
            }
            command.arg("-c").arg("exec 2>&-; exec \"$0\" \"$@\"");
            command.arg(program).current_dir(directory);
        }
        Stderr::Broken => {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            command.stderr(writer);
        }
        Stderr::Full => {
            let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
            command.stderr(full.unwrap());
        }
        Stderr::Unread => {
            let (reader, writer) = full_pipe();
            command.stderr(writer);
            unread = Some(reader);
        }
    }
    (command, unread)
}

impl Silent {
    async fn start(directory: &Path, upstream: SocketAddr, stderr: Stderr) -> Self {
        let (listen, admin) = (free(), free());
        let (mut command, unread) = deaf(directory, stderr);
        let child = command
            .args(["serve", "--log", "debug"])
            .args(["--listen", &listen.to_string()])
            .args(["--admin", &admin.to_string()])
            .args(["--upstream", &format!("http://{upstream}/v1")])
            .spawn()
            .unwrap();
        let silent = Self {
            child: Killed(child),
            listen,
            admin,
            _unread: unread,
        };
        let ready = format!("http://{admin}/readyz");
        soon(async {
            while !client()
                .get(&ready)
                .send()
                .await
                .is_ok_and(|answer| answer.status() == 200)
            {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        silent
    }

    async fn lost(&self) -> f64 {
        let metrics = client().get(format!("http://{}/metrics", self.admin));
        let text = soon(metrics.send()).await.unwrap().text().await.unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("plimsoll_log_lines_lost_total "));
        line.expect("the metric is there").parse().unwrap()
    }

    async fn end(mut self, signal: &str) -> Option<i32> {
        let pid = self.child.0.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
        self.child.ended().await
    }
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Killed {
    async fn ended(&mut self) -> Option<i32> {
        soon(async {
            loop {
                if let Some(status) = self.0.try_wait().unwrap() {
                    return status.code();
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Answers every request as it was asked: a stream, a whole body, or a list of models.
async fn answers() -> SocketAddr {
    upstream(|request: Request| async move {
        if request.method() == "GET" {
            return Response::new("models".into());
        }
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await;
        let body: serde_json::Value = serde_json::from_slice(&body.unwrap()).unwrap();
        let said = json!({"role": "assistant", "content": "said"});
        let head = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m"});
        if body["stream"] == true {
            let mut chunk = head;
            chunk["choices"] = json!([{"index": 0, "delta": said, "finish_reason": "stop"}]);
            let text = format!("data: {chunk}\n\ndata: [DONE]\n\n");
            ([("content-type", "text/event-stream")], text).into_response()
        } else {
            let mut whole = head;
            whole["choices"] = json!([{"index": 0, "message": said, "finish_reason": "stop"}]);
            ([("content-type", "application/json")], whole.to_string()).into_response()
        }
    })
    .await
}

/// One request of each kind, by turns.
async fn ask(client: &reqwest::Client, listen: SocketAddr, number: usize) {
    let tools = json!([{"type": "function", "function": {"name": "bash", "parameters": {}}}]);
    let asked = json!({"role": "user", "content": format!("question {number}")});
    let url = |path: &str| format!("http://{listen}/v1/{path}");
    let (request, wanted) = match number % 3 {
        0 => (client.get(url("models")), "models"),
        kind => {
            let body =
                json!({"model": "m", "stream": kind == 1, "tools": tools, "messages": [asked]});
            (
                client.post(url("chat/completions")).body(body.to_string()),
                "said",
            )
        }
    };
    let answer = soon(request.send()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = soon(answer.text()).await.unwrap();
    assert!(text.contains(wanted), "request {number}: {text}");
}

async fn holds(stderr: Stderr) {
    let directory = tempfile::tempdir().unwrap();
    let server = Silent::start(directory.path(), answers().await, stderr).await;
    let client = client();
    for number in 0..REQUESTS {
        ask(&client, server.listen, number).await;
    }
    let lost = server.lost().await;
    match stderr {
        // What was closed at the start leads nowhere by itself, which is no loss.
        Stderr::Closed => assert_eq!(lost, 0.0),
        Stderr::Broken | Stderr::Full => assert!(lost > 100.0, "{lost}"),
        // Those that wait are no loss yet.
        Stderr::Unread => assert!(lost >= 0.0, "{lost}"),
    }
    assert_eq!(server.end("-TERM").await, Some(0), "{stderr:?}");
}

#[tokio::test]
async fn a_closed_stderr_stops_nothing() {
    holds(Stderr::Closed).await;
}

#[tokio::test]
async fn a_broken_stderr_stops_nothing() {
    holds(Stderr::Broken).await;
}

#[tokio::test]
async fn a_full_stderr_stops_nothing() {
    holds(Stderr::Full).await;
}

#[tokio::test]
async fn an_unread_stderr_stops_nothing() {
    holds(Stderr::Unread).await;
}

/// What is said last, about why nothing was started, has no reader either.
#[tokio::test]
async fn a_refusal_that_nobody_reads_ends_all_the_same() {
    for (arguments, code) in [
        (["serve", "--config", "no.toml"], 1),
        (["check", "--", "no.toml"], 1),
        (["run", "--", "no-such-agent"], 127),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (mut command, _unread) = deaf(directory.path(), Stderr::Unread);
        command.args(arguments);
        let mut child = Killed(
            command
                .env("XDG_STATE_HOME", directory.path())
                .spawn()
                .unwrap(),
        );
        assert_eq!(child.ended().await, Some(code), "{arguments:?}");
    }
}
