//! What single providers and models do that others don't, from the agent through the proxy to the
//! provider and back: what the provider reads in the end is what it said.

use axum::body::Body;
use axum::response::Response;
use serde_json::{Value, json};

use super::agent::tools;
use super::support::{Lenient, Proxy, client, soon};

const MARK: &str = r#"{"action":"start","name":"a","type":"expl"}"#;

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn signed(mut call: Value, signature: &str) -> Value {
    call["extra_content"] = json!({"google": {"thought_signature": signature}});
    call
}

/// An answer of the provider, whole or as one chunk and its end.
fn answer(message: &Value, stream: bool) -> Response {
    let finish = match message["tool_calls"].is_null() {
        true => "stop",
        false => "tool_calls",
    };
    let whole = |key: &str, said: &Value, finish: Value| {
        json!({"id": "c", "object": "x", "created": 1, "model": "m",
            "choices": [{"index": 0, key: said, "finish_reason": finish}]})
    };
    let (kind, body) = if stream {
        let mut said = message.clone();
        for (at, call) in (0..).zip(said["tool_calls"].as_array_mut().into_iter().flatten()) {
            call["index"] = json!(at);
        }
        let said = whole("delta", &said, Value::Null);
        let end = whole("delta", &json!({}), json!(finish));
        let body = format!("data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n");
        ("text/event-stream", body)
    } else {
        let body = whole("message", message, json!(finish)).to_string();
        ("application/json", body)
    };
    let built = Response::builder().header("content-type", kind);
    built.body(Body::from(body)).unwrap()
}

/// The message that a client makes of an answer.
fn heard(text: &str, stream: bool) -> Value {
    if !stream {
        let body: Value = serde_json::from_str(text).unwrap();
        return body["choices"][0]["message"].clone();
    }
    let mut message = json!({"role": "assistant", "content": null});
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            continue;
        };
        let delta = event["choices"][0]["delta"].clone();
        for (key, value) in delta.as_object().into_iter().flatten() {
            match (key.as_str(), value.as_str(), message[key].as_str()) {
                ("role", ..) => {}
                (_, Some(more), Some(before)) => message[key] = json!(format!("{before}{more}")),
                _ if !value.is_null() => message[key] = value.clone(),
                _ => {}
            }
        }
    }
    for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
        call.as_object_mut().unwrap().remove("index");
    }
    message
}

/// Plays one turn for each of these models; each answer to a visible call is `out`. Gives what the
/// provider was sent, and what the client holds in the end.
async fn played(said: &[Value], models: &[&str], stream: bool) -> (Vec<Value>, Vec<Value>) {
    let said = said.to_vec();
    let provider = Lenient::start(move |number, _| {
        let done = json!({"role": "assistant", "content": "done"});
        answer(said.get(number).unwrap_or(&done), stream)
    })
    .await;
    let proxy = Proxy::before(provider.addr).await;
    let mut history = vec![json!({"role": "user", "content": "go"})];
    for model in models {
        let body = json!({"model": model, "stream": stream, "tools": tools(), "messages": history});
        let request = client().post(proxy.url("/v1/chat/completions"));
        let request = request.header("authorization", "Bearer k");
        let response = soon(request.body(body.to_string()).send()).await.unwrap();
        assert_eq!(response.status(), 200);
        let text = soon(response.text()).await.unwrap();
        assert!(!text.to_lowercase().contains("delimiter"), "{text}");
        let message = heard(&text, stream);
        history.push(message.clone());
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            history.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "out"}));
        }
    }
    let bodies = provider.bodies();
    let sent = bodies
        .iter()
        .map(|body| serde_json::from_slice(body).unwrap());
    (sent.collect(), history)
}

/// The assistant's messages of a request.
fn said(body: &Value) -> Vec<Value> {
    let all = body["messages"].as_array().unwrap().iter();
    let said = all.filter(|message| message["role"] == "assistant");
    said.cloned().collect()
}

#[tokio::test]
async fn signatures_are_whole_at_the_client_and_as_they_were_at_the_provider() {
    for stream in [false, true] {
        let calls = [
            signed(call("call_hidden", "delimiter", MARK), "S"),
            call("call_bash", "bash", "{}"),
        ];
        let first = json!({"role": "assistant", "content": null, "tool_calls": calls});
        let (sent, history) = played(&[first], &["gemini-3-pro", "gemini-3-pro"], stream).await;
        let own = signed(call("call_bash", "bash", "{}"), "S");
        assert_eq!(history[1]["tool_calls"], json!([own]), "{stream}");
        assert_eq!(said(&sent[1])[0]["tool_calls"], json!(calls), "{stream}");
    }
}

