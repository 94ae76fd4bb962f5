//! What somebody who has read an exploration would write down of it, told by rule: what was said last, where was looked, the
//! names that stand out, and lines that hold such names, as far as there is room. Owns that rule, and what one who knew the
//! future would write; never looks at a view.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use plimsoll_model::{Role, lines, strings, tells_place};

use crate::anchors::{Ask, Needs};
use crate::message_text::{self, TextPart};
use crate::trace::TraceMessage;

/// Characters of what was said last.
const SAID: usize = 300;
/// Places that were looked at, and names that are told.
const PLACES: usize = 6;
const NAMES: usize = 12;
/// Lines that one who knew the future would copy at most, and characters of each.
const LINES: usize = 40;
const LINE: usize = 160;

/// An exploration of a session, before an answer.
pub struct Exploration<'a> {
    /// The session.
    pub messages: &'a [TraceMessage],
    /// Where the exploration stands in it.
    pub run: Range<usize>,
    /// The answer.
    pub at: usize,
}

/// The description of an exploration, with lines as long as it fits. With `foreseen` its names and lines are those that the
/// answer and others behind the exploration need.
#[must_use]
pub fn finding(
    of: &Exploration<'_>,
    needs: &Needs,
    foreseen: bool,
    fits: &dyn Fn(&str) -> bool,
) -> String {
    let own = of.messages.get(of.run.clone()).unwrap_or_default();
    let spoken = spoken(of);
    let mut text = said(own);
    let places = places(own);
    let told = match foreseen {
        true => needed(of, needs),
        false => names(own, &spoken),
    };
    let told = told.into_iter().filter(|one| !places.contains(one));
    let told: Vec<String> = told.collect();
    let mut add = |head: &str, all: &[String]| {
        if !all.is_empty() {
            let gap = if text.is_empty() { "" } else { " " };
            text = format!("{text}{gap}{head}: {}.", all.join(", "));
        }
    };
    add("Looked at", &places);
    add("There", &told);
    let mut copied = match foreseen {
        true => needed_lines(of, own, needs),
        false => Vec::new(),
    };
    copied.extend(telling_lines(own, &spoken));
    let mut known: HashSet<&str> = HashSet::new();
    for line in &copied {
        if !known.insert(line) {
            continue;
        }
        let longer = format!("{text}\n{line}");
        if !fits(&longer) {
            break;
        }
        text = longer;
    }
    text
}

/// The strings that somebody spoke of up to the end of an exploration, results left out.
fn spoken(of: &Exploration<'_>) -> HashSet<String> {
    let mut spoken = HashSet::new();
    let before = of.messages.get(..of.run.end).unwrap_or_default();
    each(before, |role, _, text| {
        if role != Role::Tool {
            spoken.extend(strings(text).map(|(_, string)| string.to_owned()));
        }
    });
    spoken
}

/// What was said last.
fn said(own: &[TraceMessage]) -> String {
    let mut last = String::new();
    for message in own.iter().filter(|one| one.role == Role::Assistant) {
        message_text::texts(&message.raw, &mut |part: TextPart, text: &str| {
            if part == TextPart::Text && !text.trim().is_empty() {
                last = text.trim().chars().take(SAID).collect();
            }
        });
    }
    last.replace('\n', " ")
}

/// What the calls were about, the newest last.
fn places(own: &[TraceMessage]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    each(own, |role, part, text| {
        if role == Role::Assistant && matches!(part, TextPart::Call(_)) {
            for (_, string) in strings(text).filter(|(_, string)| tells_place(string)) {
                if !found.iter().any(|one| one == string) {
                    found.push(string.to_owned());
                }
            }
        }
    });
    let from = found.len().saturating_sub(PLACES);
    found.split_off(from)
}

/// The names of the results that a reader would expect to need: those that were spoken of, and those that several results
/// hold; of equals the first.
fn names(own: &[TraceMessage], spoken: &HashSet<String>) -> Vec<String> {
    // For each name its place, and how many results hold it.
    let mut held: HashMap<String, (usize, usize)> = HashMap::new();
    for result in own.iter().filter(|one| one.role == Role::Tool) {
        let mut seen: HashSet<String> = HashSet::new();
        each(std::slice::from_ref(result), |_, _, text| {
            for (_, string) in strings(text).filter(|(_, string)| tells_place(string)) {
                if seen.insert(string.to_owned()) {
                    let place = held.len();
                    held.entry(string.to_owned()).or_insert((place, 0)).1 += 1;
                }
            }
        });
    }
    let mut all: Vec<(String, (usize, usize))> = held.into_iter().collect();
    all.sort_by_key(|(name, (place, results))| {
        let weight = results + 2 * usize::from(spoken.contains(name));
        (usize::MAX - weight, *place)
    });
    all.truncate(NAMES);
    all.into_iter().map(|(name, _)| name).collect()
}

/// The lines of the results that hold most of what was spoken of; of equals the first.
fn telling_lines(own: &[TraceMessage], spoken: &HashSet<String>) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    each(own, |role, _, text| {
        if role != Role::Tool {
            return;
        }
        for line in lines(text) {
            let line = message_text::unnumbered(line).unwrap_or(line);
            let held: HashSet<&str> = strings(line).map(|(_, string)| string).collect();
            let weight = held.into_iter().filter(|one| spoken.contains(*one)).count();
            let line: String = line.chars().take(LINE).collect();
            found.push((weight, line));
        }
    });
    found.sort_by_key(|(weight, _)| usize::MAX - weight);
    found.into_iter().map(|(_, line)| line).collect()
}

