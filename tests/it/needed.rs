//! What had left a view and was needed: each string that a call uses is held or missed as the request that the provider
//! got has it, and calls made again and recalls count beside them.

use std::collections::HashSet;

use plimsoll::config::{Backend, Config};
use plimsoll_model::{NeededCounts, TurnRecord, strings};
use plimsoll_scripted::{Call, Provider, Reply, Script};
use serde_json::{Value, json};

use super::agent::{Agent, bash, explore, last_key, learned, newest, provider, total};
use super::recall::{CEILING, output};
use super::support::Proxy;

/// A model that works for eight turns, reads a file between them, and then does what the user says: `use b1 5` calls a
/// tool with a string of line 5 of that result, which nobody has named; `bash ID` and `read` make a call again; `recall
/// ID` recalls.
fn working() -> Script {
    Script::ask(|view| {
        let key = last_key(view.messages());
        let id = format!("u{}", view.index);
        let mut words = key.split(' ');
        let words = [(); 3].map(|()| words.next().unwrap_or_default());
        match words {
            ["go", ..] => Reply::calls(vec![explore("d1", "first"), read("f1")]),
            ["f1", ..] => Reply::calls(vec![bash("b1")]),
            ["b3", ..] => Reply::calls(vec![
                learned("d2", "values"),
                explore("d3", "second"),
                bash("b4"),
            ]),
            ["b8", ..] => Reply::text("worked"),
            ["use", of, line] => Reply::calls(vec![Call::new(
                id,
                "bash",
                json!({"c": format!("grep {}", value(of, line))}).to_string(),
            )]),
            ["bash", of, _] => Reply::calls(vec![bash(of)]),
            ["read", ..] => Reply::calls(vec![read(&id)]),
            ["recall", of, _] => {
                Reply::calls(vec![Call::new(id, "recall", json!({"id": of}).to_string())])
            }
            [other, ..] => match other.strip_prefix('b').and_then(|n| n.parse::<u32>().ok()) {
                Some(n) if n < 8 => Reply::calls(vec![bash(&format!("b{}", n + 1))]),
                Some(_) | None => Reply::text("done"),
            },
        }
    })
}

