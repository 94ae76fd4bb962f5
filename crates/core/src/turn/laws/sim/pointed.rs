//! The laws of what rungs make of new results: what they made is smaller, and each pointer, read as a model
//! reads it, gives the original byte for byte. Shares no code with what writes pointers.

use crate::policy::Level;
use crate::session::index::ItemIndex;
use crate::session::transcript::Source;
use crate::turn::state::{Prepared, TurnState};

/// No policy broke a rule, what was made of new results is smaller, and each pointer points at a
/// result that is shown in full and says the same.
pub(super) fn entered(state: &TurnState, prepared: &Prepared) {
    let proposals = prepared.pass.iter().map(|(_, proposal)| proposal);
    for proposal in proposals.chain(&prepared.entered) {
        assert_eq!(proposal.dropped, []);
    }
    for ((_, level), gone) in prepared.entered.iter().flat_map(|one| &one.gone) {
        // A line about a loop is the only thing that is ever added.
        assert!(
            gone.tokens > 0 || *level == Level::Loop,
            "a new result grew by {}",
            -gone.tokens
        );
    }
    let view = &prepared.view;
    for (to, pointers) in view.marked().pointers() {
        assert!(
            view.is_whole(to),
            "{to} is pointed to and not shown in full"
        );
        for from in pointers {
            assert!(from > to, "{from} points forward");
            // If the client has edited one of them, both are shown.
            let Some(note) = view.notes().results.get(&from) else {
                continue;
            };
            let text = |call: ItemIndex| original(state, prepared, call).unwrap();
            let of = view.marked().transcript.items[from].no;
            let times = view.marks().kept(of).and_then(|kept| kept.times);
            let line =
                |times| format!("\n[this call has brought the same result {times} times running]");
            let line = times.map(line).unwrap_or_default();
            let shown = note.text().strip_suffix(&line).unwrap();
            assert_eq!(said(shown, &text(to)), text(from), "{shown}");
        }
    }
}

/// The client's own text of a call's result.
fn original(state: &TurnState, prepared: &Prepared, call: ItemIndex) -> Option<String> {
    let transcript = prepared.view.transcript();
    let result = &transcript.items[transcript.items[call].pair?];
    let (Source::Client(message) | Source::LastHop { message, .. }) =
        transcript.entries[result.entry].source
    else {
        return None;
    };
    let request = &state.request;
    let text = request.dialect.text(request.message(message));
    text.map(std::borrow::Cow::into_owned)
}

/// What a model can tell that a pointer stands for, from what it says and the text that it points to.
fn said(shown: &str, earlier: &str) -> String {
    if shown.starts_with("[unchanged since ") {
        return earlier.to_owned();
    }
    let (head, rest) = shown.split_once('\n').unwrap();
    let head = head.strip_prefix("[continues ").unwrap();
    let (_, head) = head.split_once(" tokens: its first ").unwrap();
    let (which, _) = head.split_once(" of the result of ").unwrap();
    let (lines, which) = match which.strip_prefix("line is ") {
        Some(which) => (1, which),
        None => {
            let (lines, which) = which.split_once(" lines are ").unwrap();
            (number(lines), which)
        }
    };
    let all: Vec<&str> = earlier.lines().collect();
    let words: Vec<&str> = which.split(' ').collect();
    let (first, past, of) = match words.as_slice() {
        ["all", of, "lines"] => (0, number(of), of),
        ["the", "last", last, "of", "the", of, "lines"] => {
            (number(of) - number(last), number(of), of)
        }
        ["lines", from, "to", past, "of", "the", of] => (number(from) - 1, number(past), of),
        ["line", one, "of", "the", of] => (number(one) - 1, number(one), of),
        ["the", "last", "of", "the", of] => (number(of) - 1, number(of), of),
        ["the", "whole"] => (0, 1, &"1"),
        _ => panic!("{which}"),
    };
    assert_eq!((past - first, number(of)), (lines, all.len()), "{which}");
    let lines = all[first..past].iter().map(|line| format!("{line}\n"));
    format!("{}{rest}", lines.collect::<String>())
}

/// A number with its thousands apart.
fn number(text: &str) -> usize {
    text.replace(',', "").parse().unwrap()
}
