//! Later hops of a turn and what a client's request says of them: what holds for each hop goes along,
//! what fits one request goes up once, and a hop that the upstream refuses all the same costs the client
//! nothing that its own request would have had. In all three dialects.

use axum::response::Response;
use plimsoll_wire::Dialect;
use serde_json::{Map, Value, json};

use crate::agent::{Answer, received, total, until_metric};
use crate::support::{Lenient, Proxy, Seen, answered, client, soon};
use crate::unread::answers::{
    DIALECTS, FIRST, ID, THEN, path, request, streamed, whole_hidden, whole_text,
};

/// A request with other fields beside its own.
fn with(dialect: Dialect, stream: bool, fields: &Value) -> Value {
    let mut body: Value = serde_json::from_str(&request(dialect, stream)).unwrap();
    let known = body.as_object_mut().unwrap();
    known.extend(fields.as_object().unwrap().clone());
    body
}

async fn asked(proxy: &Proxy, dialect: Dialect, body: &Value, headers: &[(&str, &str)]) -> Answer {
    let request = client()
        .post(proxy.url(path(dialect)))
        .header("authorization", "Bearer k");
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    received(
        soon(request.body(body.to_string()).send()).await.unwrap(),
        false,
    )
    .await
}

/// The usage of a hop that has generated so many tokens.
fn spent(dialect: Dialect, tokens: u64) -> Value {
    match dialect {
        Dialect::Chat => {
            json!({"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens})
        }
        Dialect::Responses | Dialect::Messages => {
            json!({"input_tokens": 9, "output_tokens": tokens})
        }
    }
}

/// The first answer of a turn, which calls a hidden tool and has generated so many tokens.
fn first(dialect: Dialect, stream: bool, tokens: u64) -> Response {
    let usage = spent(dialect, tokens);
    if !stream {
        let mut whole: Value = serde_json::from_str(&whole_hidden(dialect)).unwrap();
        whole["usage"] = usage;
        return answered(200, whole);
    }
    let events = streamed(dialect, None, true);
    let told = |event: &String| {
        let Some(data) = event
            .strip_prefix("data: ")
            .filter(|data| data.starts_with('{'))
        else {
            return event.clone();
        };
        let mut data: Value = serde_json::from_str(data).unwrap();
        match dialect {
            Dialect::Chat if data["choices"][0]["finish_reason"] == "tool_calls" => {
                data["usage"] = usage.clone()
            }
            Dialect::Messages if data["type"] == "message_delta" => data["usage"] = usage.clone(),
            Dialect::Responses if data["type"] == "response.completed" => {
                data["response"]["usage"] = usage.clone();
            }
            _ => {}
        }
        format!("data: {data}\n\n")
    };
    answered(200, events.iter().map(told).collect::<String>())
}

/// The answer that says a text.
fn then(dialect: Dialect, stream: bool) -> Response {
    match stream {
        true => answered(200, streamed(dialect, Some(THEN), false).concat()),
        false => answered(200, whole_text(dialect, THEN)),
    }
}

fn refusal(status: u16, why: &str) -> Response {
    answered(
        status,
        json!({"error": {"message": why, "type": "invalid_request_error"}}),
    )
}

/// Whether a request stands behind the hidden call.
fn is_later(seen: &Seen) -> bool {
    String::from_utf8_lossy(&seen.body).contains(ID)
}

/// Whether hidden tools are offered.
fn is_view(seen: &Seen) -> bool {
    String::from_utf8_lossy(&seen.body).contains("delimiter")
}

#[track_caller]
fn whole(answer: &Answer, what: &str) {
    let text = answer.text();
    let what = format!("{what}: {} {text}", answer.status);
    assert_eq!((answer.status, answer.broken), (200, false), "{what}");
    assert!(!text.contains("delimiter") && !text.contains(ID), "{what}");
    assert!(!text.contains(r#""error":{"#), "{what}");
}

/// Whether a stream of the dialect has come to its own end.
fn ends(dialect: Dialect, text: &str) -> bool {
    match dialect {
        Dialect::Chat => {
            text.contains(r#""finish_reason":"stop""#) && text.ends_with("data: [DONE]\n\n")
        }
        Dialect::Responses => {
            text.contains(r#""type":"response.completed""#)
                && text.contains(r#""status":"completed""#)
        }
        Dialect::Messages => {
            text.contains(r#""stop_reason":"end_turn""#)
                && text.contains(r#""type":"message_stop""#)
        }
    }
}

/// Fields beside which a limit may not fall below a number of them, and what is left of 3,000 tokens
/// after 2,500 all the same.
fn bounds() -> Vec<(Dialect, Value, u64)> {
    use Dialect::{Chat, Messages, Responses};
    vec![
        (
            Chat,
            json!({"max_tokens": 3000, "thinking": {"type": "enabled", "budget_tokens": 1024}}),
            1025,
        ),
        (
            Chat,
            json!({"max_completion_tokens": 3000, "thinking": {"budget_tokens": 1024}}),
            1025,
        ),
        (
            Chat,
            json!({"max_tokens": 3000, "reasoning": {"max_tokens": 2000}}),
            2001,
        ),
        (Chat, json!({"max_tokens": 3000, "min_tokens": 700}), 700),
        (
            Chat,
            json!({"max_tokens": 3000, "min_tokens": 700, "reasoning": {"max_tokens": 900}}),
            901,
        ),
        (Chat, json!({"max_tokens": 3000}), 500),
        (
            Messages,
            json!({"max_tokens": 3000, "thinking": {"type": "enabled", "budget_tokens": 1024}}),
            1025,
        ),
        // Interleaved thinking may take more than one answer's limit.
        (
            Messages,
            json!({"max_tokens": 3000, "thinking": {"type": "enabled", "budget_tokens": 9000}}),
            3000,
        ),
        (Messages, json!({"max_tokens": 3000}), 500),
        (
            Responses,
            json!({"max_output_tokens": 3000, "reasoning": {"max_tokens": 2000}}),
            2001,
        ),
        (Responses, json!({"max_output_tokens": 3000}), 500),
        (Responses, json!({"max_output_tokens": 2510}), 16),
    ]
}

#[tokio::test]
async fn the_limit_of_a_later_hop_stays_above_what_else_the_client_asks() {
    for (dialect, fields, want) in bounds() {
        for stream in [false, true] {
            let upstream = Lenient::start(move |number, _| match number {
                0 => first(dialect, stream, 2_500),
                _ => then(dialect, stream),
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let body = with(dialect, stream, &fields);
            let what = format!("{dialect:?} {stream} {fields}");
            whole(&asked(&proxy, dialect, &body, &[]).await, &what);
            let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
            let newest = upstream.newest();
            let limit = limits.iter().find_map(|limit| newest[limit].as_u64());
            assert_eq!(limit, Some(want), "{what}");
            assert_eq!(upstream.seen().len(), 2, "{what}");
        }
    }
}

#[tokio::test]
async fn a_limit_that_is_refused_for_a_field_that_nobody_knows_goes_up_whole() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let name = if dialect == Dialect::Responses {
                "max_output_tokens"
            } else {
                "max_tokens"
            };
            let upstream = Lenient::judging(move |_, seen| {
                if !is_later(seen) {
                    return first(dialect, stream, 2_500);
                }
                match seen.value()[name].as_u64() {
                    Some(3_000) => then(dialect, stream),
                    _ => refusal(400, "max tokens must be above sparkle_budget"),
                }
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let body = with(
                dialect,
                stream,
                &json!({name: 3000, "sparkle_budget": 2900}),
            );
            let what = format!("{dialect:?} {stream}");
            let answer = asked(&proxy, dialect, &body, &[]).await;
            whole(&answer, &what);
            assert!(answer.text().contains(THEN), "{what}");
            assert_eq!(upstream.seen().len(), 3, "{what}");
            assert!(is_later(upstream.seen().last().unwrap()), "{what}");
        }
    }
}

/// What a server's own tool did, as it stands in an answer.
fn execution() -> [Value; 2] {
    let result = json!({"type": "code_execution_result", "stdout": "1\n", "stderr": "", "return_code": 0, "content": []});
    [
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "1"}}),
        json!({"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": result}),
    ]
}

#[tokio::test]
async fn the_container_of_an_answer_goes_on_to_the_next_hop() {
    let dialect = Dialect::Messages;
    let boxed = |id: &str| json!({"id": id, "expires_at": "2027-01-01T00:00:00Z"});
    // (what the client says of it) -> (what the second hop is sent)
    for (own, want) in [
        (Value::Null, json!("box_1")),
        (json!("box_0"), json!("box_1")),
        (
            json!({"id": "box_0", "skills": []}),
            json!({"id": "box_1", "skills": []}),
        ),
        (
            json!({"skills": [{"type": "custom"}]}),
            json!({"skills": [{"type": "custom"}], "id": "box_1"}),
        ),
    ] {
        for place in ["whole", "message_start", "message_delta"] {
            let stream = place != "whole";
            let upstream = Lenient::start(move |number, _| {
                if number > 0 {
                    return then(dialect, stream);
                }
                if !stream {
                    let mut whole: Value = serde_json::from_str(&whole_hidden(dialect)).unwrap();
                    whole["container"] = boxed("box_1");
                    let content = whole["content"].as_array_mut().unwrap();
                    content.splice(0..0, execution());
                    return answered(200, whole);
                }
                let events = streamed(dialect, None, true);
                let told = events.iter().map(|event| {
                    let mut data: Value = serde_json::from_str(&event[6..]).unwrap();
                    let (start, delta) =
                        (place == "message_start", data["type"] == "message_delta");
                    if data["type"] == "message_start" {
                        data["message"]["container"] =
                            if start { boxed("box_1") } else { Value::Null };
                    } else if delta {
                        data["delta"]["container"] =
                            if start { Value::Null } else { boxed("box_1") };
                    }
                    format!("data: {data}\n\n")
                });
                answered(200, told.collect::<String>())
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let mut fields = Map::new();
            if !own.is_null() {
                fields.insert("container".to_owned(), own.clone());
            }
            let body = with(dialect, stream, &Value::Object(fields));
            let what = format!("{place} {own}");
            whole(&asked(&proxy, dialect, &body, &[]).await, &what);
            let newest = upstream.newest();
            assert_eq!(newest["container"], want, "{what}");
            let messages = newest["messages"].to_string();
            let ran = messages.matches("srvtoolu_1").count();
            assert_eq!(ran, if stream { 0 } else { 2 }, "{what}: {messages}");
        }
    }
}

#[tokio::test]
async fn what_fits_one_request_goes_up_once() {
    let headers = [
        ("idempotency-key", "k1"),
        ("x-idempotency-key", "k2"),
        ("if-none-match", "\"e\""),
        ("x-stainless-retry-count", "1"),
    ];
    let kept = [
        ("anthropic-beta", "a,b"),
        ("x-session-affinity", "s"),
        ("openai-organization", "o"),
    ];
    let fields = json!({"request_id": "r1", "user": "u", "metadata": {"a": "b"}});
    for dialect in DIALECTS {
        for stream in [false, true] {
            let upstream = Lenient::start(move |number, _| match number {
                0 => first(dialect, stream, 1),
                _ => then(dialect, stream),
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let all = [&headers[..], &kept, &[("content-digest", "sha-256=:x:")]].concat();
            let body = with(dialect, stream, &fields);
            let what = format!("{dialect:?} {stream}");
            whole(&asked(&proxy, dialect, &body, &all).await, &what);
            let seen = upstream.seen();
            assert_eq!(seen.len(), 2, "{what}");
            for (name, value) in headers {
                assert_eq!(seen[0].headers[name], value, "{what}");
                assert!(!seen[1].headers.contains_key(name), "{what} {name}");
            }
            assert_eq!(seen[0].value()["request_id"], "r1", "{what}");
            assert_eq!(seen[1].value().get("request_id"), None, "{what}");
            for seen in &seen {
                // No view has the bytes of which it is true.
                assert!(!seen.headers.contains_key("content-digest"), "{what}");
                for (name, value) in kept {
                    assert_eq!(seen.headers[name], value, "{what}");
                }
                assert_eq!(
                    (&seen.value()["user"], &seen.value()["metadata"]),
                    (&fields["user"], &fields["metadata"]),
                    "{what}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_key_that_is_known_goes_with_no_other_body() {
    // A view that is refused, and the client's own request in its place.
    for dialect in DIALECTS {
        let upstream = Lenient::judging(move |_, seen| match is_view(seen) {
            true => refusal(400, "no"),
            false => then(dialect, false),
        })
        .await;
        let proxy = Proxy::before(upstream.addr).await;
        let body = with(dialect, false, &json!({}));
        let key = [("idempotency-key", "k"), ("content-digest", "sha-256=:x:")];
        whole(&asked(&proxy, dialect, &body, &key).await, "own");
        let seen = upstream.seen();
        assert!(seen[0].headers.contains_key("idempotency-key"));
        assert!(!seen[1].headers.contains_key("idempotency-key"));
        assert_eq!(
            seen[1].headers["content-digest"], key[1].1,
            "the client's own bytes"
        );
    }
}

#[tokio::test]
async fn a_prefill_is_gone_on_with_in_the_first_hop_alone() {
    let dialect = Dialect::Chat;
    for stream in [false, true] {
        let upstream = Lenient::start(move |number, _| match number {
            0 => first(dialect, stream, 1),
            _ => then(dialect, stream),
        })
        .await;
        let proxy = Proxy::before(upstream.addr).await;
        let fields = json!({"add_generation_prompt": false, "continue_final_message": true,
            "messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": "Well,"}]});
        whole(
            &asked(&proxy, dialect, &with(dialect, stream, &fields), &[]).await,
            "prefill",
        );
        let seen = upstream.seen();
        for name in ["add_generation_prompt", "continue_final_message"] {
            assert_eq!(seen[0].value()[name], fields[name], "{name}");
            assert_eq!(seen[1].value().get(name), None, "{name}");
        }
    }
}

/// Statuses that refuse a request for what it says, and how many views are sent under them. Two may be
/// about how a body is made, so another view is tried, without anything of ours.
const REFUSALS: [(u16, usize); 5] = [(400, 2), (404, 1), (409, 1), (413, 1), (422, 2)];

/// A stream of a hidden call that shows the client nothing.
fn quiet(dialect: Dialect) -> Response {
    let opens =
        |event: &String| event.contains("message_start") || event.contains("response.created");
    let events = streamed(dialect, None, true).into_iter();
    answered(
        200,
        events.filter(|event| !opens(event)).collect::<String>(),
    )
}

#[tokio::test]
async fn a_later_hop_that_is_refused_falls_back_to_the_clients_own_request() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            for (status, views) in REFUSALS {
                let upstream = Lenient::start(move |number, _| match (number, stream) {
                    (0, true) => quiet(dialect),
                    (0, false) => answered(200, whole_hidden(dialect)),
                    (1, _) => refusal(status, "not behind that"),
                    (_, _) => then(dialect, stream),
                })
                .await;
                let proxy = Proxy::before(upstream.addr).await;
                let body = with(dialect, stream, &json!({}));
                let what = format!("{dialect:?} {stream} {status}");
                let answer = asked(&proxy, dialect, &body, &[]).await;
                whole(&answer, &what);
                assert!(answer.text().contains(THEN), "{what} {}", answer.text());
                if views == 1 {
                    assert_eq!(answer.header("x-plimsoll-fail-open"), "refused", "{what}");
                    assert_eq!(upstream.newest(), body, "{what}");
                    until_metric(&proxy, r#"plimsoll_fail_open_total{stage="refused"} 1"#).await;
                }
                assert!(!is_later(upstream.seen().last().unwrap()), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_of_both_is_the_clients_answer() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let upstream = Lenient::start(move |number, _| match (number, stream) {
                (0, true) => quiet(dialect),
                (0, false) => answered(200, whole_hidden(dialect)),
                _ => refusal(413, "never"),
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let answer = asked(&proxy, dialect, &with(dialect, stream, &json!({})), &[]).await;
            assert_eq!(answer.status, 413, "{dialect:?} {stream} {}", answer.text());
            assert!(answer.text().contains("never"), "{}", answer.text());
            assert_eq!(answer.header("x-plimsoll-fail-open"), "refused_twice");
        }
    }
}

#[tokio::test]
async fn a_refusal_that_no_other_request_changes_is_the_clients_answer() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            for status in [401, 403, 429] {
                let upstream = Lenient::start(move |number, _| match (number, stream) {
                    (0, true) => quiet(dialect),
                    (0, false) => answered(200, whole_hidden(dialect)),
                    _ => refusal(status, "never"),
                })
                .await;
                let proxy = Proxy::before(upstream.addr).await;
                let answer = asked(&proxy, dialect, &with(dialect, stream, &json!({})), &[]).await;
                assert_eq!(answer.status, status, "{dialect:?} {stream}");
                assert_eq!(upstream.seen().len(), 2, "{dialect:?} {stream} {status}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_has_a_head_alone_gets_the_answer_to_its_own_request_behind_it() {
    for dialect in [Dialect::Responses, Dialect::Messages] {
        for (status, views) in REFUSALS {
            let upstream = Lenient::start(move |number, _| match number {
                0 => answered(200, streamed(dialect, None, true).concat()),
                1 => refusal(status, "not behind that"),
                _ => then(dialect, true),
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let body = with(dialect, true, &json!({}));
            let answer = asked(&proxy, dialect, &body, &[]).await;
            let what = format!("{dialect:?} {status} {}", answer.text());
            whole(&answer, &what);
            assert!(
                answer.text().contains(THEN) && ends(dialect, &answer.text()),
                "{what}"
            );
            let begins = ["message_start", "response.created"];
            let begun = begins.map(|begin| answer.text().matches(&format!("\"{begin}\"")).count());
            assert_eq!(begun.iter().sum::<usize>(), 1, "{what}");
            if views == 1 {
                assert_eq!(upstream.newest(), body, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_whose_later_hop_is_refused_ends_with_what_was_said() {
    for dialect in DIALECTS {
        for (status, views) in REFUSALS {
            let upstream = Lenient::judging(move |before, _| match before.is_empty() {
                true => answered(200, streamed(dialect, Some(FIRST), true).concat()),
                false => refusal(status, "not behind that"),
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let answer = asked(&proxy, dialect, &with(dialect, true, &json!({})), &[]).await;
            let what = format!("{dialect:?} {status} {}", answer.text());
            whole(&answer, &what);
            assert!(
                answer.text().contains(FIRST) && ends(dialect, &answer.text()),
                "{what}"
            );
            assert_eq!(
                total(&proxy, "plimsoll_stream_aborts_total").await,
                1.0,
                "{what}"
            );
            // The client's own request would be a second answer.
            assert_eq!(upstream.seen().len(), views + 1, "{what}");
        }
    }
}

#[tokio::test]
async fn a_turn_that_ended_early_is_gone_on_with() {
    for dialect in DIALECTS {
        let upstream = Lenient::judging(move |before, _| match before.len() {
            0 => answered(200, streamed(dialect, Some(FIRST), true).concat()),
            1 => refusal(413, "no"),
            _ => then(dialect, true),
        })
        .await;
        let proxy = Proxy::before(upstream.addr).await;
        let mut body = with(dialect, true, &json!({}));
        let answer = asked(&proxy, dialect, &body, &[]).await;
        assert!(ends(dialect, &answer.text()), "{}", answer.text());
        let history = if dialect == Dialect::Responses {
            "input"
        } else {
            "messages"
        };
        let said = match dialect {
            Dialect::Chat => json!({"role": "assistant", "content": FIRST}),
            Dialect::Messages => {
                json!({"role": "assistant", "content": [{"type": "text", "text": FIRST}]})
            }
            Dialect::Responses => json!({"type": "message", "id": "msg_1", "role": "assistant",
                "status": "completed", "content": [{"type": "output_text", "text": FIRST, "annotations": []}]}),
        };
        let list = body[history].as_array_mut().unwrap();
        list.extend([said, json!({"role": "user", "content": "and?"})]);
        let answer = asked(&proxy, dialect, &body, &[]).await;
        assert!(answer.text().contains(THEN), "{}", answer.text());
        // The hidden call that was answered is remembered.
        assert!(is_later(upstream.seen().last().unwrap()), "{dialect:?}");
    }
}
