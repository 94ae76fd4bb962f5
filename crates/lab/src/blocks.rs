//! What of an answer stands in a view as it stood before: the runs of words that it repeats, weighted
//! by how rare they were, and the lines that an edit changes with their neighbours. An index of names
//! holds hardly any runs, which is what sets these measures apart from `K`. Never decides what a policy
//! does.

use std::collections::{HashMap, HashSet};
use std::hash::Hasher as _;

use plimsoll_wire::Dialect;
use serde_json::Value;
use twox_hash::XxHash3_64;

use super::message_text::{self, TextPart};

/// Words of a passage, which the lab measures beside strings and lines. The views that are written for a
/// model tell all lengths, so that its likelihoods may choose another.
pub const PASSAGE: usize = 4;
/// Words of the runs that are looked for.
pub const RUNS: [usize; 6] = [1, 2, 3, 4, 6, 8];
/// Lines on either side of an edit that it needs.
const NEIGHBOURS: usize = 3;
/// Arguments in which tools are told what an edit replaces.
const OLD: [&str; 7] = [
    "old_string",
    "old_str",
    "old_text",
    "oldString",
    "oldText",
    "search",
    "find",
];

/// A part of a whole, both weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weighed {
    /// What stands in the view.
    pub part: f64,
    /// What stood before the answer.
    pub whole: f64,
}

/// The texts of some messages, ready to be looked up.
pub struct Texts {
    /// By message: the runs of each length.
    runs: Vec<HashMap<usize, HashSet<u64>>>,
    /// By message: its lines in order.
    lines: Vec<Vec<u64>>,
}

impl Texts {
    /// Reads messages.
    #[must_use]
    pub fn of<'a>(messages: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut all = Self {
            runs: Vec::new(),
            lines: Vec::new(),
        };
        for bytes in messages {
            let mut own: HashMap<usize, HashSet<u64>> = HashMap::new();
            let mut inside = Vec::new();
            message_text::texts(bytes, &mut |_: TextPart, text: &str| {
                let words = words(text);
                for length in RUNS {
                    own.entry(length).or_default().extend(runs(&words, length));
                }
                inside.extend(text.lines().map(line));
            });
            all.runs.push(own);
            all.lines.push(inside);
        }
        all
    }

    fn holders(&self, length: usize, run: u64) -> usize {
        let holds = |own: &&HashMap<usize, HashSet<u64>>| {
            own.get(&length).is_some_and(|runs| runs.contains(&run))
        };
        self.runs.iter().filter(holds).count()
    }

    fn holds(&self, length: usize, run: u64) -> bool {
        let mut all = self.runs.iter();
        all.any(|own| own.get(&length).is_some_and(|runs| runs.contains(&run)))
    }
}

/// What an answer repeats of what stood before it.
pub struct Needed {
    /// For each length the runs, each once, with their weights.
    runs: Vec<(usize, Vec<(u64, f64)>)>,
    /// Lines that edits replace, and those around them.
    edits: Vec<u64>,
    /// Pairs of lines that follow each other.
    pairs: Vec<(u64, u64)>,
}

impl Needed {
    /// Reads what an answer repeats of a history.
    #[must_use]
    pub fn of(answer: &[u8], history: &Texts) -> Self {
        let mut texts = Vec::new();
        message_text::texts(answer, &mut |part: TextPart, text: &str| {
            if part != TextPart::Reasoning {
                texts.push(text.to_owned());
            }
        });
        let messages = history.runs.len() as f64;
        let runs = RUNS.iter().map(|length| {
            let mut seen = HashSet::new();
            let mut needed = Vec::new();
            let all = texts.iter().map(|text| words(text));
            let all = all.flat_map(|words| runs(&words, *length).collect::<Vec<u64>>());
            for run in all {
                let holders = history.holders(*length, run);
                if holders > 0 && seen.insert(run) {
                    needed.push((run, (1.0 + messages / holders as f64).ln()));
                }
            }
            (*length, needed)
        });
        let mut needed = Self {
            runs: runs.collect(),
            edits: Vec::new(),
            pairs: Vec::new(),
        };
        let said = pairs(&history.lines);
        for text in &texts {
            let lines: Vec<u64> = text.lines().map(line).collect();
            let own = pairs(&[lines]);
            needed
                .pairs
                .extend(own.into_iter().filter(|pair| said.contains(pair)));
        }
        for old in replaced(answer) {
            needed.edits.extend(around(&old, &history.lines));
        }
        needed.edits.sort_unstable();
        needed.edits.dedup();
        needed
    }

