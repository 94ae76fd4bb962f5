//! What was served comes out again: sessions whose content was stored replay as they were said,
//! others give their account, and a directory in use is left alone.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use plimsoll_console::inspect::{Archive, Branch, export};
use plimsoll_core::turn::StoreContent;
use plimsoll_lab::{Trace, trace};
use plimsoll_store::Store;
use serde_json::{Value, json};

use super::agent::{Agent, annotated, bash, plan, provider, tools};
use super::process::{Process, plimsoll};
use super::support::Proxy;
use plimsoll_scripted::Reply;

async fn proxy(upstream: std::net::SocketAddr, content: StoreContent) -> Proxy {
    Proxy::with(upstream, |config| config.store.content = content).await
}

fn branches(store: &Store) -> Vec<Branch> {
    Archive::read(store).unwrap().branches()
}

/// The lines of an export, taken apart: its description, its messages, the accounts of its turns.
fn parts(text: &str) -> (Value, Vec<Value>, Vec<Value>) {
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let meta = lines.next().unwrap()["_meta"].clone();
    let (turns, messages): (Vec<Value>, Vec<Value>) =
        lines.partition(|line| line.get("_turn").is_some());
    let turns = turns.into_iter().map(|line| line["_turn"].clone());
    (meta, messages, turns.collect())
}

/// The only branch of a proxy, written out.
fn only(proxy: &Proxy) -> (Value, Vec<Value>, Vec<Value>) {
    let branches = branches(&proxy.app.store);
    assert_eq!(branches.len(), 1, "{branches:?}");
    parts(&export(&proxy.app.store, &branches[0]).unwrap().text)
}

#[tokio::test]
async fn what_was_said_comes_out_with_the_account_of_each_turn() {
    for stream in [false, true] {
        let provider = provider(annotated(3)).await;
        let proxy = proxy(provider.address, StoreContent::All).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        let mut session = String::new();
        for number in 1..=3 {
            let answer = agent.work(&format!("result {number}\n\"quoted\" é")).await;
            session = answer.header("x-plimsoll-session").to_owned();
        }
        agent.turn().await;
        let (meta, messages, turns) = only(&proxy);
        let said = agent.history.len();
        // The client's own messages as it sent them, and the last answer as it heard it.
        assert_eq!(messages[..said - 1], agent.history[..said - 1]);
        assert_eq!(messages[said - 1]["content"], "done");
        assert_eq!(messages.len(), said);
        assert_eq!(meta["session"], session);
        assert_eq!(meta["content"], true);
        assert_eq!(meta["model"], "gpt-4o");
        assert_eq!(meta["tools"], tools());
        assert_eq!(turns.len(), 4);
        assert_eq!(turns[0]["hops"][0]["hidden"][0]["effect"]["started"], "a");
        assert_eq!(turns[1]["hops"][0]["hidden"][0]["effect"]["ended"], "a");
        assert_eq!(turns[0]["calls"], json!([{"id": "b1", "name": "bash"}]));
        assert!(turns[0]["hops"][0]["usage"]["prompt"].as_u64() > Some(0));
    }
}

#[tokio::test]
async fn without_content_the_account_alone_is_shown_and_says_so() {
    // Nobody can ask for it in this dialect.
    for content in [StoreContent::Off, StoreContent::Asked] {
        account_alone(content).await;
    }
}

async fn account_alone(content: StoreContent) {
    let provider = provider(annotated(2)).await;
    let proxy = proxy(provider.address, content).await;
    let mut agent = Agent::new(&proxy, true).told("go");
    agent.work("secret words").await;
    agent.turn().await;
    let branch = branches(&proxy.app.store).remove(0);
    assert!(!branch.content);
    let exported = export(&proxy.app.store, &branch).unwrap();
    assert!(!exported.content);
    assert!(!exported.text.contains("secret words"));
    let (meta, messages, turns) = parts(&exported.text);
    assert_eq!((meta["content"].clone(), messages.len()), (json!(false), 0));
    assert_eq!(turns.len(), 2);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("account.jsonl");
    std::fs::write(&file, exported.text).unwrap();
    let error = trace::read(&file).unwrap_err().to_string();
    assert!(error.contains("set store.content to \"all\""), "{error}");
}

