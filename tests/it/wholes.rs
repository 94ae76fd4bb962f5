//! What goes whole or not at all: results of a form of their own with their calls, and texts of white space with the calls
//! beside them.

use serde_json::{Value, json};

use super::dialects::{Agent, Call, Dialect, Provider, Reply, Sent, call, says};
use super::metered::result;
use super::support::Proxy;

const TURNS: usize = 24;
const LONG: usize = 120;

async fn proxy(host: &Provider) -> Proxy {
    Proxy::with(host.addr, |config| {
        config.budget.ceiling = 6_000;
        config.budget.implicit_tokens = 500;
    })
    .await
}

/// The messages of a request, or the items of its input.
fn list(sent: &Sent) -> Vec<Value> {
    let list = sent.body.get("messages").unwrap_or(&sent.body["input"]);
    list.as_array().unwrap().clone()
}

/// Results that Responses gives in forms of their own, and the calls that they answer.
fn pairs(turn: usize) -> [(Value, Value); 3] {
    let id = format!("call_{turn}");
    let lines = result(&id);
    [
        (
            json!({"type": "computer_call", "id": format!("cu_{turn}"), "call_id": id, "status": "completed",
                "action": {"type": "screenshot"}, "pending_safety_checks": []}),
            json!({"type": "computer_call_output", "call_id": id,
                "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAABAAAAAMACAIAAAA="}}),
        ),
        (
            json!({"type": "shell_call", "id": format!("sh_{turn}"), "call_id": id, "status": "completed",
                "action": {"commands": ["ls"]}}),
            json!({"type": "shell_call_output", "call_id": id, "output": {"stdout": lines}}),
        ),
        (
            json!({"type": "of_tomorrow_call", "id": format!("of_{turn}"), "call_id": id}),
            json!({"type": "of_tomorrow_call_output", "call_id": id, "output": {"lines": lines}}),
        ),
    ]
}

#[tokio::test]
async fn results_of_a_form_of_their_own_go_with_their_calls() {
    for stream in [false, true] {
        for form in 0..3 {
            let host = Provider::start(|number, _| says(&format!("step {number}"), vec![])).await;
            let proxy = proxy(&host).await;
            let mut agent = Agent::new(&proxy, Dialect::Responses, stream, "wholes");
            agent.user("go");
            for turn in 0..TURNS {
                let answer = agent.ask().await;
                assert!(answer.status == 200 && answer.whole, "{}", answer.bytes);
                assert_eq!(answer.header("x-plimsoll-budget"), "met", "form {form}");
                assert_eq!(answer.header("x-plimsoll-fail-open"), "");
                agent.keep(&answer);
                let (call, output) = pairs(turn)[form].clone();
                agent.history.extend([call, output]);
            }
            for sent in host.sent() {
                let items = list(&sent);
                let of = |output: bool| -> Vec<Value> {
                    let ids = items.iter().filter(|item| {
                        let kind = item["type"].as_str().unwrap_or_default();
                        item["call_id"].is_string() && kind.ends_with("_output") == output
                    });
                    ids.map(|item| item["call_id"].clone()).collect()
                };
                assert_eq!(of(false), of(true), "each call has its result");
            }
            let newest = list(&host.newest());
            assert!(newest.len() < 3 * TURNS, "form {form}: {}", newest.len());
        }
    }
}

/// Whether a message says nothing: no provider takes one.
fn is_blank(message: &Value) -> bool {
    let answers = message["role"] == "assistant";
    let calls = message["tool_calls"]
        .as_array()
        .is_some_and(|calls| !calls.is_empty());
    let text = message["content"].as_str();
    answers && !calls && text.is_none_or(|text| text.trim().is_empty())
}

#[tokio::test]
async fn white_space_beside_calls_goes_with_them() {
    for stream in [false, true] {
        let host = Provider::start(|number, sent| {
            if list(sent).iter().any(is_blank) {
                return Reply::Refuses("messages: text content must be non-empty");
            }
            let mark = |id: &str, arguments: Value| {
                call(&format!("{id}{number}"), "delimiter", arguments.to_string())
            };
            let mut made: Vec<Call> = vec![call(&format!("b{number}"), "bash", r#"{"c":"ls"}"#)];
            match number % 6 {
                0 => made.insert(
                    0,
                    mark(
                        "s",
                        json!({"action": "start", "name": format!("part {number}"), "type": "act"}),
                    ),
                ),
                5 => made.insert(
                    0,
                    mark("e", json!({"action": "end", "description": "done"})),
                ),
                _ => {}
            }
            says("\n\n", made)
        })
        .await;
        let proxy = proxy(&host).await;
        let mut agent = Agent::new(&proxy, Dialect::Chat, stream, "blank");
        agent.user("go");
        for turn in 0..LONG {
            let answer = agent.ask().await;
            assert!(answer.status == 200 && answer.whole, "{}", answer.bytes);
            assert_eq!(answer.header("x-plimsoll-budget"), "met");
            assert_eq!(answer.header("x-plimsoll-fail-open"), "");
            agent.keep(&answer);
            for call in &answer.calls {
                agent.result(&call.id, &result(&format!("{turn}")));
            }
        }
        assert_eq!(host.sent().len(), LONG, "nothing was refused");
    }
}
