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
        // A line below a result is the only thing that is ever added.
        assert!(
            gone.tokens > 0 || matches!(level, Level::Loop | Level::Refers),
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
    let Some(head) = head.strip_prefix("[continues ") else {
        return in_part(head, rest, earlier);
    };
    let (_, head) = head.split_once(" tokens: its first ").unwrap();
    let (which, _) = head.split_once(" of the result of ").unwrap();
    let (lines, which) = match which.strip_prefix("line is ") {
        Some(which) => (1, which),
        None => {
            let (lines, which) = which.split_once(" lines are ").unwrap();
            (number(lines), which)
        }
    };
    let all: Vec<&str> = earlier.split_inclusive('\n').collect();
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
    format!("{}{rest}", broken(&all[first..past]))
}

/// The same of a result that has lines of the earlier one in several places.
fn in_part(head: &str, rest: &str, earlier: &str) -> String {
    let head = head.strip_prefix("[repeats ").unwrap();
    let (id, head) = head.split_once(" in part, ").unwrap();
    let all: Vec<&str> = earlier.split_inclusive('\n').collect();
    let (_, head) = head.split_once(" stands for those of the ").unwrap();
    let (of, _) = head.split_once(" lines that the result of ").unwrap();
    assert_eq!(number(of), all.len());
    let mut said = String::new();
    for line in rest.split_inclusive('\n') {
        let which = line.strip_suffix(&format!(" of {id}]\n"));
        let lines = which.and_then(|which| match which.strip_prefix("[line ") {
            Some(one) => Some((number(one) - 1, number(one))),
            None => {
                let (from, past) = which.strip_prefix("[lines ")?.split_once(" to ")?;
                Some((number(from) - 1, number(past)))
            }
        });
        match lines {
            None => said.push_str(line),
            Some((from, past)) => {
                said.push_str(&broken(&all[from..past]));
            }
        }
    }
    said
}

/// Lines, of which each ends with a line break.
fn broken(lines: &[&str]) -> String {
    let lines = lines.iter().map(|line| line.trim_end_matches('\n'));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// A number with its thousands apart.
fn number(text: &str) -> usize {
    text.replace(',', "").parse().unwrap()
}
