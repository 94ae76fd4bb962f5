//! What later answers need of what was said before: the distinctive strings (K) and the lines (L) of
//! their calls' arguments, the passages (P) that they repeat, and which calls are made again. Owns what
//! counts as needed; a recording tells it beforehand, so that of each message only what is needed is
//! kept. Never looks at a view.

use std::collections::{HashMap, HashSet};

use indexmap::IndexSet;
use plimsoll_model::{CallId, Role, lines, strings};
use plimsoll_wire::Dialect;
use twox_hash::XxHash3_64;

use super::blocks::{PASSAGE, runs, weight, words};
use super::message_text::{TextPart, texts, unnumbered, values};
use super::trace::Trace;

/// What a message holds of what is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Strings by number with the part that they stand in.
    pub parts: Vec<(TextPart, u32)>,
    /// Lines by number, each once.
    pub lines: Vec<u32>,
    /// Passages by number, each once.
    pub passages: Vec<u32>,
}

impl Held {
    /// The strings by number, each once.
    #[must_use]
    pub fn strings(&self) -> Box<[u32]> {
        let mut all: Vec<u32> = self.parts.iter().map(|(_, string)| *string).collect();
        all.sort_unstable();
        all.dedup();
        all.into_boxed_slice()
    }
}

/// What several messages hold of what is needed, by number.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Strings.
    pub strings: HashSet<u32>,
    /// Lines.
    pub lines: HashSet<u32>,
    /// Passages.
    pub passages: HashSet<u32>,
}

impl Contents {
    /// Adds what one more message holds.
    pub fn take(&mut self, held: Held) {
        let strings = held.parts.iter().map(|(_, string)| *string);
        self.strings.extend(strings);
        self.lines.extend(held.lines);
        self.passages.extend(held.passages);
    }
}

/// What one answer needs of what stood before it: its calls, and of passages its text, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Strings by number, once for each call that has them.
    pub strings: Vec<u32>,
    /// Lines by number, once for each call that has them.
    pub lines: Vec<u32>,
    /// Passages by number, each once, with what they weigh.
    pub passages: Vec<(u32, u32)>,
    /// For each call that was made before with the same arguments the message that last answered
    /// it.
    pub again: Vec<usize>,
}

/// Everything that the answers of a session need.
#[derive(Default)]
pub struct Needs {
    /// The number of a string is its place.
    strings: IndexSet<Box<str>>,
    lines: HashMap<u64, u32>,
    passages: HashMap<u64, u32>,
    /// Whether thoughts are made up, so that nothing is looked for in them.
    made_up: bool,
    /// For each message what its calls need; empty for all but answers.
    pub asks: Vec<Ask>,
    /// For each string the messages that hold it, in order.
    holders: Vec<Vec<(usize, TextPart)>>,
    /// The results of calls that had been answered before with the same arguments.
    reruns: HashSet<usize>,
}

/// How much there is of each that may be needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Strings.
    pub strings: usize,
    /// Lines.
    pub lines: usize,
    /// Passages.
    pub passages: usize,
}

/// One call as it is looked for.
struct Need {
    strings: Vec<u32>,
    lines: Vec<u32>,
    id: CallId,
    same: u64,
}

