//! A store that several proxies share, from outside: what a turn costs of it, what becomes of turns
//! while it is away, and how the records of a directory come there and back.

use std::path::Path;
use std::process::Output;

use plimsoll::config::{Backend, Config, Secret, TenantKey};

use super::agent::{Agent, Answer, annotated, provider};
use super::process::{Process, plimsoll};
use super::support::Proxy;

#[path = "../servers/redis.rs"]
mod redis;

pub use redis::{RedisServer, are_here};

/// The key of all tenants here.
const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub fn on(server: &RedisServer) -> impl Fn(&mut Config) {
    let url = server.url();
    move |config| {
        config.store.backend = Backend::Redis;
        config.store.urls = vec![Secret::new(url.as_str())];
        config.tenant = TenantKey::Given(Secret::new(KEY));
    }
}

/// The round trips that a proxy's store has made, for reads and for writes.
fn trips(proxy: &Proxy) -> (u64, u64) {
    let health = proxy.app.store.health();
    (health.read_trips, health.write_trips)
}

/// One turn of an agent through a proxy, and the round trips that it took.
async fn turn(agent: &mut Agent, proxy: &Proxy) -> (Answer, (u64, u64)) {
    agent.url = format!("http://{}/v1/chat/completions", proxy.addr);
    let before = trips(proxy);
    let answer = agent.work("a result").await;
    let after = trips(proxy);
    (answer, (after.0 - before.0, after.1 - before.1))
}

#[tokio::test]
async fn a_turn_costs_one_round_trip_to_write_and_one_that_nobody_waits_for_where_it_is_remembered()
{
    if !are_here() {
        return;
    }
    let server = RedisServer::start(&[]);
    for stream in [true, false] {
        let provider = provider(annotated(24)).await;
        let one = Proxy::with(provider.address, on(&server)).await;
        let two = Proxy::with(provider.address, on(&server)).await;
        let mut agent = Agent::new(&one, stream).told(&format!("go {stream}"));
        // Of a session that is remembered the store is asked, while the model answers, only whether another turn
        // has gone on from there.
        for _ in 0..6 {
            assert_eq!(turn(&mut agent, &one).await.1, (1, 1), "stream {stream}");
        }
        // Whoever has not served it reads the links of the newest answers, and then at once all records
        // that these lead to.
        let (answer, (reads, writes)) = turn(&mut agent, &two).await;
        assert_eq!((reads, writes), (3, 1), "{}", answer.text());
        assert_eq!(answer.header("x-plimsoll-fail-open"), "");
        // In turns: the links, and the one record that the other has written.
        for round in 0..8 {
            let proxy = if round % 2 == 0 { &one } else { &two };
            assert_eq!(turn(&mut agent, proxy).await.1, (3, 1), "round {round}");
        }
        assert_eq!(turn(&mut agent, &two).await.1, (1, 1));
        // Of a longer session the older records are read one after the other.
        let three = Proxy::with(provider.address, on(&server)).await;
        let (_, (reads, _)) = turn(&mut agent, &three).await;
        assert!((10..=12).contains(&reads), "{reads}");
    }
}

