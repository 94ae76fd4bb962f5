//! Clients that rename the ids of calls, as agents do that make them fit the next provider: cut, cleaned,
//! hashed, numbered anew. Their sessions go on all the same, hidden exchanges and marks stay, and what goes
//! up is a conversation whose calls and results are pairs.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::dialects::{Agent, Call, DIALECTS, Dialect, Provider, Sent, Told, call, says};
use super::support::Proxy;

/// What becomes of an id: by the id, its place in the history and the number of the request.
type Rename = fn(&str, usize, usize) -> String;

fn hashed(id: &str, letters: usize) -> String {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    format!("{:016x}", hasher.finish())[..letters].to_owned()
}

fn cleaned(id: &str) -> String {
    let clean = |letter: char| match letter.is_ascii_alphanumeric() {
        true => letter,
        false => '_',
    };
    id.chars().map(clean).collect()
}

const UNCHANGED: (&str, Rename) = ("unchanged", |id, _, _| id.to_owned());
const WAYS: [(&str, Rename); 5] = [
    ("hashed to 9", |id, _, _| hashed(id, 9)),
    ("cleaned", |id, _, _| cleaned(id)),
    ("with a prefix", |id, _, _| format!("toolu_{}", cleaned(id))),
    ("numbered", |_, place, _| format!("call_{place}")),
    ("numbered with each request", |_, place, request| {
        format!("call_{request}_{place}")
    }),
];

/// An agent that renames ids in what it sends and never in what it keeps.
struct Renaming {
    agent: Agent,
    rename: Rename,
    requests: usize,
}

impl Renaming {
    fn new(proxy: &Proxy, dialect: Dialect, stream: bool, rename: Rename) -> Self {
        Self {
            agent: Agent::new(proxy, dialect, stream, "s"),
            rename,
            requests: 0,
        }
    }

    /// The history with other ids.
    fn renamed(&self) -> Vec<Value> {
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        let mut new = |id: &Value| {
            let id = id.as_str().unwrap();
            let place = names.len();
            let name = || (self.rename)(id, place, self.requests);
            json!(names.entry(id.to_owned()).or_insert_with(name))
        };
        let mut history = self.agent.history.clone();
        for message in &mut history {
            for key in ["tool_call_id", "call_id"] {
                if message[key].is_string() {
                    message[key] = new(&message[key]);
                }
            }
            if message["type"] == "function_call" {
                message["id"] = json!(format!(
                    "fc_{}",
                    hashed(message["id"].as_str().unwrap(), 16)
                ));
            }
            for list in ["tool_calls", "content"] {
                let parts = message.get_mut(list).and_then(Value::as_array_mut);
                for part in parts.into_iter().flatten() {
                    for key in ["id", "tool_use_id"] {
                        if part[key].is_string() {
                            part[key] = new(&part[key]);
                        }
                    }
                }
            }
        }
        history
    }

    /// One turn whose calls get results of so many lines.
    async fn turn(&mut self, lines: usize) -> (u32, String) {
        let kept = self.agent.history.clone();
        self.agent.history = self.renamed();
        let answer = self.agent.ask().await;
        self.agent.history = kept;
        self.requests += 1;
        assert_eq!(answer.status, 200, "{}", answer.bytes);
        self.agent.keep(&answer);
        for call in &answer.calls {
            let result = |line: usize| format!("{} {line}: value", call.arguments);
            let lines: Vec<String> = (0..lines).map(result).collect();
            self.agent.result(&call.id, &lines.join("\n"));
        }
        let turn = answer.header("x-plimsoll-turn").parse().unwrap();
        (turn, answer.header("x-plimsoll-budget").to_owned())
    }
}

/// A provider that does so many steps of work, two calls at a time now and then, and marks each sixth. With
/// `same`, all steps are the same.
async fn provider(steps: usize, same: bool) -> Provider {
    let issued = Arc::new(AtomicUsize::new(0));
    Provider::telling(move |_, sent| {
        let calls = sent.calls();
        let done = calls.iter().filter(|call| call.name == "bash").count();
        let id = |name: &str| {
            let number = issued.fetch_add(1, Ordering::Relaxed);
            format!("functions.{name}:{number}")
        };
        let command = |done: usize| match same {
            true => json!({"command": "git status"}),
            false => json!({"command": done}),
        };
        let mut made = Vec::new();
        // What answers a mark alone is the second hop of its turn.
        let second = sent.key().starts_with("functions.delimiter");
        let marks = done.is_multiple_of(6) && !second;
        if done < steps && marks {
            let name = format!("e{done}");
            if done > 0 {
                let end = json!({"action": "end", "description": "seen"});
                made.push(call(&id("delimiter"), "delimiter", end));
            }
            let start = json!({"action": "start", "name": name, "type": "expl"});
            made.push(call(&id("delimiter"), "delimiter", start));
        }
        // Each other mark is a message of its own.
        if done < steps && !(marks && done % 12 == 6) {
            made.push(call(&id("bash"), "bash", command(done)));
            if done % 4 == 3 {
                made.push(call(&id("bash"), "bash", command(done + 1)));
            }
        }
        let told = Told {
            input: sent.bytes.len() / 3,
            output: 9,
            ..Told::default()
        };
        (says(if made.is_empty() { "done" } else { "" }, made), told)
    })
    .await
}

