//! Finds the marks that passes of this turn moved before the hop in hand, for its record. Never
//! moves one.

use std::sync::Arc;

use plimsoll_model::{ItemNo, Kept, Marks, StoredMark};

use super::TurnState;

/// Marks that moved, and what is left of items that are shown in part.
pub type MovedMarks = (Vec<(ItemNo, StoredMark)>, Vec<(ItemNo, Kept)>);

impl TurnState {
    /// The marks before the hop in hand was prepared.
    pub(in crate::turn) fn marks_before(&self) -> Marks {
        let mut before = self.path.marks.clone();
        for hop in &self.pending {
            before.apply(&hop.marks, &hop.kept);
        }
        before
    }

    /// Marks that passes moved before the hop in hand, for its record. There may be several passes:
    /// an emergency pass can follow another.
    #[must_use]
    pub fn moved(&self) -> MovedMarks {
        // Each hop records what moved since the hop before it.
        let before = self.marks_before();
        let mark = |marks: &Marks, item| StoredMark::from(marks.get(item));
        let moved = |item| mark(&before, item) < mark(&self.marks, item);
        // What is left of a moved item is always recorded.
        let chosen =
            |(item, kept): &(ItemNo, &Arc<Kept>)| moved(*item) || before.kept(*item) != Some(*kept);
        let kept = self.marks.iter_kept().filter(chosen);
        let kept = kept.map(|(item, kept)| (item, Kept::clone(kept)));
        let moved = self.marks.stored().filter(|(item, _)| moved(*item));
        (moved.collect(), kept.collect())
    }
}
