//! A start under another tenant key than that of the records: it serves, and says so in the log, at
//! `/readyz` and in a metric, until the old key is back or the operator means the new one.

use std::path::Path;

use super::agent::{Agent, annotated, provider};
use super::process::{Process, plimsoll};
use super::shared_store::{RedisServer, are_here};
use super::support::{Proxy, client, soon};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";
const SAID: &str = "under another tenant key";

/// A store that several processes open, one after the other.
struct Shelf<'a> {
    at: &'a Path,
    server: Option<&'a RedisServer>,
    provider: plimsoll_scripted::Provider,
}

impl Shelf<'_> {
    /// Starts under a key, or under that of the directory.
    fn start(&self, key: Option<&str>) -> Process {
        let url = self.server.map(RedisServer::url);
        let mut env: Vec<_> = key
            .map(|key| ("PLIMSOLL__TENANT__KEY", key))
            .into_iter()
            .collect();
        if let Some(url) = &url {
            env.extend([
                ("PLIMSOLL__STORE__BACKEND", "redis"),
                ("PLIMSOLL__STORE__URL", url),
            ]);
        }
        Process::start(self.at, self.provider.address, &[], &env)
    }

    /// Whether a start says that the records are of another key. It says so everywhere or nowhere.
    async fn says(&self, key: Option<&str>) -> bool {
        let process = self.start(key);
        let get = async |path: &str| {
            let response = soon(client().get(process.admin(path)).send())
                .await
                .unwrap();
            assert_eq!(response.status(), 200, "{path}");
            response.text().await.unwrap()
        };
        let (ready, metrics) = (get("/readyz").await, get("/metrics").await);
        let said = ready.contains(SAID);
        assert!(ready.starts_with("ok\n"), "{ready}");
        assert!(
            metrics.contains(&format!("plimsoll_store_other_key {}", u8::from(said))),
            "{said}"
        );
        let line = process.before().lines().find(|line| line.contains(SAID));
        assert_eq!(
            line.is_some_and(|line| line.contains("WARN")),
            said,
            "{}",
            process.before()
        );
        for key in [KEY, OTHER] {
            assert!(!process.before().contains(key) && !ready.contains(key));
        }
        end(process).await;
        said
    }

    /// Records a turn.
    async fn turn(&self, key: Option<&str>) {
        let process = self.start(key);
        let lenient = Proxy::before(self.provider.address).await;
        let mut agent = Agent::new(&lenient, false).told("go");
        agent.url = process.url("/v1/chat/completions");
        agent.work("a result").await;
        end(process).await;
    }
}

async fn end(process: Process) {
    process.signal("-TERM");
    assert_eq!(process.end().await.0, Some(0));
}

async fn shelf<'a>(at: &'a Path, server: Option<&'a RedisServer>) -> Shelf<'a> {
    let provider = provider(annotated(24)).await;
    Shelf {
        at,
        server,
        provider,
    }
}

#[tokio::test]
async fn another_key_than_that_of_the_records_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let server = are_here().then(|| RedisServer::start(&[]));
    for server in [None, server.as_ref()]
        .into_iter()
        .take(1 + usize::from(server.is_some()))
    {
        let shelf = shelf(directory.path(), server).await;
        assert!(!shelf.says(Some(OTHER)).await, "a store that is new");
        // It has no records yet, so nobody loses any.
        assert!(!shelf.says(Some(KEY)).await, "a store without records");
        shelf.turn(Some(KEY)).await;
        assert!(!shelf.says(Some(KEY)).await);
        // What is recorded under the other key makes it no less another one.
        assert!(shelf.says(Some(OTHER)).await);
        shelf.turn(Some(OTHER)).await;
        assert!(shelf.says(Some(OTHER)).await);
        assert!(!shelf.says(Some(KEY)).await, "the old key is back");
    }
}

#[tokio::test]
async fn a_lost_key_file_is_said_until_the_operator_means_the_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let shelf = shelf(directory.path(), None).await;
    shelf.turn(None).await;
    let key = std::fs::read(data.join("tenant.key")).unwrap();
    let mark = std::fs::read_to_string(data.join("key.mark")).unwrap();
    assert!(!mark.contains(std::str::from_utf8(&key).unwrap()));
    std::fs::remove_file(data.join("tenant.key")).unwrap();
    assert!(shelf.says(None).await);
    assert_eq!(
        std::fs::read_to_string(data.join("key.mark")).unwrap(),
        mark
    );
    std::fs::remove_file(data.join("key.mark")).unwrap();
    // Who only looks at it has no key to mark it with.
    for arguments in [["store", "stats"], ["export", "--list"]] {
        let done = plimsoll(directory.path()).args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert!(!data.join("key.mark").exists());
    }
    assert!(!shelf.says(None).await);
    assert_ne!(
        std::fs::read_to_string(data.join("key.mark")).unwrap(),
        mark
    );
    std::fs::write(data.join("tenant.key"), key).unwrap();
    assert!(shelf.says(None).await);
}

#[tokio::test]
async fn a_copy_is_of_the_key_of_what_was_copied() {
    if !are_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = RedisServer::start(&[]);
    shelf(directory.path(), None).await.turn(Some(KEY)).await;
    let url = server.url();
    for (from, to) in [("sled:./data", &*url), (&url, "sled:./back")] {
        let copied = plimsoll(directory.path())
            .args(["store", "copy", from, to])
            .output();
        let copied = copied.unwrap();
        assert!(copied.status.success(), "{copied:?}");
    }
    let there = shelf(directory.path(), Some(&server)).await;
    assert!(there.says(Some(OTHER)).await);
    assert!(!there.says(Some(KEY)).await);
    let mark = |data: &str| std::fs::read(directory.path().join(data).join("key.mark")).unwrap();
    assert_eq!(mark("back"), mark("data"));
}
