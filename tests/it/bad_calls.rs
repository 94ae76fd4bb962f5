//! Calls and results that go wrong between provider and client: ids that repeat or are empty,
//! arguments that are no JSON, names off the path, results that are missing.

use plimsoll_scripted::{Call, Reply, Script};
use serde_json::json;

use super::agent::{
    Agent, act, bash, brief, completion, delimiter, explore, last_key, learned, message, newest,
    none_refused, outline, plan, provider,
};
use super::support::{Lenient, Proxy};

/// An outline in which the ids that the proxy makes are told by their form: `call_` and a digest.
fn unmade(outline: Vec<String>) -> Vec<String> {
    let is_made = |id: &str| {
        id.strip_prefix("call_").is_some_and(|digest| {
            digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let word = |word: &str| (if is_made(word) { "(ours)" } else { word }).to_owned();
    let line = |line: String| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    outline.into_iter().map(line).collect()
}

#[tokio::test]
async fn ids_that_a_provider_numbers_anew_in_each_answer_are_told_apart() {
    let provider = provider(Script::ask(|view| {
        let calls = |name: &str| vec![explore("call_0", name), bash("call_1")];
        let answers = view
            .messages()
            .iter()
            .filter(|message| message["role"] == "assistant")
            .count();
        match answers {
            0 => Reply::calls(calls("a")),
            1 => Reply::calls(vec![learned("call_0", "x"), bash("call_1")]),
            2 => Reply::calls(calls("b")),
            _ => Reply::text("done"),
        }
    }))
    .await;
    for stream in [false, true] {
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        for turn in 0..3 {
            agent.work(&format!("out {turn}")).await;
        }
        agent.history[3]["content"] = json!("[cleared]");
        agent.turn().await;
        none_refused(&provider);
        let last = newest(&provider);
        // A hidden call whose id was taken gets one of ours; visible ones keep theirs.
        let first = ["assistant call_0 call_1", "tool call_0", "tool call_1"];
        let later = ["assistant (ours) call_1", "tool (ours)", "tool call_1"];
        let whole = [&["system", "user"], &first[..], &later[..], &later[..]].concat();
        assert_eq!(unmade(outline(&last)), whole, "{stream}");
        assert_eq!(
            message(&last, 7)["content"],
            "out 1",
            "each with its own result"
        );
    }
}

#[tokio::test]
async fn empty_ids_from_a_provider_are_nobodys_anchor() {
    let upstream = Lenient::start(|number, body| {
        let reply = match number {
            0 => Reply::calls(vec![explore("", "a"), bash("b1")]),
            1 => Reply::calls(vec![learned("d2", "x"), Call::new("", "bash", "{}")]),
            _ => Reply::text("done"),
        };
        completion(&reply, body)
    })
    .await;
    let proxy = Proxy::before(upstream.addr).await;
    let mut agent = Agent::new(&proxy, false).told("go");
    for _ in 0..2 {
        agent.work("out").await;
    }
    agent.turn().await;
    let up = upstream.newest()["messages"].as_array().unwrap().clone();
    assert_eq!(
        unmade(brief(&up)),
        [
            "system",
            "user",
            "assistant (ours) b1",
            "tool (ours)",
            "tool b1",
            "assistant d2 ",
            "tool d2",
            "tool "
        ],
        "an id is made for what is hidden, and for nothing else"
    );
}

#[tokio::test]
async fn hidden_arguments_that_are_no_json_come_back_as_an_empty_object() {
    for stream in [false, true] {
        let provider = provider(Script::ask(|view| {
            match last_key(view.messages()).as_str() {
                "go" => Reply::calls(vec![
                    Call::new("d1", "delimiter", "{\"action\": start"),
                    Call::new("b1", "bash", "ls -l \"\\\u{1F6A2}"),
                ]),
                _ => Reply::text("done"),
            }
        }))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.work("out").await;
        agent.turn().await;
        none_refused(&provider);
        let last = newest(&provider);
        let calls = message(&last, 2)["tool_calls"].clone();
        // Some providers refuse a history in which they are no object; the client's own are its own.
        assert_eq!(calls[0]["function"]["arguments"], "{}");
        assert_eq!(calls[1]["function"]["arguments"], "ls -l \"\\\u{1F6A2}");
        let told = message(&last, 3)["content"].clone();
        assert!(
            told.as_str()
                .unwrap()
                .starts_with("send the arguments as a JSON"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn names_off_the_path_are_unknown_to_the_model() {
    // The exploration is dropped by the client; the model then ends it, or builds on it.
    let table = [
        ("an end", learned("d9", "late"), "nothing is open"),
        (
            "a dependency",
            act("d9", "next", &["a"]),
            "\"a\" is no closed expl episode",
        ),
        (
            "the name again",
            delimiter(
                "d9",
                &json!({"action": "start", "name": "a", "type": "expl"}),
            ),
            "opened expl \"a\"",
        ),
    ];
    for stream in [false, true] {
        for (what, call, result) in &table {
            let call = call.clone();
            let provider = provider(Script::ask(move |view| {
                match last_key(view.messages()).as_str() {
                    "go" => Reply::calls(vec![explore("d1", "a"), bash("b1")]),
                    "b1" => Reply::calls(vec![learned("d2", "x"), bash("b2")]),
                    "b2" => Reply::calls(vec![call.clone(), bash("b3")]),
                    _ => Reply::text("done"),
                }
            }))
            .await;
            let proxy = Proxy::before(provider.address).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            agent.work("out").await;
            agent.work("out").await;
            // Its first assistant message goes, results and all.
            agent.history.drain(2..4);
            agent.work("out").await;
            agent.turn().await;
            none_refused(&provider);
            let last = newest(&provider);
            assert_eq!(
                outline(&last),
                [
                    "system",
                    "user",
                    "assistant b2",
                    "tool b2",
                    "assistant d9 b3",
                    "tool d9",
                    "tool b3"
                ],
                "{what}"
            );
            let told = message(&last, 5)["content"].clone();
            assert!(told.as_str().unwrap().starts_with(result), "{what}: {told}");
        }
    }
}

#[tokio::test]
async fn a_client_that_returns_some_results_is_refused_in_the_upstreams_words() {
    for stream in [false, true] {
        let provider = provider(plan([(
            "go",
            vec![Reply::calls(vec![
                bash("b1"),
                explore("d1", "a"),
                bash("b2"),
            ])],
        )]))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.turn().await;
        agent.result("b2", "out");
        let answer = agent.ask().await;
        let (status, kind, ..) = answer.error();
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert!(answer.text().contains("b1"), "{}", answer.text());
        let chats = provider.chats();
        assert_eq!(chats.len(), 3, "once as managed, once as it came");
        assert_eq!(
            outline(&chats[1]),
            ["system", "user", "assistant b1 d1 b2", "tool d1", "tool b2"],
            "passed on, never repaired"
        );
        assert_eq!(chats[2].body, agent.body());
        // The missing one comes, out of order, and nothing was lost.
        agent.result("b1", "late");
        assert_eq!(agent.turn().await.heard.text, "done");
        assert_eq!(
            outline(&newest(&provider)),
            [
                "system",
                "user",
                "assistant b1 d1 b2",
                "tool d1",
                "tool b2",
                "tool b1"
            ]
        );
    }
}

#[tokio::test]
async fn a_client_that_drops_the_whole_message_starts_from_before_it() {
    for stream in [false, true] {
        let provider = provider(plan([
            (
                "go",
                vec![Reply::calls(vec![explore("d1", "a"), bash("b1")])],
            ),
            (
                "b1",
                vec![Reply::calls(vec![learned("d2", "x"), bash("b2")])],
            ),
        ]))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.work("out").await;
        agent.turn().await;
        agent.history.pop();
        agent.user("never mind");
        agent.turn().await;
        assert_eq!(
            outline(&newest(&provider)),
            [
                "system",
                "user",
                "assistant d1 b1",
                "tool d1",
                "tool b1",
                "user"
            ]
        );
        none_refused(&provider);
    }
}
