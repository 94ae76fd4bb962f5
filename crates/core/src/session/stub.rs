//! The texts that replace a call of which a pass left a part: the stub or skeleton of its result,
//! and its trimmed arguments. Pure functions of the originals and of what was kept. Never chooses
//! what is kept.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use plimsoll_model::{Kept, Mark, Words, grouped, raw};

use super::overlap::Place;
use super::tombstone::thousands;
use crate::clip;

/// A string in a call's arguments is cut if it has more bytes than this. Shorter strings stay:
/// cutting them costs more repeated reads than it frees room.
pub const LONG: usize = 1500;
/// Characters that stay at the front of a cut string.
const FRONT: usize = 1000;
/// Characters that stay at its end.
const BACK: usize = 300;

/// What replaces the result of `id`, such as `read:12`: some of its lines if it is clipped, else
/// one line that names it. `tokens` is the size of the original.
#[must_use]
pub fn result(id: &str, tokens: u32, mark: Mark, kept: &Kept, original: &str) -> String {
    let tokens = thousands(tokens);
    // Spans mean nothing if the client has edited the text since.
    let same = kept.of.is_some_and(|of| of as usize == original.len());
    if let Some(shape) = kept.shape.filter(|_| mark == Mark::Clipped && same) {
        return clip::written(id, &tokens, shape, &kept.lines, original);
    }
    if mark != Mark::Clipped || kept.lines.is_empty() || !same {
        return format!("[evicted {id}, {tokens} tokens]");
    }
    // A skeleton: runs of lines, with a sign wherever lines are missing.
    let mut text = format!("[clipped {id}, {tokens} tokens; lines left out: …]");
    let mut end = 0;
    for span in &kept.lines {
        if span.0 > end {
            text.push_str("\n…");
        }
        let run = original.get(range(*span)).unwrap_or_default();
        let _ = write!(text, "\n{}", run.trim_end_matches(['\n', '\r']));
        end = span.1;
    }
    if (end as usize) < original.len() {
        text.push_str("\n…");
    }
    text
}

/// How many of the last lines of an earlier result may be left out where a newer one goes on from it: on a screen the
/// line of the prompt is written on, and so may be a line of state below it.
const LOOSE: usize = 2;
/// Bytes of a call that a pointer quotes, so that it is shorter than what it stands for.
const QUOTED: usize = 80;

/// What replaces a result whose text the result of `id` still shows in full further up. `made` is
/// the call of that, if it is not the same call.
#[must_use]
pub fn pointer(id: &str, tokens: u32, made: Option<&str>) -> String {
    let (tokens, call) = (thousands(tokens), quoted(made));
    format!("[unchanged since {id}, {tokens} tokens: the result of {call} above shows it in full]")
}

/// A part of a result of which an earlier one shows some lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'t> {
    /// Lines that are shown, with their line breaks.
    Shown(&'t str),
    /// Lines that stand in the earlier result.
    Same(Place),
}

