//! Tools that clients declare inside the conversation, as agents do for models that take them in the
//! input, and tools that a search found there. They are the client's like any other: counted, kept, and
//! never meant by a name of ours; and ours stand beside them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::dialects::{Agent, Answer, Call, Dialect, Provider, Sent, call, says};
use super::support::Proxy;

/// A description that makes a tool as long as those of real agents.
fn long() -> String {
    let lines = (0..300).map(|line| format!("- step {line}: value_{}", line * 7919 % 10_007));
    lines.collect::<Vec<_>>().join("\n")
}

/// A tool of the client's.
fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "description": "works", "strict": false,
        "parameters": {"type": "object"}})
}

/// What real agents declare: namespaces of tools.
fn tools() -> Value {
    json!([
        {"type": "namespace", "name": "functions", "description": "", "tools": [
            {"type": "custom", "name": "exec", "description": long(), "format": {"type": "text"}},
            function("wait")]},
        {"type": "namespace", "name": "team", "description": "", "tools": [function("spawn")]},
    ])
}

/// The item that declares tools.
fn declares(tools: &Value) -> Value {
    json!({"type": "additional_tools", "id": "at_1", "role": "developer", "tools": tools})
}

/// An agent that sends no member of tools.
fn agent(proxy: &Proxy, stream: bool, declared: Option<&Value>) -> Agent {
    let mut agent = Agent::new(proxy, Dialect::Responses, stream, "s");
    agent.tools = Vec::new();
    agent.history.extend(declared.map(declares));
    agent
        .history
        .push(json!({"type": "message", "role": "developer", "content": [
        {"type": "input_text", "text": "You are an agent."}]}));
    agent
}

/// The names of the tools that each item of a request declares.
fn declared(sent: &Sent) -> Vec<Vec<String>> {
    let items = sent.body["input"].as_array().cloned().unwrap_or_default();
    let declare = items
        .iter()
        .filter(|item| item["type"] == "additional_tools");
    let names = declare.map(|item| {
        let tools = item["tools"].as_array().unwrap();
        let names = tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.collect()
    });
    names.collect()
}

/// One turn whose calls get results of this length.
async fn work(agent: &mut Agent, lines: usize) -> Answer {
    let answer = agent.ask().await;
    assert_eq!(answer.status, 200, "{}", answer.bytes);
    agent.keep(&answer);
    for call in &answer.calls {
        let line = |line: usize| format!("{} {line}: value_{}", call.id, line * 7919 % 10_007);
        let text: Vec<String> = (0..lines).map(line).collect();
        agent.result(&call.id, &text.join("\n"));
    }
    answer
}

/// A provider that marks its work, calls the client's tool, and at last recalls what is gone.
async fn provider(turns: usize) -> Provider {
    Provider::start(move |number, sent| {
        let exec = call(&format!("x{number}"), "exec", json!({"cmd": number}));
        let start = json!({"action": "start", "name": "look", "type": "expl"});
        let end = json!({"action": "end", "description": "seen"});
        match number {
            0 => says("", vec![call("s0", "delimiter", start), exec]),
            4 => says("", vec![call("s4", "delimiter", end), exec]),
            _ if number < turns => says("", vec![exec]),
            _ if sent.key() == "back" => {
                says("", vec![call("r1", "recall", json!({"search": "x0 7:"}))])
            }
            _ => says("done", vec![]),
        }
    })
    .await
}

#[tokio::test]
async fn tools_in_the_input_get_ours_beside_them() {
    for stream in [false, true] {
        let provider = provider(6).await;
        let proxy = Proxy::before(provider.addr).await;
        let mut agent = agent(&proxy, stream, Some(&tools()));
        agent.user("go");
        for turn in 1..=6 {
            let answer = work(&mut agent, 3).await;
            assert_eq!(
                answer.header("x-plimsoll-turn"),
                turn.to_string(),
                "{stream}"
            );
            assert_eq!(answer.calls.len(), 1, "{stream} {turn}: {}", answer.bytes);
        }
        // Behind a restart nothing moves.
        let store = Arc::clone(&proxy.app.store);
        let other = Proxy::wired(provider.addr, |_| {}, |app| app.store = store).await;
        agent.at(&other);
        assert_eq!(agent.ask().await.header("x-plimsoll-turn"), "7", "{stream}");
        let sent = provider.sent();
        let first = sent[0].texts();
        for one in &sent {
            let all = ["delimiter", "recall", "functions", "team"];
            assert_eq!(declared(one), [all], "{stream}");
            assert!(one.body.get("tools").is_none(), "{stream}");
            assert_eq!(one.texts()[..first.len()], first, "{stream}");
            // What is not ours keeps its bytes.
            let client = String::from_utf8(one.bytes.clone()).unwrap();
            let own = tools().to_string();
            assert!(client.contains(&own[1..]), "{stream}");
            assert!(
                first[1].contains("Context episodes"),
                "{stream}: {}",
                first[1]
            );
        }
        let named = |id: &str| sent[6].calls().into_iter().find(|call| call.id == id);
        assert_eq!(named("s4").unwrap().name, "delimiter", "{stream}");
    }
}

