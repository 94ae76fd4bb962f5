//! The data directory's bad days, with the real binary: a flipped bit behind a kill, files that are
//! removed in use, a full disk, and who may read what lies there.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::process::{Process, plimsoll};
use super::support::{client, soon, upstream};

/// A provider that opens an episode of its task's name in the first turn of a session, and what it
/// was sent.
struct Provider {
    addr: SocketAddr,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    async fn start() -> Self {
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bodies);
        let answer = move |request: Request| {
            let kept = Arc::clone(&kept);
            async move {
                let bytes = axum::body::to_bytes(request.into_body(), 1 << 20).await;
                let bytes = bytes.unwrap();
                kept.lock()
                    .unwrap()
                    .push(String::from_utf8(bytes.to_vec()).unwrap());
                Response::builder()
                    .header("content-type", "application/json")
                    .body(Body::from(reply(&serde_json::from_slice(&bytes).unwrap())))
                    .unwrap()
            }
        };
        let addr = upstream(answer).await;
        Self { addr, bodies }
    }

    /// Whether the newest request of a session holds the episode that was opened in it.
    fn remembers(&self, session: usize) -> bool {
        let bodies = self.bodies.lock().unwrap();
        let task = format!("task {session}.");
        let newest = bodies.iter().rev().find(|body| body.contains(&task));
        newest.unwrap().contains(&format!("episode-{session}."))
    }
}

fn reply(body: &Value) -> String {
    let last = body["messages"].as_array().unwrap().last().unwrap();
    let text = last["content"].as_str().unwrap_or_default();
    let message = match text.strip_prefix("task ") {
        Some(name) => {
            let arguments = json!({
                "action": "start",
                "name": format!("episode-{name}"),
                "type": "expl",
            });
            json!({"role": "assistant", "content": null, "tool_calls": [{
                "id": format!("call_{name}"),
                "type": "function",
                "function": {"name": "delimiter", "arguments": arguments.to_string()},
            }]})
        }
        None => json!({"role": "assistant", "content": "done"}),
    };
    let finish = if message["content"].is_null() {
        "tool_calls"
    } else {
        "stop"
    };
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
    })
    .to_string()
}

/// One turn of a session: the first, or the one behind it.
async fn turn(process: &Process, session: usize, later: bool) {
    let mut messages = vec![json!({"role": "user", "content": format!("task {session}.")})];
    if later {
        messages.push(json!({"role": "assistant", "content": "done"}));
        messages.push(json!({"role": "user", "content": "go on"}));
    }
    let tool = json!({"type": "function", "function": {
        "name": "read", "parameters": {"type": "object", "properties": {}},
    }});
    let body = json!({"model": "gpt-5", "messages": messages, "tools": [tool]}).to_string();
    let request = client()
        .post(process.url("/v1/chat/completions"))
        .header("authorization", "Bearer key")
        .header("content-type", "application/json")
        .header("x-plimsoll-session", format!("session-{session}"))
        .body(body);
    let response = soon(request.send()).await.unwrap();
    assert_eq!(response.status(), 200);
    let text = soon(response.text()).await.unwrap();
    assert!(
        text.contains("done") && !text.contains("delimiter"),
        "{text}"
    );
}

async fn turns(process: &Process, sessions: std::ops::Range<usize>, later: bool) {
    join_all(sessions.map(|session| turn(process, session, later))).await;
}

async fn text(url: String) -> (u16, String) {
    let response = soon(client().get(url).send()).await.unwrap();
    let status = response.status().as_u16();
    (status, soon(response.text()).await.unwrap())
}

async fn ready(process: &Process) -> (u16, String) {
    text(process.admin("/readyz")).await
}

