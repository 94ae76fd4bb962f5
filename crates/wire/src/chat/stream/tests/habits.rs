//! What single providers and models do that others don't, streamed and whole: signatures on the
//! first call only, misspelt names, empty reasoning, content in parts.

use super::*;
use crate::stream::WhoAsked;
use crate::stream::unary::{TurnEnd, Unstreamed};
use serde_json::{Value, json};

fn spec() -> Spec {
    Spec {
        dialect: Dialect::Chat,
        hidden: ["delimiter"].into_iter().collect(),
        usage_wish: UsageWish::Asked,
        echo: Echo::default(),
        asked: WhoAsked::default(),
        one_text: false,
    }
}

/// What the client gets of one hop, joined as clients do, and what was read: streamed delta by
/// delta, each a chunk of its own.
fn streamed(deltas: &[Value]) -> (Vec<Value>, Answer) {
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let mut out = Vec::new();
    let end = json!({"index": 0, "delta": {}, "finish_reason": "tool_calls"});
    let frame = |choice: Value| format!("data: {}\n\n", json!({"id": "a", "choices": [choice]}));
    let said = deltas
        .iter()
        .map(|delta| json!({"index": 0, "delta": delta}));
    for choice in said.chain([end]) {
        machine.push(Bytes::from(frame(choice)), &mut out).unwrap();
    }
    let answer = machine.end_hop(&mut out);
    machine.release(&mut out);
    let text = String::from_utf8(out.concat()).unwrap();
    let deltas = text.lines().filter_map(|line| {
        let data: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
        Some(data["choices"][0]["delta"].clone())
    });
    (deltas.collect(), answer)
}

/// What a whole body hands out, and what it says.
fn whole(message: &Value) -> (Value, Answer) {
    let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
    let body = Bytes::from(json!({"id": "a", "choices": [choice]}).to_string());
    let answer = unary::read(&body, &spec()).unwrap();
    let turn = Unstreamed {
        skipped: &[],
        usage: UsageMode::default(),
        hidden: &spec().hidden,
        first: &body,
        last: &body,
        hops: std::slice::from_ref(&answer),
        end: TurnEnd::Upstream,
    };
    let composed = unary::compose(&turn, &spec());
    let composed: Value = serde_json::from_slice(&composed).unwrap();
    (composed["choices"][0]["message"].clone(), answer)
}

fn call(index: u64, name: &str, signature: Option<&str>) -> Value {
    let mut call = json!({"index": index, "id": format!("call_{index}"), "type": "function",
        "function": {"name": name, "arguments": "{}"}});
    if let Some(own) = signature {
        call["extra_content"] = json!({"google": {"thought_signature": own}});
    }
    call
}

fn signatures(calls: impl IntoIterator<Item = Value>) -> Vec<(String, Value)> {
    let signed = calls.into_iter().map(|call| {
        let name = call["function"]["name"].as_str().unwrap_or_default();
        let own = &call["extra_content"]["google"]["thought_signature"];
        (name.to_owned(), own.clone())
    });
    signed.collect()
}

#[test]
fn the_first_visible_call_gets_the_signature_of_a_hidden_one_before_it() {
    type Said = &'static [(&'static str, Option<&'static str>)];
    let table: [(Said, &[(&str, Value)]); 5] = [
        (
            &[("delimiter", Some("S")), ("read", None), ("ls", None)],
            &[("read", json!("S")), ("ls", Value::Null)],
        ),
        (
            &[
                ("delimiter", Some("S")),
                ("delimiter", None),
                ("read", None),
            ],
            &[("read", json!("S"))],
        ),
        (
            &[("delimiter", Some("S")), ("read", Some("T"))],
            &[("read", json!("T"))],
        ),
        (
            &[("read", Some("S")), ("delimiter", None), ("ls", None)],
            &[("read", json!("S")), ("ls", Value::Null)],
        ),
        (&[("delimiter", Some("S"))], &[]),
    ];
    for (said, want) in table {
        let calls: Vec<Value> = (0..)
            .zip(said)
            .map(|(index, (name, own))| call(index, name, *own))
            .collect();
        let want: Vec<(String, Value)> = want
            .iter()
            .map(|(name, own)| ((*name).to_owned(), own.clone()))
            .collect();
        let of = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let (message, answer) = whole(&json!({"content": null, "tool_calls": calls}));
        assert_eq!(signatures(of(&message["tool_calls"])), want, "{said:?}");
        let stored: Value = serde_json::from_slice(&form::message(&answer)).unwrap();
        assert_eq!(
            signatures(of(&stored["tool_calls"])),
            signatures(calls.clone())
        );
        let shown: Value =
            serde_json::from_slice(&form::visible(std::slice::from_ref(&answer), None)).unwrap();
        assert_eq!(signatures(of(&shown["tool_calls"])), want);
        let apart: Vec<Value> = calls
            .iter()
            .map(|call| json!({"tool_calls": [call]}))
            .collect();
        for deltas in [apart, vec![json!({"tool_calls": calls})]] {
            let (heard, read) = streamed(&deltas);
            let heard = heard.iter().flat_map(|delta| of(&delta["tool_calls"]));
            assert_eq!(signatures(heard), want, "{said:?}");
            assert_eq!(form::message(&read), form::message(&answer));
        }
    }
}

