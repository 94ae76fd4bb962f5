//! A plan: moves of marks that were checked against the transcript. [`Plan::check`] is the only
//! way to one, so that no policy can split a pair, touch a user or move a mark left. Never
//! applies anything.

use super::Protection;
use crate::model::{ItemKind, ItemNo, Mark, Marks};
use crate::session::graph::Delimiter;
use crate::session::transcript::Transcript;

/// A proposed move of one item's mark, by item index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The item's index in the transcript.
    pub item: usize,
    /// The mark that it gets.
    pub mark: Mark,
}

/// Why moves are no plan. Each is a mistake of a policy, never of a caller.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// No such item.
    #[error("item {0} is not in the transcript")]
    Absent(usize),
    /// The item is user, system or opaque content, or a result, which follows its call.
    #[error("item {0} has no mark of its own")]
    Fixed(usize),
    /// The mark stands further right already.
    #[error("the mark of item {0} may only move right")]
    Left(usize),
    /// The item is protected.
    #[error("item {0} is protected")]
    Protected(usize),
    /// The item belongs to an episode that may not be evicted.
    #[error("item {0} belongs to an episode with dependents in view")]
    Depended(usize),
}

/// Checked moves by item number, ready to be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    moves: Vec<(ItemNo, Mark)>,
}

impl Plan {
    /// Checks moves against the transcript, its marks and what is protected.
    ///
    /// # Errors
    /// [`PlanError`] for the first move that breaks a rule.
    pub fn check(
        transcript: &Transcript,
        marks: &Marks,
        protection: &Protection,
        moves: &[Move],
    ) -> Result<Self, PlanError> {
        let mut after = marks.clone();
        let mut checked = Vec::with_capacity(moves.len());
        for one in moves {
            let item = transcript
                .items
                .get(one.item)
                .ok_or(PlanError::Absent(one.item))?;
            match item.kind {
                ItemKind::Text | ItemKind::Reasoning | ItemKind::Call => {}
                ItemKind::System | ItemKind::User | ItemKind::Result | ItemKind::Opaque => {
                    return Err(PlanError::Fixed(one.item));
                }
            }
            if one.mark <= marks.get(item.no) {
                return Err(PlanError::Left(one.item));
            }
            if protection.covers(transcript, one.item) {
                return Err(PlanError::Protected(one.item));
            }
            after.raise(item.no, one.mark);
            checked.push((item.no, one.mark));
        }
        depended(transcript, &after, moves)?;
        Ok(Self { moves: checked })
    }

    /// The moves by item number.
    #[must_use]
    pub fn moves(&self) -> &[(ItemNo, Mark)] {
        &self.moves
    }

    /// Whether nothing moves.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }
}

/// No start of an expl may be folded while an act that depends on it is in view (paper 000 §4.4).
fn depended(transcript: &Transcript, after: &Marks, moves: &[Move]) -> Result<(), PlanError> {
    for one in moves {
        let Some(item) = transcript.items.get(one.item) else {
            continue;
        };
        let Some(Delimiter::Start(episode)) = item.delimiter else {
            continue;
        };
        let dependents = transcript
            .graph
            .episodes
            .get(episode)
            .map_or(&[][..], |e| e.dependents.as_slice());
        let in_view = dependents
            .iter()
            .filter_map(|act| transcript.graph.episodes.get(*act))
            .filter_map(|act| act.carrier.and_then(|start| transcript.items.get(start)))
            .any(|start| after.get(start.no) != Mark::Removed);
        if in_view {
            return Err(PlanError::Depended(one.item));
        }
    }
    Ok(())
}