/// What replaces a result of which the result of `id`, which is still shown in full further up, has some lines:
/// the parts in order, and a line before them that says how they are read. `tokens` is the size of the original,
/// `of` how many lines the earlier result has, and `made` its call, if it is not the same call. `None` if a line
/// that is shown looks like one that stands for others.
#[must_use]
pub fn shared(
    id: &str,
    tokens: u32,
    made: Option<&str>,
    of: usize,
    parts: &[Part<'_>],
) -> Option<String> {
    let (tokens, call) = (thousands(tokens), quoted(made));
    // It goes on where the earlier one ended, perhaps but for a prompt or a line of state at its end.
    if let [Part::Same(first), Part::Shown(rest)] = parts
        && first
            .before
            .saturating_add(first.lines)
            .saturating_add(LOOSE)
            >= of
    {
        let which = which(*first, of);
        return Some(format!(
            "[continues {id}, {tokens} tokens: {which} of the result of {call} above; what follows them is below]\n{rest}"
        ));
    }
    let stands = |place: &Place| {
        let first = grouped(place.before.saturating_add(1));
        let last = grouped(place.before.saturating_add(place.lines));
        match place.lines {
            1 => format!("[line {first} of {id}]"),
            _ => format!("[lines {first} to {last} of {id}]"),
        }
    };
    let mut places = parts.iter().filter_map(|part| match part {
        Part::Same(place) => Some(stands(place)),
        Part::Shown(_) => None,
    });
    let (first, all) = (places.next()?, grouped(of));
    let mut text = format!(
        "[repeats {id} in part, {tokens} tokens: a line like \"{first}\" stands for those of the {all} lines that the result of {call} above shows]\n"
    );
    let own = format!(" of {id}]");
    let looks_own = |line: &str| line.starts_with("[line") && line.ends_with(&own);
    for part in parts {
        match part {
            Part::Shown(lines) if lines.lines().any(looks_own) => return None,
            Part::Shown(lines) => text.push_str(lines),
            Part::Same(place) => {
                text.push_str(&stands(place));
                text.push('\n');
            }
        }
    }
    Some(text)
}

/// Which of the lines of an earlier result are the first ones of a newer one.
fn which(first: Place, of: usize) -> String {
    let Place { before, lines } = first;
    let past = before.saturating_add(lines);
    let all = grouped(of);
    match (lines, past < of) {
        (1, true) => format!("its first line is line {} of the {all}", grouped(past)),
        (1, false) if of == 1 => "its first line is the whole".to_owned(),
        (1, false) => format!("its first line is the last of the {all}"),
        (_, true) => {
            let from = grouped(before.saturating_add(1));
            let first = grouped(lines);
            format!(
                "its first {first} lines are lines {from} to {} of the {all}",
                grouped(past)
            )
        }
        (_, false) if lines < of => {
            let first = grouped(lines);
            format!("its first {first} lines are the last {first} of the {all} lines")
        }
        (_, false) => format!("its first {all} lines are all {all} lines"),
    }
}

/// A call as a pointer names it, in one line.
fn quoted(made: Option<&str>) -> String {
    let Some(made) = made else {
        return "the same call".to_owned();
    };
    let mut call = begins(made).replace(['\n', '\r'], " ");
    if call.len() < made.len() {
        call.push('…');
    }
    call
}

/// As much of a call's text as a pointer quotes.
#[must_use]
pub fn begins(text: &str) -> &str {
    text.get(..text.floor_char_boundary(QUOTED))
        .unwrap_or_default()
}

/// The line below a result that the same call has brought so many times running.
#[must_use]
pub fn loop_line(times: u32) -> String {
    format!("[this call has brought the same result {times} times running]")
}

/// The line below a result that refers to the result of `id`, which the view does not show in full. `tokens` is the
/// size of that, and `recall` what the tool is called that brings it back, if the model can call it.
#[must_use]
pub fn referred_line(id: &str, tokens: u32, recall: Option<&str>) -> String {
    let tokens = thousands(tokens);
    let left = format!("[this refers to {id}, {tokens} tokens, which is not shown in full");
    match recall {
        Some(recall) => format!("{left}: {recall} \"{id}\" brings it back]"),
        None => format!("{left}]"),
    }
}

/// The distinctive strings of a call's arguments, read as one text: its decoded string values, joined
/// by newlines. Arguments that are not JSON are one text as they are.
#[must_use]
pub fn words(arguments: &str) -> Words {
    let (text, longest) = joined(arguments);
    Words::of(&text).with_longest(longest)
}

/// The text that [`words`] reads.
#[must_use]
pub fn plain(arguments: &str) -> Cow<'_, str> {
    joined(arguments).0
}

/// The texts of a call's arguments as one text, and the length of the longest of them in bytes.
fn joined(arguments: &str) -> (Cow<'_, str>, usize) {
    let Some(literals) = literals(arguments) else {
        return (Cow::Borrowed(arguments), arguments.len());
    };
    let mut out = String::with_capacity(arguments.len());
    let mut longest = 0;
    for literal in literals {
        if !out.is_empty() {
            out.push('\n');
        }
        let text = decoded(arguments, &literal);
        longest = longest.max(text.len());
        out.push_str(&text);
    }
    (Cow::Owned(out), longest)
}

/// The spans that trimming cuts out of the text that [`words`] reads; empty if no string is long enough.
#[must_use]
pub fn cuts(arguments: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut at = 0;
    for literal in literals(arguments).unwrap_or_default() {
        let text = decoded(arguments, &literal);
        if let Some(cut) = cut(&text) {
            out.push(at + cut.start..at + cut.end);
        }
        // An empty first literal has no newline after it, as in `joined`.
        at += text.len() + usize::from(at + text.len() > 0);
    }
    out
}