#[test]
fn details_that_sign_a_hidden_call_sign_the_next_at_the_client() {
    let detail =
        |id: &str| json!({"type": "reasoning.encrypted", "data": "D", "id": id, "index": 0});
    let text = json!({"type": "reasoning.text", "text": "hm", "index": 1});
    let (hidden, read) = (call(0, "delimiter", None), call(1, "read", None));
    let message = json!({"content": null, "tool_calls": [hidden, read],
        "reasoning_details": [detail("call_0"), text]});
    let (shown, answer) = whole(&message);
    let mut ids: Vec<Value> = shown["reasoning_details"].as_array().unwrap().clone();
    ids.sort_by_key(|element| element["index"].as_u64());
    assert_eq!(ids, [detail("call_1"), text.clone()]);
    assert!(Dialect::Chat.signs(&answer, "call_0") && !Dialect::Chat.signs(&answer, "call_1"));
    // With the calls, before the visible one, and behind both.
    let orders = [
        vec![json!({"tool_calls": [hidden, read], "reasoning_details": [detail("call_0")]})],
        vec![
            json!({"tool_calls": [hidden], "reasoning_details": [detail("call_0")]}),
            json!({"tool_calls": [read]}),
        ],
        vec![
            json!({"tool_calls": [hidden]}),
            json!({"tool_calls": [read]}),
            json!({"reasoning_details": [detail("call_0")]}),
        ],
    ];
    for deltas in orders {
        let (heard, answer) = streamed(&deltas);
        let details: Vec<Value> = heard
            .iter()
            .flat_map(|delta| {
                delta["reasoning_details"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default()
            })
            .collect();
        assert_eq!(details, [detail("call_1")], "{deltas:?}");
        assert!(Dialect::Chat.signs(&answer, "call_0"));
    }
}

/// What names a call that never comes is handed on at the end, whatever that is: a finish reason
/// with a delta or without one, `[DONE]` alone, or nothing.
#[test]
fn details_that_name_no_call_are_handed_on_however_the_stream_ends() {
    let detail = json!({"type": "reasoning.encrypted", "data": "D", "id": "call_9", "index": 0});
    let chunk = |choices: Value| format!("data: {}\n\n", json!({"id": "a", "choices": choices}));
    let said = |delta: Value| chunk(json!([{"index": 0, "delta": delta}]));
    let ends = [
        chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}])),
        chunk(json!([{"index": 0, "finish_reason": "stop"}])),
        chunk(json!([{"index": 0, "delta": null, "finish_reason": "stop"}])),
        "data: [DONE]\n\n".to_owned(),
        String::new(),
        chunk(json!([])),
        said(json!({"tool_calls": [call(0, "delimiter", None)]})),
        said(json!({"tool_calls": [call(0, "read", None)]})),
    ];
    for text in ["", "hm"] {
        for end in &ends {
            let begin = said(json!({"content": text, "reasoning_details": [detail]}));
            let stream = format!("{begin}{end}");
            for cut in 0..=stream.len() {
                let mut machine = Machine::new(MachineSettings::default(), &spec());
                let mut out = Vec::new();
                for part in [&stream[..cut], &stream[cut..]] {
                    let part = Bytes::copy_from_slice(part.as_bytes());
                    machine.push(part, &mut out).unwrap();
                }
                machine.end_hop(&mut out);
                machine.release(&mut out);
                let heard = String::from_utf8(out.concat()).unwrap();
                let data = heard.lines().filter_map(|line| line.strip_prefix("data: "));
                let chunks = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
                let details: Vec<Value> = chunks
                    .flat_map(|chunk| {
                        let delta = &chunk["choices"][0]["delta"];
                        let details = delta["reasoning_details"].as_array();
                        details.cloned().unwrap_or_default()
                    })
                    .collect();
                let want = std::slice::from_ref(&detail);
                assert_eq!(details, want, "{end:?} at {cut}: {heard}");
                let place = heard.find("reasoning_details");
                let behind = heard.find("finish_reason\":\"").or(heard.find("[DONE]"));
                assert!(behind.is_none_or(|end| place < Some(end)), "{heard}");
            }
        }
    }
    // A whole body without an end says all there is.
    let choice = json!({"index": 0, "message": {"content": "x", "reasoning_details": [detail]}});
    let body = Bytes::from(json!({"id": "a", "choices": [choice]}).to_string());
    let answer = unary::read(&body, &spec()).unwrap();
    let turn = Unstreamed {
        skipped: &[],
        usage: UsageMode::default(),
        hidden: &spec().hidden,
        first: &body,
        last: &body,
        hops: std::slice::from_ref(&answer),
        end: TurnEnd::Upstream,
    };
    let composed = unary::compose(&turn, &spec());
    assert_eq!(composed, body);
}

