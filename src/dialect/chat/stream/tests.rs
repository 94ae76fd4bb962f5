//! The machine's laws over a corpus and over random streams: the client's view never depends on
//! where reads were cut, never shows a hidden name, and is always one well-formed response.

mod client;
mod corpus;
mod random;
mod rules;

use std::fmt::Write as _;

use bytes::Bytes;

use super::*;
use crate::dialect::answer::{Answer, Verdict, join};
use crate::dialect::chat::form;
use crate::dialect::stream::{Echo, UsageMode};
use crate::model::Dialect;
use corpus::Case;

/// What came of a turn: the client's bytes and each hop's answer.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    client: Vec<u8>,
    answers: Vec<Answer>,
    handed_out: String,
}

/// Plays hops through the machine as a driver does; `pieces` cuts each hop's bytes into reads.
fn play(case: &Case, pieces: impl Fn(usize, &Bytes) -> Vec<Bytes>) -> Seen {
    let mut machine = Machine::new(case.config.clone(), &case.spec);
    let mut out = Vec::new();
    let mut answers: Vec<Answer> = Vec::new();
    for (number, hop) in case.hops.iter().enumerate() {
        for piece in pieces(number, hop) {
            let (held, before) = (machine.finish_seen(), out.len());
            machine.push(piece, &mut out).unwrap();
            assert!(
                !held || out.len() == before,
                "{}: said something after the end",
                case.name
            );
            assert_eq!(machine.spoken(), !out.is_empty(), "{}", case.name);
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
            Verdict::HiddenOnly => {
                let mute = answers.iter().all(|answer| answer.text.is_empty());
                machine.close(mute.then_some("the model only annotated"), &mut out);
            }
            Verdict::Broken if told => machine.release(&mut out),
            Verdict::Broken => machine.fail(br#"{"message":"upstream cut"}"#, &mut out),
        }
    }
    Seen {
        client: out.concat(),
        answers,
        handed_out: machine.handed_out().to_owned(),
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

#[test]
fn one_cut_anywhere_changes_nothing() {
    for case in corpus::cases() {
        let want = play(&case, whole);
        for (number, hop) in case.hops.iter().enumerate() {
            for at in 0..=hop.len() {
                assert_eq!(
                    play(&case, cut(number, &[at])),
                    want,
                    "{}: hop {number} at {at}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn two_cuts_anywhere_change_nothing() {
    for case in corpus::cases() {
        let want = play(&case, whole);
        for (number, hop) in case.hops.iter().enumerate() {
            // All pairs of places in short streams; in longer ones a grid that still meets each
            // frame several times. The strides are odd, so that the grid drifts over the frames.
            let stride = if hop.len() <= 200 {
                1
            } else {
                (hop.len() / 12) | 1
            };
            for first in (0..=hop.len()).step_by(stride) {
                for second in (first..=hop.len()).step_by(stride) {
                    let seen = play(&case, cut(number, &[first, second]));
                    assert_eq!(
                        seen, want,
                        "{}: hop {number} at {first}, {second}",
                        case.name
                    );
                }
            }
        }
    }
}

#[test]
fn reading_byte_by_byte_changes_nothing() {
    for case in corpus::cases() {
        let bytes = |_: usize, hop: &Bytes| hop.chunks(1).map(Bytes::copy_from_slice).collect();
        assert_eq!(play(&case, bytes), play(&case, whole), "{}", case.name);
    }
}

#[test]
fn the_client_sees_one_response() {
    for case in corpus::cases() {
        let seen = play(&case, whole);
        let view = client::read(&seen.client);
        client::check(&case, &seen, &view);
    }
}

#[test]
fn a_turn_without_hidden_calls_is_passed_on_unchanged() {
    let plain = corpus::cases()
        .into_iter()
        .filter(|case| case.passes_unchanged);
    let mut count = 0;
    for case in plain {
        let seen = play(&case, whole);
        assert_eq!(
            String::from_utf8_lossy(&seen.client),
            String::from_utf8_lossy(&case.hops[0]),
            "{}",
            case.name
        );
        count += 1;
    }
    assert!(count >= 10, "the corpus lost its plain streams");
}

/// The goldens hold, for each case, what the client got and what each hop was read as. On a
/// difference the whole new text is printed, to be read and put in the file's place.
#[test]
fn goldens() {
    let mut seen = String::new();
    for case in corpus::cases() {
        let turn = play(&case, whole);
        writeln!(seen, "=== {}", case.name).unwrap();
        for line in String::from_utf8_lossy(&turn.client).split_inclusive('\n') {
            let line = line.replace('\r', "\\r");
            if line != "\n" {
                seen.push_str(&line);
            }
        }
        for answer in &turn.answers {
            let hidden: Vec<usize> = answer.hidden_calls().map(|(place, _)| place).collect();
            let message = String::from_utf8(form::message(answer).to_vec()).unwrap();
            let (verdict, finish) = (answer.verdict(), answer.finish.as_deref().unwrap_or("-"));
            writeln!(seen, "--- {verdict:?} {finish} hidden {hidden:?} {message}").unwrap();
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
