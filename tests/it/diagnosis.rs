//! Asking a vendor why its cache missed: only after a miss, only the vendor, and only where it is set. The client's own
//! question passes as it came, and what it did not ask for is not in its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_core::turn::Diagnose;
use serde_json::{Value, json};

use super::cache_misses::{system, told};
use super::dialects::{Agent, Dialect, Provider, Reply, Sent, Told, says};
use super::metered::{self, Metered};
use super::support::Proxy;
use super::vendor::asked;

const ALL: [(Dialect, bool); 4] = [
    (Dialect::Messages, true),
    (Dialect::Messages, false),
    (Dialect::Responses, true),
    (Dialect::Responses, false),
];

fn vendor(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Responses => "openai",
        Dialect::Chat | Dialect::Messages => "anthropic",
    }
}

async fn proxy(addr: std::net::SocketAddr, diagnose: Diagnose, provider: &'static str) -> Proxy {
    let set = |config: &mut plimsoll::config::Config| {
        config.budget.ceiling = 100_000;
        config.cache.diagnose = diagnose;
    };
    Proxy::wired(addr, set, |app| app.provider = provider).await
}

fn agent(proxy: &Proxy, dialect: Dialect, stream: bool) -> Agent {
    let mut agent = metered::agent(proxy, dialect, stream);
    let model = match dialect {
        Dialect::Responses => "gpt-5.6",
        Dialect::Chat | Dialect::Messages => "claude-sonnet-4-6",
    };
    agent.fields.push(("model", json!(model)));
    system(&mut agent, dialect, "You are an agent.");
    agent
}

/// What each request asked to be compared with.
fn questions(host: &Provider) -> Vec<Option<Value>> {
    host.sent().iter().map(asked).collect()
}

/// Plays turns, whose answers must not have what their client did not ask for.
async fn play(agent: &mut Agent, turns: usize) {
    for _ in 0..turns {
        let answer = agent.ask().await;
        assert!(answer.status == 200 && answer.whole, "{}", answer.bytes);
        for word in ["diagnostics", "comparison_response_id"] {
            assert!(!answer.bytes.contains(word), "{}", answer.bytes);
        }
        agent.keep(&answer);
        for call in &answer.calls {
            agent.result(&call.id, &metered::result(&call.id));
        }
    }
}

#[tokio::test]
async fn the_vendor_says_what_changed_after_a_miss() {
    for (dialect, stream) in ALL {
        for marks in [false, true] {
            let metered = Metered::start(marks).await;
            let proxy = proxy(metered.host.addr, Diagnose::AfterMiss, vendor(dialect)).await;
            let mut agent = agent(&proxy, dialect, stream);
            play(&mut agent, 8).await;
            let before = questions(&metered.host).len();
            assert!(questions(&metered.host).iter().all(Option::is_none));
            // The miss itself could not be asked about. From then on each request is compared with the one before.
            agent.tools.push("read");
            play(&mut agent, 4).await;
            system(&mut agent, dialect, "You are another agent.");
            play(&mut agent, 1).await;
            let asked = questions(&metered.host);
            let asked = &asked[before..];
            assert_eq!(asked[0], None, "{dialect:?}");
            let ids = asked.iter().enumerate().skip(1);
            for (at, asked) in ids {
                let before = format!("{}_{}", prefix(dialect), before + at - 1);
                let opens = at == 1 && dialect == Dialect::Messages;
                let expect = if opens { Value::Null } else { json!(before) };
                // The question comes with the turn after the one that missed, whose hops are not asked about.
                let hop = marks && asked.is_none();
                assert!(hop || *asked == Some(expect), "{dialect:?} {at} {asked:?}");
            }
            let told = told(&proxy).await;
            let missed: Vec<_> = told
                .iter()
                .map(|one| (&one["cause"], &one["said"]))
                .collect();
            assert_eq!(
                missed.last().unwrap(),
                &(&json!("client_system"), &json!("system_changed")),
                "{dialect:?} {marks}: {told:?}"
            );
            assert_eq!(missed[0].1, &Value::Null);
        }
    }
}