#[test]
fn misspelt_hidden_calls_are_hidden_and_stored_under_their_name() {
    for name in [
        "Delimiter",
        "functions.delimiter",
        " delimiter",
        "default_api:delimiter",
    ] {
        let (message, answer) =
            whole(&json!({"content": "x", "tool_calls": [call(0, name, None)]}));
        assert_eq!(message["tool_calls"], Value::Null, "{name}");
        assert_eq!(answer.calls[0].name, "delimiter");
        let stored = form::message(&answer);
        // The name whole, and in two pieces before its arguments.
        let (front, back) = name.split_at(4);
        let piece = |name: &str, arguments: &str| {
            json!({"tool_calls": [{"index": 0, "id": "call_0", "type": "function",
                "function": {"name": name, "arguments": arguments}}]})
        };
        let text = json!({"content": "x"});
        for pieces in [
            vec![text.clone(), piece(name, "{}")],
            vec![text.clone(), piece(name, ""), piece("", "{}")],
            vec![
                text.clone(),
                piece(front, ""),
                piece(back, ""),
                piece("", "{}"),
            ],
        ] {
            let (heard, read) = streamed(&pieces);
            let calls = heard.iter().any(|delta| !delta["tool_calls"].is_null());
            assert!(!calls, "{name}: {heard:?}");
            assert_eq!(form::message(&read), stored, "{name}");
        }
    }
    let (message, _) = whole(&json!({"content": "x", "tool_calls": [call(0, "delimiters", None)]}));
    assert_eq!(message["tool_calls"][0]["function"]["name"], "delimiters");
}

#[test]
fn reasoning_that_came_empty_is_stored_empty() {
    let stored = |answer: &Answer| {
        let stored: Value = serde_json::from_slice(&form::message(answer)).unwrap();
        stored.get("reasoning_content").cloned()
    };
    let calls = json!([call(0, "delimiter", None)]);
    let table: [(&[Value], Option<&str>); 5] = [
        (&[json!("")], Some("")),
        (&[json!(null), json!("")], Some("")),
        (&[json!(""), json!("hm"), json!("")], Some("hm")),
        (&[json!(null)], None),
        (&[], None),
    ];
    for (pieces, want) in table {
        let mut deltas: Vec<Value> = pieces
            .iter()
            .map(|piece| json!({"content": null, "reasoning_content": piece}))
            .collect();
        deltas.push(json!({"tool_calls": calls}));
        let want = want.map(Value::from);
        assert_eq!(stored(&streamed(&deltas).1), want, "{pieces:?}");
    }
    let (_, answer) = whole(&json!({"reasoning_content": "", "tool_calls": calls}));
    assert_eq!(stored(&answer), Some(json!("")));
    let (_, answer) = whole(&json!({"reasoning": "", "tool_calls": calls}));
    assert_eq!(stored(&answer), None);
}

#[test]
fn content_in_parts_is_heard_and_stored_in_parts() {
    let think =
        |text: &str| json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]});
    let text = |text: &str| json!({"type": "text", "text": text});
    let calls = json!([call(0, "delimiter", None)]);
    let (_, answer) = whole(&json!({"content": [think("hm"), text("one")], "tool_calls": calls}));
    assert_eq!(
        (answer.text.as_str(), answer.verdict()),
        ("one", Verdict::HiddenOnly)
    );
    let stored: Value = serde_json::from_slice(&form::message(&answer)).unwrap();
    assert_eq!(stored["content"], json!([think("hm"), text("one")]));
    let (heard, read) = streamed(&[
        json!({"content": [think("h")]}),
        json!({"content": [think("m")]}),
        json!({"content": [text("o")]}),
        json!({"content": "ne"}),
        json!({"tool_calls": calls}),
    ]);
    assert_eq!(form::message(&read), form::message(&answer));
    assert_eq!(heard[0]["content"], json!([think("h")]));
    // The text of a hidden hop comes before that of the next, whole or in parts.
    let body = |message: Value| {
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        Bytes::from(json!({"id": "a", "choices": [choice]}).to_string())
    };
    let first = body(json!({"content": [think("hm"), text("one")], "tool_calls": calls}));
    for (second, want) in [
        (json!("two"), json!("one\n\ntwo")),
        (
            json!([think("so"), text("two")]),
            json!([think("so"), text("one\n\ntwo")]),
        ),
        (json!(null), json!("one")),
    ] {
        let last = body(json!({"content": second}));
        let hops = [&first, &last].map(|body| unary::read(body, &spec()).unwrap());
        let turn = Unstreamed {
            skipped: &[],
            usage: UsageMode::default(),
            hidden: &spec().hidden,
            first: &first,
            last: &last,
            hops: &hops,
            end: TurnEnd::Upstream,
        };
        let composed = unary::compose(&turn, &spec());
        let composed: Value = serde_json::from_slice(&composed).unwrap();
        assert_eq!(composed["choices"][0]["message"]["content"], want);
    }
}