async fn metric(process: &Process, name: &str) -> f64 {
    let (_, text) = text(process.admin("/metrics")).await;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(&format!("plimsoll_{name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

async fn end(process: Process, signal: &str) -> String {
    process.signal(signal);
    process.end().await.1
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

const SESSIONS: usize = 30;

#[tokio::test]
async fn no_flipped_bit_takes_a_session_in_silence() {
    let provider = Provider::start().await;
    let image = tempfile::tempdir().unwrap();
    // Some before the last clean stop, some behind it, the last right before the kill.
    let process = Process::start(image.path(), provider.addr, &[], &[]);
    turns(&process, 0..10, false).await;
    end(process, "-TERM").await;
    let process = Process::start(image.path(), provider.addr, &[], &[]);
    turns(&process, 10..25, false).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    turns(&process, 25..SESSIONS, false).await;
    end(process, "-KILL").await;
    for (file, parts) in [("sled/db", 3), ("journal", 2), ("archive", 1)] {
        // An older layout has no such file.
        let Ok(sound) = fs::read(image.path().join("data").join(file)) else {
            continue;
        };
        let used = sound.iter().rposition(|byte| *byte != 0).unwrap();
        for part in 0..parts {
            let at = used * (2 * part + 1) / (2 * parts);
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            flipped(&provider, image.path(), file, &bytes, at).await;
        }
    }
}

/// A start with one file changed: every session is there, or the loss is told everywhere.
async fn flipped(provider: &Provider, image: &Path, file: &str, bytes: &[u8], at: usize) {
    let directory = tempfile::tempdir().unwrap();
    copy(image, directory.path());
    fs::write(directory.path().join("data").join(file), bytes).unwrap();
    let process = Process::start(directory.path(), provider.addr, &[], &[]);
    let before = process.before().to_owned();
    let (status, said) = ready(&process).await;
    let lost = metric(&process, "store_lost_total").await;
    turns(&process, 0..SESSIONS, true).await;
    let gone = (0..SESSIONS).filter(|n| !provider.remembers(*n)).count();
    let story = format!("{file} at {at}: {gone} gone, {lost} lost; {said}{before}");
    assert_eq!(status, 200, "{story}");
    assert!(gone <= 5, "one write at most: {story}");
    let told = [lost > 0.0, said.contains("lost"), before.contains("lost")];
    assert_eq!(told, [lost > 0.0; 3], "{story}");
    assert!(gone == 0 || lost > 0.0, "{story}");
}

/// Makes zeros of a part of a file, from one tenth of it to another.
fn blank(path: &Path, tenths: std::ops::Range<usize>) {
    let mut bytes = fs::read(path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[used * tenths.start / 10..used * tenths.end / 10].fill(0);
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn what_every_copy_has_lost_is_told_and_the_rest_is_there() {
    let provider = Provider::start().await;
    for signal in ["-TERM", "-KILL"] {
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(directory.path(), provider.addr, &[], &[]);
        // Several entries in the archive.
        for first in (0..SESSIONS).step_by(5) {
            turns(&process, first..first + 5, false).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        end(process, signal).await;
        let data = directory.path().join("data");
        fs::write(data.join("sled/db"), b"").unwrap();
        blank(&data.join("archive"), 4..6);
        blank(&data.join("journal"), 0..10);
        let process = Process::start(directory.path(), provider.addr, &[], &[]);
        let before = process.before().to_owned();
        let (status, said) = ready(&process).await;
        let lost = metric(&process, "store_lost_total").await;
        turns(&process, 0..SESSIONS, true).await;
        let gone = (0..SESSIONS).filter(|n| !provider.remembers(*n)).count();
        let story = format!("{signal}: {gone} gone, {lost} lost; {said}{before}");
        assert_eq!(status, 200, "{story}");
        // What stands before the damage is there, and what stands behind it.
        assert!(gone > 0 && gone < SESSIONS * 6 / 10, "{story}");
        assert!(provider.remembers(0), "{story}");
        assert!(provider.remembers(SESSIONS - 1), "{story}");
        assert!(lost > 0.0, "{story}");
        assert!(said.contains("records are lost"), "{story}");
        assert!(before.contains("records are lost"), "{story}");
    }
}

#[tokio::test]
async fn files_removed_in_use_are_told_and_later_turns_kept() {
    let provider = Provider::start().await;
    for (number, gone) in ["data", "data/sled"].into_iter().enumerate() {
        let (first, second) = (100 + 2 * number, 101 + 2 * number);
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(directory.path(), provider.addr, &[], &[]);
        turn(&process, first, false).await;
        let path = directory.path().join(gone);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        soon(async {
            while !ready(&process).await.1.contains("begun again")
                && !ready(&process).await.1.contains("rebuilt from")
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        let (status, said) = ready(&process).await;
        assert_eq!(status, 200, "{said}");
        assert!(said.contains("removed or replaced"), "{said}");
        assert_eq!(metric(&process, "store_wiped_total").await, 1.0);
        let lost = metric(&process, "store_lost_total").await;
        assert_eq!(lost > 0.0, gone == "data", "{gone}: {said}");
        turn(&process, second, false).await;
        let log = end(process, "-KILL").await;
        assert!(log.contains("removed or replaced"), "{log}");
        let process = Process::start(directory.path(), provider.addr, &[], &[]);
        turn(&process, first, true).await;
        turn(&process, second, true).await;
        assert!(provider.remembers(second), "{gone}");
        assert_eq!(provider.remembers(first), gone != "data", "{gone}");
    }
}

#[tokio::test]
async fn a_full_disk_stops_no_start() {
    let provider = Provider::start().await;
    let directory = tempfile::tempdir().unwrap();
    // No file may grow, as on a disk that is full; the signal is ignored, so writes fail.
    let own = plimsoll(directory.path());
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; ulimit -S -f 0; exec \"$0\" \"$@\""])
        .arg(own.get_program())
        .current_dir(directory.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let process = Process::of(command, provider.addr, &[], &[]);
    let (status, said) = ready(&process).await;
    assert_eq!(status, 200);
    assert!(said.contains("memory only"), "{said}");
    assert!(process.before().contains("memory only"));
    assert_eq!(metric(&process, "store_durable").await, 0.0);
    turn(&process, 200, false).await;
    turn(&process, 200, true).await;
    assert!(provider.remembers(200));
    process.signal("-TERM");
    let (code, log) = process.end().await;
    assert_eq!(code, Some(0), "{log}");
}

/// All that lies below a directory, with itself.
fn all(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(Result::unwrap);
        found.extend(entries.flat_map(|entry| all(&entry.path())));
    }
    found
}

fn assert_private(data: &Path) {
    for path in all(data) {
        let Ok(meta) = fs::metadata(&path) else {
            continue;
        };
        let wanted = if meta.is_dir() { 0o700 } else { 0o600 };
        let mode = meta.permissions().mode() & 0o7777;
        assert_eq!(mode, wanted, "{} has {mode:o}", path.display());
    }
}

#[tokio::test]
async fn the_data_directory_is_the_owners_alone() {
    let provider = Provider::start().await;
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let process = Process::start(directory.path(), provider.addr, &[], &[]);
    assert!(!process.before().contains("now closed to them"));
    assert_private(&data);
    turn(&process, 300, false).await;
    assert_private(&data);
    end(process, "-TERM").await;
    assert_private(&data);
    fs::create_dir(data.join("quarantine-1")).unwrap();
    fs::write(data.join("quarantine-1/db"), "text").unwrap();
    for path in all(&data) {
        let wide = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(wide)).unwrap();
    }
    let process = Process::start(directory.path(), provider.addr, &[], &[]);
    assert!(process.before().contains("now closed to them"));
    assert_private(&data);
    end(process, "-KILL").await;
    let process = Process::start(directory.path(), provider.addr, &[], &[]);
    assert!(
        !process.before().contains("now closed to them"),
        "said once"
    );
    turn(&process, 300, true).await;
    assert!(provider.remembers(300));
}