#[tokio::test]
async fn edits_and_forks_come_out_as_the_client_had_them() {
    let rows = ["go", "b1", "b2", "b3", "b4", "b5"].map(|key| {
        let next = match key {
            "go" => 1,
            other => other[1..].parse::<u32>().unwrap() + 1,
        };
        (key, vec![Reply::calls(vec![bash(&format!("b{next}"))])])
    });
    let provider = provider(plan(rows)).await;
    let proxy = proxy(provider.address, StoreContent::All).await;
    let mut agent = Agent::new(&proxy, true).told("go");
    for _ in 0..3 {
        agent.work("first").await;
    }
    let fork = agent.clone();
    // The client clears an old result, and says something else where it had been.
    agent.history[3]["content"] = json!("[cleared]");
    agent.work("second").await;
    agent.work("third").await;
    let newest = branches(&proxy.app.store)
        .into_iter()
        .max_by_key(|branch| branch.turns)
        .unwrap();
    assert!(newest.content && newest.turns == 5);
    let (_, messages, turns) = parts(&export(&proxy.app.store, &newest).unwrap().text);
    // The last results were never sent.
    let sent = agent.history.len() - 2;
    assert_eq!(messages[..sent], agent.history[..sent]);
    assert_eq!(messages.len(), sent + 1);
    let turns: Vec<&Value> = turns.iter().map(|turn| &turn["turn"]).collect();
    assert_eq!(turns, [1, 2, 3, 4, 5]);

    let mut fork = fork;
    fork.user("another way");
    fork.turn().await;
    let branches = branches(&proxy.app.store);
    let forked = branches.iter().find(|branch| branch.turns == 4).unwrap();
    let (_, messages, _) = parts(&export(&proxy.app.store, forked).unwrap().text);
    let sent = fork.history.len() - 1;
    assert_eq!(messages[..sent], fork.history[..sent]);
    let archive = Archive::read(&proxy.app.store).unwrap();
    let (found, others) = archive.find(&forked.session).unwrap();
    assert_eq!((found.turns, others), (5, branches.len() - 1));
    assert_eq!(archive.find(&forked.name()).unwrap(), (forked.clone(), 0));
}

#[tokio::test]
async fn content_is_whole_from_the_turn_on_that_it_is_stored() {
    let provider = provider(annotated(3)).await;
    let before = proxy(provider.address, StoreContent::Off).await;
    let store = Arc::clone(&before.app.store);
    let same_store = |content| {
        let store = Arc::clone(&store);
        Proxy::wired(
            provider.address,
            move |config| config.store.content = content,
            move |app| app.store = store,
        )
    };
    let mut agent = Agent::new(&before, true).told("go");
    agent.work("one").await;
    let newest = || branches(&store).remove(0);
    assert!(!newest().content);

    let stored = same_store(StoreContent::All).await;
    agent.url = stored.url("/v1/chat/completions");
    agent.work("two").await;
    let exported = export(&store, &newest()).unwrap();
    let (_, messages, turns) = parts(&exported.text);
    assert!(exported.content);
    // The results of the last answer were never sent.
    let heard = agent.history.len() - 1;
    assert_eq!((messages.len(), turns.len()), (heard, 2));
    assert_eq!(messages[..heard - 1], agent.history[..heard - 1]);

    let off = same_store(StoreContent::Off).await;
    agent.url = off.url("/v1/chat/completions");
    agent.work("three").await;
    let exported = export(&store, &newest()).unwrap();
    assert!(!exported.content && exported.text.lines().count() == 4);
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    plimsoll(directory).args(arguments).output().unwrap()
}

#[track_caller]
fn says(output: &Output, code: i32, words: &str) -> String {
    let (out, err) = (
        String::from_utf8(output.stdout.clone()).unwrap(),
        String::from_utf8(output.stderr.clone()).unwrap(),
    );
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    assert!(err.contains(words), "{words:?} not in {err}");
    out
}

