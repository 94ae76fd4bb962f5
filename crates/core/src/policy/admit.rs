//! The rung `admit`: a new result over a limit is clipped once, by its shape, before it is sent for
//! the first time (paper 001, tier 1; paper 002, "Compression at the edges"). What is missing stands
//! at each cut, and `recall` brings it back. Never clips what was sent before.

use plimsoll_model::{Kept, Mark, ResultShape, ToolClass};

use super::ask::{AdmitSettings, Level, Policy, PolicyAsk};
use super::fresh;
use super::pass::Proposal;
use crate::clip::{ClipLimits, clip, is_reading};
use crate::session::index::ItemIndex;
use crate::session::transcript::Item;

/// Tokens of the largest search that counts as read.
const READ: u32 = 16_000;

/// Whether the results of a call are never clipped.
fn is_spared(settings: &AdmitSettings, call: &Item) -> bool {
    (call.class == ToolClass::Read && !settings.reads) || settings.except.match_name(&call.name)
}

/// Proposes a clip of each new result that is over the limits.
pub(super) fn propose(ask: &PolicyAsk<'_>) -> Proposal {
    fresh::edit(ask, Policy::Admit, |call| {
        Some((Level::Clip, kept(ask, call)?))
    })
}

/// What stays of a result; `None` if all of it does.
fn kept(ask: &PolicyAsk<'_>, at: ItemIndex) -> Option<Kept> {
    let (settings, seen) = (&ask.config.admit, ask.view.marked());
    let call = seen.transcript.items.get(at)?;
    if is_spared(settings, call) || seen.mark_of(at) != Mark::Live {
        return None;
    }
    let ClipLimits {
        tokens,
        lines,
        bytes,
    } = settings.limits;
    // The size is known, so most results need not be read.
    let result = call.pair?;
    let small = tokens == 0 || seen.transcript.items.get(result)?.tokens <= tokens;
    if (small && lines == 0 && bytes == 0) || seen.pointers().contains_key(&at) {
        return None;
    }
    let text = (ask.originals)(result)?;
    let clip = clip(&text, &settings.limits, ask.measure.count)?;
    // What stands around the matches is read as files are. Tools that read bring a part of a file at most; nothing bounds a
    // search.
    let is_part = seen.transcript.items.get(result)?.tokens <= tokens.max(READ);
    if clip.shape == ResultShape::Search && !settings.reads && is_part && is_reading(&text) {
        return None;
    }
    Some(Kept {
        of: u32::try_from(text.len()).ok(),
        lines: clip.spans,
        shape: Some(clip.shape),
        ..Kept::default()
    })
}