fn prefix(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Responses => "resp",
        Dialect::Chat | Dialect::Messages => "msg",
    }
}

#[tokio::test]
async fn nobody_is_asked_without_a_miss_or_for_long_behind_one_or_who_is_no_vendor() {
    for (dialect, stream) in ALL {
        for (diagnose, provider, some) in [
            (Diagnose::Off, vendor(dialect), false),
            (Diagnose::AfterMiss, "custom", false),
            (Diagnose::AfterMiss, "openrouter", false),
            (Diagnose::AfterMiss, vendor(dialect), true),
        ] {
            let metered = Metered::start(false).await;
            let proxy = proxy(metered.host.addr, diagnose, provider).await;
            let mut agent = agent(&proxy, dialect, stream);
            play(&mut agent, 6).await;
            metered.forget();
            play(&mut agent, 14).await;
            let asked = questions(&metered.host);
            let count = asked.iter().flatten().count();
            assert_eq!(
                count,
                if some { 8 } else { 0 },
                "{dialect:?} {provider}: {asked:?}"
            );
            assert!(asked[15..].iter().all(Option::is_none));
        }
    }
}

#[tokio::test]
async fn a_client_that_asks_is_answered() {
    for (dialect, stream) in ALL {
        let metered = Metered::start(false).await;
        let proxy = proxy(metered.host.addr, Diagnose::AfterMiss, vendor(dialect)).await;
        let mut agent = agent(&proxy, dialect, stream);
        play(&mut agent, 5).await;
        metered.forget();
        play(&mut agent, 1).await;
        let own = match dialect {
            Dialect::Responses => (
                "prompt_cache_options",
                json!({"ttl": "30m", "comparison_response_id": "resp_5"}),
            ),
            Dialect::Chat | Dialect::Messages => {
                ("diagnostics", json!({"previous_message_id": null}))
            }
        };
        agent.fields.push(own.clone());
        let answer = agent.ask().await;
        assert_eq!(metered.host.newest().body[own.0], own.1, "{dialect:?}");
        let told = match dialect {
            Dialect::Responses => r#""comparison_response_id":"resp_0""#,
            Dialect::Chat | Dialect::Messages => r#""diagnostics":null"#,
        };
        assert!(answer.bytes.contains(told), "{}", answer.bytes);
    }
}

#[tokio::test]
async fn a_vendor_that_refuses_the_question_is_asked_once() {
    for (dialect, stream) in ALL {
        let turn = Arc::new(AtomicUsize::new(0));
        let at = Arc::clone(&turn);
        let host = Provider::telling(move |number, sent: &Sent| {
            let known = Told {
                input: 9_000,
                cached: if at.load(Ordering::SeqCst) == 4 {
                    0
                } else {
                    8_000
                },
                ..Told::default()
            };
            let refusal = match sent.dialect() {
                Dialect::Responses => {
                    "Unknown parameter: 'prompt_cache_options.comparison_response_id'."
                }
                Dialect::Chat | Dialect::Messages => "diagnostics: Extra inputs are not permitted",
            };
            match asked(sent) {
                Some(_) => (Reply::Refuses(refusal), known),
                None => (says(&format!("step {number}"), Vec::new()), known),
            }
        })
        .await;
        let proxy = proxy(host.addr, Diagnose::AfterMiss, vendor(dialect)).await;
        let mut agent = agent(&proxy, dialect, stream);
        for round in 0..9 {
            turn.store(round, Ordering::SeqCst);
            let answer = agent.ask().await;
            assert_eq!(answer.status, 200, "{}", answer.bytes);
            agent.keep(&answer);
            agent.user("go on");
        }
        let asked = questions(&host);
        assert_eq!(asked.iter().flatten().count(), 1, "{dialect:?} {asked:?}");
        assert_eq!(asked.len(), 10);
    }
}
