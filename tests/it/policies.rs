//! What each policy leaves of a session, seen from the provider: the one that a request names is
//! the one that serves it, and what the finer levels leave behind stands where they say.

use plimsoll_core::turn::Guidance;
use plimsoll_scripted::{Call, Provider, Reply};
use serde_json::{Value, json};

use super::agent::{Agent, bash, extends, none_refused, plan, provider};
use super::support::Proxy;

/// A listing whose lines have names of their own among lines that stand everywhere.
fn listing(turn: usize) -> String {
    let line = |line: usize| match line % 8 {
        0 => format!("src/part_{turn}/module_{line}.rs\n"),
        _ => "nothing to be seen here, the same in each and every file\n".to_owned(),
    };
    (0..120).map(line).collect()
}

/// Commands and reads in turns.
fn call(turn: usize) -> Call {
    let id = format!("b{}", turn + 1);
    if turn.is_multiple_of(2) {
        bash(&id)
    } else {
        Call::new(&id, "read", json!({"path": id}).to_string())
    }
}

/// A session of fourteen calls under a budget that it passes, and what the provider was sent.
async fn served(policy: &str, stream: bool) -> (Provider, Vec<Value>) {
    let ids: Vec<String> = (1..=14).map(|n| format!("b{n}")).collect();
    let mut keys = vec!["go"];
    keys.extend(ids.iter().map(String::as_str));
    let turns = keys.iter().zip(0..14);
    let provider = provider(plan(
        turns.map(|(key, turn)| (*key, vec![Reply::calls(vec![call(turn)])])),
    ))
    .await;
    let proxy = Proxy::with(provider.address, |config| {
        // Who is asked to mark work and marks none has a prologue alone, in the published order.
        config.delimiter.guidance = Guidance::Off;
    })
    .await;
    let mut agent = Agent::new(&proxy, stream)
        .told("go")
        .with("x-plimsoll-budget", "16000")
        .with("x-plimsoll-policy", policy);
    for turn in 0..14 {
        agent.work(&listing(turn)).await;
    }
    assert_eq!(agent.turn().await.heard.text, "done", "{policy}");
    none_refused(&provider);
    let last = provider.chats().last().unwrap().value();
    let messages = last["messages"].as_array().unwrap().clone();
    (provider, messages)
}

/// The texts of all results, in order.
fn results(messages: &[Value]) -> Vec<&str> {
    let results = messages.iter().filter(|one| one["role"] == "tool");
    results
        .map(|one| one["content"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn the_default_leaves_the_lines_that_stand_nowhere_else() {
    for stream in [false, true] {
        let (provider, messages) = served("cwl", stream).await;
        let shown = results(&messages);
        assert_eq!(shown.len(), 14, "each call still has its result");
        let stub = shown.iter().find(|text| text.starts_with("[evicted bash:"));
        assert!(stub.expect("a stub").ends_with(" tokens]"), "{stub:?}");
        assert_eq!(shown[13], listing(13), "the newest is whole");
        let skeleton = shown.iter().find(|text| text.starts_with("[clipped read:"));
        let skeleton = skeleton.expect("a skeleton");
        assert!(
            skeleton.contains("/module_64.rs\n…\nsrc/part_"),
            "{skeleton}"
        );
        assert!(!skeleton.contains("nothing to be seen"), "{skeleton}");
        // Every request but those after a pass extends the one before.
        let chats = provider.chats();
        let passes: Vec<usize> = (1..chats.len())
            .filter(|at| chats[*at].size < chats[at - 1].size)
            .collect();
        assert!(!passes.is_empty());
        let mut from = 0;
        for pass in passes.into_iter().chain([chats.len()]) {
            extends(&chats[from..pass]);
            from = pass;
        }
    }
}

#[tokio::test]
async fn a_request_is_served_by_the_policy_that_it_names() {
    let (_, none) = served("none", false).await;
    assert_eq!(results(&none), (0..14).map(listing).collect::<Vec<_>>());
    let (_, recency) = served("recency", false).await;
    let left = results(&recency);
    let newest: Vec<String> = (14 - left.len()..14).map(listing).collect();
    assert!((1..14).contains(&left.len()));
    assert_eq!(left, newest, "pairs go, oldest first");
    let (_, kept) = served("keep-recent", false).await;
    let kept = results(&kept);
    assert_eq!(kept.len(), 14, "calls stay");
    assert!(kept[0].starts_with("[evicted bash:") && !kept[0].contains("src/"));
    let (_, paper) = served("cwl-paper", false).await;
    let tombstone = |text: &&&str| text.starts_with("auto-");
    assert_eq!(results(&paper).iter().filter(tombstone).count(), 1);
}
