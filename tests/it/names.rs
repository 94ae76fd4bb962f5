//! Clients whose own tools or histories have the names of hidden ones: theirs win, from the very
//! request on, and what was hidden under such a name goes on under another.

use std::sync::Arc;

use serde_json::{Value, json};

use super::dialects::{Agent, Call, DIALECTS, Provider, Sent, call, says};
use super::support::Proxy;

fn start(name: &str) -> Value {
    json!({"action": "start", "name": name, "type": "expl"})
}

fn end() -> Value {
    json!({"action": "end", "description": "seen"})
}

/// A provider that marks its work under the name that the tool has, and calls the client's tools.
async fn provider() -> Provider {
    Provider::start(|_, sent| {
        let ours = match sent.tools().iter().any(|name| name == "plimsoll_delimiter") {
            true => "plimsoll_delimiter",
            false => "delimiter",
        };
        let own = |id: &str| call(id, "delimiter", r#"{"of":"the client"}"#);
        let asks = |id: &str| call(id, "recall", r#"{"of":"the client"}"#);
        let bash = |id: &str| call(id, "bash", "{}");
        match sent.key().as_str() {
            "one" => says("", vec![call("h1", ours, start("a")), bash("b1")]),
            "lone" => says("", vec![call("h0", ours, start("z"))]),
            "h0" => says("", vec![call("h9", ours, end()), bash("b0")]),
            "two" => says("", vec![call("h2", ours, end()), own("c1"), asks("c2")]),
            "own" => says("", vec![own("c3")]),
            "three" => says("", vec![call("h3", ours, start("b")), bash("b3")]),
            _ => says("done", vec![]),
        }
    })
    .await
}

/// The names of calls, by id.
fn named(sent: &Sent) -> Vec<(String, String)> {
    let name = |call: Call| (call.id, call.name);
    sent.calls().into_iter().map(name).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(id, name): &(&str, &str)| ((*id).to_owned(), (*name).to_owned());
    pairs.iter().map(pair).collect()
}

const RENAMED: [&str; 2] = ["plimsoll_delimiter", "plimsoll_recall"];

#[tokio::test]
async fn a_tool_that_a_client_adds_in_mid_session_is_its_own_from_then_on() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let provider = provider().await;
            let proxy = Proxy::before(provider.addr).await;
            let mut agent = Agent::new(&proxy, dialect, stream, "s");
            let what = format!("{dialect:?} {stream}");
            agent.user("lone");
            agent.turn().await;
            agent.user("one");
            assert_eq!(agent.turn().await.calls.len(), 1, "{what}");
            assert_eq!(provider.newest().tools(), ["delimiter", "recall", "bash"]);

            // Its tools come, and their calls are its own.
            agent.tools = vec!["bash", "delimiter", "recall"];
            agent.user("two");
            let answer = agent.turn().await;
            let got: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
            assert_eq!(got, ["delimiter", "recall"], "{what}");
            assert!(!answer.bytes.contains("plimsoll_delimiter"), "{what}");
            let all = [&RENAMED[..], &["bash", "delimiter", "recall"]].concat();
            assert_eq!(provider.newest().tools(), all, "{what}");

            // They go again, and nothing of ours moves.
            agent.tools = vec!["bash"];
            agent.user("three");
            let answer = agent.turn().await;
            assert_eq!(answer.calls.len(), 1, "{what}: {}", answer.bytes);
            let third = provider.newest();
            assert_eq!(third.tools(), [&RENAMED[..], &["bash"]].concat(), "{what}");
            // Behind a restart neither.
            let store = Arc::clone(&proxy.app.store);
            let other = Proxy::wired(provider.addr, |_| {}, |app| app.store = store).await;
            agent.at(&other);
            agent.user("four");
            agent.turn().await;
            let fourth = provider.newest();
            let hidden = "plimsoll_delimiter";
            let want = [
                ("h0", hidden),
                ("h9", hidden),
                ("b0", "bash"),
                ("h1", hidden),
                ("b1", "bash"),
                ("h2", hidden),
                ("c1", "delimiter"),
                ("c2", "recall"),
                ("h3", hidden),
                ("b3", "bash"),
            ];
            assert_eq!(named(&fourth), pairs(&want), "{what}");
            assert_eq!(fourth.tools(), third.tools(), "{what}");
            for (id, told) in [
                ("h9", "closed expl \"z\""),
                ("h2", "closed expl \"a\""),
                ("h3", "opened expl \"b\""),
            ] {
                let result = fourth.result(id).unwrap();
                assert!(result.starts_with(told), "{what}: {result}");
            }
            // One change of the front, with the client's own, and none behind it.
            let front = third.texts();
            assert_eq!(fourth.texts()[..front.len()], front, "{what}");
        }
    }
}

