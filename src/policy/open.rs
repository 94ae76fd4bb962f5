//! An episode that never ends (design §5): once all else is evicted, calls and results inside the
//! open episode go, oldest first, bulk before the rest. Its text and its start always stay.

use super::Level;
use super::plan::Move;
use super::work::Work;
use crate::model::{ItemKind, Mark};
use crate::session::graph::Kind;

/// Strips the open episode, or the unannotated span at the tail, down to the target.
pub(super) fn strip(work: &mut Work<'_>) {
    let Some(current) = work.transcript.graph.current() else {
        return;
    };
    let Some(episode) = work.transcript.graph.episodes.get(current) else {
        return;
    };
    for bulk in [true, false] {
        for index in &episode.items {
            if work.met() {
                return;
            }
            let Some(item) = work.item(*index) else {
                continue;
            };
            let pair = item.kind == ItemKind::Call && item.delimiter.is_none();
            if !pair || work.is_bulk(item) != bulk || work.protected(*index) {
                continue;
            }
            let carrier = episode.kind == Kind::Implicit && episode.carrier == Some(*index);
            let mark = if carrier { Mark::Folded } else { Mark::Removed };
            if work.mark(*index) < mark {
                work.apply(episode, Level::Open, vec![Move { item: *index, mark }]);
            }
        }
    }
}
