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

use crate::Dialect;
use crate::answer::{Answer, BlockKind, Verdict};
use crate::stream::harness::{self, LINE, Seen, Turn};
use crate::stream::{Echo, Machine, MachineSettings, Spec, UsageMode, UsageWish};
use corpus::Case;

#[test]
fn one_cut_anywhere_changes_nothing() {
    for case in corpus::cases() {
        case.turn().holds_cut(|length| 0..=length);
    }
}

#[test]
fn two_cuts_anywhere_change_nothing() {
    for case in corpus::cases() {
        case.turn()
            .holds_cut_twice(|length| harness::grid(length, 16));
    }
}

#[test]
fn reading_byte_by_byte_changes_nothing() {
    for case in corpus::cases() {
        case.turn().holds_byte_by_byte();
    }
}

#[test]
fn the_client_sees_one_response() {
    for case in corpus::cases() {
        let seen = case.turn().play();
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
        let seen = case.turn().play();
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
        let full = case.turn().play();
        for end in 0..case.hops[last].len() {
            let mut short = case.clone();
            short.hops[last].truncate(end);
            short.passes_unchanged = false;
            let seen = short.turn().play();
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

/// The goldens hold, for each case, what the client got and what each hop was read as.
#[test]
fn goldens() {
    let mut seen = String::new();
    for case in corpus::cases() {
        let turn = case.turn().play();
        writeln!(seen, "=== {}", case.name).unwrap();
        seen.push_str(&harness::lines(&turn.client));
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
    harness::golden(&seen, include_str!("tests/goldens.txt"));
}

/// The corpus as bytes.
pub(crate) fn streams() -> Vec<(Spec, Vec<Bytes>)> {
    let cases = corpus::cases().into_iter();
    cases.map(|case| (case.spec, case.hops)).collect()
}
