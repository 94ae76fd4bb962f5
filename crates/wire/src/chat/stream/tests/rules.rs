//! Single rules that a whole stream does not show: when something is said, without copies, and
//! the unstreamed equal.

use plimsoll_model::room::{Full, Room};

use super::*;
use crate::stream::harness::end_of;
use crate::stream::unary::Unstreamed;
use crate::stream::{StreamError, WhoAsked};

pub(super) fn spec() -> Spec {
    Spec {
        dialect: Dialect::Chat,
        hidden: ["delimiter"].into_iter().collect(),
        usage_wish: UsageWish::Asked,
        echo: Echo::default(),
        asked: WhoAsked::default(),
        one_text: false,
    }
}

pub(super) fn frame(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

pub(super) fn call(name: &str, arguments: &str) -> String {
    frame(
        &format!(
            r#""tool_calls":[{{"index":0,"id":"c","function":{{"name":"{name}","arguments":"{arguments}"}}}}]"#
        ),
        "null",
    )
}

/// What is said at once when these frames are read one by one.
fn said_at_once(frames: &[String]) -> Vec<bool> {
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let said = frames.iter().map(|frame| {
        let mut out = Vec::new();
        machine
            .push(Bytes::copy_from_slice(frame.as_bytes()), &mut out)
            .unwrap();
        !out.is_empty()
    });
    said.collect()
}

#[test]
fn nothing_waits_without_a_reason() {
    let text = || frame(r#""content":"x""#, "null");
    let more = || {
        frame(
            r#""tool_calls":[{"index":0,"function":{"arguments":"1"}}]"#,
            "null",
        )
    };
    let cases: [(&[String], &[bool]); 6] = [
        (&[text(), text(), ": c\n\n".into(), text()], &[true; 4]),
        (&[call("read", ""), more(), more()], &[true; 3]),
        (&[call("del", ""), more(), text()], &[false, true, true]),
        (
            &[
                call("delimiter", ""),
                text(),
                ": c\n\n".into(),
                more(),
                more(),
                text(),
            ],
            &[false, false, true, true, false, true],
        ),
        (&[call("delimiter", "{}"), text()], &[false, true]),
        (
            &[text(), frame("", "\"stop\""), text(), ": c\n\n".into()],
            &[true, false, false, false],
        ),
    ];
    for (number, (frames, want)) in cases.iter().enumerate() {
        assert_eq!(said_at_once(frames), *want, "case {number}");
    }
}

#[test]
fn a_passing_frame_is_not_copied() {
    let read = Bytes::from(frame(r#""content":"x""#, "null").repeat(5));
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let mut out = Vec::new();
    machine.push(read.clone(), &mut out).unwrap();
    assert_eq!(out.len(), 5);
    let range = read.as_ptr_range();
    assert!(out.iter().all(|said| range.contains(&said.as_ptr())));
    assert_eq!(out.concat(), read);
}

#[test]
fn the_end_is_known_before_it_is_said() {
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let mut out = Vec::new();
    assert!(!machine.spoken());
    machine
        .push(Bytes::from(frame(r#""content":"x""#, "null")), &mut out)
        .unwrap();
    assert!(machine.spoken() && !machine.waits());
    machine
        .push(Bytes::from(frame("", "\"stop\"")), &mut out)
        .unwrap();
    assert!(machine.waits());
    assert_eq!(out.len(), 1);
    let answer = machine.end_hop(&mut out);
    assert_eq!(
        (out.len(), answer.verdict(), machine.waits()),
        (1, Verdict::Done, true)
    );
    machine.release(&mut out);
    assert_eq!((out.len(), machine.waits()), (2, false));
}

#[test]
fn events_have_room_as_long_as_others_leave_it() {
    let config = MachineSettings {
        room: Room::of((5 << 19) + 64),
        ..MachineSettings::default()
    };
    let half = || Bytes::from(vec![b'x'; 3 << 19]);
    let mut machines = [(); 3].map(|()| Machine::new(config.clone(), &spec()));
    let [first, second, third] = &mut machines;
    let mut out = Vec::new();
    assert!(first.push(half(), &mut out).is_ok());
    assert!(second.push(half(), &mut out).is_ok());
    assert_eq!(third.push(half(), &mut out), Err(StreamError::Full(Full)));
    // An event that is whole waits no longer.
    let end = Bytes::from_static(b"\n\n");
    assert!(first.push(end, &mut out).is_ok());
    assert!(third.push(Bytes::from_static(b"x"), &mut out).is_ok());
}

#[test]
fn an_event_over_the_cap_is_an_error() {
    let config = MachineSettings {
        event_cap: 64,
        ..MachineSettings::default()
    };
    let mut machine = Machine::new(config, &spec());
    let mut out = Vec::new();
    let error = machine
        .push(Bytes::from(vec![b'x'; 65]), &mut out)
        .unwrap_err();
    assert!(error.to_string().contains("64 bytes"));
    machine.fail(b"{\"message\":\"too large\"}", &mut out);
    assert_eq!(
        out.concat(),
        b"data: {\"error\":{\"message\":\"too large\"}}\n\n"
    );
}

#[test]
fn errors_are_events_whatever_they_are_made_of() {
    let cases = [
        (
            r#"{"error":{"code":1}}"#,
            "data: {\"error\":{\"code\":1}}\n\n",
        ),
        (
            "{\n \"code\": 1\n}",
            "data: {\"error\":{\ndata:  \"code\": 1\ndata: }}\n\n",
        ),
        (
            "<html>\n",
            "data: {\"error\":{\"message\":\"<html>\\n\"}}\n\n",
        ),
    ];
    for (error, want) in cases {
        let mut out = Vec::new();
        Machine::new(MachineSettings::default(), &spec()).fail(error.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out.concat()).unwrap(), want);
    }
}

#[test]
fn lone_surrogates_and_broken_utf8_are_passed_and_read() {
    let stream = [
        frame(r#""content":"\ud83d""#, "null").into_bytes(),
        frame(r#""content":"\ude00""#, "null").into_bytes(),
        b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}\n\n".to_vec(),
        frame("", "\"stop\"").into_bytes(),
    ]
    .concat();
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let mut out = Vec::new();
    machine.push(Bytes::from(stream.clone()), &mut out).unwrap();
    let answer = machine.end_hop(&mut out);
    machine.release(&mut out);
    assert_eq!(out.concat(), stream);
    assert_eq!(answer.text, "\u{1f600}");
}

#[test]
fn cut_calls_tell_whether_they_are_whole() {
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let mut out = Vec::new();
    let parts = [
        call("read", r#"{\"a\":1}"#),
        call("grep", r#"{\"a"#)
            .replace("\"c\"", "\"d\"")
            .replace("\"index\":0,\"id\"", "\"index\":1,\"id\""),
    ];
    machine.push(Bytes::from(parts.concat()), &mut out).unwrap();
    let answer = machine.end_hop(&mut out);
    assert_eq!(answer.verdict(), Verdict::Broken);
    let whole: Vec<bool> = answer
        .visible_calls()
        .map(|(_, call)| call.complete)
        .collect();
    assert_eq!(whole, [true, false]);
}

#[test]
fn a_call_is_whole_when_a_further_one_is_begun() {
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let mut out = Vec::new();
    let further = call("read", "{").replace("\"index\":0,\"id\":\"c\"", "\"index\":1,\"id\":\"d\"");
    let stream = [
        call("delimiter", "no json"),
        further,
        frame("", "\"length\""),
    ]
    .concat();
    machine.push(Bytes::from(stream), &mut out).unwrap();
    let answer = machine.end_hop(&mut out);
    let whole: Vec<(bool, bool)> = answer
        .calls
        .iter()
        .map(|call| (call.hidden, call.complete))
        .collect();
    assert_eq!(whole, [(true, true), (false, false)]);
}

#[test]
fn an_event_named_error_is_one() {
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let mut out = Vec::new();
    let stream = "event: error\ndata: {\"message\":\"boom\"}\n\ndata: [DONE]\n\n";
    machine.push(Bytes::from(stream), &mut out).unwrap();
    let answer = machine.end_hop(&mut out);
    assert_eq!(answer.verdict(), Verdict::Broken);
    assert_eq!(
        answer.error.as_deref(),
        Some(&b"{\"message\":\"boom\"}"[..])
    );
    assert_eq!(
        out.concat(),
        b"event: error\ndata: {\"message\":\"boom\"}\n\n"
    );
}

pub(super) const HIDDEN_CALL: &str =
    r#"{"id":"h","type":"function","function":{"name":"delimiter","arguments":"{}"}}"#;
pub(super) const VISIBLE_CALL: &str = r#"{"id":"v","type":"function","function":{"name":"read","arguments":"{}"},"extra_content":{"s":1.10}}"#;

fn body(id: &str, content: &str, calls: &[&str], finish: &str, usage: (u64, u64)) -> Bytes {
    let calls = match calls {
        [] => String::new(),
        calls => format!(",\"tool_calls\": [{}]", calls.join(" , ")),
    };
    let (prompt, completion) = usage;
    let total = prompt + completion;
    Bytes::from(format!(
        r#"{{"id":"{id}","created":1e3, "choices":[{{"index":0,"message":{{"role":"assistant","content":{content},"refusal":null{calls}}},"finish_reason":"{finish}"}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total},"cost":1.10}}}}"#
    ))
}

/// Plays bodies as a driver does; the last may be closed at the cap.
pub(super) fn compose(bodies: &[Bytes], usage: UsageMode, closed: Option<Option<&str>>) -> String {
    let answers: Vec<Answer> = bodies
        .iter()
        .map(|body| unary::read(body, &spec()).unwrap())
        .collect();
    let turn = Unstreamed {
        skipped: &[],
        usage,
        hidden: &spec().hidden,
        first: &bodies[0],
        last: bodies.last().unwrap(),
        hops: &answers,
        end: end_of(closed),
    };
    String::from_utf8(unary::compose(&turn, &spec()).to_vec()).unwrap()
}

#[test]
fn an_unstreamed_turn_without_hidden_calls_is_untouched() {
    for calls in [&[][..], &[VISIBLE_CALL]] {
        let only = body("a", "\"x\\u00e4\"", calls, "stop", (9, 3));
        assert_eq!(
            compose(std::slice::from_ref(&only), UsageMode::Sum, None),
            only
        );
    }
}

#[test]
fn unstreamed_hops_make_one_body() {
    let hidden =
        |id: &str, content: &str| body(id, content, &[HIDDEN_CALL], "tool_calls", (100, 7));
    let id_of = |json: &str, id: &str| json.replace("\"id\":\"b\"", &format!("\"id\":\"{id}\""));
    let last = body("b", "\"two\"", &[], "stop", (130, 11));
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let told = text(&last).replace(
        r#""completion_tokens":11,"total_tokens":141"#,
        r#""completion_tokens":18,"total_tokens":148"#,
    );

    let silent = compose(&[hidden("a", "null"), last.clone()], UsageMode::Last, None);
    assert_eq!(silent, id_of(&told, "a"));
    let joined = compose(
        &[hidden("a", "\"one\""), last.clone()],
        UsageMode::Last,
        None,
    );
    assert_eq!(
        joined,
        id_of(&told, "a").replace("\"two\"", r#""one\n\ntwo""#)
    );
    let sum = compose(&[hidden("a", "null"), last], UsageMode::Sum, None);
    assert!(
        sum.contains(
            r#""prompt_tokens":230,"completion_tokens":18,"total_tokens":248,"cost":1.10"#
        )
    );
    let mixed = body(
        "b",
        "null",
        &[HIDDEN_CALL, VISIBLE_CALL, HIDDEN_CALL],
        "tool_calls",
        (130, 11),
    );
    let mixed = compose(&[hidden("a", "\"one\""), mixed], UsageMode::Last, None);
    let want = body("a", "\"one\"", &[VISIBLE_CALL], "tool_calls", (130, 11));
    assert_eq!(
        mixed,
        text(&want).replace(
            r#""completion_tokens":11,"total_tokens":141"#,
            r#""completion_tokens":18,"total_tokens":148"#
        )
    );
}

#[test]
fn an_unstreamed_mixed_hop_loses_its_hidden_calls_only() {
    let only = body("a", "null", &[HIDDEN_CALL, VISIBLE_CALL], "stop", (9, 3));
    assert_eq!(
        compose(&[only], UsageMode::Last, None),
        body("a", "null", &[VISIBLE_CALL], "stop", (9, 3))
    );
}

/// A body that tells of tokens, and speaks as it is told.
pub(super) fn spelt(id: &str, text: &str, calls: &[&str], tokens: &[&str], audio: &str) -> Bytes {
    let told = |token: &&str| format!(r#"{{"token":"{token}","logprob":-0.5,"top_logprobs":[]}}"#);
    let told: Vec<String> = tokens.iter().map(told).collect();
    let told = format!(
        r#""logprobs":{{"content":[{}],"refusal":null}},"finish_reason""#,
        told.join(",")
    );
    let body = body(id, text, calls, "stop", (9, 1));
    let body = String::from_utf8(body.to_vec()).unwrap();
    let body = body.replace("\"finish_reason\"", &told);
    Bytes::from(body.replace(
        "\"refusal\":null,\"tool",
        &format!("{audio}\"refusal\":null,\"tool"),
    ))
}

#[test]
fn unstreamed_tokens_are_those_of_what_is_seen() {
    let tokens = |bodies: &[Bytes], closed| {
        let composed = compose(bodies, UsageMode::Last, closed);
        assert!(!composed.contains("delimiter"), "{composed}");
        let body: serde_json::Value = serde_json::from_str(&composed).unwrap();
        let told = &body["choices"][0]["logprobs"];
        let list = told["content"].as_array()?;
        assert!(told.get("refusal").is_some());
        let tokens = list
            .iter()
            .map(|one| one["token"].as_str().unwrap().to_owned());
        Some(tokens.collect::<Vec<_>>().join("|"))
    };
    let both = [HIDDEN_CALL, VISIBLE_CALL];
    // OpenAI tells of the text's alone, vLLM of all that were made.
    let exact = spelt("a", "\"No w\"", &both, &["No", " w"], "");
    assert_eq!(tokens(&[exact], None).as_deref(), Some("No| w"));
    let all = spelt("a", "\"No\"", &both, &["No", "<call>", "delimiter"], "");
    assert_eq!(tokens(&[all], None), None);
    let hidden = |tokens: &[&str]| spelt("a", "\"No\"", &[HIDDEN_CALL], tokens, "");
    let last = || spelt("b", "\"so\"", &[VISIBLE_CALL], &["so", "<call>"], "");
    let two = tokens(&[hidden(&["No"]), last()], None);
    assert_eq!(two.as_deref(), Some("No|so|<call>"));
    let two = tokens(&[hidden(&["No", "delimiter"]), last()], None);
    assert_eq!(two.as_deref(), Some("so|<call>"));
    let plain = body("b", "\"so\"", &[], "stop", (9, 1));
    let two = tokens(&[hidden(&["No"]), plain], None);
    assert_eq!(two.as_deref(), Some("No"));
    assert_eq!(tokens(&[hidden(&["delimiter"])], Some(None)), None);
}

#[test]
fn what_was_spoken_beside_a_hidden_call_is_heard_and_named() {
    let audio = r#""audio":{"id":"audio_1","data":"AAAB","expires_at":17,"transcript":"No"},"#;
    let hop = || spelt("a", "null", &[HIDDEN_CALL], &[], audio);
    let composed = compose(
        &[hop(), body("b", "\"so\"", &[], "stop", (9, 1))],
        UsageMode::Last,
        None,
    );
    assert!(composed.contains(audio.trim_end_matches(',')), "{composed}");
    let answer = unary::read(&hop(), &spec()).unwrap();
    let message = String::from_utf8(form::message(&answer).to_vec()).unwrap();
    assert!(
        message.contains(r#""audio":{"id":"audio_1"},"tool_calls""#),
        "{message}"
    );
}

#[test]
fn an_unstreamed_turn_ends_at_the_cap_with_stop() {
    let hidden = |content: &str| body("a", content, &[HIDDEN_CALL], "tool_calls", (9, 3));
    let line = compose(
        &[hidden("null")],
        UsageMode::Last,
        Some(Some("only annotated")),
    );
    assert_eq!(line, body("a", "\"only annotated\"", &[], "stop", (9, 3)));
    let said = compose(&[hidden("\"one\"")], UsageMode::Last, Some(None));
    assert_eq!(said, body("a", "\"one\"", &[], "stop", (9, 3)));
    let cut = compose(
        &[body("a", "\"one\"", &[HIDDEN_CALL], "length", (9, 3))],
        UsageMode::Last,
        None,
    );
    assert_eq!(cut, body("a", "\"one\"", &[], "length", (9, 3)));
}

#[test]
fn unstreamed_calls_are_apart_even_without_ids() {
    let call = r#"{"function":{"name":"delimiter","arguments":""}}"#;
    let answer = unary::read(&body("a", "null", &[call, call], "stop", (9, 3)), &spec()).unwrap();
    assert_eq!(
        (answer.calls.len(), answer.verdict()),
        (2, Verdict::HiddenOnly)
    );
    for other in ["{\"error\":{}}", "[]", "{\"choices\":[]}", "nonsense"] {
        assert_eq!(unary::read(&Bytes::from(other), &spec()), None);
    }
}

#[test]
fn streamed_and_unstreamed_are_read_alike() {
    let body = Bytes::from_static(br#"{"id":"a","created":7,"model":"m","choices":[{"message":{"role":"assistant","content":"x\u00e4","reasoning_content":"why","reasoning_details":[{"n":1.0}],"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"delimiter","arguments":"{\"a\":1}"},"extra_content":{"s":1.10}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}"#);
    let text = std::str::from_utf8(&body).unwrap();
    let stream = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        text.replace("\"message\"", "\"delta\"")
    );
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let mut out = Vec::new();
    machine.push(Bytes::from(stream), &mut out).unwrap();
    let streamed = machine.end_hop(&mut out);
    let unstreamed = unary::read(&body, &spec()).unwrap();
    assert_eq!(streamed, unstreamed);
    assert_eq!(unstreamed.created, Some(7));
    assert_eq!(
        unstreamed
            .usage
            .map(|usage| (usage.cached, usage.reasoning)),
        Some((4, 2))
    );
    assert_eq!(form::message(&unstreamed), form::message(&streamed));
}

#[test]
fn what_may_hide_a_call_ends_what_is_said() {
    let frames = |odd: &str| [frame(r#""content":"x""#, "null"), odd.to_owned()];
    let odd = [
        // Torn, or read by loose clients alone.
        "data: {\"name\":\"delimiter\"\n\n".to_owned(),
        call("read", "").replace("tool_calls", "x\":NaN,\"tool_calls"),
        ": {\"name\":\"delimiter\"}\n\n".to_owned(),
        // Read, but not where calls are looked for.
        frame(r#""function_call":{"name":"deli"}"#, "null"),
        frame(
            r#""Tool_Calls":[{"function":{"name":"delimiter"}}]"#,
            "null",
        ),
        frame(r#""tool_calls":{"function":{"name":"delimiter"}}"#, "null"),
        call("delimiter", "{}").replace("\"index\":0,\"delta\"", "\"index\":1,\"delta\""),
    ];
    for odd in odd {
        let mut machine = Machine::new(MachineSettings::default(), &spec());
        let mut out = Vec::new();
        let stream = frames(&odd).concat();
        let pushed = machine.push(Bytes::from(stream), &mut out);
        assert_eq!(pushed, Err(StreamError::Withheld), "{odd}");
        assert_eq!(out.concat(), frames("")[0].as_bytes(), "{odd}");
        assert!(machine.withheld());
        let more = machine.push(Bytes::from(frame(r#""content":"y""#, "null")), &mut out);
        assert_eq!(more, Err(StreamError::Withheld));
        machine.end_hop(&mut out);
        machine.release(&mut out);
        assert_eq!(out.len(), 1, "{odd}");
    }
}

#[test]
fn calls_are_read_in_whichever_choice_and_under_either_key() {
    for (from, to) in [
        ("\"index\":0,\"delta\"", "\"index\":1,\"delta\""),
        ("\"delta\"", "\"message\""),
    ] {
        let odd = |frame: String| frame.replace(from, to);
        let (text, end) = (
            odd(frame(r#""content":"x""#, "null")),
            odd(frame("", "\"stop\"")),
        );
        let hop = [
            text.clone(),
            odd(call("deli", "")),
            odd(frame(
                r#""tool_calls":[{"index":0,"function":{"name":"miter","arguments":"{}"}}]"#,
                "null",
            )),
            end.clone(),
        ];
        let mut machine = Machine::new(MachineSettings::default(), &spec());
        let mut out = Vec::new();
        machine.push(Bytes::from(hop.concat()), &mut out).unwrap();
        let answer = machine.end_hop(&mut out);
        assert_eq!(answer.verdict(), Verdict::HiddenOnly, "{to}");
        assert_eq!(answer.text, "x");
        assert_eq!(out.concat(), text.as_bytes());
    }
}
