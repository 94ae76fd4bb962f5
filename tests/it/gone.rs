//! Clients of Responses and Messages that leave in the middle of a stream, or while a hidden hop is
//! on its way: what they were handed is recorded, and stands where it was said in what the upstream
//! gets next.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::agent::until_metric;
use super::support::{Proxy, client, soon, upstream};

/// A dialect as the test speaks it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    Responses,
    Messages,
}

/// What a hop says.
#[derive(Clone, Copy)]
enum Said {
    Text(&'static str),
    /// A call by its id and its tool.
    Call(&'static str, &'static str),
}

const START: &str = r#"{"action":"start","name":"a","type":"expl"}"#;

fn arguments(tool: &str) -> &'static str {
    match tool {
        "delimiter" => START,
        _ => r#"{"c":"run"}"#,
    }
}

impl Wire {
    fn path(self) -> &'static str {
        match self {
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// An item or a block, as it is streamed and as it is resent.
    fn block(self, said: Said) -> Value {
        match (self, said) {
            (Self::Responses, Said::Text(text)) => json!({
                "type": "message", "role": "assistant", "id": "msg_1",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }),
            (Self::Responses, Said::Call(id, name)) => json!({
                "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name,
                "arguments": arguments(name),
            }),
            (Self::Messages, Said::Text(text)) => json!({"type": "text", "text": text}),
            (Self::Messages, Said::Call(id, name)) => {
                let input: Value = serde_json::from_str(arguments(name)).unwrap();
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
        }
    }

    /// The frames of a hop, with the end if it comes to one.
    fn frames(self, said: &[Said], ends: bool) -> String {
        let event = |value: Value| {
            let kind = value["type"].as_str().unwrap().to_owned();
            format!("event: {kind}\ndata: {value}\n\n")
        };
        let mut frames = match self {
            Self::Responses => event(json!({
                "type": "response.created", "response": {"id": "resp_1", "output": []},
            })),
            Self::Messages => event(json!({
                "type": "message_start",
                "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [],
                    "model": "m", "stop_reason": null, "usage": {"input_tokens": 9, "output_tokens": 1}},
            })),
        };
        let blocks: Vec<Value> = said.iter().map(|said| self.block(*said)).collect();
        for (index, (block, said)) in blocks.iter().zip(said).enumerate() {
            let events: Vec<Value> = match (self, said) {
                (Self::Responses, _) => ["added", "done"]
                    .map(|kind| {
                        let kind = format!("response.output_item.{kind}");
                        json!({"type": kind, "output_index": index, "item": block})
                    })
                    .to_vec(),
                (Self::Messages, said) => {
                    let (empty, delta) = match said {
                        Said::Text(text) => (
                            json!({"type": "text", "text": ""}),
                            json!({"type": "text_delta", "text": text}),
                        ),
                        Said::Call(id, name) => (
                            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                            json!({"type": "input_json_delta", "partial_json": arguments(name)}),
                        ),
                    };
                    vec![
                        json!({"type": "content_block_start", "index": index, "content_block": empty}),
                        json!({"type": "content_block_delta", "index": index, "delta": delta}),
                        json!({"type": "content_block_stop", "index": index}),
                    ]
                }
            };
            frames.extend(events.into_iter().map(event));
        }
        if ends {
            frames.push_str(&match self {
                Self::Responses => event(json!({
                    "type": "response.completed",
                    "response": {"id": "resp_1", "status": "completed", "output": blocks},
                })),
                Self::Messages => {
                    event(
                        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
                        "usage": {"output_tokens": 9}}),
                    ) + &event(json!({"type": "message_stop"}))
                }
            });
        }
        frames
    }

    fn body(self, history: &[Value]) -> Value {
        let schema = json!({"type": "object"});
        match self {
            Self::Responses => json!({
                "model": "m", "stream": true, "store": false, "input": history,
                "tools": [{"type": "function", "name": "bash", "parameters": schema}],
            }),
            Self::Messages => json!({
                "model": "m", "stream": true, "max_tokens": 99, "messages": history,
                "tools": [{"name": "bash", "input_schema": schema}],
            }),
        }
    }

    /// The history of a client that keeps what it was handed, with what it says then.
    fn kept(self, said: Said, then: Value) -> Vec<Value> {
        let user = json!({"role": "user", "content": "go"});
        let block = self.block(said);
        match self {
            Self::Responses => vec![user, block, then],
            Self::Messages => {
                vec![user, json!({"role": "assistant", "content": [block]}), then]
            }
        }
    }

    fn result(self, id: &str) -> Value {
        match self {
            Self::Responses => {
                json!({"type": "function_call_output", "call_id": id, "output": "out"})
            }
            Self::Messages => {
                let result = json!({"type": "tool_result", "tool_use_id": id, "content": "out"});
                json!({"role": "user", "content": [result]})
            }
        }
    }

    /// What a request shows: texts, calls as `+id` and results as `=id`, in order.
    fn outline(self, body: &Value) -> Vec<String> {
        let list = match self {
            Self::Responses => &body["input"],
            Self::Messages => &body["messages"],
        };
        let mut shown = Vec::new();
        let mut show = |part: &Value| {
            let kind = part["type"].as_str().unwrap_or("text");
            let id = |key: &str| part[key].as_str().unwrap_or("?").to_owned();
            match kind {
                "function_call" => shown.push(format!("+{}", id("call_id"))),
                "tool_use" => shown.push(format!("+{}", id("id"))),
                "function_call_output" => shown.push(format!("={}", id("call_id"))),
                "tool_result" => shown.push(format!("={}", id("tool_use_id"))),
                _ => shown.push(id("text")),
            }
        };
        for message in list.as_array().unwrap() {
            match (&message["content"], message["role"].as_str()) {
                (_, Some("system" | "developer")) => {}
                (Value::String(text), _) => show(&json!({"text": text})),
                (Value::Array(parts), _) => parts.iter().for_each(&mut show),
                (_, _) => show(message),
            }
        }
        shown
    }
}

