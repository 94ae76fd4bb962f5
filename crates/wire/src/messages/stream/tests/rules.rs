//! Single rules that a whole stream does not show: when something is said, without copies, and
//! the unstreamed equal.

use crate::stream::harness::end_of;
use crate::stream::unary::{self, TurnEnd, Unstreamed};
use serde_json::Value;

use super::corpus::spec;
use super::say::{
    call, close, delta, end, event, finish, json_delta, open, ping, start, stop, text, thinking,
};
use super::*;

fn machine() -> Machine {
    Machine::new(MachineSettings::default(), &spec())
}

/// Pushes one frame and says what came of it.
fn push(machine: &mut Machine, frame: &str) -> Vec<Bytes> {
    let mut out = Vec::new();
    let chunk = Bytes::copy_from_slice(frame.as_bytes());
    machine.push(chunk, &mut out).unwrap();
    out
}

#[test]
fn each_frame_is_passed_on_at_once_and_not_copied() {
    let mut machine = machine();
    let stream = start("m1") + &ping() + &text(0, &["a", "b", "c"]) + &call(1, "t", "read", &["{"]);
    for frame in stream.split_inclusive("\n\n") {
        let chunk = Bytes::copy_from_slice(frame.as_bytes());
        let mut out = Vec::new();
        machine.push(chunk.clone(), &mut out).unwrap();
        assert_eq!(out.len(), 1, "{frame}");
        assert_eq!(out[0].as_ptr(), chunk.as_ptr(), "{frame}");
    }
}