/// Arguments with their long strings cut: the front and the end of each stay. `None` if no string is
/// long enough.
#[must_use]
pub fn trimmed(arguments: &str) -> Option<String> {
    let mut out = String::with_capacity(arguments.len() / 2);
    let mut written = 0;
    for literal in literals(arguments)? {
        let text = decoded(arguments, &literal);
        if let Some(cut) = cut(&text) {
            let mut new = String::from(text.get(..cut.start)?);
            let gone = text.get(cut.clone())?.chars().count();
            let _ = write!(new, " …[{gone} characters cut]… ");
            new.push_str(text.get(cut.end..)?);
            out.push_str(arguments.get(written..literal.start)?);
            // Everything around the literal is copied byte for byte.
            out.push_str(&raw::quote(&new));
            written = literal.end;
        }
    }
    out.push_str(arguments.get(written..)?);
    (written > 0).then_some(out)
}

/// The part that is cut out of a text; none if the text is short.
fn cut(text: &str) -> Option<Range<usize>> {
    if text.len() <= LONG {
        return None;
    }
    let front = text.char_indices().nth(FRONT)?.0;
    let back = text.char_indices().rev().nth(BACK - 1)?.0;
    (front < back).then_some(front..back)
}

fn decoded<'a>(arguments: &'a str, literal: &Range<usize>) -> Cow<'a, str> {
    let bytes = arguments.as_bytes().get(literal.clone());
    bytes.and_then(raw::string).unwrap_or_default()
}

/// The string values of JSON text with their quotes, without keys. `None` if the text is not JSON.
fn literals(arguments: &str) -> Option<Vec<Range<usize>>> {
    let bytes = arguments.as_bytes();
    // Once the text is valid JSON, finding quotes is enough.
    if !raw::is_json(bytes) {
        return None;
    }
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(open) = memchr::memchr(b'"', bytes.get(at..)?).map(|place| at + place) {
        let mut end = open + 1;
        loop {
            end += memchr::memchr2(b'"', b'\\', bytes.get(end..)?)?;
            if bytes.get(end) == Some(&b'"') {
                break;
            }
            end += 2;
        }
        at = end + 1;
        // A string before a colon is a key.
        let next = bytes.get(at..)?.iter().find(|b| !b.is_ascii_whitespace());
        if next != Some(&b':') {
            out.push(open..at);
        }
    }
    Some(out)
}

fn range((start, end): (u32, u32)) -> Range<usize> {
    start as usize..end as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skeleton_keeps_its_lines_and_shows_the_gaps() {
        let original = "one\ntwo\nthree\nfour\n";
        let kept = Kept {
            of: Some(19),
            lines: vec![(4, 8), (8, 14)],
            ..Kept::default()
        };
        assert_eq!(
            result("read:3", 2100, Mark::Clipped, &kept, original),
            "[clipped read:3, 2.1k tokens; lines left out: …]\n…\ntwo\nthree\n…"
        );
        assert_eq!(
            result("read:3", 2100, Mark::Masked, &kept, original),
            "[evicted read:3, 2.1k tokens]"
        );
    }

    #[test]
    fn an_edited_original_leaves_the_bare_stub() {
        let kept = Kept {
            of: Some(19),
            lines: vec![(0, 3)],
            ..Kept::default()
        };
        for mark in [Mark::Clipped, Mark::Masked] {
            let text = result("read:3", 9, mark, &kept, "[cleared]");
            assert_eq!(text, "[evicted read:3, 9 tokens]");
        }
    }

    #[test]
    fn long_strings_are_cut_wherever_they_stand_and_nothing_else_changes() {
        let long = "äb\\n\\\"".repeat(400);
        let arguments = format!(r#"{{"a" : "", "k":"{long}", "n": [1e3, "{long}"], "s":"short"}}"#);
        let text = joined(&arguments).0;
        let cuts = cuts(&arguments);
        assert_eq!(cuts.len(), 2);
        assert_eq!(words(&arguments).longest(), 2_000);
        assert_eq!(&text[cuts[1].clone()], &text[cuts[0].clone()]);
        let short = trimmed(&arguments).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&short).unwrap();
        assert_eq!(parsed["a"], "");
        assert_eq!(parsed["s"], "short");
        assert!(short.contains("[1e3, "), "{short}");
        for cut in [&parsed["k"], &parsed["n"][1]] {
            let cut = cut.as_str().unwrap();
            assert!(cut.contains(" …[300 characters cut]… "), "{cut}");
        }
    }

    #[test]
    fn what_is_short_or_no_json_is_left_alone() {
        for arguments in ["{}", r#"{"a":"b"}"#, "not json at all"] {
            assert_eq!(trimmed(arguments), None);
            assert!(cuts(arguments).is_empty());
        }
        assert_eq!(joined("not json").0, "not json");
    }
}