/// An upstream that says these hops, one a request; what is said is all that comes where a hop
/// does not end, and the connection stays open. Bodies are kept.
async fn hops(wire: Wire, hops: Vec<(Vec<Said>, bool)>) -> (SocketAddr, Arc<Mutex<Vec<Value>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let hops = Arc::new(hops);
    let addr = upstream(move |request| {
        let (kept, hops) = (kept.clone(), hops.clone());
        async move {
            let bytes = to_bytes(request.into_body(), usize::MAX).await.unwrap();
            let number = {
                let mut kept = kept.lock().unwrap();
                kept.push(serde_json::from_slice(&bytes).unwrap());
                kept.len() - 1
            };
            let done = (vec![Said::Text("done")], true);
            let (said, ends) = hops.get(number).unwrap_or(&done);
            let frames = Ok::<_, Infallible>(Bytes::from(wire.frames(said, *ends)));
            let frames = futures_util::stream::iter([frames]);
            let body = match ends {
                true => Body::from_stream(frames),
                false => Body::from_stream(frames.chain(futures_util::stream::pending())),
            };
            Response::builder()
                .header("content-type", "text/event-stream")
                .body(body)
                .unwrap()
        }
    })
    .await;
    (addr, seen)
}

/// Asks; reads until a text came, then leaves. All of the answer where no text is named.
async fn ask(proxy: &Proxy, wire: Wire, history: &[Value], until: Option<&str>) -> String {
    let sent = client()
        .post(proxy.url(wire.path()))
        .header("authorization", "Bearer k")
        .body(wire.body(history).to_string());
    let mut response = soon(sent.send()).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut got = String::new();
    while !until.is_some_and(|text| got.contains(text)) {
        match soon(response.chunk()).await.unwrap() {
            Some(chunk) => got.push_str(&String::from_utf8_lossy(&chunk)),
            None => break,
        }
    }
    assert!(!got.contains("delimiter"), "leaked: {got}");
    got
}

const WIRES: [Wire; 2] = [Wire::Responses, Wire::Messages];

fn user() -> Vec<Value> {
    vec![json!({"role": "user", "content": "go"})]
}

#[tokio::test]
async fn a_client_that_leaves_keeps_what_it_was_handed() {
    for wire in WIRES {
        // The client leaves once it holds the call, and carries on with it.
        let said = vec![Said::Call("d1", "delimiter"), Said::Call("b1", "bash")];
        let (addr, seen) = hops(wire, vec![(said, false)]).await;
        let proxy = Proxy::before(addr).await;
        let end = match wire {
            Wire::Responses => r#""response.output_item.done""#,
            Wire::Messages => r#""content_block_stop""#,
        };
        ask(&proxy, wire, &user(), Some(end)).await;
        let aborted = r#"plimsoll_stream_aborts_total{phase="body",side="client"} 1"#;
        until_metric(&proxy, aborted).await;
        let history = wire.kept(Said::Call("b1", "bash"), wire.result("b1"));
        for _ in 0..2 {
            ask(&proxy, wire, &history, None).await;
            let last = seen.lock().unwrap().last().unwrap().clone();
            let want = ["go", "+d1", "+b1", "=d1", "=b1"];
            assert_eq!(wire.outline(&last), want, "{wire:?}: {last}");
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_during_a_hidden_hop_keeps_what_it_was_handed() {
    for wire in WIRES {
        let first = vec![Said::Text("First."), Said::Call("d1", "delimiter")];
        let (addr, seen) = hops(wire, vec![(first, true), (vec![], false)]).await;
        let proxy = Proxy::before(addr).await;
        ask(&proxy, wire, &user(), Some("First.")).await;
        let aborted = r#"plimsoll_stream_aborts_total{phase="between_hops",side="client"} 1"#;
        until_metric(&proxy, aborted).await;
        let more = json!({"role": "user", "content": "more"});
        let history = wire.kept(Said::Text("First."), more);
        for _ in 0..2 {
            ask(&proxy, wire, &history, None).await;
            let last = seen.lock().unwrap().last().unwrap().clone();
            let want = ["go", "First.", "+d1", "=d1", "more"];
            assert_eq!(wire.outline(&last), want, "{wire:?}: {last}");
        }
    }
}
