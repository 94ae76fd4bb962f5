//! Recorded sessions with a thought before each answer, which the provider binds to what stood before it and
//! refuses anywhere else, with the proxy killed on the way. The client gets no refusal, the provider refuses once
//! a proxy, requests only grow but at passes, and no thought that left returns.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_scripted::thoughts::Watcher;
use plimsoll_scripted::{
    Auth, Client, ClientOptions, Form, Mismatch, Options, Player, Provider, Received, Recording,
    Rule, Rules, Session, Verdict, audit,
};

use super::play::count;
use super::proxy::{Process, post};

/// With those that come with the repository a dozen sessions of all kinds, of some 60,000 tokens or more.
const NINE: [&str; 9] = [
    "context-evaluator-a438a876f9",
    "context-evaluator-d53bc1a524",
    "entire-cli-26442569e1",
    "entire-cli-682cc6a7db",
    "entire-cli-f16f721ea2",
    "recovery-bench-mini-485de3d9b6",
    "recovery-bench-mini-e254a6631b",
    "recovery-bench-terminus-681d3a3fea",
    "recovery-bench-terminus-a7e5093f98",
];
/// How many sessions share a proxy, a key and a store.
const TOGETHER: usize = 3;
/// Tokens of each thought.
const THOUGHT: usize = 150;
/// A model whose thoughts are bound, behind OpenRouter.
const MODEL: &str = "anthropic/claude-opus-5.5";

/// What came of some sessions.
#[derive(Debug, Default)]
struct Figures {
    turns: usize,
    requests: usize,
    /// Requests that did not extend the one before.
    breaks: usize,
    passes: f64,
    refusals: usize,
    /// Thoughts that were accepted.
    thoughts: usize,
}

/// Holds what went up to the laws.
fn judge(requests: &[Received], seen: &mut BTreeMap<String, Watcher>, figures: &mut Figures) {
    for request in requests.iter().filter(|request| request.is_chat()) {
        let (id, turn) = audit::turn_of(request).unwrap();
        if let Verdict::Refused(refusal) = &request.verdict {
            figures.refusals += 1;
            println!("{id}, turn {turn}: {}", refusal.message);
            continue;
        }
        figures.requests += 1;
        figures.thoughts += request.judged.valid();
        let watcher = seen.entry(id.to_owned());
        let watcher = watcher.or_insert_with(|| Watcher::new(Form::Chat));
        let differs = watcher.see(request.value());
        let differs = differs.unwrap_or_else(|fault| panic!("{id}, turn {turn}: {fault}"));
        figures.breaks += usize::from(differs.is_some());
    }
}

/// Takes a turn of a session; false where there is none.
async fn step(client: &mut Client, proxy: &Process) -> bool {
    let Some(request) = client.request() else {
        return false;
    };
    let response = post(&proxy.url(), &request).await;
    let status = response.status().as_u16();
    assert_eq!(response.headers().get("x-plimsoll-fail-open"), None);
    let body = response.bytes().await.unwrap();
    let outcome = client.hear(status, &body);
    assert_eq!(outcome.violations, [], "turn {}", request.turn);
    assert!(outcome.advanced, "turn {}: {status}", request.turn);
    true
}

/// Plays sessions in rotation, with the proxy killed twice.
async fn play(recordings: &[Recording], ceiling: u32, streamed: bool) -> Figures {
    let waiting = |recording: &Recording| Session::waiting(recording.clone(), 7);
    let sessions: Vec<Arc<Session>> = recordings.iter().map(waiting).collect();
    let player = Player::new(sessions.iter().cloned()).any_style(11);
    let player = Arc::new(player.thinking(5, THOUGHT));
    let options = Options {
        count: count(),
        auth: Auth::Any,
        rules: Rules::new([Rule::Bound(Mismatch::Refuse)]),
        ..Options::default()
    };
    let provider = Provider::start(player.script(), options).await.unwrap();
    // What a slow disk does is judged elsewhere.
    let waits = ["PLIMSOLL__STORE__WAIT", "PLIMSOLL__STORE__READ_WAIT"];
    let waits = waits.map(|name| (name, "60s".to_owned())).to_vec();
    let mut proxy = Process::with(&provider.base_url, ceiling, waits).await;
    let options = ClientOptions {
        model: MODEL.to_owned(),
        streamed,
        echo_details: true,
        ..ClientOptions::default()
    };
    let client = |session: &Arc<Session>| Client::new(session.clone(), options.clone());
    let mut clients: Vec<Client> = sessions.iter().map(client).collect();
    let lengths = recordings.iter().map(|recording| recording.turns.len());
    let longest = lengths.max().unwrap_or(0);
    let (mut figures, mut seen) = (Figures::default(), BTreeMap::new());
    for turn in 0..longest {
        if turn == longest / 3 || turn == longest * 2 / 3 {
            figures.passes += proxy.metric("plimsoll_passes_total").await;
            proxy.kill_and_restart().await;
        }
        for client in &mut clients {
            figures.turns += usize::from(step(client, &proxy).await);
            judge(&provider.take(), &mut seen, &mut figures);
        }
    }
    figures.passes += proxy.metric("plimsoll_passes_total").await;
    assert_eq!(player.violations(), []);
    // Only a pass may change what was sent.
    assert!(figures.breaks as f64 <= figures.passes, "{figures:?}");
    assert!(figures.refusals <= 1, "{figures:?}");
    figures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_sessions_of_bound_thoughts_are_refused_once_a_tenant() {
    let files = super::files_of(60_000, &NINE);
    let recordings: Vec<Recording> = files.iter().map(super::read).collect();
    for (ceiling, odd) in [(8_000, 0), (40_000, 1)] {
        for (number, group) in recordings.chunks(TOGETHER).enumerate() {
            let streamed = number % 2 == odd;
            let began = std::time::Instant::now();
            let figures = play(group, ceiling, streamed).await;
            println!(
                "budget {ceiling}, streamed {streamed}: {figures:?}, {:.1?}",
                began.elapsed()
            );
        }
    }
}
