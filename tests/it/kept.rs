//! What a store holds is told and removed: at the admin port of a live proxy, and by commands on a
//! stopped one. What is erased is gone, and what others stand on stays.

use std::net::SocketAddr;
use std::path::Path;

use plimsoll::config::Backend;
use plimsoll_console::inspect::{Archive, erasure, export};
use plimsoll_core::turn::StoreContent;
use plimsoll_model::{Content, Digest, Erased, Said, TurnRecord, blob_id};
use plimsoll_scripted::{Reply, Script};
use plimsoll_store::memory::Memory;
use plimsoll_store::{Batch, BatchKind, Store};
use serde_json::Value;

use super::agent::{Agent, provider};
use super::process::plimsoll;
use super::support::{Proxy, client, soon};

async fn served(upstream: SocketAddr, directory: &Path) -> Proxy {
    Proxy::with(upstream, |config| {
        config.store.backend = Backend::Sled;
        config.store.path = directory.to_owned();
        config.store.content = StoreContent::All;
    })
    .await
}

async fn ask(proxy: &Proxy, method: &str, path: &str) -> (u16, Value) {
    let url = format!("http://{}{path}", proxy.admin);
    let request = client().request(method.parse().unwrap(), url);
    let response = soon(request.send()).await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap())
}

/// What `plimsoll store` says of a directory, and whether it went well.
fn command(directory: &Path, arguments: &[&str]) -> (bool, String) {
    let scratch = tempfile::tempdir().unwrap();
    let data = directory.to_str().unwrap();
    let ended = plimsoll(scratch.path())
        .arg("store")
        .args(arguments)
        .args(["--data", data])
        .output()
        .unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.success(), String::from_utf8(said).unwrap())
}

/// Sessions that begin with the same words, each with turns of its own. Returns their names.
async fn play(proxy: &Proxy) -> Vec<String> {
    let mut names = Vec::new();
    for session in 0..3 {
        let mut agent = Agent::new(proxy, false)
            .told("the same words for all")
            .with("x-plimsoll-session", &format!("session-{session}"));
        for turn in 0..3 {
            let answer = agent.turn().await;
            names.push(answer.header("x-plimsoll-session").to_owned());
            agent = agent.told(&format!("secret {session} of turn {turn}"));
        }
    }
    names.dedup();
    assert_eq!(names.len(), 3);
    names
}

/// The messages of a session that were stored, or none if it is not there.
fn exported(directory: &Path, name: &str) -> Option<String> {
    let settings = plimsoll_store::StoreSettings {
        path: directory.to_owned(),
        ..plimsoll_store::StoreSettings::default()
    };
    let store = Store::open(&settings).unwrap().store;
    let archive = Archive::read(&store).unwrap();
    let found = archive.find(name).ok();
    let text = found.map(|(branch, _)| {
        let exported = export(&store, &branch).unwrap();
        assert!(exported.content, "{name} is not whole");
        exported.text
    });
    store.close().unwrap();
    text
}

#[tokio::test]
async fn a_live_store_says_what_it_holds_and_is_swept() {
    let provider = provider(Script::ask(|_| Reply::text("done"))).await;
    let scratch = tempfile::tempdir().unwrap();
    let proxy = served(provider.address, scratch.path()).await;
    play(&proxy).await;
    let (status, held) = ask(&proxy, "GET", "/api/store").await;
    assert_eq!(
        (status, held["sessions"].as_u64()),
        (200, Some(3)),
        "{held}"
    );
    for field in ["records", "content", "links", "disk_bytes", "newest"] {
        assert!(held[field].as_u64() > Some(8), "{field}: {held}");
    }
    assert!(held["oldest"].as_u64() <= held["newest"].as_u64());
    let (status, swept) = ask(&proxy, "POST", "/api/store/gc").await;
    assert_eq!(
        (status, swept["removed"].as_u64()),
        (200, Some(0)),
        "{swept}"
    );
    let (_, after) = ask(&proxy, "GET", "/api/store").await;
    for field in [
        "sessions", "records", "content", "links", "oldest", "newest",
    ] {
        assert_eq!(after[field], held[field], "{field}");
    }
    // It goes on, with what it had.
    let names = play(&proxy).await;
    let (_, listed) = ask(&proxy, "GET", "/api/sessions").await;
    // What was played again word for word is a branch of each.
    assert_eq!(
        listed["sessions"].as_array().unwrap().len(),
        2 * names.len()
    );
    proxy.end().await;
}

