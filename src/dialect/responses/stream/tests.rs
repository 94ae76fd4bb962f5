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
use super::unary;
use crate::dialect::answer::{Answer, Verdict};
use crate::dialect::stream::Machine;
use corpus::Case;

const LINE: &str = "the model only annotated";

/// What came of a turn: the client's bytes and each hop's answer.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    client: Vec<u8>,
    answers: Vec<Answer>,
}

/// The line that a turn ends with at the hop cap, where nothing was said.
fn line(answers: &[Answer]) -> Option<&'static str> {
    let mute = answers.iter().all(|answer| answer.text.is_empty());
    mute.then_some(LINE)
}

/// Plays hops through the machine as a driver does; `pieces` cuts each hop's bytes into reads.
fn play(case: &Case, pieces: impl Fn(usize, &Bytes) -> Vec<Bytes>) -> Seen {
    let mut machine = Machine::new(case.config.clone(), &case.spec);
    let mut out = Vec::new();
    let mut answers: Vec<Answer> = Vec::new();
    for (number, hop) in case.hops.iter().enumerate() {
        for piece in pieces(number, hop) {
            machine.push(piece, &mut out).unwrap();
        }
        let answer = machine.end_hop(&mut out);
        let verdict = answer.verdict();
        let told = answer.error.is_some();
        answers.push(answer);
        match verdict {
            Verdict::Done | Verdict::Mixed | Verdict::Cut => {
                machine.release(&mut out);
                break;
            }
            Verdict::HiddenOnly if number + 1 < case.hops.len() => machine.next_hop(&mut out),
            Verdict::HiddenOnly => machine.close(line(&answers), &mut out),
            Verdict::Broken if told => {
                machine.release(&mut out);
                break;
            }
            Verdict::Broken => {
                machine.fail(br#"{"message":"upstream cut"}"#, &mut out);
                break;
            }
        }
    }
    Seen {
        client: out.concat(),
        answers,
    }
}

fn whole(_: usize, hop: &Bytes) -> Vec<Bytes> {
    vec![hop.clone()]
}

/// Cuts one of the hops at these places, in order.
fn cut(hop: usize, places: &[usize]) -> impl Fn(usize, &Bytes) -> Vec<Bytes> {
    move |number, bytes| {
        if number != hop {
            return vec![bytes.clone()];
        }
        let mut edges = vec![0];
        edges.extend(places);
        edges.push(bytes.len());
        // Copies, because a real read shares no memory with the next one.
        edges
            .windows(2)
            .map(|pair| Bytes::copy_from_slice(&bytes[pair[0]..pair[1]]))
            .collect()
    }
}

/// Whole turns of this dialect are long, since each says thrice what was asked for. So all places
/// are tried at once, and then some of them alone and in pairs; the splitter's own tests try all.
#[test]
fn cuts_change_nothing() {
    for (offset, case) in corpus::cases().iter().enumerate() {
        let want = play(case, whole);
        let bytes = |_: usize, hop: &Bytes| hop.chunks(1).map(Bytes::copy_from_slice).collect();
        assert_eq!(play(case, bytes), want, "{}: byte by byte", case.name);
        for (number, hop) in case.hops.iter().enumerate() {
            // The strides are odd, so that the grids drift over the frames.
            let places = |steps: usize| (offset % 7..=hop.len()).step_by((hop.len() / steps) | 1);
            for at in places(40) {
                let seen = play(case, cut(number, &[at]));
                assert_eq!(seen, want, "{}: hop {number} at {at}", case.name);
            }
            for first in places(7) {
                for second in places(7).filter(|second| *second >= first) {
                    let seen = play(case, cut(number, &[first, second]));
                    assert_eq!(seen, want, "{}: {number} at {first}, {second}", case.name);
                }
            }
        }
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
    let want = play(&case, whole);
    assert_eq!(want.answers[1].verdict(), Verdict::Mixed);
    for (number, hop) in case.hops.iter().enumerate() {
        for at in 0..=hop.len() {
            assert_eq!(
                play(&case, cut(number, &[at])),
                want,
                "hop {number} at {at}"
            );
        }
    }
}

#[test]
fn the_client_sees_one_response() {
    for case in corpus::cases() {
        let seen = play(&case, whole);
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
        let seen = play(&case, whole);
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
        let seen = play(&case, whole);
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
    let body = unary::compose(&case.config, &case.spec, first, last, &answers, closed);
    let streamed = client::read(&seen.client).responses.pop().unwrap();
    let composed: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(composed, streamed, "{}", case.name);
    // What a later request goes on from is what the client was shown.
    let said = [b"[", &form::said(&answers, closed.flatten())[..], b"]"].concat();
    let said: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(said, composed["output"], "{}", case.name);
    if case.spec.hidden.is_empty() {
        assert_eq!(body, last, "{}", case.name);
    } else {
        client::silent(case, &body);
    }
    true
}

#[test]
fn what_is_no_response_is_passed_on() {
    let case = &corpus::cases()[0];
    for body in [r#"{"error":{"message":"no"}}"#, "[]", "", r#"{"output":3}"#] {
        let body = Bytes::copy_from_slice(body.as_bytes());
        assert_eq!(unary::read(&body, &case.spec), None);
        let composed = unary::compose(&case.config, &case.spec, &body, &body, &[], None);
        assert_eq!(composed, body);
    }
}

/// The goldens hold, for each case, what each hop was read as, and what the client got where that
/// is not what its own request would have brought. On a difference the whole new text is printed,
/// to be read and put in the file's place.
#[test]
fn goldens() {
    let mut seen = String::new();
    for case in corpus::cases() {
        let turn = play(&case, whole);
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
    let want = include_str!("tests/goldens.txt");
    if seen != want {
        println!("<<<<\n{seen}>>>>");
    }
    assert!(
        seen == want,
        "goldens differ; the new text is printed above"
    );
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
        let seen = play(&case, whole);
        client::silent(&case, &seen.client);
        assert_eq!(seen.answers[0].verdict(), Verdict::Mixed, "{stream}");
        let text = String::from_utf8(seen.client).unwrap();
        assert!(!text.contains("fc_1"), "{text}");
        let want = end(&[&shown, &other]);
        assert!(text.ends_with(&want), "{text}");
    }
}
