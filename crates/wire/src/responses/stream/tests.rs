//! The laws of Responses streams over a corpus: the client's view never depends on where reads
//! were cut, never shows what was injected, is always one well-formed response, and an unstreamed
//! turn comes to the same.

mod client;
mod corpus;
mod random;
mod say;
mod splits;

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::Value;

use super::super::form;
use crate::answer::{Answer, Verdict};
use crate::stream::harness::{self, Seen, end_of, line};
use crate::stream::unary::{self, TurnEnd, Unstreamed};
use corpus::Case;

/// Whole turns of this dialect are long, since each says thrice what was asked for. So all places
/// are tried at once, and then some of them alone and in pairs; the splitter's own tests try all.
#[test]
fn cuts_change_nothing() {
    for (offset, case) in corpus::cases().iter().enumerate() {
        let turn = case.turn();
        turn.holds_byte_by_byte();
        // The strides are odd, so that the grids drift over the frames.
        let places =
            |length: usize, parts: usize| (offset % 7..=length).step_by((length / parts) | 1);
        turn.holds_cut(|length| places(length, 40));
        turn.holds_cut_twice(|length| places(length, 7));
    }
}

/// In a short turn, with something hidden in it and behind it, really all of them.
#[test]
fn one_cut_anywhere_changes_nothing() {
    let call = |id: u8, name: &str| {
        format!(
            "data: {{\"type\":\"response.output_item.done\",\"output_index\":{id},\"item\":{{\"type\":\"function_call\",\"call_id\":\"{id}\",\"name\":\"{name}\"}}}}\r\n\n"
        )
    };
    let end = "event: response.completed\rdata: {\"type\":\"response.completed\",\ndata: \"response\":{\"id\":\"r\"}}\r\n\r\n";
    let hop = |names: &[&str]| {
        let calls = (0..).zip(names).map(|(id, name)| call(id, name));
        Bytes::from(calls.collect::<String>() + ": \u{e4}\n\n" + end)
    };
    let case = Case {
        hops: vec![hop(&["recall"]), hop(&["read", "delimiter", "x"])],
        ..corpus::cases().swap_remove(0)
    };
    let want = case.turn().play();
    assert_eq!(want.answers[1].verdict(), Verdict::Mixed);
    case.turn().holds_cut(|length| 0..=length);
}

#[test]
fn the_client_sees_one_response() {
    for case in corpus::cases() {
        let seen = case.turn().play();
        let view = client::read(&seen.client);
        client::check(&case, &seen.client, &view);
        let verdict = seen.answers.last().unwrap().verdict();
        assert_eq!(verdict, case.verdict, "{}: verdict", case.name);
    }
}

#[test]
fn a_turn_that_hides_nothing_is_as_if_nothing_had_been_injected() {
    let mut count = 0;
    for case in corpus::cases() {
        let Some(own) = &case.own else { continue };
        let seen = case.turn().play();
        assert_eq!(
            String::from_utf8_lossy(&seen.client),
            String::from_utf8_lossy(own),
            "{}",
            case.name
        );
        count += 1;
    }
    assert!(count >= 15, "the corpus lost its plain streams");
}

/// The bodies that the hops would have been, unstreamed.
fn bodies(case: &Case) -> Vec<Bytes> {
    let response = |hop: &Bytes| {
        let text = String::from_utf8_lossy(hop).into_owned();
        let kinds = ["completed", "incomplete", "failed"];
        let marks = kinds.map(|kind| format!("data: {{\"type\":\"response.{kind}\""));
        let mut lines = text.lines();
        let end = lines.find(|line| marks.iter().any(|mark| line.starts_with(mark)))?;
        let at = end.find("\"response\":").unwrap() + "\"response\":".len();
        Some(Bytes::from(end[at..end.len() - 1].to_owned()))
    };
    case.hops.iter().filter_map(response).collect()
}

#[test]
fn an_unstreamed_turn_comes_to_the_same() {
    let mut count = 0;
    for case in corpus::cases() {
        let seen = case.turn().play();
        count += usize::from(unstreamed(&case, &seen));
    }
    assert!(count >= 25, "the corpus lost its whole turns");
}

/// Holds a turn against its unstreamed equal; whether it has one.
fn unstreamed(case: &Case, seen: &Seen) -> bool {
    let mut bodies = bodies(case);
    if bodies.len() < case.hops.len() {
        return false;
    }
    bodies.truncate(seen.answers.len());
    let read = |body| unary::read(body, &case.spec).unwrap();
    let answers: Vec<Answer> = bodies.iter().map(read).collect();
    assert_eq!(answers, seen.answers, "{}", case.name);
    let capped = answers.last().unwrap().verdict() == Verdict::HiddenOnly;
    let closed = capped.then(|| line(&answers));
    let (first, last) = (&bodies[0], bodies.last().unwrap());
    let turn = Unstreamed {
        skipped: &[],
        usage: case.config.usage,
        hidden: &case.spec.hidden,
        first,
        last,
        hops: &answers,
        end: end_of(closed),
    };
    let body = unary::compose(&turn, &case.spec);
    let streamed = client::read(&seen.client).responses.pop().unwrap();
    let composed: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(composed, streamed, "{}", case.name);
    // What a later request goes on from is what the client was shown.
    let said = [b"[", &form::visible(&answers, closed.flatten())[..], b"]"].concat();
    let said: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(said, composed["output"], "{}", case.name);
    if case.spec.hidden.is_empty() {
        assert_eq!(body, last, "{}", case.name);
    } else {
        client::silent(case, &body);
    }
    true
}