    /// What of it stands in a view, by the measure's name.
    #[must_use]
    pub fn in_view(&self, view: &Texts) -> Vec<(String, Weighed)> {
        let mut found = Vec::new();
        for (length, runs) in &self.runs {
            let (mut plain, mut rare) = (Weighed::default(), Weighed::default());
            for (run, weight) in runs {
                let held = view.holds(*length, *run);
                plain.whole += 1.0;
                rare.whole += weight;
                if held {
                    plain.part += 1.0;
                    rare.part += weight;
                }
            }
            found.push((format!("runs{length}"), plain));
            found.push((format!("rare{length}"), rare));
        }
        let lines: HashSet<u64> = view.lines.iter().flatten().copied().collect();
        let share = |part: usize, whole: usize| Weighed {
            part: part as f64,
            whole: whole as f64,
        };
        let held = self.edits.iter().filter(|line| lines.contains(line));
        found.push(("edits".to_owned(), share(held.count(), self.edits.len())));
        let shown = pairs(&view.lines);
        let held = self.pairs.iter().filter(|pair| shown.contains(pair));
        found.push(("pairs".to_owned(), share(held.count(), self.pairs.len())));
        found
    }
}

/// The words of a text: runs of letters, digits and underscores, and each other sign by itself.
#[must_use]
pub fn words(text: &str) -> Vec<u64> {
    let mut found = Vec::new();
    let mut start = None;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, c) in text.char_indices() {
        if is_word(c) {
            start.get_or_insert(at);
            continue;
        }
        if let Some(from) = start.take() {
            found.extend(text.get(from..at).map(hash));
        }
        if !c.is_whitespace() {
            found.extend(text.get(at..at + c.len_utf8()).map(hash));
        }
    }
    found.extend(start.and_then(|from| text.get(from..)).map(hash));
    found
}

fn hash(text: &str) -> u64 {
    XxHash3_64::oneshot(text.as_bytes())
}

/// What a run weighs that so many of some messages hold, in thousandths: the rarer, the more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a logarithm of counts is small and not below zero"
)]
#[must_use]
pub fn weight(messages: usize, holders: u32) -> u32 {
    (1000.0 * (1.0 + messages as f64 / f64::from(holders.max(1))).ln()) as u32
}

/// All runs of some length.
pub fn runs(words: &[u64], length: usize) -> impl Iterator<Item = u64> {
    words.windows(length).map(|run| {
        let mut hasher = XxHash3_64::new();
        run.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    })
}

/// A line as it is compared: without the number before it and without indentation.
fn line(text: &str) -> u64 {
    let text = text.trim();
    hash(message_text::unnumbered(text).unwrap_or(text))
}

/// Lines that follow each other.
fn pairs(texts: &[Vec<u64>]) -> HashSet<(u64, u64)> {
    let empty = hash("");
    let each = texts.iter().flat_map(|lines| lines.windows(2));
    let pair = |two: &[u64]| match two {
        [first, second] if *first != empty && *second != empty => Some((*first, *second)),
        _ => None,
    };
    each.filter_map(pair).collect()
}

/// The lines that the edits of an answer replace.
fn replaced(answer: &[u8]) -> Vec<Vec<u64>> {
    let Ok(parsed) = Dialect::Chat.parse(answer) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for call in &parsed.calls {
        if let Ok(value) = serde_json::from_str::<Value>(&call.arguments) {
            olds(&value, &mut found);
        }
    }
    found
}

fn olds(value: &Value, found: &mut Vec<Vec<u64>>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if OLD.contains(&name.as_str()) => {
                        found.push(text.lines().map(line).collect());
                    }
                    _ => olds(value, found),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|value| olds(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Some lines where they stood last, with their neighbours; none where they stand nowhere.
fn around(old: &[u64], history: &[Vec<u64>]) -> Vec<u64> {
    if old.is_empty() {
        return Vec::new();
    }
    for lines in history.iter().rev() {
        let at = lines.windows(old.len()).rposition(|own| own == old);
        if let Some(at) = at {
            let from = at.saturating_sub(NEIGHBOURS);
            let to = (at + old.len() + NEIGHBOURS).min(lines.len());
            return lines.get(from..to).unwrap_or_default().to_vec();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests;