#[tokio::test]
async fn tools_are_counted_once_wherever_they_stand() {
    let provider = Provider::start(|_, _| says("done", vec![])).await;
    let mut sizes = Vec::new();
    for inside in [false, true] {
        let proxy = Proxy::before(provider.addr).await;
        let mut agent = agent(&proxy, false, inside.then(tools).as_ref());
        if !inside {
            agent.fields.push(("tools", tools()));
        }
        agent.user("go");
        let answer = agent.turn().await;
        sizes.push(
            answer
                .header("x-plimsoll-context-tokens")
                .parse::<i64>()
                .unwrap(),
        );
        assert_eq!(answer.header("x-plimsoll-turn"), "1");
        agent.user("and then?");
        assert_eq!(
            agent.turn().await.header("x-plimsoll-turn"),
            "2",
            "{inside}"
        );
    }
    assert!(sizes[0] > 3_000, "{sizes:?}");
    assert!((sizes[0] - sizes[1]).abs() < 20, "{sizes:?}");
}

#[tokio::test]
async fn a_session_whose_tools_stand_in_the_input_is_held_and_recalls() {
    for stream in [false, true] {
        let provider = provider(24).await;
        let proxy = Proxy::with(provider.addr, |config| config.budget.ceiling = 9_000).await;
        let mut agent = agent(&proxy, stream, Some(&tools()));
        agent.user("go");
        for turn in 1..=25 {
            let answer = work(&mut agent, 60).await;
            assert_eq!(
                answer.header("x-plimsoll-turn"),
                turn.to_string(),
                "{stream}"
            );
            assert_eq!(answer.header("x-plimsoll-budget"), "met", "{stream} {turn}");
        }
        let before = provider.newest();
        assert!(
            before
                .result("x0")
                .is_none_or(|text| !text.contains("x0 7:")),
            "{stream}"
        );
        assert_eq!(declared(&before)[0][2..], ["functions", "team"], "{stream}");
        agent.user("back");
        let answer = agent.turn().await;
        assert_eq!(answer.text, "done", "{stream}: {}", answer.bytes);
        let back = provider.newest().result("r1").unwrap();
        assert!(back.contains("x0 7:"), "{stream}: {back}");
    }
}

/// Where a tool named as ours may come from, as items of the input.
fn sources() -> Vec<(&'static str, Vec<Value>)> {
    let tool = || function("recall");
    vec![
        (
            "a search of the client's",
            vec![
                json!({"type": "tool_search_call", "execution": "client", "call_id": "t0",
                    "status": "completed", "arguments": {"goal": "memory"}}),
                json!({"type": "tool_search_output", "execution": "client", "call_id": "t0",
                    "status": "completed", "tools": [tool()]}),
            ],
        ),
        (
            "a search of the provider's",
            vec![
                json!({"type": "tool_search_call", "execution": "server", "call_id": null,
                    "status": "completed", "arguments": {}}),
                json!({"type": "tool_search_output", "execution": "server", "call_id": null,
                    "status": "completed", "tools": [
                        {"type": "namespace", "name": "memory", "tools": [tool()]}]}),
            ],
        ),
        (
            "a server's list",
            vec![
                json!({"type": "mcp_list_tools", "id": "m1", "server_label": "memory",
                "tools": [{"name": "recall", "input_schema": {"type": "object"}}]}),
            ],
        ),
        ("the client", vec![declares(&json!([tool()]))]),
        (
            "an item that names its type last",
            vec![json!({"role": "developer", "tools": [tool()], "type": "additional_tools"})],
        ),
    ]
}

