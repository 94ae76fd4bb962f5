//! Ids of hidden calls that a provider can't have meant: none, the same with every answer, or those of
//! other calls. What goes up names each call once, and answers it by that name; what the client is
//! given keeps the provider's ids.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::response::Response;
use serde_json::{Value, json};

use super::support::{Lenient, Proxy, client, response_events, soon};

const MARK: &str = r#"{"action":"start","name":"a","type":"expl"}"#;
const NEXT: &str = r#"{"action":"end","name":"a","summary":"done"}"#;

/// What the provider calls at its nth answer: (name, id, arguments).
type Calls = Vec<(&'static str, &'static str, &'static str)>;

/// The answers to one user, hop by hop: a visible call, then hidden ones with odd ids, then a text.
fn calls(number: usize, odd: &[&'static str; 3]) -> Calls {
    match number {
        0 => vec![("read", "call_a", "{}")],
        1 => vec![("delimiter", odd[0], MARK)],
        2 => vec![("delimiter", odd[1], NEXT), ("delimiter", odd[2], MARK)],
        _ => Vec::new(),
    }
}

fn chat(number: usize, calls: &Calls, stream: bool) -> String {
    let listed = calls.iter().enumerate().map(|(at, (name, id, arguments))| {
        json!({"index": at, "id": id, "type": "function",
            "function": {"name": name, "arguments": arguments}})
    });
    let listed: Vec<Value> = listed.collect();
    let (said, finish) = match listed.is_empty() {
        true => (json!({"role": "assistant", "content": "done"}), "stop"),
        false => (
            json!({"role": "assistant", "content": null, "tool_calls": listed}),
            "tool_calls",
        ),
    };
    let whole = |key: &str, finish: Value| {
        json!({"id": format!("c{number}"), "object": "x", "created": 1, "model": "gpt-4o",
            "choices": [{"index": 0, key: said, "finish_reason": finish}]})
    };
    if !stream {
        return whole("message", json!(finish)).to_string();
    }
    let mut end = whole("delta", json!(finish));
    end["choices"][0]["delta"] = json!({});
    format!(
        "data: {}\n\ndata: {end}\n\ndata: [DONE]\n\n",
        whole("delta", Value::Null)
    )
}

fn responses(number: usize, calls: &Calls, stream: bool) -> String {
    let listed = calls.iter().map(|(name, id, arguments)| {
        json!({"type": "function_call", "id": id, "status": "completed", "call_id": id,
            "name": name, "arguments": arguments})
    });
    let mut output: Vec<Value> = listed.collect();
    if output.is_empty() {
        output.push(json!({"type": "message", "id": "msg", "role": "assistant",
            "status": "completed", "content": [{"type": "output_text", "annotations": [],
            "text": "done"}]}));
    }
    let response = json!({"id": format!("resp_{number}"), "object": "response", "created_at": 1,
        "status": "completed", "error": null, "model": "gpt-4o", "output": output});
    if stream {
        response_events(&response)
    } else {
        response.to_string()
    }
}

fn messages(number: usize, calls: &Calls, stream: bool) -> String {
    let blocks = calls.iter().map(|(name, id, arguments)| {
        json!({"type": "tool_use", "id": id, "name": name,
            "input": serde_json::from_str::<Value>(arguments).unwrap()})
    });
    let mut blocks: Vec<Value> = blocks.collect();
    let reason = if blocks.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    if blocks.is_empty() {
        blocks.push(json!({"type": "text", "text": "done"}));
    }
    let mut message = json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant",
        "model": "claude-x", "content": blocks, "stop_reason": reason, "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 1}});
    if !stream {
        return message.to_string();
    }
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    let mut all = vec![json!({"type": "message_start", "message": message})];
    for (at, block) in blocks.iter().enumerate() {
        let (mut begun, delta) = (
            block.clone(),
            match block["type"] == "text" {
                true => json!({"type": "text_delta", "text": "done"}),
                false => json!({"type": "input_json_delta",
                "partial_json": block["input"].to_string()}),
            },
        );
        match block["type"] == "text" {
            true => begun["text"] = json!(""),
            false => begun["input"] = json!({}),
        }
        all.push(json!({"type": "content_block_start", "index": at, "content_block": begun}));
        all.push(json!({"type": "content_block_delta", "index": at, "delta": delta}));
        all.push(json!({"type": "content_block_stop", "index": at}));
    }
    all.push(
        json!({"type": "message_delta", "usage": {"output_tokens": 1},
        "delta": {"stop_reason": reason, "stop_sequence": null}}),
    );
    all.push(json!({"type": "message_stop"}));
    let frame = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    };
    all.iter().map(frame).collect()
}

type Say = fn(usize, &Calls, bool) -> String;

/// The ids of all calls and of all results of a request, in order.
fn ids(body: &Value, path: &str) -> (Vec<String>, Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let list = if path == "/v1/responses" {
        "input"
    } else {
        "messages"
    };
    for item in body[list].as_array().unwrap() {
        for call in item["tool_calls"].as_array().into_iter().flatten() {
            calls.push(text(&call["id"]));
        }
        for block in item["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("tool_use") => calls.push(text(&block["id"])),
                Some("tool_result") => results.push(text(&block["tool_use_id"])),
                _ => {}
            }
        }
        match item["type"].as_str() {
            Some("function_call") => {
                calls.push(text(&item["call_id"]));
                assert_ne!(item["id"], "", "{item}");
            }
            Some("function_call_output") => results.push(text(&item["call_id"])),
            _ => {}
        }
        if item["role"] == "tool" {
            results.push(text(&item["tool_call_id"]));
        }
    }
    (calls, results)
}

