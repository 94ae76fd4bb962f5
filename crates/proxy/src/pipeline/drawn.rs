//! The place in a split of a session that begins. What records say of the session, or of its parent, comes first, so that a
//! session stays where it is for life and sub-agents follow their parents. Only a session of which nothing is known is
//! drawn. Never asks for a session that goes on: its path has the place.

use plimsoll_core::session::chain::RecordKey;
use plimsoll_core::turn::{Mode, Split};
use plimsoll_model::{Drawn, RecordId, TurnRecord};
use plimsoll_store::Take;

use super::app::App;
use super::record_place::{RecordPlace, parent_session};
use crate::history::{Patience, Reads, record};

/// The place of a session whose request has this place. `fits` says whether it may be drawn. May read the disk. A store
/// that fails says nothing of any session.
pub(super) fn find(
    app: &App,
    (mode, patience): (Mode, &Patience),
    place: &RecordPlace,
    split: &Split,
    fits: bool,
) -> Option<Drawn> {
    let told = |op, time| app.metrics.observe_store(op, time);
    let reads = Reads::new(app.records(mode), &told).while_waited_for(patience);
    let parent = parent_session(place);
    let known = first(&reads, place, &place.session);
    let known = known.or_else(|| first(&reads, place, parent.as_deref()?));
    match known {
        Some(first) => first.split,
        // The parent of a sub-agent may have no record yet. It is drawn by this name, too.
        None => {
            let session = parent.as_deref().unwrap_or(&place.session);
            fits.then(|| split.draw(place.tenant, session))
        }
    }
}

/// The record with which a session began, if it has one.
fn first(reads: &Reads<'_>, place: &RecordPlace, session: &str) -> Option<TurnRecord> {
    let key = RecordKey::First(session).digest(place.tenant, &place.keys);
    let found = reads.links(&[key], Take::First(1)).ok()?;
    let (_, id) = found.first()?.first()?;
    record(reads, RecordId(*id)).ok()?
}
