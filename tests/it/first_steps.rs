//! What somebody meets who has read nothing: where a store is and who holds it, what a command says that finds no
//! server or no agent, help, a misspelt header, and what a line of the log tells.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::process::{Process, plimsoll, run};
use super::support::{Lenient, answered, client, nobody, soon};

/// A serving process whose user keeps state there.
fn serve(directory: &Path, state: &Path, upstream: &Lenient, env: &[(&str, &str)]) -> Process {
    let mut command = plimsoll(directory);
    command.env("XDG_STATE_HOME", state);
    Process::of(command, upstream.addr, &[], env)
}

async fn upstream() -> Lenient {
    let said = json!({"model": "gpt-4o", "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "hi"}}]});
    Lenient::start(move |_, _| {
        let mut answer = answered(200, &said);
        let id = "req_upstream_1".parse().unwrap();
        answer.headers_mut().insert("x-request-id", id);
        answer
    })
    .await
}

async fn end(process: Process) -> String {
    process.signal("-TERM");
    let (code, log) = process.end().await;
    assert_eq!(code, Some(0), "{log}");
    log
}

#[tokio::test]
async fn a_store_lies_where_the_users_state_does_and_who_holds_it_is_told() {
    let (here, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (at, upstream) = (here.path(), upstream().await);
    let env = [("XDG_STATE_HOME", state.path().to_str().unwrap())];
    let (code, _, said) = run(at, &["export", "--list"], &env);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("plimsoll/serve holds no recorded"), "{said}");

    let process = serve(at, state.path(), &upstream, &[]);
    let store = state.path().join("plimsoll/serve");
    assert!(store.join("sled").is_dir() && !at.join("data").exists());
    assert_eq!(fs::read_to_string(store.join(".gitignore")).unwrap(), "*\n");
    let id = process.id();
    let (code, _, said) = run(at, &["serve", "--listen", "127.0.0.1:0"], &env);
    assert_eq!(code, Some(1));
    for told in [
        format!("process {id} holds the store in {}", store.display()),
        format!("kill {id}"),
        "plimsoll serve --data DIRECTORY --listen ".to_owned(),
    ] {
        assert!(said.contains(&told), "{told}: {said}");
    }
    let (code, _, said) = run(at, &["export", "--list"], &env);
    assert_eq!(code, Some(1));
    assert!(
        said.contains(&format!(
            "in use by process {id}: see `plimsoll sessions`, or stop it first"
        )),
        "{said}"
    );
    end(process).await;
    let (code, out, _) = run(at, &["store", "stats"], &env);
    assert_eq!(code, Some(0));
    assert!(out.contains(store.to_str().unwrap()), "{out}");

    // A store of before in the working directory stays the server's, and the other one is named beside it.
    let named = Process::start(at, upstream.addr, &["--data", "./data"], &[]);
    end(named).await;
    let process = serve(at, state.path(), &upstream, &[]);
    assert!(process.before().contains("the store in ./data is used"));
    end(process).await;
    let (code, _, said) = run(at, &["export", "--list"], &env);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(store.to_str().unwrap()), "{said}");
}

#[test]
fn a_command_without_a_server_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let (_kept, address) = nobody();
    let admin = format!("--admin={address}");
    for arguments in [
        &["health", &admin][..],
        &["sessions", &admin],
        &["store", "stats", &admin],
    ] {
        let (code, _, said) = run(directory.path(), arguments, &[]);
        assert_eq!(code, Some(1), "{said}");
        let told = said.contains("does not answer: start `plimsoll serve`, or give");
        assert!(told && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn an_agent_that_can_not_be_started_ends_as_in_a_shell() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o600)).unwrap();
    for (agent, code, why) in [
        ("no-such-agent", 127, "there is no such program"),
        (plain.to_str().unwrap(), 126, "ermission denied"),
    ] {
        let (ended, _, said) = run(directory.path(), &["run", "--", agent], &[]);
        assert_eq!(ended, Some(code), "{said}");
        let told = format!("can't run {agent}: ");
        assert!(said.contains(&told) && said.contains(why), "{said}");
    }
}

#[test]
fn help_begins_with_what_a_newcomer_needs() {
    let directory = tempfile::tempdir().unwrap();
    let (code, help, _) = run(directory.path(), &["--help"], &[]);
    assert_eq!(code, Some(0));
    let headings = [
        "See whether it pays:",
        "Serve agents:",
        "Options:",
        "Examples:",
    ];
    let places = headings.map(|heading| help.find(heading));
    assert!(places.is_sorted() && !places.contains(&None), "{help}");
    let (_, examples) = help.split_once("Examples:").unwrap();
    let lines = examples.lines().filter(|line| line.contains("plimsoll "));
    assert_eq!(lines.count(), 3, "{help}");
    assert!(
        run(directory.path(), &["run", "--help"], &[])
            .1
            .contains("plimsoll run -- claude")
    );
}

#[test]
fn what_nobody_reads_any_more_ends_in_silence() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = plimsoll(directory.path());
    let mut child = command.args(["demo", "--turns", "40"]).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(!line.is_empty());
    drop(out);
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), said.as_str()),
        (Some(141), "")
    );
}

#[tokio::test]
async fn a_misspelt_header_is_told_and_a_turn_is_found_in_other_logs() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let env = [("PLIMSOLL__LOG__FORMAT", "json")];
    let process = Process::start(directory.path(), upstream.addr, &[], &env);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"a"}]}"#;
    for name in [
        "x-plimsoll-sesion",
        "x-plimsoll-sesion",
        "x-plimsoll-session",
    ] {
        let request = client()
            .post(process.url("/v1/chat/completions?key=k"))
            .header(name, "s")
            .header("x-request-id", "req-client-1")
            .header("traceparent", trace)
            .body(body);
        let answer = soon(request.send()).await.unwrap();
        let told = answer.headers().get("x-plimsoll-unknown-header");
        let told = told.map(|name| name.to_str().unwrap());
        assert_eq!(told, (name != "x-plimsoll-session").then_some(name));
        soon(answer.bytes()).await.unwrap();
    }
    let log = end(process).await;
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let meant = "the header x-plimsoll-sesion is not read; did you mean x-plimsoll-session?";
    let told = lines.iter().filter(|line| line["message"] == meant);
    assert_eq!(told.count(), 1, "{log}");
    let turns: Vec<_> = lines
        .iter()
        .filter(|line| line["message"] == "turn")
        .collect();
    assert_eq!(turns.len(), 3, "{log}");
    for turn in turns {
        assert_eq!(turn["url.path"], "/v1/chat/completions");
        assert_eq!(turn["request_id"], "req-client-1");
        assert_eq!(turn["upstream_request_id"], "req_upstream_1");
        assert_eq!(turn["traceparent"], trace);
    }
}
