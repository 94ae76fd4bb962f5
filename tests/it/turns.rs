//! Managed turns against a strict provider: hidden calls are answered, hidden from the client and
//! put back in the next request.

use plimsoll_scripted::{Call, Heard, Options, Provider, Reply, RequestView, Script, Verdict};
use serde_json::{Value, json};

use super::support::{Proxy, client};

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}])
}

fn delimiter(id: &str, arguments: &str) -> Call {
    Call::new(id, "delimiter", arguments)
}

/// What an agent keeps of an answer.
fn said(heard: &Heard) -> Value {
    let calls: Vec<Value> = heard
        .calls
        .iter()
        .map(|call| {
            json!({"id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": call.arguments}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": heard.text});
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    message
}

/// The last message of a request.
fn last<'a>(view: &'a RequestView<'_>) -> &'a Value {
    view.messages().last().unwrap()
}

/// An agent that keeps its history as it got it.
struct Agent {
    history: Vec<Value>,
    stream: bool,
    url: String,
}

impl Agent {
    fn new(proxy: &Proxy, stream: bool) -> Self {
        let history = vec![
            json!({"role": "system", "content": "be brief"}),
            json!({"role": "user", "content": "look around"}),
        ];
        Self {
            history,
            stream,
            url: proxy.url("/v1/chat/completions"),
        }
    }

    async fn turn(&mut self) -> Heard {
        let body = json!({
            "model": "gpt-4o", "messages": self.history, "tools": tools(), "stream": self.stream,
        });
        let response = client()
            .post(&self.url)
            .header("authorization", "Bearer k")
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await
            .unwrap();
        let status = response.status();
        let bytes = response.bytes().await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(status.is_success(), "{status} {text}");
        assert!(!text.contains("delimiter"), "leaked: {text}");
        let heard = Heard::read(&bytes, self.stream);
        assert_eq!(heard.faults, Vec::<String>::new(), "{text}");
        self.history.push(said(&heard));
        heard
    }
}

#[tokio::test]
async fn hidden_calls_are_answered_and_come_back_upstream() {
    for stream in [false, true] {
        let provider = Provider::start(
            Script::ask(|view| {
                let last = last(view);
                match (last["role"].as_str(), last["tool_call_id"].as_str()) {
                    (Some("user"), _) => Reply::calls(vec![delimiter(
                        "d1",
                        r#"{"action":"start","name":"a","type":"expl"}"#,
                    )])
                    .saying("First."),
                    (_, Some("d1")) => {
                        Reply::calls(vec![Call::new("b1", "bash", r#"{"c":"ls"}"#)]).saying("Then.")
                    }
                    (_, Some("b1")) => Reply::calls(vec![
                        delimiter("d2", r#"{"action":"end","description":"seen"}"#),
                        Call::new("b2", "bash", r#"{"c":"pwd"}"#),
                        delimiter(
                            "d3",
                            r#"{"action":"start","name":"b","type":"act","dependencies":["a"]}"#,
                        ),
                    ]),
                    _ => Reply::text("done"),
                }
            }),
            Options::default(),
        )
        .await
        .unwrap();
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream);
        let heard = agent.turn().await;
        assert_eq!(heard.text, "First.\n\nThen.");
        agent
            .history
            .push(json!({"role": "tool", "tool_call_id": "b1", "content": "x y"}));
        let heard = agent.turn().await;
        assert_eq!(heard.calls.len(), 1);
        agent
            .history
            .push(json!({"role": "tool", "tool_call_id": "b2", "content": "/"}));
        let heard = agent.turn().await;
        assert_eq!(heard.text, "done");
        let requests = provider.chats();
        let refused: Vec<_> = requests
            .iter()
            .filter(|r| r.verdict != Verdict::Accepted)
            .collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let roles: Vec<Vec<String>> = requests
            .iter()
            .map(|request| {
                let value = request.value();
                let messages = value["messages"].as_array().unwrap().clone();
                messages
                    .iter()
                    .map(|m| m["role"].as_str().unwrap().to_owned())
                    .collect()
            })
            .collect();
        assert_eq!(requests.len(), 4);
        assert_eq!(
            roles[3],
            [
                "system",
                "user",
                "assistant",
                "tool",
                "assistant",
                "tool",
                "assistant",
                "tool",
                "tool",
                "tool"
            ]
        );
        for pair in requests.windows(2) {
            let (a, b) = (pair[0].value(), pair[1].value());
            let (a, b) = (
                a["messages"].as_array().unwrap(),
                b["messages"].as_array().unwrap(),
            );
            assert_eq!(a[..], b[..a.len()], "each request extends the one before");
        }
        let last = requests[3].value();
        assert_eq!(last["tools"][0]["function"]["name"], "delimiter");
        assert_eq!(last["messages"][6]["tool_calls"][0]["id"], "d2");
        assert_eq!(last["messages"][6]["tool_calls"][2]["id"], "d3");
    }
}