/// Holds that the client gets the body of a turn's only hop as it came.
fn stays(case: &Case, body: &Bytes, hops: &[Answer]) {
    let turn = Unstreamed {
        skipped: &[],
        usage: case.config.usage,
        hidden: &case.spec.hidden,
        first: body,
        last: body,
        hops,
        end: TurnEnd::Upstream,
    };
    assert_eq!(unary::compose(&turn, &case.spec), body);
}

/// An answer that is too long for the memory that is left is passed on without being taken apart.
#[test]
fn a_body_that_was_not_taken_apart_stays_as_it_is() {
    let cases = corpus::cases();
    let case = cases.iter().find(|case| !case.spec.hidden.is_empty());
    let case = case.unwrap();
    let body = Bytes::from_static(
        br#"{"id":"r1","status":"completed","output":[{"type":"reasoning","id":"rs_1","summary":[]}, {"type":"message","id":"m1","role":"assistant","content":[{"type":"output_text","text":"long","annotations":[]}]}]}"#,
    );
    let unread = Answer {
        forgotten: true,
        complete: true,
        ..Answer::default()
    };
    stays(case, &body, &[unread]);
}

#[test]
fn what_is_no_response_is_passed_on() {
    let case = &corpus::cases()[0];
    for body in [r#"{"error":{"message":"no"}}"#, "[]", "", r#"{"output":3}"#] {
        let body = Bytes::copy_from_slice(body.as_bytes());
        assert_eq!(unary::read(&body, &case.spec), None);
        stays(case, &body, &[]);
    }
}

/// The goldens hold, for each case, what each hop was read as, and what the client got where that
/// is not what its own request would have brought.
#[test]
fn goldens() {
    let mut seen = String::new();
    for case in corpus::cases() {
        let turn = case.turn().play();
        writeln!(seen, "=== {}", case.name).unwrap();
        let client = match case.own {
            Some(_) => String::new(),
            None => String::from_utf8(turn.client).unwrap(),
        };
        for line in client.split_inclusive('\n') {
            // An event's name is its type, as a client sees to.
            if line != "\n" && !line.starts_with("event: ") {
                seen.push_str(&line.replace('\r', "\\r"));
            }
        }
        for answer in &turn.answers {
            let (verdict, finish) = (answer.verdict(), answer.finish.as_deref().unwrap_or("-"));
            writeln!(seen, "--- {verdict:?} {finish} {:?}", answer.text).unwrap();
            for block in &answer.blocks {
                let raw = String::from_utf8_lossy(&block.raw);
                writeln!(seen, "    {:?} {raw}", block.kind).unwrap();
            }
            for call in &answer.calls {
                writeln!(seen, "    {call:?}").unwrap();
            }
        }
    }
    harness::golden(&seen, include_str!("tests/goldens.txt"));
}

/// Servers that number neither items nor events, or leave out how items begin.
#[test]
fn odd_servers_leak_nothing() {
    let call = |id: u8, name: &str| {
        format!(
            r#"{{"id":"fc_{id}","type":"function_call","arguments":"{{}}","call_id":"call_{id}","name":"{name}"}}"#
        )
    };
    let (hidden, shown, other) = (call(1, "delimiter"), call(2, "read"), call(3, "read"));
    let event =
        |kind: &str, members: &str| format!("data: {{\"type\":\"response.{kind}\",{members}}}\n\n");
    let end = |items: &[&String]| {
        let items: Vec<&str> = items.iter().map(|item| item.as_str()).collect();
        event(
            "completed",
            &format!(r#""response":{{"id":"r","output":[{}]}}"#, items.join(",")),
        )
    };
    let done = |item: &str| event("output_item.done", &format!(r#""item":{item}"#));
    let added = |item: &str| event("output_item.added", &format!(r#""item":{item}"#));
    let delta = |id: u8| {
        let members = format!(r#""item_id":"fc_{id}","delta":"{{}}""#);
        event("function_call_arguments.delta", &members)
    };
    let all = end(&[&hidden, &shown, &other]);
    let table = [
        done(&hidden) + &done(&shown) + &done(&other) + &all,
        added(&hidden)
            + &delta(1)
            + &done(&hidden)
            + &added(&shown)
            + &delta(2)
            + &done(&shown)
            + &added(&other)
            + &done(&other)
            + &all,
    ];
    for stream in table {
        let case = Case {
            hops: vec![Bytes::from(stream.clone())],
            ..corpus::cases().swap_remove(0)
        };
        let seen = case.turn().play();
        client::silent(&case, &seen.client);
        assert_eq!(seen.answers[0].verdict(), Verdict::Mixed, "{stream}");
        let text = String::from_utf8(seen.client).unwrap();
        assert!(!text.contains("fc_1"), "{text}");
        let want = end(&[&shown, &other]);
        assert!(text.ends_with(&want), "{text}");
    }
}

/// The corpus as bytes.
pub(crate) fn streams() -> Vec<(crate::stream::Spec, Vec<Bytes>)> {
    let cases = corpus::cases().into_iter();
    cases.map(|case| (case.spec, case.hops)).collect()
}