impl Needs {
    /// Reads what a session's calls need.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut needs = Self {
            made_up: trace.made_up,
            ..Self::default()
        };
        let answers: Vec<(Vec<Need>, Vec<u32>)> = trace
            .messages
            .iter()
            .map(|message| match message.role {
                Role::Assistant => (needs.calls(&message.raw), needs.repeats(&message.raw)),
                Role::System | Role::User | Role::Tool | Role::Other => Default::default(),
            })
            .collect();
        needs.holders = vec![Vec::new(); needs.strings.len()];
        let mut before = Before {
            lines: vec![false; needs.lines.len()],
            passages: vec![0; needs.passages.len()],
            ..Before::default()
        };
        for (at, (message, (calls, passages))) in trace.messages.iter().zip(&answers).enumerate() {
            let ask = Ask {
                passages: before.passages(at, passages),
                ..needs.ask(calls, &before)
            };
            needs.asks.push(ask);
            let held = needs.held(&message.raw).unwrap_or_default();
            for (part, string) in &held.parts {
                if let Some(holders) = needs.holders.get_mut(*string as usize) {
                    holders.push((at, *part));
                }
            }
            for line in &held.lines {
                if let Some(seen) = before.lines.get_mut(*line as usize) {
                    *seen = true;
                }
            }
            for passage in &held.passages {
                if let Some(count) = before.passages.get_mut(*passage as usize) {
                    *count += 1;
                }
            }
            if before.answered(at, message.role, &message.raw, calls) {
                needs.reruns.insert(at);
            }
        }
        needs
    }

    /// How much there is of each.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            strings: self.strings.len(),
            lines: self.lines.len(),
            passages: self.passages.len(),
        }
    }

    /// The messages before one that hold a string, and where in them, newest first.
    pub fn holders(&self, string: u32, before: usize) -> impl Iterator<Item = (usize, TextPart)> {
        let all = self
            .holders
            .get(string as usize)
            .map_or(&[][..], Vec::as_slice);
        let end = all.partition_point(|(message, _)| *message < before);
        all.get(..end).unwrap_or_default().iter().rev().copied()
    }

    /// Whether a message is the result of a call that had been answered before with the same arguments.
    #[must_use]
    pub fn is_rerun(&self, message: usize) -> bool {
        self.reruns.contains(&message)
    }

    /// What some messages hold of what is needed. Those that can't be read hold nothing.
    #[must_use]
    pub fn contents<B: AsRef<[u8]>>(&self, messages: impl IntoIterator<Item = B>) -> Contents {
        let mut all = Contents::default();
        for held in messages
            .into_iter()
            .filter_map(|one| self.held(one.as_ref()))
        {
            all.take(held);
        }
        all
    }

    /// A string by its number, for people.
    #[must_use]
    pub fn string(&self, number: u32) -> &str {
        let found = self.strings.get_index(number as usize);
        found.map_or("", |string| string)
    }

    /// What a message holds of what is needed; none where it can't be read.
    #[must_use]
    pub fn held(&self, bytes: &[u8]) -> Option<Held> {
        let mut held = Held::default();
        let read = texts(bytes, &mut |part, text| {
            if self.made_up && part == TextPart::Reasoning {
                return;
            }
            for (_, string) in strings(text) {
                if let Some(number) = self.number(string) {
                    held.parts.push((part, number));
                }
            }
            let words = words(text);
            let own = runs(&words, PASSAGE).filter_map(|run| self.passages.get(&run).copied());
            held.passages.extend(own);
            if self.lines.is_empty() {
                return;
            }
            for line in lines(text) {
                held.lines.extend(self.line(line));
                held.lines
                    .extend(unnumbered(line).and_then(|line| self.line(line)));
            }
        });
        for list in [&mut held.lines, &mut held.passages] {
            list.sort_unstable();
            list.dedup();
        }
        held.parts
            .sort_unstable_by_key(|(part, string)| (*string, rank(*part)));
        held.parts.dedup();
        read.then_some(held)
    }

    /// The needed strings of a text by number. Of arguments the values are read.
    #[must_use]
    pub fn strings_of(&self, part: TextPart, text: &str) -> Vec<u32> {
        let mut found = Vec::new();
        let mut read = |text: &str| {
            let known = strings(text).filter_map(|(_, string)| self.number(string));
            found.extend(known);
        };
        match part {
            TextPart::Call(_) => values(text, &mut read),
            TextPart::Text | TextPart::Reasoning => read(text),
        }
        found
    }

    fn number(&self, string: &str) -> Option<u32> {
        u32::try_from(self.strings.get_index_of(string)?).ok()
    }

    /// The number of a needed line.
    #[must_use]
    pub fn line(&self, line: &str) -> Option<u32> {
        self.lines
            .get(&XxHash3_64::oneshot(line.as_bytes()))
            .copied()
    }

    /// Takes in the passages of an answer, each once.
    fn repeats(&mut self, bytes: &[u8]) -> Vec<u32> {
        let mut own = Vec::new();
        texts(bytes, &mut |part, text| {
            if part == TextPart::Reasoning {
                return;
            }
            for run in runs(&words(text), PASSAGE) {
                let next = u32::try_from(self.passages.len()).unwrap_or(u32::MAX);
                own.push(*self.passages.entry(run).or_insert(next));
            }
        });
        own.sort_unstable();
        own.dedup();
        own
    }

    /// Takes in the calls of an answer.
    fn calls(&mut self, bytes: &[u8]) -> Vec<Need> {
        let Ok(parsed) = Dialect::Chat.parse(bytes) else {
            return Vec::new();
        };
        let calls = parsed.calls.iter().map(|call| {
            let mut need = Need {
                strings: Vec::new(),
                lines: Vec::new(),
                id: CallId(call.id.clone().into_owned()),
                same: XxHash3_64::oneshot(format!("{}\0{}", call.name, call.arguments).as_bytes()),
            };
            values(&call.arguments, &mut |text| self.need(text, &mut need));
            for list in [&mut need.strings, &mut need.lines] {
                list.sort_unstable();
                list.dedup();
            }
            need
        });
        calls.collect()
    }

    fn need(&mut self, text: &str, need: &mut Need) {
        for (_, string) in strings(text) {
            let number = match self.strings.get_index_of(string) {
                Some(number) => number,
                None => self.strings.insert_full(string.into()).0,
            };
            need.strings.push(u32::try_from(number).unwrap_or(u32::MAX));
        }
        for line in lines(text) {
            let next = u32::try_from(self.lines.len()).unwrap_or(u32::MAX);
            let number = self
                .lines
                .entry(XxHash3_64::oneshot(line.as_bytes()))
                .or_insert(next);
            need.lines.push(*number);
        }
    }

    /// What of the needs of an answer's calls had been said before.
    fn ask(&self, calls: &[Need], before: &Before) -> Ask {
        let mut ask = Ask::default();
        for call in calls {
            let said = |string: &&u32| {
                let holders = self.holders.get(**string as usize);
                holders.is_some_and(|holders| !holders.is_empty())
            };
            ask.strings.extend(call.strings.iter().filter(said));
            let said = |line: &&u32| before.lines.get(**line as usize) == Some(&true);
            ask.lines.extend(call.lines.iter().filter(said));
            ask.again.extend(before.same.get(&call.same));
        }
        ask
    }
}

