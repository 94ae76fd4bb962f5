//! Providers that bind thoughts to what stood before them, over real HTTP.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as loudly as the tests do"
)]

mod support;

use std::sync::Arc;

use plimsoll_scripted::rules::CONTROLS;
use plimsoll_scripted::*;
use serde_json::{Value, json};
use support::{Answer, call};

const MODEL: &str = "claude-opus-5-5";

async fn start(mismatch: Mismatch) -> Provider {
    let script = Script::ask(|view| {
        let call = Call::new(format!("call_{}", view.index), "bash", "{\"c\":\"ls\"}");
        let thought = thoughts::words(&view.index.to_string(), 1, 40);
        Reply::calls(vec![call]).saying("Now.").reasoning(thought)
    });
    let options = Options {
        rules: Rules::default().of(MODEL, [Rule::Bound(mismatch)]),
        ..Options::default()
    };
    Provider::start(script, options).await.unwrap()
}

async fn post(provider: &Provider, path: &str, beta: bool, body: &Value) -> Answer {
    let headers = match beta {
        true => format!("anthropic-beta: {CONTROLS}\r\n"),
        false => String::new(),
    };
    call(provider, "POST", path, &headers, &body.to_string())
        .await
        .unwrap()
}

fn value(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

fn events(answer: &Answer) -> Vec<Value> {
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok())
        .collect()
}

/// A request behind two answers, each of which has a thought.
async fn messages(provider: &Provider) -> Value {
    let mut body = json!({"model": MODEL, "max_tokens": 99, "thinking": {"type": "adaptive"},
        "tools": [{"name": "bash", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "go"}]});
    for _ in 0..2 {
        let answer = value(&post(provider, "/v1/messages", false, &body).await);
        let id = &answer["content"][2]["id"];
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": "a long list"});
        let list = body["messages"].as_array_mut().unwrap();
        list.push(json!({"role": "assistant", "content": answer["content"]}));
        list.push(json!({"role": "user", "content": [result]}));
    }
    body
}

#[tokio::test]
async fn messages_are_refused_and_counted_alike() {
    let provider = start(Mismatch::Refuse).await;
    let mut body = messages(&provider).await;
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        assert_eq!(
            post(&provider, path, false, &body).await.status,
            200,
            "{path}"
        );
    }
    body["messages"][2]["content"][0]["content"] = "[cleared]".into();
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let answer = post(&provider, path, false, &body).await;
        assert_eq!(answer.status, 400, "{path}");
        let error = value(&answer);
        assert_eq!(error["type"], "error");
        let text = error["error"]["message"].as_str().unwrap();
        assert!(
            text.starts_with("messages.3.content.0: Invalid `signature`"),
            "{text}"
        );
        assert!(text.ends_with("first at `messages.2.content.0`."), "{text}");
        let received = provider.requests().pop().unwrap();
        assert_eq!(
            (received.judged.valid(), received.judged.invalid().count()),
            (1, 1)
        );
        assert!(matches!(received.verdict, Verdict::Refused(_)));
    }
}

#[tokio::test]
async fn dropped_thoughts_cost_nothing_and_are_told_where_it_is_asked_for() {
    let provider = start(Mismatch::Drop).await;
    let mut body = messages(&provider).await;
    let input = async |body: &Value| {
        let answer = post(&provider, "/v1/messages", false, body).await;
        let answer = value(&answer);
        assert_eq!(answer["input_transformations"], Value::Null);
        answer["usage"]["input_tokens"].as_u64().unwrap()
    };
    body["messages"][2]["content"][0]["content"] = "a LONG list".into();
    let dropped = input(&body).await;
    let thought = body["messages"][3]["content"][0].take();
    body["messages"][3]["content"]
        .as_array_mut()
        .unwrap()
        .remove(0);
    assert_eq!(input(&body).await, dropped);
    body["messages"][3]["content"]
        .as_array_mut()
        .unwrap()
        .insert(0, thought.clone());
    body["messages"][2]["content"][0]["content"] = "a long list".into();
    let tokens = thought["thinking"].as_str().unwrap().len().div_ceil(4);
    assert_eq!(input(&body).await, dropped + u64::try_from(tokens).unwrap());

    body["messages"][2]["content"][0]["content"] = "[cleared]".into();
    let told = json!([{"type": "thinking_dropped", "path": "messages.3.content.0",
        "reason": "prefix_binding_mismatch"}]);
    for streamed in [false, true] {
        body["stream"] = streamed.into();
        let answer = post(&provider, "/v1/messages", true, &body).await;
        let message = match streamed {
            true => events(&answer)[0]["message"].clone(),
            false => value(&answer),
        };
        assert_eq!(message["input_transformations"], told, "{streamed}");
    }
}

