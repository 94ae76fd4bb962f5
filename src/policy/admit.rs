//! The rung `admit`: a new result over a limit is clipped once, by its shape, before it is sent for
//! the first time (paper 001, tier 1; paper 002, "Compression at the edges"). What is missing stands
//! at each cut, and `recall` brings it back. Never clips what was sent before.

use std::sync::Arc;

use super::ask::{Level, Policy, PolicyAsk};
use super::fresh;
use super::pass::{Proposal, conclude};
use super::protect::Protection;
use super::work::Work;
use crate::model::{Globs, Kept, Mark, ToolClass};
use crate::session::clip::{ClipLimits, clip};
use crate::session::index::ItemIndex;
use crate::session::transcript::Item;

/// Which new results are clipped, and to what size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitSettings {
    /// The largest size of a result that is shown whole.
    pub limits: ClipLimits,
    /// Whether results of reads are clipped too. Of what a model reads it needs the lines that it
    /// edits.
    pub reads: bool,
    /// Tools whose results are never clipped.
    pub except: Globs,
}

impl Default for AdmitSettings {
    fn default() -> Self {
        Self {
            // Paper 002 clips strings over 4,000 tokens.
            limits: ClipLimits {
                tokens: 4_000,
                lines: 0,
                bytes: 0,
            },
            reads: false,
            except: Globs::default(),
        }
    }
}

impl AdmitSettings {
    fn spares(&self, call: &Item) -> bool {
        (call.class == ToolClass::Read && !self.reads) || self.except.match_name(&call.name)
    }
}

/// Proposes a clip of each new result that is over the limits.
pub(super) fn propose(ask: &PolicyAsk<'_>) -> Proposal {
    let mut work = Work::new(ask, Protection::of_entry());
    for call in fresh::calls(work.transcript) {
        if let Some(kept) = kept(&work, ask, call) {
            work.shrink(Level::Clip, call, Mark::Clipped, Some(Arc::new(kept)));
        }
    }
    conclude(work, ask, Policy::Admit)
}

/// What stays of a result; `None` if all of it does.
fn kept(work: &Work<'_>, ask: &PolicyAsk<'_>, at: ItemIndex) -> Option<Kept> {
    let settings = &ask.config.admit;
    let call = work.item(at)?;
    if settings.spares(call) || work.mark(at) != Mark::Live || work.is_pointed_to(at) {
        return None;
    }
    let ClipLimits {
        tokens,
        lines,
        bytes,
    } = settings.limits;
    // The size is known, so most results need not be read.
    let small = tokens == 0 || work.result(call)?.tokens <= tokens;
    if small && lines == 0 && bytes == 0 {
        return None;
    }
    let text = (ask.originals)(call.pair?)?;
    let clip = clip(&text, &settings.limits, ask.measure.count)?;
    Some(Kept {
        of: u32::try_from(text.len()).ok(),
        lines: clip.spans,
        shape: Some(clip.shape),
        ..Kept::default()
    })
}