#[tokio::test]
async fn a_served_session_is_listed_exported_and_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let missing = run(at, &["export", "--list"]);
    says(&missing, 1, "./data holds no recorded sessions");
    assert!(!at.join("data").exists(), "nothing is made by looking");

    let provider = provider(annotated(3)).await;
    let content = [("PLIMSOLL__STORE__CONTENT", "all")];
    let process = Process::start(at, provider.address, &[], &content);
    let lenient = Proxy::before(provider.address).await;
    let mut agent = Agent::new(&lenient, true).told("go");
    agent.url = process.url("/v1/chat/completions");
    let mut session = String::new();
    for _ in 0..3 {
        let answer = agent.work("some result of a tool").await;
        session = answer.header("x-plimsoll-session").to_owned();
    }
    agent.turn().await;
    says(&run(at, &["export", "--list"]), 1, "in use by process ");
    // The process that has the directory open writes the same, and says who it is that can.
    let admin = process.admin_url("").replace("http://", "");
    let asked = ["export", &session[..6], "--admin", &admin];
    let live = says(&run(at, &asked), 0, "");
    says(&run(at, &["export", &session]), 1, "ask it with --admin");
    let nobody = ["export", "nobody", "--admin", &admin];
    says(&run(at, &nobody), 1, "no session's name begins with nobody");
    process.signal("-TERM");
    assert_eq!(process.end().await.0, Some(0));

    let list = says(&run(at, &["export", "--list"]), 0, "");
    let row = list.lines().nth(1).unwrap();
    for words in [session.as_str(), "stored", "gpt-4o", "    4  "] {
        assert!(row.contains(words), "{words:?} not in {list}");
    }
    let file = at.join("out.jsonl");
    let name = file.to_str().unwrap();
    let out = says(&run(at, &["export", &session, "--out", name]), 0, "");
    assert_eq!(out, "");
    let printed = says(&run(at, &["export", &session[..6]]), 0, "");
    assert_eq!(printed, std::fs::read_to_string(&file).unwrap());
    assert_eq!(printed, live);
    let Trace {
        messages, skipped, ..
    } = trace::read(&file).unwrap();
    assert_eq!((messages.len(), skipped.len()), (agent.history.len(), 0));
    let times: Vec<bool> = messages.iter().map(|one| one.time.is_some()).collect();
    assert_eq!(times.iter().filter(|known| **known).count(), 4, "{times:?}");
    let replayed = run(at, &["replay", name, "--policies", "none,cwl"]);
    let table = says(&replayed, 0, "");
    assert!(table.contains("1 session, "), "{table}");

    for (arguments, code, words) in [
        (
            &["export", "nobody"][..],
            1,
            "no recorded session is named nobody",
        ),
        (&["export", "abc"], 1, "too short for a name"),
        (&["export"], 2, "required"),
        (&["export", "--list", "x"], 2, "cannot be used with"),
        (
            &["export", "--list", "--data", "elsewhere"],
            1,
            "elsewhere holds no",
        ),
    ] {
        says(&run(at, arguments), code, words);
    }
}

/// The names of models are the clients', and a terminal that obeyed one would show what its client wants.
/// What is written to a file is as private as the store, whatever the umask.
#[tokio::test]
async fn a_listing_steers_no_terminal_and_a_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let provider = provider(annotated(1)).await;
    let process = Process::start(at, provider.address, &[], &[]);
    let lenient = Proxy::before(provider.address).await;
    let model = "gpt\u{1b}]0;owned\u{7}\u{9b}2J\nrow";
    let mut agent = Agent::new(&lenient, true)
        .field("model", json!(model))
        .told("go");
    agent.url = process.url("/v1/chat/completions");
    let answer = agent.work("some result of a tool").await;
    let session = answer.header("x-plimsoll-session").to_owned();
    let admin = process.admin_url("").replace("http://", "");
    let live = run(at, &["sessions", "--admin", &admin]);
    let live = says(&live, 0, "");
    process.signal("-TERM");
    assert_eq!(process.end().await.0, Some(0));
    let listed = says(&run(at, &["export", "--list"]), 0, "");
    for (shown, lines) in [(&listed, 2), (&live, 1)] {
        let steers = |one: char| one.is_control() && one != '\n';
        assert!(!shown.contains(steers), "{shown:?}");
        assert!(
            shown.contains(r"gpt\u{1b}]0;owned\u{7}\u{9b}2J\nrow"),
            "{shown}"
        );
        assert_eq!(shown.lines().count(), lines, "{shown}");
    }

    let file = at.join("out.jsonl");
    let name = file.to_str().unwrap();
    let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    says(&run(at, &["export", &session, "--out", name]), 0, "");
    assert_eq!(mode(), 0o600);
    // A file that others could read is closed to them.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    says(&run(at, &["export", &session, "--out", name]), 0, "");
    assert_eq!(mode(), 0o600);
    assert!(std::fs::read_to_string(&file).unwrap().contains(&session));
}