#[tokio::test]
async fn turns_go_on_while_the_store_is_away_and_are_written_when_it_is_back() {
    if !are_here() {
        return;
    }
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let provider = provider(annotated(24)).await;
    let one = Proxy::with(provider.address, on(&server)).await;
    let mut agent = Agent::new(&one, true).told("go");
    for _ in 0..3 {
        turn(&mut agent, &one).await;
    }
    server.kill();
    // The process knows the session, so nothing is missing but the wait for the record.
    for _ in 0..3 {
        let (answer, _) = turn(&mut agent, &one).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-plimsoll-fail-open"), "");
    }
    // Another one does not, and sends the client's bytes.
    let two = Proxy::with(provider.address, on(&server)).await;
    let mut stranger = agent.clone();
    stranger.url = format!("http://{}/v1/chat/completions", two.addr);
    let answer = stranger.turn().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-plimsoll-fail-open"), "store");
    let text = two.app.metrics_text();
    assert!(
        text.contains("plimsoll_fail_open_total{stage=\"store\"} 1"),
        "{text}"
    );
    assert!(!text.contains("plimsoll_store_refused_total 0"), "{text}");
    let notes = one.app.store.notes();
    assert!(
        notes[0].contains("wait in memory to be written"),
        "{notes:?}"
    );
    assert!(one.app.metrics_text().contains("plimsoll_store_durable 0"));
    server.restart();
    super::support::soon(async {
        while one.app.store.health().waiting > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    // Everything that was served meanwhile is found by others.
    let three = Proxy::with(provider.address, on(&server)).await;
    let (answer, _) = turn(&mut agent, &three).await;
    assert_eq!(
        answer.header("x-plimsoll-turn"),
        "7",
        "{:?}",
        answer.headers
    );
    assert!(one.app.metrics_text().contains("plimsoll_store_durable 1"));
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    plimsoll(directory).args(arguments).output().unwrap()
}

#[track_caller]
fn says(output: &Output, code: i32, words: &str) {
    let said = [output.stdout.clone(), output.stderr.clone()].concat();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{words:?} not in {said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn a_directory_is_copied_to_a_server_and_back_and_its_sessions_go_on() {
    if !are_here() {
        return;
    }
    let server = RedisServer::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let provider = provider(annotated(24)).await;
    let start = |backend: &str, key: &str, data: &str| {
        let data = format!("--data={data}");
        let url = server.url();
        let mut env = vec![("PLIMSOLL__STORE__BACKEND", backend)];
        if backend == "redis" {
            env.push(("PLIMSOLL__STORE__URL", url.as_str()));
        }
        if !key.is_empty() {
            env.push(("PLIMSOLL__TENANT__KEY", key));
        }
        Process::start(at, provider.address, &[&data], &env)
    };
    let lenient = Proxy::before(provider.address).await;
    let mut agent = Agent::new(&lenient, false).told("go");
    let mut serve = async |process: Process, turn: &str| {
        agent.url = process.url("/v1/chat/completions");
        let answer = agent.work("a result").await;
        assert_eq!(answer.header("x-plimsoll-turn"), turn);
        process.signal("-TERM");
        assert_eq!(process.end().await.0, Some(0));
    };
    serve(start("sled", "", "./data"), "1").await;
    serve(start("sled", "", "./data"), "2").await;
    let url = server.url();
    says(
        &run(at, &["store", "copy", "sled:./nowhere", &url]),
        1,
        "holds no recorded sessions",
    );
    assert!(!at.join("nowhere").exists());
    says(
        &run(at, &["store", "copy", "http://u:hunter2@x", &url]),
        1,
        "a store is named like",
    );
    says(
        &run(at, &["store", "copy", &url, &url]),
        1,
        "can't be copied to itself",
    );
    let there = run(at, &["store", "copy", "sled:./data", &url]);
    says(&there, 0, "compared: the copy holds all of it");
    says(
        &there,
        0,
        "set PLIMSOLL__TENANT__KEY to the content of ./data/tenant.key",
    );
    says(
        &run(at, &["store", "copy", "sled:./data", &url]),
        0,
        "copied 0 blobs",
    );
    let key = std::fs::read_to_string(at.join("data/tenant.key")).unwrap();
    serve(start("redis", &key, "./unused"), "3").await;
    assert!(
        !at.join("unused").exists(),
        "nothing is kept on this machine"
    );
    let back = run(at, &["store", "copy", &url, "sled:./back"]);
    says(
        &back,
        0,
        "serve the directory with the PLIMSOLL__TENANT__KEY",
    );
    serve(start("sled", &key, "./back"), "4").await;
    // A server is shown while it is in use.
    let list = plimsoll(at)
        .args(["export", "--list"])
        .env("PLIMSOLL__STORE__BACKEND", "redis")
        .env("PLIMSOLL__STORE__URL", &url)
        .env("PLIMSOLL__TENANT__KEY", &key)
        .output()
        .unwrap();
    says(&list, 0, "gpt-4o");
}

#[tokio::test]
async fn health_says_whether_the_process_is_ready() {
    let provider = provider(annotated(3)).await;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let process = Process::start(at, provider.address, &[], &[]);
    let admin = process.admin("");
    let admin = format!("--admin={}", admin.trim_start_matches("http://"));
    says(&run(at, &["health", &admin]), 0, "ok");
    process.signal("-TERM");
    assert_eq!(process.end().await.0, Some(0));
    says(&run(at, &["health", &admin]), 1, "/readyz does not answer");
    says(
        &run(at, &["health", "--admin=nowhere"]),
        1,
        "is not an address",
    );
}