/// A provider that calls `recall` for the client where it is told to.
async fn caller() -> Provider {
    Provider::start(|number, sent| {
        let ours = |name: &str| {
            sent.body
                .to_string()
                .contains(&format!(r#""name":"{name}""#))
        };
        let hidden = match ours("plimsoll_delimiter") {
            true => "plimsoll_delimiter",
            false => "delimiter",
        };
        let start = json!({"action": "start", "name": format!("e{number}"), "type": "expl"});
        match sent.key().as_str() {
            "mark" => says(
                "",
                vec![call("h1", hidden, start), call("b1", "bash", "{}")],
            ),
            "own" => says("", vec![call("c1", "recall", r#"{"query":"deploys"}"#)]),
            _ => says("done", vec![]),
        }
    })
    .await
}

fn names(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| call.name.as_str()).collect()
}

#[tokio::test]
async fn a_tool_in_the_input_that_is_named_as_ours_is_the_clients() {
    for (source, items) in sources() {
        for stream in [false, true] {
            for late in [false, true] {
                let what = format!("{source}, streamed {stream}, late {late}");
                let provider = caller().await;
                let proxy = Proxy::before(provider.addr).await;
                let mut agent = Agent::new(&proxy, Dialect::Responses, stream, "s");
                if late {
                    agent.user("mark");
                    agent.turn().await;
                    let tools = provider.newest().tools();
                    assert_eq!(tools, ["delimiter", "recall", "bash"], "{what}");
                }
                agent.user("look");
                agent.history.extend(items.clone());
                agent.user("own");
                let answer = agent.turn().await;
                assert_eq!(names(&answer.calls), ["recall"], "{what}: {}", answer.bytes);
                let tools = provider.newest().tools();
                assert_eq!(tools, ["delimiter", "plimsoll_recall", "bash"], "{what}");
                agent.user("then");
                agent.turn().await;
                let newest = provider.newest();
                assert_eq!(newest.tools(), tools, "{what}");
                let wanted = match late {
                    true => vec!["delimiter", "bash", "recall"],
                    false => vec!["recall"],
                };
                let called = newest.calls();
                assert_eq!(names(&called), wanted, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn tools_that_were_found_are_never_evicted() {
    for (source, items) in sources() {
        let provider = Provider::start(|number, sent| match number < 24 {
            true => says(
                "",
                vec![call(&format!("b{number}"), "bash", json!({"n": number}))],
            ),
            false => says(&sent.key(), vec![]),
        })
        .await;
        let proxy = Proxy::with(provider.addr, |config| config.budget.ceiling = 6_000).await;
        let mut agent = Agent::new(&proxy, Dialect::Responses, false, "s");
        agent.user("go");
        work(&mut agent, 60).await;
        agent.history.extend(items.clone());
        agent.user("go on");
        for _ in 0..24 {
            work(&mut agent, 60).await;
        }
        let newest = provider.newest();
        assert!(
            newest
                .result("b0")
                .is_none_or(|text| !text.contains("b0 7:")),
            "{source}"
        );
        let held = newest.texts();
        for item in items {
            assert!(held.contains(&item.to_string()), "{source}");
        }
    }
}

#[tokio::test]
async fn a_tool_that_a_conversation_of_messages_refers_to_is_the_clients() {
    let reference = json!({"type": "tool_reference", "tool_name": "recall"});
    let searched = json!({"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "t0", "name": "tool_search_tool_bm25", "input": {}},
        {"type": "tool_search_tool_result", "tool_use_id": "t0", "content":
            {"type": "tool_search_tool_search_result", "tool_references": [reference]}}]});
    let called = json!({"role": "assistant", "content": [
        {"type": "tool_use", "id": "t0", "name": "ToolSearch", "input": {}}]});
    let found = json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t0", "content": [reference]}]});
    for (source, messages) in [
        ("a search of the provider's", vec![searched]),
        ("a search of the client's", vec![called, found]),
    ] {
        for stream in [false, true] {
            for late in [false, true] {
                let what = format!("{source}, streamed {stream}, late {late}");
                let provider = caller().await;
                let proxy = Proxy::before(provider.addr).await;
                let mut agent = Agent::new(&proxy, Dialect::Messages, stream, "s");
                if late {
                    agent.user("mark");
                    agent.turn().await;
                    let tools = provider.newest().tools();
                    assert_eq!(tools, ["delimiter", "recall", "bash"], "{what}");
                }
                agent.user("look");
                agent.history.extend(messages.clone());
                agent.user("own");
                let answer = agent.turn().await;
                assert_eq!(names(&answer.calls), ["recall"], "{what}: {}", answer.bytes);
                let tools = provider.newest().tools();
                assert_eq!(tools, ["delimiter", "plimsoll_recall", "bash"], "{what}");
            }
        }
    }
}

#[tokio::test]
async fn functions_in_the_older_form_are_counted_and_take_none_of_ours() {
    let provider = Provider::start(|_, _| says("done", vec![])).await;
    let proxy = Proxy::before(provider.addr).await;
    let mut agent = Agent::new(&proxy, Dialect::Chat, false, "s");
    agent.tools = Vec::new();
    let tool = json!({"name": "exec", "description": long(), "parameters": {"type": "object"}});
    agent.fields.push(("functions", json!([tool])));
    for turn in ["1", "2"] {
        agent.user("go");
        let answer = agent.turn().await;
        assert_eq!(answer.header("x-plimsoll-turn"), turn);
        let tokens = answer.header("x-plimsoll-context-tokens");
        assert!(tokens.parse::<usize>().unwrap() > 2_000, "{tokens}");
        assert_eq!(provider.newest().body["functions"], json!([tool]));
        assert!(provider.newest().tools().is_empty());
    }
}