#[tokio::test]
async fn streams_say_what_bodies_say() {
    let provider = start(Mismatch::Refuse).await;
    let mut body = messages(&provider).await;
    let whole = value(&post(&provider, "/v1/messages", false, &body).await);
    body["stream"] = true.into();
    let mut content: Vec<Value> = Vec::new();
    for event in events(&post(&provider, "/v1/messages", false, &body).await) {
        match event["type"].as_str().unwrap() {
            "content_block_start" => content.push(event["content_block"].clone()),
            "content_block_delta" => {
                let block = content.last_mut().unwrap();
                for field in ["text", "thinking", "signature"] {
                    if let Some(piece) = event["delta"][field].as_str() {
                        let known = block[field].as_str().unwrap();
                        block[field] = format!("{known}{piece}").into();
                    }
                }
            }
            _ => {}
        }
    }
    assert_eq!(content[1], whole["content"][1]);
    // Each answer has a thought of its own; the one of the stream is taken back like any other.
    let list = body["messages"].as_array_mut().unwrap();
    list.push(json!({"role": "assistant", "content": [content[0]]}));
    list.push(json!({"role": "user", "content": "on"}));
    assert_eq!(
        post(&provider, "/v1/messages", false, &body).await.status,
        200
    );
    assert_eq!(
        provider.asked(Form::Messages).pop().unwrap().judged.valid(),
        3
    );
}

#[tokio::test]
async fn responses_drop_what_stands_behind_a_change() {
    let provider = start(Mismatch::Drop).await;
    let mut body = json!({"model": MODEL, "store": false,
        "input": [{"role": "user", "content": "go"}]});
    for _ in 0..2 {
        let answer = value(&post(&provider, "/v1/responses", false, &body).await);
        let list = body["input"].as_array_mut().unwrap();
        list.extend(answer["output"].as_array().unwrap().clone());
        let id = &answer["output"][2]["call_id"];
        list.push(json!({"type": "function_call_output", "call_id": id, "output": "a list"}));
    }
    body["input"][4]["output"] = "[cleared]".into();
    for streamed in [false, true] {
        body["stream"] = streamed.into();
        let answer = post(&provider, "/v1/responses", false, &body).await;
        let response = match streamed {
            true => events(&answer).pop().unwrap()["response"].clone(),
            false => value(&answer),
        };
        assert_eq!(response["status"], "completed");
        let told = &response["input_transformations"][0];
        assert_eq!(
            (&told["id"], &told["reason"]),
            (&body["input"][5]["id"], &json!("prefix_mismatch"))
        );
    }
    assert_eq!(
        provider
            .asked(Form::Responses)
            .pop()
            .unwrap()
            .judged
            .valid(),
        1
    );
}

/// A recorded session of a few turns.
fn session() -> Arc<Session> {
    let mut lines = vec![
        json!({"_meta": {"id": "short"}}),
        json!({"role": "user", "content": "tidy up"}),
    ];
    for n in 0..60 {
        let function = json!({"name": "read", "arguments": format!("{{\"n\": {n}}}")});
        let id = format!("c{n}");
        lines.push(json!({"role": "assistant", "content": "",
            "tool_calls": [{"id": id, "type": "function", "function": function}]}));
        lines.push(json!({"role": "tool", "tool_call_id": id, "content": format!("text {n}")}));
    }
    lines.push(json!({"role": "assistant", "content": "It is tidy."}));
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    Session::new(Recording::parse(&text.join("\n")).unwrap(), 1)
}

#[tokio::test]
async fn a_session_thinks_before_each_answer() {
    let player = Arc::new(Player::new([session()]).any_style(3).thinking(7, 100));
    let options = Options {
        rules: Rules::new([Rule::Bound(Mismatch::Refuse)]),
        ..Options::default()
    };
    let provider = Provider::start(player.script(), options).await.unwrap();
    let mut client = Client::new(
        session(),
        ClientOptions {
            annotated: false,
            echo_details: true,
            ..ClientOptions::default()
        },
    );
    while let Some(request) = client.request() {
        let (name, place) = &request.headers[0];
        let headers = format!("{name}: {place}\r\n");
        let body = std::str::from_utf8(&request.body).unwrap();
        let path = "/v1/chat/completions";
        let answer = call(&provider, "POST", path, &headers, body).await.unwrap();
        assert_eq!(client.hear(answer.status, &answer.body).violations, []);
    }
    let chats = provider.chats();
    assert_eq!(chats.len(), 61);
    assert_eq!(chats[60].judged.valid(), 60);
    let bodies: Vec<Value> = chats.iter().map(Received::value).collect();
    assert_eq!(thoughts::append_only(Form::Chat, &bodies), Ok(()));
}
