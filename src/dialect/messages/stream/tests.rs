//! The machine's laws over a corpus and over random streams of Messages: the client's view never
//! depends on where reads were cut, never shows a hidden name, and is always one well-formed
//! response.

mod client;
mod corpus;
mod random;
mod rules;
mod say;

use std::fmt::Write as _;

use bytes::Bytes;

use crate::dialect::answer::{Answer, BlockKind, Verdict};
use crate::dialect::blocks::Machine;
use crate::dialect::stream::{Config, Echo, Spec, UsageMode, UsageWish};
use crate::model::Dialect;
use corpus::Case;

/// The line that is said where a turn ends at the cap with nothing else said.
const LINE: &str = "the model only annotated";

/// What came of a turn: the client's bytes and each hop's answer.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    client: Vec<u8>,
    answers: Vec<Answer>,
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
            let late = held && out.len() != before;
            assert!(!late, "{}: said something after the end", case.name);
            assert_eq!(machine.spoken(), !out.is_empty(), "{}", case.name);
        }
        let said = machine.said();
        let answer = machine.end_hop(&mut out);
        if let (Some(said), true) = (said, answer.error.is_none()) {
            assert_eq!(said.blocks, answer.blocks, "{}: said early", case.name);
        }
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
                machine.close(mute.then_some(LINE), &mut out);
            }
            Verdict::Broken if told => machine.release(&mut out),
            Verdict::Broken => machine.fail(br#"{"message":"upstream cut"}"#, &mut out),
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
        let pairs = edges.windows(2);
        pairs
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
                let seen = play(&case, cut(number, &[at]));
                assert_eq!(seen, want, "{}: hop {number} at {at}", case.name);
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
                (hop.len() / 16) | 1
            };
            for first in (0..=hop.len()).step_by(stride) {
                for second in (first..=hop.len()).step_by(stride) {
                    let seen = play(&case, cut(number, &[first, second]));
                    let name = case.name;
                    assert_eq!(seen, want, "{name}: hop {number} at {first}, {second}");
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
    let cases = corpus::cases();
    let plain: Vec<&Case> = cases.iter().filter(|case| case.passes_unchanged).collect();
    assert!(plain.len() >= 10, "the corpus lost its plain streams");
    for case in plain {
        let seen = play(case, whole);
        let (client, hop) = (seen.client, &case.hops[0]);
        assert_eq!(
            String::from_utf8_lossy(&client),
            String::from_utf8_lossy(hop),
            "{}",
            case.name
        );
    }
}

/// A stream that stops anywhere shows the client nothing hidden, says that it broke unless it had
/// come to its end, and counts whole blocks only.
#[test]
fn a_stream_may_stop_anywhere() {
    for case in corpus::cases() {
        let last = case.hops.len() - 1;
        let full = play(&case, whole);
        for end in 0..case.hops[last].len() {
            let mut short = case.clone();
            short.hops[last].truncate(end);
            short.passes_unchanged = false;
            let seen = play(&short, whole);
            let view = client::read(&seen.client);
            client::sound(&short, &seen, &view);
            let (blocks, all) = (
                &seen.answers[last.min(seen.answers.len() - 1)].blocks,
                &full.answers[full.answers.len() - 1].blocks,
            );
            let broken = seen.answers.last().map(Answer::verdict) == Some(Verdict::Broken);
            if broken && seen.answers.len() == full.answers.len() {
                assert!(
                    all.starts_with(blocks),
                    "{}: stopped at {end}: {blocks:?} of {all:?}",
                    case.name
                );
            }
        }
    }
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
            if line != "\n" && line != "\\r\n" {
                seen.push_str(&line);
            }
        }
        for answer in &turn.answers {
            let finish = answer.finish.as_deref().unwrap_or("-");
            writeln!(seen, "--- {:?} {finish}", answer.verdict()).unwrap();
            for block in &answer.blocks {
                let hidden = match block.kind {
                    BlockKind::Call(place) if answer.calls[place].hidden => "hidden ",
                    BlockKind::Call(_)
                    | BlockKind::Text
                    | BlockKind::Reasoning
                    | BlockKind::Other => "",
                };
                let raw = String::from_utf8_lossy(&block.raw);
                writeln!(seen, "    {hidden}{raw}").unwrap();
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
