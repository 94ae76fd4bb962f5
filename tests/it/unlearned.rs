//! Providers that refuse one thing that the proxy adds: each is found out at once, costs one request, and leaves all else
//! as it was. What depends on a conversation says nothing of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::dialects::{Agent, DIALECTS, Dialect, Provider, Reply, Sent, call, says};
use super::metered::result;
use super::support::Proxy;

const TURNS: usize = 16;

/// Whether a request has what its provider refuses.
type Has = fn(&Sent) -> bool;

/// A provider that refuses what has that, in these words, and how often it did.
async fn refusing(has: Has, words: &'static str) -> (Provider, Arc<AtomicUsize>) {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let host = Provider::start(move |number, sent| {
        if has(sent) {
            count.fetch_add(1, Ordering::SeqCst);
            return Reply::Refuses(words);
        }
        let id = format!("b{number}");
        says("", vec![call(&id, "bash", format!(r#"{{"c":"{id}"}}"#))])
    })
    .await;
    (host, refused)
}

async fn proxy(host: &Provider) -> Proxy {
    Proxy::with(host.addr, |config| {
        config.budget.ceiling = 6_000;
        config.budget.implicit_tokens = 500;
    })
    .await
}

/// Plays turns that reach the budget more than once. Returns how many went up unmanaged.
async fn play(agent: &mut Agent, turns: usize) -> usize {
    let mut unmanaged = 0;
    for turn in 0..turns {
        let answer = agent.ask().await;
        assert!(answer.status == 200 && answer.whole, "{}", answer.bytes);
        unmanaged += usize::from(!answer.header("x-plimsoll-fail-open").is_empty());
        assert_eq!(answer.header("x-plimsoll-budget"), "met");
        agent.keep(&answer);
        for call in &answer.calls {
            agent.result(&call.id, &result(&format!("{turn}")));
        }
    }
    unmanaged
}

fn begin(proxy: &Proxy, dialect: Dialect, stream: bool, session: &str) -> Agent {
    let mut agent = Agent::new(proxy, dialect, stream, session);
    agent.user("go");
    agent
}

#[tokio::test]
async fn a_stream_whose_usage_may_not_be_asked_for_is_managed_as_any_other() {
    for words in [
        "stream_options: Extra inputs are not permitted",
        "Validation error at #/stream_options",
        "include_usage is not supported for this model",
    ] {
        let (host, refused) =
            refusing(|sent| sent.body.get("stream_options").is_some(), words).await;
        let proxy = proxy(&host).await;
        for session in ["one", "two"] {
            let mut agent = begin(&proxy, Dialect::Chat, true, session);
            assert_eq!(play(&mut agent, TURNS).await, 0, "{words}");
        }
        assert_eq!(refused.load(Ordering::SeqCst), 1, "{words}");
        let tools = host.newest().tools();
        assert!(tools.iter().any(|tool| tool == "delimiter"), "{tools:?}");
    }
}

/// Whether anything speaks as the system.
fn has_system(sent: &Sent) -> bool {
    let body = &sent.body;
    let list = body.get("messages").unwrap_or(&body["input"]);
    let speaks = |one: &Value| {
        ["system", "developer"]
            .iter()
            .any(|role| one["role"] == *role)
    };
    let outside = !body["system"].is_null() || !body["instructions"].is_null();
    outside || list.as_array().is_some_and(|list| list.iter().any(speaks))
}

#[tokio::test]
async fn where_nothing_may_speak_as_the_system_the_tools_speak_for_themselves() {
    for words in [
        "System role not supported",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        "This model does not support system messages.",
    ] {
        for (dialect, stream) in DIALECTS.into_iter().zip([true, false, true]) {
            let (host, refused) = refusing(has_system, words).await;
            let proxy = proxy(&host).await;
            let mut agent = begin(&proxy, dialect, stream, "guided");
            agent.headers.push(("x-plimsoll-guide", "now".to_owned()));
            assert_eq!(play(&mut agent, TURNS).await, 0, "{dialect:?} {words}");
            assert!(refused.load(Ordering::SeqCst) <= 1, "{dialect:?} {words}");
            let tools = host.newest().tools();
            assert!(tools.iter().any(|tool| tool == "delimiter"), "{tools:?}");
        }
    }
}

#[tokio::test]
async fn too_many_tools_of_one_conversation_are_none_of_another() {
    for words in [
        "Invalid 'tools': array too long. Expected an array with maximum length 3, but got an array with length 5 instead.",
        "Tools with mixed values for 'strict' are not allowed.",
    ] {
        for (dialect, stream) in DIALECTS.into_iter().zip([false, true, false]) {
            let (host, refused) = refusing(|sent| sent.tools().len() > 3, words).await;
            let proxy = proxy(&host).await;
            let mut full = begin(&proxy, dialect, stream, "full");
            full.tools = vec!["bash", "read", "write"];
            let mut beside = begin(&proxy, dialect, stream, "beside");
            let mut unmanaged = 0;
            for _ in 0..TURNS {
                unmanaged += play(&mut beside, 1).await + play(&mut full, 1).await;
            }
            assert_eq!(unmanaged, 0, "{dialect:?} {words}");
            assert_eq!(refused.load(Ordering::SeqCst), 1, "{dialect:?} {words}");
            let sent = host.sent();
            let newest = |full: bool| {
                let tools = sent.iter().rev().map(Sent::tools);
                let mut of = tools.filter(|tools| tools.iter().any(|tool| tool == "write") == full);
                of.next().unwrap()
            };
            assert_eq!(newest(true), ["bash", "read", "write"], "{dialect:?}");
            assert_eq!(newest(false).len(), 3, "bash and two hidden tools");
            assert_eq!(sent.len(), 2 * TURNS + 1, "{dialect:?}");
        }
    }
}
