//! Tests of `diagnosis`.

use bytes::Bytes;
use plimsoll_model::raw;
use serde_json::{Value, json};

use super::*;

const DIALECTS: [Dialect; 2] = [Dialect::Messages, Dialect::Responses];

fn asked(dialect: Dialect, body: &Value, compared: &Compared) -> Value {
    let body = body.to_string();
    let object = Object::parse(body.as_bytes()).unwrap();
    let edit = ask(dialect, &object, compared);
    serde_json::from_slice(&raw::splice(body.as_bytes(), &[edit])).unwrap()
}

#[test]
fn a_request_asks_and_keeps_all_else() {
    let with = Compared::with("resp_1").unwrap();
    let body = json!({"model": "gpt-5.6", "prompt_cache_options": {"ttl": "30m"}});
    assert_eq!(
        asked(Dialect::Responses, &body, &with),
        json!({"model": "gpt-5.6", "prompt_cache_options": {"ttl": "30m", "comparison_response_id": "resp_1"}})
    );
    for body in [
        json!({"model": "m"}),
        json!({"model": "m", "prompt_cache_options": null}),
    ] {
        assert_eq!(
            asked(Dialect::Responses, &body, &with)["prompt_cache_options"],
            json!({"comparison_response_id": "resp_1"})
        );
    }
    let body = json!({"model": "claude"});
    for (compared, id) in [(Compared(None), Value::Null), (with, json!("resp_1"))] {
        assert_eq!(
            asked(Dialect::Messages, &body, &compared),
            json!({"model": "claude", "diagnostics": {"previous_message_id": id}})
        );
    }
}

#[test]
fn only_what_a_provider_made_is_an_id() {
    for id in ["", "a b", "a\"b", "ä", &"x".repeat(300)] {
        assert_eq!(Compared::with(id), None, "{id}");
    }
    assert!(Compared::with("msg_01-Ab").is_some());
}

#[test]
fn a_client_that_asks_is_seen() {
    for (dialect, body, expect) in [
        (Dialect::Messages, r#"{"diagnostics":null}"#, true),
        (
            Dialect::Messages,
            r#"{"diagnostics":{"previous_message_id":null}}"#,
            true,
        ),
        (
            Dialect::Messages,
            r#"{"prompt_cache_options":{"comparison_response_id":"x"}}"#,
            false,
        ),
        (
            Dialect::Responses,
            r#"{"prompt_cache_options":{"comparison_response_id":"x"}}"#,
            true,
        ),
        (
            Dialect::Responses,
            r#"{"prompt_cache_options":{"ttl":"30m"}}"#,
            false,
        ),
        (Dialect::Responses, r#"{"prompt_cache_options":7}"#, false),
        (Dialect::Chat, r#"{"diagnostics":{}}"#, false),
    ] {
        let object = Object::parse(body.as_bytes()).unwrap();
        assert_eq!(asks(dialect, &object), expect, "{body}");
    }
}

/// Answers as providers send them, with what is said in them, and the same answers of requests that did not ask.
fn answers() -> Vec<(Dialect, Value, Option<&'static str>, Value)> {
    let message = |told: Option<Value>| {
        let mut answer = json!({"id": "msg_1", "type": "message", "role": "assistant"});
        if let Some(told) = told {
            answer["diagnostics"] = told;
        }
        answer["usage"] = json!({"input_tokens": 3});
        answer
    };
    let response = |told: Option<Value>| {
        let mut answer =
            json!({"id": "resp_1", "object": "response", "prompt_cache_options": {"ttl": "30m"}});
        if let Some(told) = told {
            answer["prompt_cache_options"]["comparison_response_id"] = json!("resp_0");
            answer["prompt_cache_diagnostics"] = told;
        }
        answer["usage"] = json!({"input_tokens": 3});
        answer
    };
    let missed =
        |kind: &str| json!({"cache_miss_reason": {"type": kind, "cache_missed_input_tokens": 7}});
    let reason = json!({"type": "cache_miss", "cache_missed_tokens": 7, "reason": {"type": "input_changed"}});
    let plain = json!({"type": "cache_miss", "cache_missed_tokens": 7, "reason": "input_changed"});
    let messages = [
        (json!(null), None),
        (json!({"cache_miss_reason": null}), None),
        (missed("system_changed"), Some("system_changed")),
        (missed("Not a word"), None),
    ];
    let responses = [
        (json!(null), None),
        (reason, Some("input_changed")),
        (plain, Some("input_changed")),
        (json!({"type": "cache_hit"}), Some("cache_hit")),
        (
            json!({"type": "comparison_response_not_found"}),
            Some("comparison_response_not_found"),
        ),
    ];
    let messages =
        messages.map(|(told, said)| (Dialect::Messages, message(Some(told)), said, message(None)));
    let responses = responses.map(|(told, said)| {
        (
            Dialect::Responses,
            response(Some(told)),
            said,
            response(None),
        )
    });
    messages.into_iter().chain(responses).collect()
}

#[test]
fn what_the_client_did_not_ask_for_leaves_its_answer() {
    for (dialect, told, said, untold) in answers() {
        let body = Bytes::from(told.to_string());
        let mut ours = Diagnosis::new(dialect, WhoAsked::Proxy);
        let got: Value = serde_json::from_slice(&ours.body(&body)).unwrap();
        assert_eq!((got, ours.said().as_deref()), (untold, said), "{told}");
        let mut clients = Diagnosis::new(dialect, WhoAsked::Client);
        assert_eq!(clients.body(&body), body);
        assert_eq!(clients.said().as_deref(), said);
        let mut nobodys = Diagnosis::new(dialect, WhoAsked::Nobody);
        assert_eq!((nobodys.body(&body), nobodys.said()), (body, None));
    }
}

#[test]
fn so_it_is_in_each_event_of_a_stream() {
    for (dialect, told, said, untold) in answers() {
        let event = |answer: &Value| match dialect {
            Dialect::Responses => json!({"type": "response.completed", "response": answer}),
            Dialect::Chat | Dialect::Messages => {
                json!({"type": "message_start", "message": answer})
            }
        };
        let frame = |answer: &Value| {
            let event = event(answer);
            let name = event["type"].as_str().unwrap();
            Frame::of(Bytes::from(format!("event: {name}\ndata: {event}\n\n")))
        };
        let mut ours = Diagnosis::new(dialect, WhoAsked::Proxy);
        let got = ours.frame(frame(&told));
        assert_eq!(
            (got.raw(), ours.said().as_deref()),
            (frame(&untold).raw(), said)
        );
        let mut clients = Diagnosis::new(dialect, WhoAsked::Client);
        assert_eq!(clients.frame(frame(&told)), frame(&told));
    }
    // A text that speaks of it is the model's.
    let delta = r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"diagnostics\": 1}"}}"#;
    let frame = Frame::of(Bytes::from(format!("{delta}\n\n")));
    assert_eq!(
        DIALECTS.map(|dialect| Diagnosis::new(dialect, WhoAsked::Proxy).frame(frame.clone())),
        [frame.clone(), frame]
    );
}
