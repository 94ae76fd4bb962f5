//! Where the next pass is expected to edit a view first, and what is too small to be worth an edit. Never evicts.

use plimsoll_model::{ItemKind, Mark, ToolClass};

use crate::session::index::EntryIndex;
use crate::session::marked::Marked;
use crate::session::transcript::Item;

/// A text with fewer tokens than this is no longer than the line that would replace it.
pub(super) const STUB_FROM: u32 = 24;

/// A result with fewer tokens than this gets no skeleton.
pub(super) const SKELETON_FROM: u32 = 200;

/// The message of the oldest call whose result the next pass takes first: one that no pass has
/// touched, and that is large or whose effects last without its result. Everything before it
/// outlives the next pass, unless that has to go on to smaller results. It depends on marks alone,
/// so it stays the same between two passes.
#[must_use]
pub fn next_cut(seen: Marked<'_>) -> Option<EntryIndex> {
    let Marked { transcript, marks } = seen;
    let next = |item: &&Item| {
        let result = item.pair.and_then(|pair| transcript.items.get(pair));
        let from = match item.class {
            ToolClass::Shell | ToolClass::Write => STUB_FROM,
            ToolClass::Bulk | ToolClass::Read | ToolClass::Unknown => SKELETON_FROM,
        };
        item.kind == ItemKind::Call
            && item.delimiter.is_none()
            && marks.get(item.no) == Mark::Live
            && !item.pinned
            && result.is_some_and(|result| !result.stays && result.tokens >= from)
    };
    transcript.items.iter().find(next).map(|item| item.entry)
}
