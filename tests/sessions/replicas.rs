//! Recorded sessions through three replicas that share a store, behind a balancer that asks them in
//! turn, with replicas and the store killed: each sends upstream what a single process with its own
//! memory would. Audits nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use plimsoll_scripted::{
    Auth, Client, ClientOptions, Options, Player, Provider, Recording, Session, audit,
};
use serde_json::{Value, json};

use super::play::{TWICE, count};
use super::proxy::{HTTP, Process, post};

#[path = "../servers/nginx.rs"]
mod nginx;
#[path = "../servers/redis.rs"]
mod redis;

use nginx::Nginx;
use redis::RedisServer;

const REPLICAS: usize = 3;
/// Every so many turns a replica is killed, and started again one turn later.
const KILL_EVERY: usize = 5;
const CEILING: u32 = 40_000;

/// What went upstream: for each session, turn and hop the bodies, without repetitions.
type Sent = BTreeMap<(String, usize), Vec<Bytes>>;

/// What serves.
enum Fleet {
    One(Process),
    Replicas {
        processes: Vec<Process>,
        balancer: Nginx,
        store: RedisServer,
        down: Option<usize>,
    },
}

impl Fleet {
    async fn one(upstream: &str) -> Self {
        let mut env = shared();
        env.push(("PLIMSOLL__STORE__BACKEND", "memory".to_owned()));
        Self::One(Process::with(upstream, CEILING, env).await)
    }

    async fn replicas(upstream: &str) -> Self {
        let store = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
        let mut processes = Vec::new();
        for _ in 0..REPLICAS {
            let mut env = shared();
            env.push(("PLIMSOLL__STORE__BACKEND", "redis".to_owned()));
            env.push(("PLIMSOLL__STORE__URL", store.url()));
            processes.push(Process::with(upstream, CEILING, env).await);
        }
        let servers: Vec<String> = processes.iter().map(Process::address).collect();
        Self::Replicas {
            balancer: Nginx::before(&servers),
            processes,
            store,
            down: None,
        }
    }

    fn url(&self) -> String {
        match self {
            Self::One(process) => process.url(),
            Self::Replicas { balancer, .. } => {
                format!("http://127.0.0.1:{}/v1/chat/completions", balancer.port)
            }
        }
    }

    /// What happens to it before a turn.
    async fn suffer(&mut self, turn: usize, turns: usize) {
        let Self::Replicas {
            processes,
            store,
            down,
            ..
        } = self
        else {
            return;
        };
        if let Some(killed) = down.take() {
            processes[killed].start_again().await;
        }
        if turn % KILL_EVERY == KILL_EVERY - 1 {
            let killed = turn / KILL_EVERY % REPLICAS;
            processes[killed].kill();
            *down = Some(killed);
        }
        if turn == turns / 3 || turn == turns * 2 / 3 {
            store.restart();
        }
    }

    /// The sum of a metric over the processes that run.
    async fn metric(&self, name: &str) -> f64 {
        match self {
            Self::One(process) => process.metric(name).await,
            Self::Replicas {
                processes, down, ..
            } => {
                let mut sum = 0.0;
                for (at, process) in processes.iter().enumerate() {
                    if Some(at) != *down {
                        sum += process.metric(name).await;
                    }
                }
                sum
            }
        }
    }
}

/// What all processes have in common: the tenant's key above all.
fn shared() -> Vec<(&'static str, String)> {
    vec![
        ("PLIMSOLL__TENANT__KEY", "k".repeat(64)),
        // A machine that is busy must not make a difference.
        ("PLIMSOLL__STORE__WAIT", "30s".to_owned()),
        ("PLIMSOLL__STORE__READ_WAIT", "30s".to_owned()),
    ]
}