#[tokio::test]
async fn what_is_erased_is_gone_and_what_others_share_with_it_stays() {
    let provider = provider(Script::ask(|_| Reply::text("done"))).await;
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("data");
    let proxy = served(provider.address, &directory).await;
    let names = play(&proxy).await;
    let (_, listed) = ask(&proxy, "GET", "/api/sessions").await;
    let tenant = listed["sessions"][0]["tenant"].as_str().unwrap().to_owned();
    proxy.end().await;
    let (_, before) = command(&directory, &["stats"]);
    assert!(before.contains("sessions  3"), "{before}");
    let (good, said) = command(&directory, &["gc"]);
    assert!(good && said.contains("removed 0 blobs"), "{said}");
    let (good, said) = command(&directory, &["erase", "--session", &names[1]]);
    assert!(
        good && said.contains("erased 1 session: 3 records"),
        "{said}"
    );
    assert_eq!(exported(&directory, &names[1]), None);
    for (at, name) in [(0, &names[0]), (2, &names[2])] {
        let text = exported(&directory, name).unwrap();
        assert!(text.contains("the same words for all"), "{text}");
        assert!(text.contains(&format!("secret {at} of turn 1")), "{text}");
    }
    let (good, said) = command(&directory, &["erase", "--session", &names[1]]);
    assert!(!good && said.contains("nothing of it"), "{said}");
    let (good, said) = command(&directory, &["erase", "--tenant", "nobody"]);
    assert!(!good && said.contains("64 hexadecimal digits"), "{said}");
    let (good, said) = command(&directory, &["erase", "--tenant", &tenant]);
    assert!(
        good && said.contains("erased 2 sessions: 6 records"),
        "{said}"
    );
    let (_, left) = command(&directory, &["stats"]);
    for line in [
        "sessions  0",
        "records   0 blobs",
        "content   0 blobs",
        "links     0",
    ] {
        assert!(left.contains(line), "{line} in {left}");
    }
    let (good, said) = command(scratch.path(), &["stats"]);
    assert!(!good && said.contains("no recorded sessions"), "{said}");
}

/// Says to this program that it is to erase, and nothing else.
const ERASES: &str = "PLIMSOLL_TEST_ERASES";
/// How many turns others have had, and how much each says that nobody else does.
const TURNS_OF_OTHERS: u32 = 5_000;
const SAID: u32 = 150;

/// Bytes of memory that were resident at most so far.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap() * 1024
}

/// Commits a turn with content of its own. Returns the ids of its record and of that content.
fn commit(store: &Store, session: &str, turn: u32) -> [Digest; 2] {
    let said = |at: u32| Digest::of(&[session.as_bytes(), &turn.to_le_bytes(), &at.to_le_bytes()]);
    let content = Content {
        from: 0,
        messages: (1..SAID).map(said).map(Said::Alone).collect(),
        answer: said(0),
        tools: None,
    };
    let content = rmp_serde::to_vec_named(&content).unwrap();
    let list = blob_id(&content);
    let record = TurnRecord {
        session: session.to_owned(),
        turn,
        content: Some(list),
        ..TurnRecord::default()
    };
    let record = rmp_serde::to_vec_named(&record).unwrap();
    let id = blob_id(&record);
    for (kind, id, bytes) in [
        (BatchKind::Content, list, content),
        (BatchKind::Records, id, record),
    ] {
        let batch = Batch {
            blobs: vec![(id, bytes.into())],
            kind,
            ..Batch::default()
        };
        store.commit(batch).wait().unwrap();
    }
    [id, list]
}

/// What there is of others costs time and no memory. A process of its own tells how much it took.
#[test]
fn erasing_one_session_holds_nothing_of_the_others() {
    if std::env::var_os(ERASES).is_none() {
        let name = "kept::erasing_one_session_holds_nothing_of_the_others";
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(ERASES, "1")
            .output()
            .unwrap();
        let said = String::from_utf8([alone.stdout, alone.stderr].concat()).unwrap();
        assert!(
            alone.status.success() && said.contains("1 passed"),
            "{said}"
        );
        return;
    }
    let store = Store::Memory(Memory::default());
    for turn in 0..TURNS_OF_OTHERS {
        commit(&store, "others", turn);
    }
    let own = commit(&store, "own", 1);
    let before = peak();
    let found = erasure(&store, &Erased::Session("own".to_owned())).unwrap();
    let grown = peak() - before;
    assert!(own.iter().all(|id| found.ids.contains(id)));
    let counts = (found.records, found.sessions, found.ids.len());
    assert_eq!(counts, (1, 1, 2 + SAID as usize));
    // The digests alone are 24 MB.
    assert!(grown < 12 << 20, "{} KiB", grown >> 10);
}