/// What had been said up to a point of the session.
#[derive(Default)]
struct Before {
    lines: Vec<bool>,
    /// The messages that hold each passage.
    passages: Vec<u32>,
    /// The newest result of each call by name and arguments.
    same: HashMap<u64, usize>,
    /// The newest answer's calls that wait for their results.
    waiting: Vec<(CallId, u64)>,
}

impl Before {
    /// Those of some passages that had been said in the first so many messages, with their weights.
    fn passages(&self, messages: usize, own: &[u32]) -> Vec<(u32, u32)> {
        let holders = |passage: &u32| self.passages.get(*passage as usize).copied().unwrap_or(0);
        let said = own.iter().filter(|passage| holders(passage) > 0);
        said.map(|passage| (*passage, weight(messages, holders(passage))))
            .collect()
    }

    /// Takes in a message. Returns whether it is the result of a call that had been answered before.
    fn answered(&mut self, at: usize, role: Role, bytes: &[u8], calls: &[Need]) -> bool {
        match role {
            Role::Assistant => {
                let waiting = calls.iter().map(|call| (call.id.clone(), call.same));
                self.waiting = waiting.collect();
            }
            Role::Tool => {
                let id = Dialect::Chat
                    .parse(bytes)
                    .ok()
                    .and_then(|parsed| parsed.result_of);
                let place = self
                    .waiting
                    .iter()
                    .position(|(own, _)| Some(own) == id.as_ref());
                if let Some(place) = place {
                    let (_, same) = self.waiting.remove(place);
                    return self.same.insert(same, at).is_some();
                }
            }
            Role::System | Role::User | Role::Other => {}
        }
        false
    }
}

fn rank(part: TextPart) -> usize {
    match part {
        TextPart::Text => 0,
        TextPart::Reasoning => 1,
        TextPart::Call(at) => 2 + at,
    }
}

#[cfg(test)]
mod tests;
