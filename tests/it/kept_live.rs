//! What an operator does to the store of a live proxy: a session is erased for good, also where turns of
//! it are under way and where memory has it, and a snapshot is a store of its own. Only a directory that
//! the operator chose is ever written to.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memchr::memmem;
use plimsoll::config::Backend;
use plimsoll_core::turn::StoreContent;
use plimsoll_scripted::{Reply, Script};
use plimsoll_store::{Store, StoreSettings};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::agent::{Agent, provider};
use super::process::plimsoll;
use super::references;
use super::support::{Proxy, answered, client, soon, upstream};

async fn served(upstream: SocketAddr, directory: &Path) -> Proxy {
    Proxy::with(upstream, |config| {
        config.store.backend = Backend::Sled;
        config.store.path = directory.join("data");
        config.store.snapshots = Some(directory.join("snapshots"));
        config.store.content = StoreContent::All;
    })
    .await
}

async fn post(proxy: &Proxy, path: &str, body: &Value) -> (u16, Value) {
    let url = format!("http://{}{path}", proxy.admin);
    let request = client().post(url).body(body.to_string());
    let response = soon(request.send()).await.unwrap();
    (response.status().as_u16(), json_of(response).await)
}

async fn json_of(response: reqwest::Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// The rows of the list of sessions, newest first.
async fn rows(proxy: &Proxy) -> Vec<Value> {
    let url = format!("http://{}/api/sessions", proxy.admin);
    let response = soon(client().get(url).send()).await.unwrap();
    json_of(response).await["sessions"]
        .as_array()
        .unwrap()
        .clone()
}

async fn listed(proxy: &Proxy) -> Vec<String> {
    let rows = rows(proxy).await;
    let name = |row: &Value| row["session"].as_str().unwrap().to_owned();
    rows.iter().map(name).collect()
}

/// One turn of a session of its own that says this. Returns its name.
async fn say(proxy: &Proxy, session: &str, text: &str) -> String {
    let mut agent = Agent::new(proxy, false)
        .with("x-plimsoll-session", session)
        .told(text);
    agent.turn().await.header("x-plimsoll-session").to_owned()
}

/// Whether any file below a directory has these bytes.
fn shows(directory: &Path, bytes: &str) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return shows(&path, bytes);
        }
        memmem::find(&std::fs::read(&path).unwrap_or_default(), bytes.as_bytes()).is_some()
    })
}

#[tokio::test]
async fn what_is_erased_is_neither_listed_nor_kept_nor_found() {
    let provider = provider(Script::ask(|_| Reply::text("done"))).await;
    let scratch = tempfile::tempdir().unwrap();
    let proxy = served(provider.address, scratch.path()).await;
    let stays = say(&proxy, "stays", "a harmless secret").await;
    let goes = say(&proxy, "goes", "a dreadful secret").await;
    assert!(shows(scratch.path(), "a dreadful secret"));
    let (status, told) = post(&proxy, "/api/store/erase", &json!({"session": goes})).await;
    assert_eq!(
        (status, &told["sessions"], &told["records"]),
        (200, &json!(1), &json!(1))
    );
    assert_eq!(listed(&proxy).await, [stays.as_str()]);
    assert!(!shows(scratch.path(), "a dreadful secret"));
    assert!(shows(scratch.path(), "a harmless secret"));
    // It is in no memory either: the agent's next turn finds nothing, and begins anew.
    let mut agent = Agent::new(&proxy, false)
        .with("x-plimsoll-session", "goes")
        .told("a dreadful secret");
    agent.user("and on");
    let again = agent.turn().await;
    assert_eq!(again.header("x-plimsoll-session"), goes);
    let (status, told) = post(&proxy, "/api/store/erase", &json!({"session": "0000"})).await;
    assert_eq!(
        (status, told),
        (200, json!({"sessions": 0, "records": 0, "removed": 0}))
    );
    for wrong in [
        json!({}),
        json!({"tenant": "nobody"}),
        json!({"session": "a", "tenant": "b"}),
        json!({"session": ""}),
        json!({"all": true}),
    ] {
        let (status, told) = post(&proxy, "/api/store/erase", &wrong).await;
        assert_eq!(status, 400, "{wrong}: {told}");
    }
    assert_eq!(listed(&proxy).await.len(), 2);
    proxy.end().await;
}

