//! Annotations of a model that does what the guidance asks: large episodes, marked beside the work
//! as a rule, none of them wrong. How large and how seldom alone are its habits, because what
//! annotation costs depends on them.
//!
//! Owns those choices. It never changes what was recorded.

use serde_json::Value;

use super::annotate::{kind_of, recorded};
use super::forgets::Forgets;
use super::model::Kind;
use super::{Hop, PlannedCall, TOOL, end, start};
use crate::script::Call;
use crate::trace::{Answer, Recording, Turn};

/// Bytes of a message that make a token, roughly.
const BYTES_A_TOKEN: usize = 4;
/// Explorations that an action names at most.
const DEPENDENCIES: usize = 2;

/// How closely a model follows the guidance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Habits {
    /// Turns of a hundred, at most, in which it annotates in a hop of its own.
    pub alone: usize,
    /// Tokens that an episode has at least before it is ended for another.
    pub episode: usize,
    /// Actions of a hundred whose start leaves out what they depend on; of the scripted model's, too.
    pub undeclared: usize,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            alone: 4,
            episode: 6_000,
            undeclared: 0,
        }
    }
}

/// The hops of every turn, annotated from `first` on.
pub(super) fn turns(recording: &Recording, first: usize, habits: Habits) -> Vec<Vec<Hop>> {
    let mut writer = Writer {
        forgets: Forgets::new(recording, habits.undeclared),
        habits,
        open: None,
        size: 0,
        explored: Vec::new(),
        count: 0,
        asked: 0,
        alone: 0,
    };
    let turns = recording.turns.iter().enumerate();
    turns
        .map(|(number, turn)| match number < first {
            true => vec![recorded(&turn.answer)],
            false => writer.turn(number, turn),
        })
        .collect()
}

struct Writer {
    habits: Habits,
    forgets: Forgets,
    open: Option<Kind>,
    /// Tokens since it was opened.
    size: usize,
    /// The explorations that were closed, in order.
    explored: Vec<String>,
    count: usize,
    /// Turns since it is asked to annotate.
    asked: usize,
    /// Those in which it annotated in a hop of its own.
    alone: usize,
}

impl Writer {
    fn turn(&mut self, number: usize, turn: &Turn) -> Vec<Hop> {
        self.asked += 1;
        self.size += turn.before.iter().map(|one| one.raw.len()).sum::<usize>() / BYTES_A_TOKEN;
        let mut last = recorded(&turn.answer);
        let values = self.due(&turn.answer);
        self.size += size(&turn.answer);
        if values.is_empty() {
            return vec![last];
        }
        let call = |(place, value): (usize, &Value)| PlannedCall {
            call: Call::new(format!("call_o{number}c{place}"), TOOL, value.to_string()),
            hidden: true,
        };
        let calls: Vec<PlannedCall> = values.iter().enumerate().map(call).collect();
        if (self.alone + 1) * 100 <= self.habits.alone * self.asked {
            self.alone += 1;
            let alone = Hop {
                calls,
                ..Hop::default()
            };
            return vec![alone, last];
        }
        last.calls.splice(0..0, calls);
        vec![last]
    }

    /// What is to be marked before a turn's calls. Beside no call a mark would be a hop of its own.
    fn due(&mut self, answer: &Answer) -> Vec<Value> {
        let Some(kind) = kind_of(&answer.calls) else {
            return Vec::new();
        };
        let large = self.size >= self.habits.episode;
        match self.open {
            None => vec![self.begin(kind)],
            // An action's effects stand by themselves, and what it read on the way is part of it.
            Some(open) if large && open != kind => vec![self.close(open), self.begin(kind)],
            Some(open) if self.size >= self.habits.episode * 2 => {
                vec![self.close(open), self.begin(kind)]
            }
            Some(_) => Vec::new(),
        }
    }

    fn begin(&mut self, kind: Kind) -> Value {
        self.count += 1;
        self.open = Some(kind);
        self.size = 0;
        let name = self.name();
        let newest = self.explored.iter().rev().take(DEPENDENCIES);
        let dependencies: Vec<String> = newest.rev().cloned().collect();
        self.forgets.applied(start(&name, kind, &dependencies))
    }

    fn close(&mut self, open: Kind) -> Value {
        match open {
            Kind::Act => end(None),
            Kind::Expl => {
                self.explored.push(self.name());
                let text = format!(
                    "Part {} was read to its end: where its state is kept, who calls it, and what \
                     has to change with it.",
                    self.count
                );
                end(Some(&text))
            }
        }
    }

    fn name(&self) -> String {
        format!("part-{}", self.count)
    }
}

/// Tokens of an answer, roughly.
fn size(answer: &Answer) -> usize {
    let calls = answer.calls.iter();
    let calls = calls.map(|call| call.name.len() + call.arguments.len());
    (answer.text.len() + answer.reasoning.len() + calls.sum::<usize>()) / BYTES_A_TOKEN
}
