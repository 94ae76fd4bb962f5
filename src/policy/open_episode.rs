//! An episode that never ends (design §5): once all else is evicted, calls and results inside the
//! open episode are removed, oldest first, bulk before the rest. Never removes its text or its
//! start.

use super::ask::Level;
use super::plan::Move;
use super::work::Work;
use crate::model::{ItemKind, Mark};
use crate::session::graph::{Episode, EpisodeKind};
use crate::session::index::ItemIndex;

/// Removes calls of the open episode, or of the unannotated span at the tail, until the target is
/// met.
pub(super) fn strip(work: &mut Work<'_>) {
    let Some(current) = work.transcript.graph.current() else {
        return;
    };
    let Some(episode) = work.transcript.graph.episodes.get(current) else {
        return;
    };
    for bulk in [true, false] {
        let mut due = due(work, episode, bulk).into_iter().peekable();
        // A batch never frees more than is needed, so the pass can still stop as soon as the target
        // is met. Removing calls one by one would write the line of what is gone each time.
        while !work.met() && due.peek().is_some() {
            let excess = work.total().saturating_sub(work.target);
            let mut most = 0;
            let mut batch = Vec::new();
            while most < excess
                && let Some(one) = due.next()
            {
                most += work.most(one.item);
                batch.push(one);
            }
            batch.extend(work.line_holder(episode));
            work.apply(episode, Level::Open, batch);
        }
    }
}

/// The calls of one level that may be removed, oldest first.
fn due(work: &Work<'_>, episode: &Episode, bulk: bool) -> Vec<Move> {
    let tombstone = work.carrier(episode);
    let goes = |index: &ItemIndex| {
        let item = work.item(*index)?;
        let pair = item.kind == ItemKind::Call && item.delimiter.is_none();
        let carrier = episode.kind == EpisodeKind::Implicit && tombstone == Some(*index);
        let mark = if carrier {
            Mark::Tombstone
        } else {
            Mark::Removed
        };
        let goes = pair
            && work.is_bulk(item) == bulk
            && !work.protected(*index)
            && work.mark(*index) < mark;
        goes.then_some(Move::whole(*index, mark))
    };
    episode.items.iter().filter_map(goes).collect()
}