#[tokio::test]
async fn a_name_in_the_clients_history_is_the_clients() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let provider = provider().await;
            let proxy = Proxy::before(provider.addr).await;
            let mut agent = Agent::new(&proxy, dialect, stream, "s");
            let what = format!("{dialect:?} {stream}");
            agent.headers = vec![("x-plimsoll-mode", "off".to_owned())];
            agent.tools = vec!["bash", "delimiter"];
            agent.user("own");
            assert_eq!(agent.turn().await.calls.len(), 1);
            // It comes here with calls of a tool that it has no longer.
            agent.headers.clear();
            agent.tools = vec!["bash"];
            agent.user("one");
            let answer = agent.turn().await;
            assert_eq!(answer.calls.len(), 1, "{what}: {}", answer.bytes);
            let want = ["plimsoll_delimiter", "recall", "bash"];
            assert_eq!(provider.newest().tools(), want, "{what}");
            agent.user("three");
            agent.turn().await;
            assert_eq!(provider.newest().tools(), want, "{what}");
            let want = [
                ("c3", "delimiter"),
                ("h1", "plimsoll_delimiter"),
                ("b1", "bash"),
            ];
            assert_eq!(named(&provider.newest()), pairs(&want), "{what}");
        }
    }
}

#[tokio::test]
async fn a_client_with_both_names_of_a_tool_has_none_of_ours_beside_them() {
    for dialect in DIALECTS {
        let provider = provider().await;
        let proxy = Proxy::before(provider.addr).await;
        let mut agent = Agent::new(&proxy, dialect, true, "s");
        agent.user("one");
        agent.turn().await;
        agent.tools = vec!["bash", "delimiter", "plimsoll_delimiter"];
        agent.user("own");
        let answer = agent.turn().await;
        assert_eq!(answer.calls.len(), 1, "{dialect:?}: {}", answer.bytes);
        let all = ["recall", "bash", "delimiter", "plimsoll_delimiter"];
        assert_eq!(provider.newest().tools(), all, "{dialect:?}");
        agent.tools = vec!["bash"];
        agent.user("then");
        agent.turn().await;
        assert_eq!(provider.newest().tools(), ["recall", "bash"], "{dialect:?}");
    }
}

#[tokio::test]
async fn a_tool_whose_name_is_like_one_of_ours_is_the_clients() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let own = ["Delimiter", "Recall"];
            let provider = Provider::start(move |_, sent| match sent.key().as_str() {
                // Without such a tool of the client's, these would be ours in another case.
                "go" => says("", own.map(|name| call(name, name, "{}")).to_vec()),
                _ => says("done", vec![]),
            })
            .await;
            let proxy = Proxy::before(provider.addr).await;
            let mut agent = Agent::new(&proxy, dialect, stream, "s");
            agent.tools = vec!["bash", "Delimiter", "Recall"];
            agent.user("go");
            let answer = agent.ask().await;
            let got: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
            assert_eq!(got, own, "{dialect:?} {stream}: {}", answer.bytes);
            let all = ["delimiter", "recall", "bash", "Delimiter", "Recall"];
            assert_eq!(provider.newest().tools(), all, "{dialect:?} {stream}");
        }
    }
}
