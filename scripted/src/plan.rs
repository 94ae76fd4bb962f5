//! What a scripted model answers in each turn of a session, its annotations included.
//!
//! Owns the hops of each turn, the episodes that they amount to, and what a client must see of
//! them. It never looks at a request: `player` finds the hop that a request asks for.

mod annotate;
mod forgets;
mod infer;
mod model;
mod obedient;

use serde_json::{Value, json};

use crate::script::Call;
use crate::trace::{Answer, Recording};

pub use model::{Episode, Kind};
pub use obedient::Habits;

/// The name of the tool that annotates.
pub const TOOL: &str = "delimiter";

/// A call of a hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCall {
    /// The call as it is sent.
    pub call: Call,
    /// Whether it is an annotation, which the client must never see.
    pub hidden: bool,
}

/// One answer of the model: a turn's last hop holds what was recorded, the hops before it hold
/// nothing but annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hop {
    /// The text.
    pub text: String,
    /// The reasoning.
    pub reasoning: String,
    /// All calls, in order.
    pub calls: Vec<PlannedCall>,
}

impl Hop {
    /// The ids of the hop's calls, in order.
    #[must_use]
    pub fn ids(&self) -> Vec<&str> {
        self.calls
            .iter()
            .map(|planned| planned.call.id.as_str())
            .collect()
    }

    /// The ids of the hop's annotations, in order.
    #[must_use]
    pub fn hidden_ids(&self) -> Vec<&str> {
        let hidden = self.calls.iter().filter(|planned| planned.hidden);
        hidden.map(|planned| planned.call.id.as_str()).collect()
    }

    /// The calls that a client sees.
    #[must_use]
    pub fn visible(&self) -> Vec<Call> {
        let visible = self.calls.iter().filter(|planned| !planned.hidden);
        visible.map(|planned| planned.call.clone()).collect()
    }

    /// Every call, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Call> {
        self.calls
            .iter()
            .map(|planned| planned.call.clone())
            .collect()
    }
}

/// The answers of a whole session.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The hops of each turn; each turn has at least one.
    pub turns: Vec<Vec<Hop>>,
    /// The episodes that the annotations open and close, in order.
    pub episodes: Vec<Episode>,
}

/// How much of each kind of annotation a plan holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// All annotations.
    pub annotations: usize,
    /// Annotations that a correct `delimiter` refuses.
    pub invalid: usize,
    /// Hops that hold annotations only.
    pub hidden_hops: usize,
    /// Turns with two such hops in a row.
    pub double_hops: usize,
    /// Last hops that hold annotations beside visible calls.
    pub mixed: usize,
    /// Turns without any annotation.
    pub plain: usize,
}

impl Plan {
    /// A plan without annotations: the recorded answers.
    #[must_use]
    pub fn plain(recording: &Recording) -> Self {
        let turns = recording
            .turns
            .iter()
            .map(|turn| vec![annotate::recorded(&turn.answer)]);
        Self {
            turns: turns.collect(),
            episodes: Vec::new(),
        }
    }

    /// A plan with annotations, the same for the same session and seed.
    #[must_use]
    pub fn annotated(recording: &Recording, seed: u64) -> Self {
        Self::annotated_from(recording, seed, 0, 0)
    }

    /// The same of a model that is asked to annotate from a turn on: before that it says what was
    /// recorded. Of a hundred actions it starts so many without saying what they depend on.
    #[must_use]
    pub fn annotated_from(
        recording: &Recording,
        seed: u64,
        first: usize,
        undeclared: usize,
    ) -> Self {
        let turns = annotate::turns(recording, seed, first, undeclared);
        let episodes = model::episodes(&turns);
        Self { turns, episodes }
    }

    /// A plan with annotations that follow from the tools alone: each beside the work that it
    /// marks, none of them wrong, nothing left to chance.
    #[must_use]
    pub fn inferred(recording: &Recording) -> Self {
        let turns = infer::turns(recording);
        let episodes = model::episodes(&turns);
        Self { turns, episodes }
    }

    /// A plan with the annotations of a model that does as it is asked, from a turn on.
    #[must_use]
    pub fn obedient(recording: &Recording, first: usize, habits: Habits) -> Self {
        let turns = obedient::turns(recording, first, habits);
        let episodes = model::episodes(&turns);
        Self { turns, episodes }
    }

    /// The hops of a turn; empty past the session's end.
    #[must_use]
    pub fn hops(&self, turn: usize) -> &[Hop] {
        self.turns.get(turn).map_or(&[], Vec::as_slice)
    }

    /// What the client sees of a turn. With annotations, texts of several hops are joined by a
    /// blank line; without, only the recorded answer was given.
    #[must_use]
    pub fn visible(&self, turn: usize, annotated: bool) -> Answer {
        let hops = self.hops(turn);
        let Some(last) = hops.last() else {
            return Answer::default();
        };
        let texts: Vec<&str> = hops
            .iter()
            .map(|hop| hop.text.as_str())
            .filter(|text| !text.is_empty())
            .collect();
        Answer {
            text: if annotated {
                texts.join("\n\n")
            } else {
                last.text.clone()
            },
            reasoning: last.reasoning.clone(),
            calls: last.visible(),
        }
    }

    /// How much of each kind of annotation there is.
    #[must_use]
    pub fn census(&self) -> Census {
        let hidden = |hop: &Hop| hop.calls.iter().filter(|call| call.hidden).count();
        let mut census = Census::default();
        for hops in &self.turns {
            let before = hops.len().saturating_sub(1);
            let mixed = hops.last().is_some_and(|hop| hidden(hop) > 0);
            census.annotations += hops.iter().map(hidden).sum::<usize>();
            census.hidden_hops += before;
            census.double_hops += usize::from(before > 1);
            census.mixed += usize::from(mixed);
            census.plain += usize::from(before == 0 && !mixed);
        }
        let valid: usize = self
            .episodes
            .iter()
            .map(|episode| 1 + usize::from(episode.end.is_some()))
            .sum();
        census.invalid = census.annotations - valid;
        census
    }
}

/// The arguments of an annotation that opens an episode.
fn start(name: &str, kind: Kind, dependencies: &[String]) -> Value {
    match kind {
        Kind::Expl => json!({"action": "start", "type": "expl", "name": name}),
        Kind::Act => {
            json!({"action": "start", "type": "act", "name": name, "dependencies": dependencies})
        }
    }
}

/// The arguments of an annotation that closes the open episode.
fn end(description: Option<&str>) -> Value {
    match description {
        Some(text) => json!({"action": "end", "description": text}),
        None => json!({"action": "end"}),
    }
}

#[cfg(test)]
mod tests;
