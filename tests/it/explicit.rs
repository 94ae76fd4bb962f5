//! Breakpoints in requests of Chat Completions and Responses to a vendor whose cache matches at breakpoints and sets one at
//! the newest message by itself: by what it would read again of each request.

use std::collections::HashSet;

use plimsoll_core::turn::SetBreakpoints;
use serde_json::{Value, json};

use super::dialects::{Agent, Dialect, Provider, Reply, call, says};
use super::metered::result;
use super::support::Proxy;

const TURNS: usize = 40;
const WORD: &str = "prompt_cache_breakpoint";

const ALL: [(Dialect, bool); 4] = [
    (Dialect::Chat, true),
    (Dialect::Chat, false),
    (Dialect::Responses, true),
    (Dialect::Responses, false),
];

/// What differs between sessions.
#[derive(Clone, Copy)]
struct Setting {
    set: SetBreakpoints,
    vendor: &'static str,
    model: &'static str,
    /// Whether the provider knows markers.
    knows: bool,
    options: Option<&'static str>,
}

const SET: Setting = Setting {
    set: SetBreakpoints::Auto,
    vendor: "openai",
    model: "gpt-5.6",
    knows: true,
    options: None,
};

/// What the provider got of a session of many passes, in which the user speaks now and then.
async fn session((dialect, stream): (Dialect, bool), with: Setting) -> Vec<Value> {
    let host = Provider::start(move |number, sent| {
        if !with.knows && sent.body.to_string().contains(WORD) {
            return Reply::Refuses(
                "Unknown parameter: 'input[0].content[0].prompt_cache_breakpoint'.",
            );
        }
        let id = format!("b{number}");
        says("", vec![call(&id, "bash", format!(r#"{{"c":"{id}"}}"#))])
    })
    .await;
    let proxy = Proxy::wired(
        host.addr,
        |config| {
            config.budget.ceiling = 6_000;
            config.budget.implicit_tokens = 500;
            config.cache.breakpoints = with.set;
        },
        |app| app.provider = with.vendor,
    )
    .await;
    let mut agent = Agent::new(&proxy, dialect, stream, "explicit");
    agent.fields.push(("model", json!(with.model)));
    if let Some(mode) = with.options {
        agent
            .fields
            .push(("prompt_cache_options", json!({"mode": mode})));
    }
    agent.user("go");
    for turn in 0..TURNS {
        let answer = agent.ask().await;
        assert!(answer.status == 200 && answer.whole, "{}", answer.bytes);
        assert_eq!(answer.header("x-plimsoll-fail-open"), "");
        agent.keep(&answer);
        for call in &answer.calls {
            agent.result(&call.id, &result(&format!("{turn}")));
        }
        if turn % 9 == 8 {
            agent.user(&format!("now part {turn}"));
        }
    }
    host.sent().into_iter().map(|sent| sent.body).collect()
}

/// The messages of a request without markers, each with whether it has one.
fn units(body: &Value) -> Vec<(Value, bool)> {
    let list = body.get("messages").unwrap_or(&body["input"]);
    let apart = |unit: &Value| {
        let mut unit = unit.clone();
        let marked = unit.to_string().contains(WORD);
        if marked {
            let role = unit["role"].as_str().unwrap();
            assert!(["user", "system", "developer"].contains(&role), "{unit}");
            let block = unit["content"].as_array_mut().unwrap().last_mut().unwrap();
            assert_eq!(block[WORD], json!({"mode": "explicit"}));
            block.as_object_mut().unwrap().remove(WORD);
            // A text is the same to the provider as a block of it.
            if unit["content"].as_array().unwrap().len() == 1 {
                unit["content"] = unit["content"][0]["text"].clone();
            }
        }
        (unit, marked)
    };
    list.as_array().unwrap().iter().map(apart).collect()
}

fn markers(body: &Value) -> usize {
    units(body).iter().filter(|(_, marked)| *marked).count()
}

fn bare(seen: &[Value]) -> Vec<Vec<Value>> {
    let bare = |body: &Value| units(body).into_iter().map(|(unit, _)| unit);
    seen.iter().map(|body| bare(body).collect()).collect()
}

/// The share of all bytes that a cache reads which is written at breakpoints and at the end of each request.
fn share(seen: &[Value]) -> f64 {
    let (mut held, mut read, mut all) = (HashSet::new(), 0, 0);
    for body in seen {
        let units = units(body);
        let mut prefixes = vec![String::new()];
        for (unit, _) in &units {
            prefixes.push(format!("{}{unit}", prefixes.last().unwrap()));
        }
        let longest = prefixes.iter().filter(|prefix| held.contains(*prefix));
        read += longest.map(String::len).max().unwrap_or(0);
        all += prefixes.last().unwrap().len();
        let marked = (1..).zip(&units).filter(|(_, (_, marked))| *marked);
        held.extend(marked.map(|(at, _)| prefixes[at].clone()));
        held.extend(prefixes.pop());
    }
    #[expect(clippy::cast_precision_loss, reason = "bytes of a test")]
    let share = read as f64 / all as f64;
    share
}

#[tokio::test]
async fn more_is_read_again_where_passes_leave_it_alone() {
    for dialect in ALL {
        let off = Setting {
            set: SetBreakpoints::Off,
            ..SET
        };
        let (with, without) = (session(dialect, SET).await, session(dialect, off).await);
        assert_eq!(bare(&with), bare(&without), "nothing but markers differs");
        assert!(without.iter().all(|body| markers(body) == 0));
        for body in &with[1..] {
            assert!((1..=3).contains(&markers(body)), "{body}");
        }
        let (with, without) = (share(&with), share(&without));
        println!("{dialect:?}: {with:.3} of the input is read again, {without:.3} without");
        assert!(with > without + 0.005, "{dialect:?}: {with} and {without}");
    }
}

#[tokio::test]
async fn one_who_may_not_know_them_gets_none() {
    for dialect in ALL {
        for with in [
            Setting {
                vendor: "custom",
                ..SET
            },
            Setting {
                vendor: "openrouter",
                ..SET
            },
            Setting {
                model: "gpt-5.2",
                ..SET
            },
            Setting {
                model: "claude-opus-4-6",
                ..SET
            },
            // Thoughts are bound to what stands before them, as it is written.
            Setting {
                model: "gpt-6.2",
                ..SET
            },
            // The client decides alone.
            Setting {
                options: Some("explicit"),
                ..SET
            },
        ] {
            let seen = session(dialect, with).await;
            let some = seen.iter().filter(|body| markers(body) > 0).count();
            assert_eq!(some, 0, "{dialect:?} {} {}", with.vendor, with.model);
        }
    }
}

#[tokio::test]
async fn one_who_refuses_them_gets_them_once() {
    for dialect in ALL {
        let seen = session(
            dialect,
            Setting {
                knows: false,
                ..SET
            },
        )
        .await;
        let marked: Vec<usize> = seen.iter().map(markers).collect();
        assert_eq!(
            marked.iter().filter(|count| **count > 0).count(),
            1,
            "{marked:?}"
        );
        assert_eq!(seen.len(), TURNS + 1);
    }
}

#[tokio::test]
async fn a_message_that_the_client_marks_stays_its_own() {
    for dialect in ALL {
        let host = Provider::start(|number, _| says(&format!("said {number}"), Vec::new())).await;
        let proxy = Proxy::wired(host.addr, |_| (), |app| app.provider = "openai").await;
        let mut agent = Agent::new(&proxy, dialect.0, dialect.1, "explicit");
        agent.fields.push(("model", json!("gpt-5.6")));
        let text = match dialect.0 {
            Dialect::Responses => "input_text",
            Dialect::Chat | Dialect::Messages => "text",
        };
        let own = json!({"role": "user", "content": [
            {"type": text, "text": "go", WORD: {"mode": "explicit"}}, {"type": text, "text": "on"}]});
        agent.history.push(own.clone());
        for _ in 0..4 {
            let answer = agent.ask().await;
            assert_eq!(answer.status, 200);
            agent.keep(&answer);
            agent.user("and on");
        }
        for sent in host.sent() {
            let list = sent
                .body
                .get("messages")
                .unwrap_or(&sent.body["input"])
                .clone();
            let list = list.as_array().unwrap();
            let first = list.iter().find(|unit| unit["role"] == "user").unwrap();
            assert_eq!(first["content"][0], own["content"][0], "{first}");
            let set = sent.body.to_string().matches(WORD).count();
            assert!(set <= 3, "{set}");
        }
    }
}