#[test]
fn the_finish_and_all_behind_it_wait() {
    let mut machine = machine();
    push(&mut machine, &(start("m1") + &text(0, &["a"])));
    assert!(!machine.waits());
    assert_eq!(machine.said(), None);
    for frame in [
        finish("end_turn", r#"{"output_tokens":7}"#),
        ping(),
        ": c\n\n".to_owned(),
        stop(),
    ] {
        assert_eq!(push(&mut machine, &frame), Vec::<Bytes>::new(), "{frame}");
        assert!(machine.waits());
    }
    let said = machine.said().unwrap();
    assert_eq!((said.text.as_str(), said.complete), ("a", true));
    let mut out = Vec::new();
    assert_eq!(machine.end_hop(&mut out), said);
    assert!(out.is_empty());
    machine.release(&mut out);
    assert_eq!(out.len(), 4);
}

#[test]
fn pings_and_comments_pass_while_a_hidden_call_is_read() {
    let mut machine = machine();
    push(&mut machine, &start("m1"));
    let hidden = open(
        0,
        r#"{"type":"tool_use","id":"h","name":"recall","input":{}}"#,
    );
    assert!(push(&mut machine, &hidden).is_empty());
    for frame in [
        ping(),
        ": c\n\n".to_owned(),
        event(r#"{"type":"future","x":1}"#),
    ] {
        assert_eq!(push(&mut machine, &frame), [frame]);
    }
    let piece = delta(0, r#"{"type":"input_json_delta","partial_json":"{}"}"#);
    assert!(push(&mut machine, &piece).is_empty());
    assert!(push(&mut machine, &piece).is_empty());
    assert!(push(&mut machine, &close(0)).is_empty());
    assert!(!push(&mut machine, &text(1, &["a"])).is_empty());
}

#[test]
fn nothing_was_spoken_before_the_first_byte() {
    let mut machine = machine();
    assert!(!machine.spoken());
    let hidden = call(0, "h", "recall", &["{}"]);
    push(&mut machine, &hidden);
    assert!(!machine.spoken());
    push(&mut machine, ": c\n\n");
    assert!(machine.spoken());
}

#[test]
fn answers_tell_what_was_said() {
    let mut machine = machine();
    let stream = start("m1")
        + &thinking(0, &["w", "hy"], "S")
        + &text(1, &["a", "b"])
        + &open(
            2,
            r#"{"type":"tool_use","id":"t1","caller":{"type":"direct"},"name":"read","input":{}}"#,
        )
        + &json_delta(2, r#"{"b": 1, "#)
        + &json_delta(2, r#""a":"é"}"#)
        + &close(2)
        + &call(3, "h1", "recall", &[])
        + &finish(
            "tool_use",
            r#"{"input_tokens":0,"output_tokens":9,"output_tokens_details":{"thinking_tokens":4}}"#,
        );
    push(&mut machine, &stream);
    let answer = machine.end_hop(&mut Vec::new());
    assert_eq!(answer.text, "ab");
    assert_eq!(answer.id.as_deref(), Some("m1"));
    assert_eq!(answer.model.as_deref(), Some("claude-x"));
    assert_eq!(answer.finish.as_deref(), Some("tool_use"));
    let usage = answer.usage.unwrap();
    assert_eq!((usage.prompt, usage.cached, usage.cache_write), (17, 5, 2));
    assert_eq!((usage.completion, usage.reasoning), (9, 4));
    let [read, recall] = answer.calls.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!(read.arguments, r#"{"b": 1, "a":"é"}"#);
    assert_eq!(read.extra.len(), 1);
    assert!(read.complete && !read.hidden);
    assert_eq!((recall.arguments.as_str(), recall.hidden), ("{}", true));
    assert_eq!(answer.block_of(1), Some((3, 4)));
    let raw: Vec<&[u8]> = answer
        .blocks
        .iter()
        .map(|block| block.raw.as_ref())
        .collect();
    let want = [
        r#"{"type":"thinking","thinking":"why","signature":"S"}"#,
        r#"{"type":"text","text":"ab"}"#,
        r#"{"type":"tool_use","id":"t1","caller":{"type":"direct"},"name":"read","input":{"b": 1, "a":"é"}}"#,
        r#"{"type":"tool_use","id":"h1","name":"recall","input":{}}"#,
    ];
    assert_eq!(raw, want.map(str::as_bytes));
}

#[test]
fn only_whole_blocks_count_where_a_stream_breaks() {
    let mut machine = machine();
    let stream = start("m1")
        + &text(0, &["a"])
        + &call(1, "t1", "read", &["{}"])
        + &call(2, "h1", "recall", &["{"])
        + &open(3, r#"{"type":"text","text":"b"}"#);
    push(&mut machine, &stream);
    let answer = machine.end_hop(&mut Vec::new());
    assert_eq!(answer.verdict(), Verdict::Broken);
    assert_eq!(answer.text, "a");
    // Half a hidden call can't be answered, and half a visible one is the client's.
    let names: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((names, answer.blocks.len()), (vec!["read"], 2));
}

#[test]
fn errors_take_the_dialects_form() {
    let cases = [
        (
            r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
            r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
        ),
        (
            r#"{"error":{"message":"m","type":"server_error","param":null}}"#,
            r#"{"type":"error","error":{"message":"m","type":"server_error","param":null}}"#,
        ),
        (
            r#"{"error":"m"}"#,
            r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
        ),
        (
            r#"{"message":"m"}"#,
            r#"{"type":"error","error":{"message":"m","type":"api_error"}}"#,
        ),
        (
            "<b>bad\"",
            r#"{"type":"error","error":{"type":"api_error","message":"<b>bad\""}}"#,
        ),
    ];
    for (error, want) in cases {
        let mut machine = machine();
        let mut out = Vec::new();
        machine.fail(error.as_bytes(), &mut out);
        assert_eq!(
            out.concat(),
            format!("event: error\ndata: {want}\n\n").as_bytes()
        );
    }
}

#[test]
fn an_event_over_the_cap_is_refused() {
    let config = MachineSettings {
        event_cap: 300,
        ..MachineSettings::default()
    };
    let mut machine = Machine::new(config, &spec());
    let long = text(0, &["a".repeat(300).as_str()]);
    assert!(machine.push(Bytes::from(long), &mut Vec::new()).is_err());
}

/// A stream's message as the unstreamed body that says the same.
fn body(stream: &Bytes) -> Bytes {
    let view = client::read(stream);
    let mut message = view.message.clone();
    let mut blocks = view.blocks.clone();
    for block in &mut blocks {
        if let Some(json) = block.as_object_mut().and_then(|block| block.remove("json")) {
            let input = serde_json::from_str::<Value>(json.as_str().unwrap());
            block["input"] = input.unwrap_or(serde_json::json!({}));
        }
    }
    message["content"] = Value::Array(blocks);
    message["stop_reason"] = view.finishes.first().cloned().into();
    Bytes::from(message.to_string())
}

/// What a client makes of a body, arguments parsed.
fn shown(body: &Bytes) -> Value {
    serde_json::from_slice(body).unwrap()
}

#[test]
fn unstreamed_turns_are_the_equal_of_streamed_ones() {
    let mut seen = 0;
    let whole_cases = corpus::cases().into_iter();
    for case in whole_cases.filter(|case| case.strict && case.finish.is_some()) {
        let streamed = case.turn().play();
        let bodies: Vec<Bytes> = case.hops.iter().map(body).collect();
        let answers = bodies
            .iter()
            .map(|body| unary::read(body, &case.spec).unwrap());
        let answers: Vec<Answer> = answers.collect();
        for (unstreamed, streamed) in answers.iter().zip(&streamed.answers) {
            let values = |answer: &Answer| -> Vec<Value> {
                let blocks = answer.blocks.iter();
                blocks
                    .map(|block| serde_json::from_slice(&block.raw).unwrap())
                    .collect()
            };
            if streamed.finish.as_deref() != Some("length") {
                assert_eq!(values(unstreamed), values(streamed), "{}", case.name);
            }
            assert_eq!(unstreamed.text, streamed.text, "{}", case.name);
            assert_eq!(unstreamed.usage, streamed.usage, "{}", case.name);
            let finish = streamed.finish.is_none() || unstreamed.finish == streamed.finish;
            assert!(finish, "{}", case.name);
        }
        let closed = answers.last().unwrap().verdict() == Verdict::HiddenOnly;
        let mute = answers.iter().all(|answer| answer.text.is_empty());
        let closed = closed.then_some(mute.then_some(LINE));
        let turn = Unstreamed {
            skipped: &[],
            usage: case.config.usage,
            hidden: &case.spec.hidden,
            first: &bodies[0],
            last: bodies.last().unwrap(),
            hops: &answers,
            end: end_of(closed),
        };
        let composed = unary::compose(&turn, &case.spec);
        let (one, other) = (
            shown(&composed),
            shown(&body(&Bytes::from(streamed.client))),
        );
        if answers
            .iter()
            .all(|answer| answer.finish.as_deref() != Some("length"))
        {
            assert_eq!(one["content"], other["content"], "{}", case.name);
        }
        assert_eq!(one["id"], other["id"], "{}", case.name);
        assert_eq!(one["stop_reason"], other["stop_reason"], "{}", case.name);
        let count = |message: &Value, key: &str| message["usage"][key].as_u64().unwrap_or(0);
        for key in ["input_tokens", "output_tokens", "cache_read_input_tokens"] {
            assert_eq!(count(&one, key), count(&other, key), "{}: {key}", case.name);
        }
        if case.passes_unchanged {
            assert_eq!(composed, bodies[0], "{}", case.name);
        }
        seen += 1;
    }
    assert!(seen >= 20);
}

#[test]
fn an_unstreamed_message_keeps_its_bytes() {
    let first = Bytes::from_static(
        br#"{ "id":"m1","type":"message","content":[ {"type":"text","text":"a\u00e9"} , {"type":"tool_use","id":"h","name":"recall","input":{}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4,"service_tier":"x"}}"#,
    );
    let last = Bytes::from_static(
        br#"{"content":[{"type":"tool_use","input":{"p": 1},"name":"read","id":"t"}, {"type":"tool_use","id":"h2","name":"delimiter","input":{}}], "id":"m2","stop_reason":"tool_use","x": 1e3,"usage":{"input_tokens":30,"output_tokens":5}}"#,
    );
    let read = |body: &Bytes| unary::read(body, &spec()).unwrap();
    let hops = [read(&first), read(&last)];
    let turn = Unstreamed {
        skipped: &[],
        usage: UsageMode::default(),
        hidden: &spec().hidden,
        first: &first,
        last: &last,
        hops: &hops,
        end: TurnEnd::Upstream,
    };
    let want = concat!(
        r#"{"content":[{"type":"text","text":"a\u00e9"},{"type":"tool_use","input":{"p": 1},"name":"read","id":"t"}], "#,
        r#""id":"m1","stop_reason":"tool_use","x": 1e3,"usage":{"input_tokens":30,"output_tokens":9,"#,
        r#""cache_creation_input_tokens":0,"cache_read_input_tokens":0}}"#
    );
    assert_eq!(unary::compose(&turn, &spec()), want);
    // A body that is too long for the memory that is left is not taken apart.
    let plain = Bytes::from_static(
        br#"{"id":"m3","content":[{"type":"thinking","thinking":"t","signature":"s"}, {"type":"text","text":"long"}],"stop_reason":"end_turn"}"#,
    );
    let unread = Answer {
        forgotten: true,
        complete: true,
        ..Answer::default()
    };
    let unread = Unstreamed {
        first: &plain,
        last: &plain,
        hops: &[unread],
        ..turn
    };
    assert_eq!(unary::compose(&unread, &spec()), plain);
    let capped = Unstreamed {
        skipped: &[],
        last: &first,
        hops: &hops[..1],
        end: TurnEnd::HopCap { line: Some("line") },
        ..turn
    };
    let want = concat!(
        r#"{ "id":"m1","type":"message","content":[{"type":"text","text":"a\u00e9"},{"type":"text","text":"line"}],"#,
        r#""stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":4,"service_tier":"x"}}"#
    );
    assert_eq!(unary::compose(&capped, &spec()), want);
}

#[test]
fn a_body_that_is_no_message_is_none() {
    for body in [
        "",
        "[]",
        r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
        r#"{"content":"a"}"#,
    ] {
        assert_eq!(unary::read(&Bytes::from(body), &spec()), None, "{body}");
    }
    let end = end("end_turn");
    assert_eq!(unary::read(&Bytes::from(end), &spec()), None);
}
