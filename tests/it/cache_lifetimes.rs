//! How long a provider keeps a prefix: for as long as any of the requests before asked, by its markers or its options.
//! Until that is over no pass is free.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll::config::Config;
use plimsoll_core::turn::Uncached;
use serde_json::{Value, json};

use super::dialects::{Agent, Dialect, Provider, Reply, Sent, call, says};
use super::support::Proxy;

const MINUTE: u64 = 60_000;

/// One more command each time that the user says something.
fn reply(sent: &Sent) -> Reply {
    match sent.key() {
        key if key.starts_with("ask ") => says(
            "",
            vec![call(&key[4..], "bash", json!({"command": "make"}))],
        ),
        _ => says("done", Vec::new()),
    }
}

/// The sizes of the requests, in bytes, of a session of eight turns of two requests which rests for so many minutes
/// before the last turn.
async fn played(
    dialect: Dialect,
    model: &str,
    fields: &[(&'static str, Value)],
    (rest, later): (u64, &[(&'static str, Value)]),
    configure: impl FnOnce(&mut Config),
) -> Vec<usize> {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000_000_000);
    // A proxy's clock is one for all, so sessions that let time pass take turns.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = TURN.lock().await;
    let provider = Provider::start(|_, sent| reply(sent)).await;
    let proxy = Proxy::wired(
        provider.addr,
        |config| {
            config.budget.ceiling = 8_000;
            configure(config);
        },
        |app| app.clock = || NOW.load(Ordering::SeqCst),
    )
    .await;
    let mut agent = Agent::new(&proxy, dialect, false, "rests");
    for turn in 1..=8 {
        agent.fields = vec![("model", json!(model))];
        let asked = if turn == 7 { later } else { fields };
        agent.fields.extend_from_slice(asked);
        if turn == 8 {
            NOW.fetch_add(rest * MINUTE, Ordering::SeqCst);
        }
        agent.user(&format!("ask c{turn}"));
        agent.turn().await;
        // Above the floor of 5,600 tokens from the eighth turn on, and never above the ceiling.
        let result = format!("{turn} {}", "lorem ipsum ".repeat(550));
        agent.history.pop();
        agent.result(&format!("c{turn}"), &result);
        let answer = agent.turn().await;
        assert_eq!(
            answer.header("x-plimsoll-budget"),
            "met",
            "{dialect:?} {turn}"
        );
    }
    let sizes: Vec<usize> = provider.sent().iter().map(|one| one.bytes.len()).collect();
    assert_eq!(sizes.len(), 16);
    sizes
}

fn marked(ttl: Option<&str>) -> Vec<(&'static str, Value)> {
    let marker = match ttl {
        Some(ttl) => json!({"type": "ephemeral", "ttl": ttl}),
        None => json!({"type": "ephemeral"}),
    };
    vec![("cache_control", marker)]
}

#[tokio::test]
async fn no_pass_is_free_before_the_longest_lifetime_is_over() {
    let (hour, minutes) = (marked(Some("1h")), marked(None));
    let retained = vec![("prompt_cache_retention", json!("24h"))];
    let claude = "claude-sonnet-4-5";
    for (dialect, model, fields, later, rest, free) in [
        (Dialect::Messages, claude, &minutes, &minutes, 4, false),
        (Dialect::Messages, claude, &minutes, &minutes, 6, true),
        (Dialect::Messages, claude, &hour, &hour, 6, false),
        (Dialect::Messages, claude, &hour, &hour, 50, false),
        (Dialect::Messages, claude, &hour, &hour, 70, true),
        // The tail is kept for less, and what stands before it for as long as it was asked for.
        (Dialect::Messages, claude, &hour, &minutes, 20, false),
        (Dialect::Chat, claude, &hour, &hour, 20, false),
        (Dialect::Chat, claude, &minutes, &minutes, 20, true),
        (
            Dialect::Responses,
            "gpt-5",
            &Vec::new(),
            &Vec::new(),
            70,
            true,
        ),
        (Dialect::Responses, "gpt-5", &retained, &retained, 70, false),
        (
            Dialect::Responses,
            "gpt-5",
            &retained,
            &retained,
            25 * 60,
            true,
        ),
        (Dialect::Chat, "gpt-5", &retained, &retained, 70, false),
    ] {
        let sizes = played(dialect, model, fields, (rest, later), |_| ()).await;
        let falls = |at: &usize| sizes[*at] < sizes[at - 1];
        let fell: Vec<usize> = (1..sizes.len()).filter(falls).collect();
        let expect = if free { vec![14] } else { Vec::new() };
        assert_eq!(
            fell, expect,
            "{dialect:?} {model} {fields:?} {later:?} after {rest} minutes"
        );
    }
}

/// Where the provider caches nothing, a pass may happen whenever the view is above the floor.
#[tokio::test]
async fn without_a_cache_a_pass_is_always_free() {
    let mut last = Vec::new();
    for (none, model) in [
        (Uncached::Wait, "gpt-5-pro"),
        (Uncached::Pass, "gpt-5-pro"),
        (Uncached::Pass, "gpt-5"),
    ] {
        let sizes = played(Dialect::Chat, model, &[], (0, &[]), |config| {
            config.cache.none = none;
        });
        last.extend(sizes.await.pop());
    }
    let [waits, passes, caches] = last[..] else {
        panic!("{last:?}");
    };
    assert!(passes < waits && waits.abs_diff(caches) < 100, "{last:?}");
}