/// Numbers of what the answer needs, and then of what others behind the exploration need.
fn later<'n>(
    of: &Exploration<'_>,
    needs: &'n Needs,
    which: fn(&Ask) -> &Vec<u32>,
) -> impl Iterator<Item = u32> + 'n {
    let this = needs.asks.get(of.at..).unwrap_or_default().iter().take(1);
    let others = needs.asks.get(of.run.end..).unwrap_or_default().iter();
    this.chain(others).flat_map(which).copied()
}

/// The names of the exploration that are needed behind it.
fn needed(of: &Exploration<'_>, needs: &Needs) -> Vec<String> {
    let own = of.messages.get(of.run.clone()).unwrap_or_default();
    let held = needs.contents(own.iter().map(|one| &one.raw)).strings;
    let mut found: Vec<String> = Vec::new();
    for number in later(of, needs, |ask| &ask.strings).filter(|one| held.contains(one)) {
        let name = needs.string(number).to_owned();
        if found.len() < NAMES && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// The lines of the exploration that are needed behind it, the answer's first.
fn needed_lines(of: &Exploration<'_>, own: &[TraceMessage], needs: &Needs) -> Vec<String> {
    let mut texts: HashMap<u32, String> = HashMap::new();
    each(own, |_, _, text| {
        for line in lines(text) {
            let bare = message_text::unnumbered(line).unwrap_or(line);
            let number = needs.line(line).or_else(|| needs.line(bare));
            if let Some(number) = number {
                let text = bare.chars().take(LINE).collect();
                texts.entry(number).or_insert(text);
            }
        }
    });
    let mut found = Vec::new();
    for number in later(of, needs, |ask| &ask.lines) {
        if let Some(text) = texts.remove(&number) {
            found.push(text);
        }
        if found.len() == LINES {
            break;
        }
    }
    found
}

/// Hands on the texts of some messages with who speaks.
fn each(messages: &[TraceMessage], mut one: impl FnMut(Role, TextPart, &str)) {
    for message in messages {
        message_text::texts(&message.raw, &mut |part: TextPart, text: &str| {
            if part != TextPart::Reasoning {
                one(message.role, part, text);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trace::{self, Trace};

    /// A task, two calls that look, and an answer that edits.
    fn session(edit: &str) -> Trace {
        let call = |id: &str, said: &str, of: &str| {
            json!({"role": "assistant", "content": said, "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "Read", "arguments": json!({"path": of}).to_string()}}]})
        };
        let result =
            |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
        let parser =
            "fn parse_header(input: &str) {\n    let magic_bytes = read_magic(input);\n}\n";
        let lines = [
            json!({"role": "user", "content": "Why does parse_header fail?"}),
            call("a", "", "src/parser.rs"),
            result("a", parser),
            call(
                "b",
                "It reads the magic first.\nThen the rest.",
                "src/magic.rs",
            ),
            result(
                "b",
                "pub const MAGIC_VALUE_1: u32 = 77123;\nfn read_magic(input: &str) {}\n",
            ),
            call("c", "", edit),
            result("c", "done"),
        ];
        let lines = lines.map(|line| line.to_string());
        trace::parse("one", &lines.join("\n")).unwrap()
    }

    fn told(edit: &str, foreseen: bool, room: usize) -> String {
        let trace = session(edit);
        let of = Exploration {
            messages: &trace.messages,
            run: 1..5,
            at: 5,
        };
        finding(&of, &Needs::of(&trace), foreseen, &|text| {
            text.len() <= room
        })
    }

    #[test]
    fn a_reader_tells_what_was_said_where_it_looked_and_what_stands_out() {
        let text = told("src/other.rs", false, 0);
        assert_eq!(
            text,
            "It reads the magic first. Then the rest. Looked at: src/parser.rs, src/magic.rs. \
             There: parse_header, read_magic, magic_bytes, MAGIC_VALUE_1, 77123."
        );
        // With room for one line: of those that hold what the task speaks of, the first.
        let line = "\nfn parse_header(input: &str) {";
        assert_eq!(
            told("src/other.rs", false, text.len() + line.len()),
            format!("{text}{line}")
        );
    }

    #[test]
    fn a_reader_does_not_know_the_future() {
        for room in [0, 200, 2_000] {
            let one = told("let MAGIC_VALUE_1: u32 = 77123;", false, room);
            assert_eq!(one, told("nothing of it", false, room));
        }
    }

    #[test]
    fn one_who_knows_the_future_copies_what_is_needed() {
        let edit = "pub const MAGIC_VALUE_1: u32 = 77123;";
        let text = told(edit, true, 2_000);
        assert!(text.contains("There: MAGIC_VALUE_1, 77123."), "{text}");
        let (_, copied) = text.split_once('\n').unwrap();
        assert!(copied.starts_with(edit), "{text}");
        assert_eq!(copied.matches(edit).count(), 1, "{text}");
    }
}
