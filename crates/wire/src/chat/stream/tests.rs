//! The machine's laws over a corpus and over random streams: the client's view never depends on
//! where reads were cut, never shows a hidden name, and is always one well-formed response.

mod beside;
mod client;
mod corpus;
mod habits;
mod random;
mod rules;

use std::fmt::Write as _;

use bytes::Bytes;

use crate::Dialect;
use crate::answer::{Answer, Verdict, join};
use crate::chat::form;
use crate::stream::harness::{self, Seen, Turn};
use crate::stream::{Echo, Machine, MachineSettings, Spec, UsageMode, UsageWish, unary};
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
            .holds_cut_twice(|length| harness::grid(length, 12));
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
    let plain = corpus::cases()
        .into_iter()
        .filter(|case| case.passes_unchanged);
    let mut count = 0;
    for case in plain {
        let seen = case.turn().play();
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

/// The goldens hold, for each case, what the client got and what each hop was read as.
#[test]
fn goldens() {
    let mut seen = String::new();
    for case in corpus::cases() {
        let turn = case.turn().play();
        writeln!(seen, "=== {}", case.name).unwrap();
        seen.push_str(&harness::lines(&turn.client));
        for answer in &turn.answers {
            let hidden: Vec<usize> = answer.hidden_calls().map(|(place, _)| place).collect();
            let message = String::from_utf8(form::message(answer).to_vec()).unwrap();
            let (verdict, finish) = (answer.verdict(), answer.finish.as_deref().unwrap_or("-"));
            writeln!(seen, "--- {verdict:?} {finish} hidden {hidden:?} {message}").unwrap();
        }
    }
    harness::golden(&seen, include_str!("tests/goldens.txt"));
}

/// The corpus as bytes.
pub(crate) fn streams() -> Vec<(Spec, Vec<Bytes>)> {
    let cases = corpus::cases().into_iter();
    cases.map(|case| (case.spec, case.hops)).collect()
}