/// What a client says behind the visible call.
fn history(path: &str) -> Value {
    let arguments = json!({"name": "read", "arguments": "{}"});
    match path {
        "/v1/chat/completions" => json!([{"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "call_a",
                "type": "function", "function": arguments}]},
            {"role": "tool", "tool_call_id": "call_a", "content": "x"}]),
        "/v1/responses" => json!([{"role": "user", "content": "go"},
            {"type": "function_call", "call_id": "call_a", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_a", "output": "x"}]),
        _ => json!([{"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_a",
                "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_a",
                "content": "x"}]}]),
    }
}

/// Plays both turns and gives what the provider was sent.
async fn played(path: &'static str, say: Say, odd: [&'static str; 3], stream: bool) -> Vec<Value> {
    let provider = Lenient::start(move |number, _| {
        let kind = if stream {
            "text/event-stream"
        } else {
            "application/json"
        };
        let body = say(number, &calls(number, &odd), stream);
        let built = Response::builder().header("content-type", kind);
        built.body(Body::from(body)).unwrap()
    });
    let provider = provider.await;
    let proxy = Proxy::before(provider.addr).await;
    let schema = json!({"type": "object"});
    let tools = match path {
        "/v1/chat/completions" => json!([{"type": "function",
            "function": {"name": "read", "parameters": schema}}]),
        "/v1/responses" => json!([{"type": "function", "name": "read", "parameters": schema}]),
        _ => json!([{"name": "read", "input_schema": schema}]),
    };
    let list = if path == "/v1/responses" {
        "input"
    } else {
        "messages"
    };
    let first = json!([{"role": "user", "content": "go"}]);
    for input in [first, history(path)] {
        let mut body = json!({"model": "gpt-4o", "max_tokens": 99, "store": false, "tools": tools,
            "stream": stream});
        body[list] = input;
        let request = client().post(proxy.url(path)).header("x-api-key", "k");
        let response = soon(request.body(body.to_string()).send()).await.unwrap();
        assert_eq!(response.status(), 200);
        let text = soon(response.text()).await.unwrap();
        assert!(!text.contains("delimiter"), "{text}");
    }
    let bodies = provider.bodies();
    bodies
        .iter()
        .map(|body| serde_json::from_slice(body).unwrap())
        .collect()
}

#[tokio::test]
async fn hidden_calls_go_up_under_ids_of_their_own() {
    let dialects: [(&'static str, Say); 3] = [
        ("/v1/chat/completions", chat),
        ("/v1/responses", responses),
        ("/v1/messages", messages),
    ];
    let odd = [
        ["", "", ""],
        ["same", "same", "same"],
        ["call_a", "x", "call_a"],
        [" ", "x", "y"],
    ];
    for (path, say) in dialects {
        for odd in odd {
            for stream in [false, true] {
                let sent = played(path, say, odd, stream).await;
                let what = format!("{path} {odd:?} {stream}");
                assert_eq!(sent.len(), 4, "{what}");
                let (calls, results) = ids(&sent[3], path);
                assert_eq!((calls.len(), &calls), (4, &results), "{what}");
                let apart: BTreeSet<&String> = calls.iter().collect();
                assert_eq!(apart.len(), 4, "{what}: {calls:?}");
                assert!(
                    calls.iter().all(|id| !id.trim().is_empty()),
                    "{what}: {calls:?}"
                );
                assert_eq!(calls[0], "call_a", "{what}");
                // What can be used stays the provider's.
                for (at, id) in odd.iter().enumerate() {
                    let first = !odd[..at].contains(id) && !["", " ", "call_a"].contains(id);
                    assert_eq!(first, calls[at + 1] == *id, "{what}: {calls:?}");
                }
                // All replicas agree.
                if odd[0].is_empty() && !stream {
                    let again = played(path, say, odd, stream).await;
                    assert_eq!(ids(&again[3], path).0, calls, "{what}");
                }
            }
        }
    }
}