#[tokio::test]
async fn details_name_a_call_that_is_there() {
    for stream in [false, true] {
        let detail = |id: &str| {
            json!([{"type": "reasoning.encrypted", "data": "D", "id": id,
            "format": "google-gemini-v1", "index": 0}])
        };
        let calls = [
            call("call_hidden", "delimiter", MARK),
            call("call_bash", "bash", "{}"),
        ];
        let first = json!({"role": "assistant", "content": null, "tool_calls": calls,
            "reasoning_details": detail("call_hidden")});
        let (sent, history) =
            played(&[first], &["google/gemini-3", "google/gemini-3"], stream).await;
        assert_eq!(
            history[1]["reasoning_details"],
            detail("call_bash"),
            "{stream}"
        );
        let back = &said(&sent[1])[0];
        assert_eq!(back["reasoning_details"], detail("call_hidden"), "{stream}");
    }
}

#[tokio::test]
async fn misspelt_hidden_calls_go_back_under_their_name() {
    for stream in [false, true] {
        for name in ["functions.delimiter", "Delimiter", " delimiter"] {
            let mixed = json!({"role": "assistant", "content": null, "tool_calls": [
                call("call_one", name, MARK), call("call_bash", "bash", "{}")]});
            let end = r#"{"action":"end","description":"d"}"#;
            let alone = json!({"role": "assistant", "content": null,
                "tool_calls": [call("call_two", name, end)]});
            let (sent, _) = played(&[mixed, alone], &["m", "m"], stream).await;
            let said = said(sent.last().unwrap());
            for message in said {
                let call = &message["tool_calls"][0]["function"];
                assert_eq!(call["name"], "delimiter", "{name} {stream}");
            }
            let told = sent.last().unwrap()["messages"].to_string();
            assert!(told.contains("closed expl"), "{told}");
        }
    }
}

#[tokio::test]
async fn reasoning_of_hidden_hops_goes_back_as_it_came_to_its_own_model_alone() {
    let hidden = |field: Value| {
        let mut message = json!({"role": "assistant", "content": null,
            "tool_calls": [signed(call("call_one", "delimiter", MARK), "S")]});
        for (key, value) in field.as_object().unwrap() {
            message[key] = value.clone();
        }
        message
    };
    let visible = json!({"role": "assistant", "content": null,
        "tool_calls": [call("call_bash", "bash", "{}")]});
    let thinking = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "look"}]);
    for stream in [false, true] {
        for (field, other) in [
            (json!({"reasoning_content": ""}), json!(null)),
            (json!({"reasoning_content": "hm"}), json!(null)),
            (
                json!({"content": thinking}),
                json!([{"type": "text", "text": "look"}]),
            ),
        ] {
            let answers = [hidden(field.clone()), visible.clone()];
            let (sent, history) = played(&answers, &["m", "m", "n"], stream).await;
            assert_eq!(sent.len(), 4);
            // At once, in the next turn, and to another model.
            for own in &sent[1..3] {
                let back = &said(own)[0];
                for (key, value) in field.as_object().unwrap() {
                    assert_eq!(back[key], *value, "{stream} {back}");
                }
                assert!(!back["tool_calls"][0]["extra_content"].is_null(), "{back}");
            }
            let back = &said(&sent[3])[0];
            assert_eq!(back.get("reasoning_content"), None, "{back}");
            assert_eq!(
                back["tool_calls"][0]["extra_content"],
                Value::Null,
                "{back}"
            );
            assert_eq!(back["content"], other, "{stream}");
            let heard = history[1].to_string();
            assert_eq!(heard.contains("look"), !other.is_null(), "{heard}");
        }
    }
}

#[tokio::test]
async fn own_fields_of_a_hidden_call_are_kept_up_to_a_bound() {
    for (length, kept) in [(60_000, true), (70_000, false)] {
        for stream in [false, true] {
            let hidden = signed(call("call_one", "delimiter", MARK), &"S".repeat(length));
            let answers = [
                json!({"role": "assistant", "content": null, "tool_calls": [hidden]}),
                json!({"role": "assistant", "content": null,
                    "tool_calls": [call("call_bash", "bash", "{}")]}),
            ];
            let (sent, _) = played(&answers, &["m", "m"], stream).await;
            for later in &sent[1..] {
                let back = &said(later)[0]["tool_calls"][0];
                assert_eq!(back["function"]["name"], "delimiter", "{length} {stream}");
                assert_eq!(!back["extra_content"].is_null(), kept, "{length} {stream}");
            }
        }
    }
}