/// The names of calls in order, and that each call has an id and a result of its own.
fn names(sent: &Sent, what: &str) -> Vec<String> {
    let calls = sent.calls();
    let mut ids: Vec<&String> = calls.iter().map(|call| &call.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), calls.len(), "{what}: {calls:?}");
    for Call { id, .. } in &calls {
        assert!(sent.result(id).is_some(), "{what}: {id} has no result");
    }
    calls.into_iter().map(|call| call.name).collect()
}

/// What a whole session came to: the names of the calls that went up at its end, and how often a request
/// did not begin with the one before.
struct Session {
    names: Vec<String>,
    breaks: usize,
}

const STEPS: usize = 26;

async fn session(
    dialect: Dialect,
    stream: bool,
    same: bool,
    (way, rename): (&str, Rename),
) -> Session {
    let what = format!("{dialect:?}, streamed {stream}, same {same}, ids {way}");
    let provider = provider(STEPS, same).await;
    let small = |config: &mut plimsoll::config::Config| config.budget.ceiling = 6_000;
    let proxy = Proxy::with(provider.addr, small).await;
    let mut agent = Renaming::new(&proxy, dialect, stream, rename);
    agent.agent.user("go");
    let mut turns = 0;
    let mut goes_on = async |agent: &mut Renaming, until: usize| {
        while turns < until {
            let (turn, budget) = agent.turn(60).await;
            turns += 1;
            assert_eq!((turn as usize, &budget[..]), (turns, "met"), "{what}");
        }
    };
    goes_on(&mut agent, 9).await;
    // Behind a restart.
    let store = Arc::clone(&proxy.app.store);
    let other = Proxy::wired(provider.addr, small, |app| app.store = store).await;
    agent.agent.at(&other);
    goes_on(&mut agent, 20).await;
    let sent = provider.sent();
    let texts: Vec<Vec<String>> = sent.iter().map(Sent::texts).collect();
    let breaks = texts.windows(2).filter(|two| !two[1].starts_with(&two[0]));
    Session {
        names: names(sent.last().unwrap(), &what),
        breaks: breaks.count(),
    }
}

#[tokio::test]
async fn a_client_that_renames_ids_keeps_its_session() {
    for dialect in DIALECTS {
        for (stream, same) in [(false, false), (true, true)] {
            let base = session(dialect, stream, same, UNCHANGED).await;
            assert!(base.names.contains(&"delimiter".to_owned()));
            for way in WAYS {
                let renamed = session(dialect, stream, same, way).await;
                let what = format!("{dialect:?}, streamed {stream}, same {same}, ids {}", way.0);
                assert_eq!(renamed.names, base.names, "{what}");
                // What the client itself changes with each request breaks the prefix each time.
                if way.0 != "numbered with each request" {
                    let (breaks, base) = (renamed.breaks, base.breaks);
                    assert!(breaks <= base + 3, "{what}: {breaks} breaks, not {base}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_begins_to_rename_in_mid_session_keeps_it() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let provider = provider(STEPS, false).await;
            let proxy = Proxy::before(provider.addr).await;
            let mut agent = Renaming::new(&proxy, dialect, stream, UNCHANGED.1);
            agent.agent.user("go");
            for turn in 1..=8 {
                assert_eq!(agent.turn(3).await.0, turn, "{dialect:?} {stream}");
            }
            let before = names(&provider.newest(), "before");
            agent.rename = WAYS[0].1;
            for turn in 9..=12 {
                assert_eq!(agent.turn(3).await.0, turn, "{dialect:?} {stream}");
            }
            let newest = provider.newest();
            let after = names(&newest, "after");
            assert_eq!(after[..before.len()], before, "{dialect:?} {stream}");
            // The next provider takes no other ids.
            for call in newest.calls() {
                let fits = call.id.len() == 9 && call.id.chars().all(char::is_alphanumeric);
                assert!(fits, "{dialect:?} {stream}: {}", call.id);
            }
        }
    }
}

#[tokio::test]
async fn conversations_that_say_the_same_stay_apart() {
    for dialect in DIALECTS {
        let provider = provider(STEPS, true).await;
        let proxy = Proxy::before(provider.addr).await;
        let mut agents: Vec<Renaming> = (0..3)
            .map(|_| Renaming::new(&proxy, dialect, false, WAYS[0].1))
            .collect();
        for agent in &mut agents {
            agent.agent.user("go");
        }
        for turn in 0..10 {
            for (place, agent) in agents.iter_mut().enumerate() {
                let (told, _) = agent.turn(3).await;
                // Nothing tells the first answers apart; from then on each has its own records.
                let least = if turn == 0 { 1 } else { turn };
                assert!(told >= least, "{dialect:?} {place}: turn {told} at {turn}");
                let sent = provider.newest();
                names(&sent, "each");
            }
        }
    }
}

#[tokio::test]
async fn another_tenant_finds_nothing_by_what_was_called() {
    for dialect in DIALECTS {
        let provider = provider(STEPS, true).await;
        let proxy = Proxy::before(provider.addr).await;
        let mut agent = Renaming::new(&proxy, dialect, false, WAYS[0].1);
        agent.agent.user("go");
        for turn in 1..=3 {
            assert_eq!(agent.turn(3).await.0, turn, "{dialect:?}");
        }
        agent.agent.headers.push(("x-api-key", "other".to_owned()));
        assert_eq!(agent.turn(3).await.0, 1, "{dialect:?}");
        assert!(!names(&provider.newest(), "other").contains(&"delimiter".to_owned()));
    }
}