/// Plays sessions in rotation, and returns what went upstream.
async fn play(recordings: &[Recording], streamed: bool, replicas: bool) -> (Sent, f64) {
    let sessions: Vec<Arc<Session>> = recordings
        .iter()
        .map(|recording| Session::waiting(recording.clone(), 7))
        .collect();
    let player = Arc::new(Player::new(sessions.iter().cloned()).any_style(11));
    let options = Options {
        count: count(),
        auth: Auth::Any,
        ..Options::default()
    };
    let provider = Provider::start(player.script(), options).await.unwrap();
    let mut fleet = if replicas {
        Fleet::replicas(&provider.base_url).await
    } else {
        Fleet::one(&provider.base_url).await
    };
    let client = |session: &Arc<Session>| {
        let options = ClientOptions {
            streamed,
            ..ClientOptions::default()
        };
        Client::new(session.clone(), options)
    };
    let mut clients: Vec<Client> = sessions.iter().map(client).collect();
    let turns = sessions
        .iter()
        .map(|one| one.recording.turns.len())
        .max()
        .unwrap_or(0);
    for turn in 0..turns {
        fleet.suffer(turn, turns).await;
        for (client, session) in clients.iter_mut().zip(&sessions) {
            if turn == session.recording.turns.len() / 2 {
                client.blank_result();
            }
            let Some(request) = client.request() else {
                continue;
            };
            let send = async || {
                let response = post(&fleet.url(), &request).await;
                let status = response.status().as_u16();
                let failed = response.headers().get("x-plimsoll-fail-open");
                assert_eq!(failed, None, "turn {turn}");
                (status, response.bytes().await.unwrap().to_vec())
            };
            if turn % TWICE == TWICE - 1 {
                send().await;
            }
            let (status, body) = send().await;
            let outcome = client.hear(status, &body);
            assert_eq!(outcome.violations, [], "turn {turn}");
            assert!(outcome.advanced, "turn {turn}: {status}");
        }
    }
    assert_eq!(player.violations(), []);
    for counter in ["plimsoll_fail_open_total", "plimsoll_unmanaged_total"] {
        assert_eq!(fleet.metric(counter).await, 0.0, "{counter}");
    }
    let passes = fleet.metric("plimsoll_passes_total").await;
    let mut sent = Sent::new();
    let requests = provider.take();
    for request in requests.iter().filter(|request| request.is_chat()) {
        let Some((session, turn)) = audit::turn_of(request) else {
            continue;
        };
        let bodies = sent.entry((session.to_owned(), turn)).or_default();
        if !bodies.contains(&request.body) {
            bodies.push(request.body.clone());
        }
    }
    (sent, passes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_share_a_store_send_what_one_process_would() {
    let recordings: Vec<Recording> = super::files().iter().map(super::read).collect();
    if !redis::are_here() || !nginx::is_here() {
        return;
    }
    for streamed in [true, false] {
        for group in recordings.chunks(super::TOGETHER) {
            let (expected, passes) = play(group, streamed, false).await;
            let (sent, _) = play(group, streamed, true).await;
            println!(
                "{} turns, {passes} passes, streamed {streamed}: the same from {REPLICAS} replicas",
                expected.len()
            );
            assert!(passes > 0.0);
            assert_eq!(sent.len(), expected.len());
            for (place, bodies) in &expected {
                assert!(
                    sent[place] == *bodies,
                    "{place:?}: {} bodies, not {}:\n{}\n{}",
                    sent[place].len(),
                    bodies.len(),
                    first_difference(&sent[place], bodies),
                    "is what the replicas sent, and then what one process sent"
                );
            }
        }
    }
}

/// A provider whose streams take a while: a word every so often, and the end.
async fn slow_provider() -> String {
    use axum::response::sse::{Event, Sse};
    const WORDS: usize = 40;
    let answer = async || {
        let said = futures_util::stream::unfold(0, async |at| {
            if at > WORDS + 1 {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let chunk = |delta: Value, finish: Value| {
                json!({
                    "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
                })
                .to_string()
            };
            let word = json!({"role": "assistant", "content": format!("word {at} ")});
            let data = match at {
                WORDS => chunk(json!({}), json!("stop")),
                at if at < WORDS => chunk(word, Value::Null),
                _ => "[DONE]".to_owned(),
            };
            let event = Ok::<_, std::convert::Infallible>(Event::default().data(data));
            Some((event, at + 1))
        });
        Sse::new(said)
    };
    let router = axum::Router::new().route("/v1/chat/completions", axum::routing::post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/v1")
}

/// A stream of one agent's through a balancer, to its end.
async fn stream(url: String, number: usize) {
    let body = json!({
        "model": "gpt-5", "stream": true,
        "messages": [{"role": "user", "content": format!("task {number}")}],
    });
    let post = HTTP.post(url).bearer_auth("sk-one-key");
    let post = post.header("content-type", "application/json");
    let response = post.body(body.to_string()).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    assert!(
        text.contains("word 39") && text.contains("[DONE]"),
        "{text}"
    );
}

/// One replica after the other is asked to end and started again, while agents begin a stream every
/// few milliseconds: each stream comes to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_cuts_no_stream() {
    if !redis::are_here() || !nginx::is_here() {
        return;
    }
    let provider = slow_provider().await;
    let mut fleet = Fleet::replicas(&provider).await;
    let url = fleet.url();
    let restarted = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&restarted);
    let agents = tokio::spawn(async move {
        let mut streams = Vec::new();
        while !done.load(Ordering::Relaxed) {
            streams.push(tokio::spawn(stream(url.clone(), streams.len())));
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        let count = streams.len();
        for stream in streams {
            stream.await.unwrap();
        }
        count
    });
    let Fleet::Replicas { processes, .. } = &mut fleet else {
        return;
    };
    for process in processes {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::task::block_in_place(|| process.end());
        process.start_again().await;
    }
    restarted.store(true, Ordering::Relaxed);
    let count = agents.await.unwrap();
    println!("{count} streams, none cut");
    assert!(count > 60, "{count}");
}

/// Where two lists of bodies differ first, with what is around there.
fn first_difference(left: &[Bytes], right: &[Bytes]) -> String {
    let pair = left.iter().zip(right).find(|(left, right)| left != right);
    // Or the first body that only one of them has, against the one before it.
    let more = if left.len() > right.len() {
        left
    } else {
        right
    };
    let before = more.len().checked_sub(2).and_then(|at| more.get(at));
    let Some((left, right)) = pair.or_else(|| Some((before?, more.last()?))) else {
        return "one has more bodies".to_owned();
    };
    let at = left
        .iter()
        .zip(right.iter())
        .take_while(|(left, right)| left == right)
        .count();
    let around = |body: &Bytes| {
        let part = body.slice(at.saturating_sub(200)..(at + 200).min(body.len()));
        String::from_utf8_lossy(&part).into_owned()
    };
    format!("{}\n---\n{}", around(left), around(right))
}

#[test]
fn the_file_of_the_balancer_is_read() {
    if !nginx::is_here() {
        return;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/nginx.conf");
    let text = std::fs::read_to_string(file).unwrap();
    // The replicas' names are known in their own network only.
    let here = text
        .replace("plimsoll-1:", "127.0.0.1:")
        .replace("plimsoll-2:", "127.0.0.2:");
    assert_ne!(here, text);
    nginx::check(&here.replace("/tmp/nginx.pid", "nginx.pid"));
}