#[tokio::test]
async fn a_turn_under_way_does_not_bring_back_what_is_erased() {
    let (heard, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (asked, hears, waits) = (Arc::new(AtomicUsize::new(0)), heard.clone(), gate.clone());
    let address = upstream(move |_request| {
        let (asked, heard, gate) = (asked.clone(), hears.clone(), waits.clone());
        async move {
            if asked.fetch_add(1, Ordering::SeqCst) == 1 {
                heard.notify_one();
                gate.notified().await;
            }
            answered(
                200,
                json!({"id": "c", "object": "chat.completion", "model": "gpt-4o", "choices": [{
                    "index": 0, "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "a dreadful answer"}}]}),
            )
        }
    })
    .await;
    let scratch = tempfile::tempdir().unwrap();
    let proxy = served(address, scratch.path()).await;
    let mut agent = Agent::new(&proxy, false).told("a dreadful secret");
    let name = agent.turn().await.header("x-plimsoll-session").to_owned();
    agent.user("a later secret");
    let under_way = tokio::spawn(async move {
        let answer = agent.turn().await;
        (agent, answer)
    });
    soon(heard.notified()).await;
    let (status, told) = post(&proxy, "/api/store/erase", &json!({"session": name})).await;
    assert_eq!((status, &told["records"]), (200, &json!(1)), "{told}");
    gate.notify_one();
    let (mut agent, answer) = soon(under_way).await.unwrap();
    assert!(answer.text().contains("a dreadful answer"));
    assert_eq!(listed(&proxy).await, [""; 0]);
    for text in ["a dreadful secret", "a later secret", "a dreadful answer"] {
        assert!(!shows(scratch.path(), text), "{text}");
    }
    // What begins later is a session like any other.
    agent.user("go on");
    agent.turn().await;
    assert_eq!(listed(&proxy).await, [name]);
    proxy.end().await;
}

#[tokio::test]
async fn a_response_that_was_erased_with_its_tenant_is_unknown() {
    let provider = references::provider().await;
    let scratch = tempfile::tempdir().unwrap();
    let proxy = served(provider.addr, scratch.path()).await;
    let ask = async |key: &str, body: Value| {
        let request = client().post(proxy.url("/v1/responses")).bearer_auth(key);
        soon(request.body(body.to_string()).send()).await.unwrap()
    };
    let begin = json!({"model": "gpt-4o", "input": "a dreadful secret"});
    let mut ids = Vec::new();
    for key in ["key-one", "key-two"] {
        let first = json_of(ask(key, begin.clone()).await).await;
        ids.push(first["id"].as_str().unwrap().to_owned());
    }
    let go_on =
        |id: &str| json!({"model": "gpt-4o", "input": "and on", "previous_response_id": id});
    assert_eq!(ask("key-one", go_on(&ids[0])).await.status(), 200);
    // The newest row is that of the first key.
    let tenant = rows(&proxy).await[0]["tenant"].clone();
    let (status, told) = post(&proxy, "/api/store/erase", &json!({"tenant": tenant})).await;
    assert_eq!(status, 200, "{told}");
    // The provider has not kept it either.
    let unknown = ask("key-one", go_on(&ids[0])).await;
    assert_eq!(unknown.status(), 404);
    // Whoever said the same still has it.
    assert_eq!(ask("key-two", go_on(&ids[1])).await.status(), 200);
    proxy.end().await;
}

fn opened(directory: &Path) -> Store {
    let settings = StoreSettings {
        path: directory.to_owned(),
        ..StoreSettings::default()
    };
    Store::open(&settings).unwrap().store
}

#[tokio::test]
async fn a_snapshot_of_a_live_store_is_a_store_with_all_that_was_acknowledged() {
    let provider = provider(Script::ask(|_| Reply::text("done"))).await;
    let scratch = tempfile::tempdir().unwrap();
    std::fs::create_dir(scratch.path().join("snapshots")).unwrap();
    let proxy = served(provider.address, scratch.path()).await;
    let mut names = Vec::new();
    for number in 0..5 {
        names.push(say(&proxy, &format!("session-{number}"), "some text").await);
        let asked = json!({"name": format!("after-{number}")});
        let (status, told) = post(&proxy, "/api/store/snapshot", &asked).await;
        assert_eq!(status, 200, "{told}");
        let directory = scratch.path().join(format!("snapshots/after-{number}"));
        assert_eq!(told["directory"], directory.to_str().unwrap());
        let store = opened(&directory);
        assert_eq!(store.sessions(None, 99).unwrap().len(), names.len());
        assert_eq!(store.stats().unwrap().records as usize, names.len());
        store.close().unwrap();
    }
    for wrong in [
        "after-0", "", ".", "..", "a/b", "/tmp/a", "../a", ".hidden", "a\u{0}",
    ] {
        let (status, told) = post(&proxy, "/api/store/snapshot", &json!({"name": wrong})).await;
        assert_eq!(status, 503, "{wrong}: {told}");
    }
    let (status, _) = post(&proxy, "/api/store/snapshot", &json!({"path": "/tmp/a"})).await;
    assert_eq!(status, 400);
    let made = std::fs::read_dir(scratch.path().join("snapshots")).unwrap();
    assert_eq!(made.count(), 5, "nothing else was written");
    // A page of somebody else's may ask for nothing of it.
    for path in ["/api/store/snapshot", "/api/store/erase"] {
        let url = format!("http://{}{path}", proxy.admin);
        let request = client().post(url).header("origin", "https://evil.example");
        let response = soon(request.body(r#"{"name":"x"}"#).send()).await.unwrap();
        assert_eq!(response.status(), 403);
    }
    proxy.end().await;
    let proxy = Proxy::with(provider.address, |config| {
        config.store.backend = Backend::Sled;
        config.store.path = scratch.path().join("data");
    })
    .await;
    let (status, told) = post(&proxy, "/api/store/snapshot", &json!({"name": "a"})).await;
    assert!(
        status == 503 && told.to_string().contains("store.snapshots"),
        "{told}"
    );
    proxy.end().await;
}

/// What `plimsoll store` says, and whether it went well.
fn command(arguments: &[&str]) -> (bool, String) {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = plimsoll(scratch.path());
    let ended = command.arg("store").args(arguments).output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.success(), String::from_utf8(said).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_ask_the_process_that_serves() {
    let provider = provider(Script::ask(|_| Reply::text("done"))).await;
    let scratch = tempfile::tempdir().unwrap();
    std::fs::create_dir(scratch.path().join("snapshots")).unwrap();
    let proxy = served(provider.address, scratch.path()).await;
    let name = say(&proxy, "one", "some text").await;
    say(&proxy, "two", "other text").await;
    let admin = proxy.admin.to_string();
    let data = scratch.path().join("data");
    let live = |arguments: &[&str]| command(&[arguments, &["--admin", &admin]].concat());
    let (good, said) = live(&["stats"]);
    assert!(good && said.contains("sessions  2"), "{said}");
    let (good, said) = live(&["gc"]);
    assert!(good && said.contains("removed 0 blobs"), "{said}");
    let (good, said) = live(&["snapshot", "monday"]);
    assert!(good && said.contains("snapshots/monday"), "{said}");
    let (good, said) = live(&["snapshot", "monday"]);
    assert!(!good && said.contains("exists already"), "{said}");
    let (good, said) = live(&["erase", "--session", &name]);
    assert!(
        good && said.contains("erased 1 session: 1 record"),
        "{said}"
    );
    let (good, said) = live(&["erase", "--session", &name]);
    assert!(!good && said.contains("nothing of it"), "{said}");
    let (good, said) = command(&["stats", "--data", data.to_str().unwrap()]);
    assert!(!good && said.contains("--admin"), "{said}");
    proxy.end().await;
    let (good, said) = live(&["stats"]);
    assert!(!good && said.contains("does not answer"), "{said}");
    // On a stopped one, wherever the operator says.
    let target = scratch.path().join("elsewhere");
    let arguments = [
        "snapshot",
        target.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ];
    let (good, said) = command(&arguments);
    assert!(good && said.contains("elsewhere"), "{said}");
    let (good, said) = command(&["stats", "--data", target.to_str().unwrap()]);
    assert!(good && said.contains("sessions  1"), "{said}");
}