fn read(id: &str) -> Call {
    Call::new(id, "read_file", r#"{"path":"/srv/notes.txt"}"#)
}

/// A string of a line of [`output`].
fn value(of: &str, line: &str) -> String {
    format!("value-{of}-{line}")
}

/// The texts of the newest request's messages, arguments of calls among them.
fn sent(provider: &Provider) -> Vec<String> {
    let request = newest(provider).value();
    let messages = request["messages"].as_array().unwrap().clone();
    let mut texts = Vec::new();
    for message in messages {
        texts.extend(message["content"].as_str().map(str::to_owned));
        let calls = message["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let arguments = |call: &Value| call["function"]["arguments"].as_str().map(str::to_owned);
        texts.extend(calls.iter().filter_map(arguments));
    }
    texts
}

/// Whether a request has a string, and whether it has the whole result that this string is of.
fn has(sent: &[String], wanted: &str, whole: &str) -> (bool, bool) {
    let mut all = sent.iter().flat_map(|text| strings(text));
    (
        all.any(|(_, string)| string == wanted),
        sent.iter().any(|text| text == whole),
    )
}

async fn turn(agent: &mut Agent, says: &str) {
    agent.user(says);
    while let Some(call) = agent.turn().await.heard.calls.first() {
        let id = call.id.clone();
        let result = if id.starts_with(['b', 'f']) {
            output(&id)
        } else {
            "ok".to_owned()
        };
        agent.result(&id, &result);
        // What the user asked for is done.
        if says != "go" {
            return;
        }
    }
}

/// What the records say of all turns: strings held and missed, calls made again, and recalls.
fn recorded(proxy: &Proxy) -> [u32; 4] {
    let stored = proxy.linked();
    let records = stored.iter();
    let records = records.filter_map(|bytes| rmp_serde::from_slice::<TurnRecord>(bytes).ok());
    let mut sum = NeededCounts::default();
    records.for_each(|record| sum.add(&record.facts.needed));
    [sum.held, sum.missed, sum.again(), sum.recalled]
}

async fn counted(proxy: &Proxy) -> [f64; 5] {
    let mut counts = [0.0; 5];
    for (count, how) in
        counts
            .iter_mut()
            .zip(["in_view", "missed", "read_again", "asked_again", "recalled"])
    {
        *count = total(proxy, &format!("plimsoll_needed_total{{how=\"{how}\"}}")).await;
    }
    counts
}

/// What was counted of strings, and what should be.
#[derive(Default)]
struct Tally {
    held: f64,
    missed: f64,
    kinds: HashSet<(bool, bool)>,
}

impl Tally {
    /// Has the model use a string of a line of a result, and holds what is counted to the request that the provider got.
    async fn uses(&mut self, agent: &mut Agent, sides: (&Proxy, &Provider), says: &str) {
        let (proxy, provider) = sides;
        let words: Vec<&str> = says.split(' ').collect();
        let (of, line) = (words[1], words[2]);
        let wanted = value(of, line);
        // A string that the client has dropped has not left the view.
        let said = agent.history.iter().any(|message| {
            strings(message["content"].as_str().unwrap_or_default())
                .any(|(_, string)| string == wanted)
        });
        turn(agent, says).await;
        let (is_sent, whole) = has(&sent(provider), &wanted, &output(of));
        if said && !whole {
            self.held += f64::from(u8::from(is_sent));
            self.missed += f64::from(u8::from(!is_sent));
        }
        self.kinds.insert((said && !whole, is_sent));
        let counts = counted(proxy).await;
        assert_eq!(counts, [self.held, self.missed, 0.0, 0.0, 0.0], "{says}");
    }
}

#[tokio::test]
async fn strings_of_what_left_are_held_or_missed_as_the_request_has_them() {
    for stream in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let on_disk = move |config: &mut Config| {
            config.budget.ceiling = CEILING;
            config.store.backend = Backend::Sled;
            config.store.path = path;
        };
        let provider = provider(working()).await;
        let proxy = Proxy::with(provider.address, on_disk.clone()).await;
        let mut agent = Agent::new(&proxy, stream);
        turn(&mut agent, "go").await;
        let mut fork = agent.clone();
        let mut tally = Tally::default();
        for says in [
            "use b1 50",
            "use b1 50",
            "use b2 7",
            "use b8 3",
            "use b9 1",
            "use f1 12",
        ] {
            tally.uses(&mut agent, (&proxy, &provider), says).await;
        }
        // Another branch is judged by its own requests: here the user names a string that the view has lost.
        for says in ["use b1 60 value-b1-60", "use b1 50", "use b2 9"] {
            tally.uses(&mut fork, (&proxy, &provider), says).await;
        }
        // A client that clears an old result has dropped its strings.
        let result = fork
            .history
            .iter_mut()
            .find(|message| message["tool_call_id"] == "b1");
        result.unwrap()["content"] = json!("[cleared]");
        for says in ["use b1 70", "use b2 10"] {
            tally.uses(&mut fork, (&proxy, &provider), says).await;
        }
        let passes = total(&proxy, "plimsoll_passes_total").await;
        assert_eq!(
            total(&proxy, "plimsoll_pass_lines_kept_ratio_count").await,
            passes
        );
        proxy.end().await;
        // Another process finds out anew what is gone.
        let proxy = Proxy::with(provider.address, on_disk).await;
        agent.url = proxy.url("/v1/chat/completions");
        let kinds = std::mem::take(&mut tally).kinds;
        assert!(
            kinds.is_superset(&[(true, true), (true, false), (false, true)].into()),
            "{kinds:?}"
        );
        for says in ["use b2 8", "use b1 50"] {
            tally.uses(&mut agent, (&proxy, &provider), says).await;
        }
        proxy.end().await;
    }
}

#[tokio::test]
async fn calls_made_again_count_by_their_tools_and_recalls_by_what_came_back() {
    let provider = provider(working()).await;
    let proxy = Proxy::with(provider.address, |config| config.budget.ceiling = CEILING).await;
    let mut agent = Agent::new(&proxy, true);
    turn(&mut agent, "go").await;
    let passes = total(&proxy, "plimsoll_passes_total").await;
    assert!(passes > 0.0);
    for name in ["strings", "lines"] {
        let name = format!("plimsoll_pass_{name}_kept_ratio");
        assert_eq!(total(&proxy, &format!("{name}_count")).await, passes);
        let sum = total(&proxy, &format!("{name}_sum")).await;
        assert!(sum > 0.0 && sum < passes, "{name} {sum}");
    }
    turn(&mut agent, "read").await;
    turn(&mut agent, "bash b1").await;
    turn(&mut agent, "bash b8").await;
    let [held, missed, again, asked, recalled] = counted(&proxy).await;
    assert_eq!([again, asked, recalled], [1.0, 1.0, 0.0]);
    // The path stood in the call that is made again, which has left as well.
    assert_eq!(held + missed, 1.0);
    assert_eq!(total(&proxy, "plimsoll_refetch_total").await, 2.0);
    turn(&mut agent, "recall bash:8").await;
    let [held, missed, again, asked, recalled] = counted(&proxy).await;
    assert_eq!([again, asked, recalled], [1.0, 1.0, 1.0]);
    let recorded = recorded(&proxy).map(f64::from);
    assert_eq!(recorded, [held, missed, again + asked, recalled]);
}
