//! The end of a turn: writes its record, the content and the keys that lead to both, and waits
//! until they are durable. Never edits a record that was written.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::session::chain::{self, RecordKey};
use plimsoll_core::session::hours;
use plimsoll_core::session::path::{Path, PathEntry};
use plimsoll_core::session::transcript::Transcript;
use plimsoll_core::turn::ending::{self, Ending, Stands, encode, named};
use plimsoll_core::turn::state::TurnState;
use plimsoll_model::{
    Digest, Erased, HourSums, Parent, RecordId, RowSizes, SessionRow, TurnFacts, TurnRecord,
    dated_id,
};
use plimsoll_store::{Batch, Link, Listed, StoreError, Ticket};

use super::app::App;
use super::branch::{self, Branching};
use super::dropped;
use super::find::ANCHOR_CALLS;
use super::record_place::RecordPlace;
use super::refer;
use super::stored_content;

/// How many turns a path may span before a snapshot is written. It limits how many records are read
/// to fold a path.
const SNAPSHOT_EVERY: u32 = 32;
/// A day, in milliseconds.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A record on its way to the disk.
pub struct Committed {
    id: RecordId,
    /// The name of the row that the turn counts in.
    row: String,
    ticket: Ticket,
}

/// A turn that has reached its end.
pub struct Ended<'a> {
    /// What its record is made of.
    pub ending: Ending<'a>,
    /// What is shown of it. Which branch it is of is still to be filled in.
    pub facts: TurnFacts,
    /// The visible response, if the client's content is stored.
    pub said: Option<Bytes>,
    /// The id of the response, if the client may refer to it later.
    pub response: Option<String>,
}

/// Writes a record and the keys that lead to it, and remembers the path that ends with it.
///
/// Content is written first and in a batch of its own, so that a store without room for it still
/// takes the record. The store writes the batches of a tenant in their order: a durable record
/// therefore has durable content. The ids of the response and its items are written with the record.
/// Returns `None`, and writes and remembers nothing, if the session, or one that it was forked from,
/// was erased since the turn began.
pub fn commit(
    app: &App,
    place: &RecordPlace,
    (state, transcript): (&TurnState, &Transcript),
    branch: &Branching,
    ended: Ended<'_>,
) -> Option<Committed> {
    let Ended {
        ending,
        facts,
        said,
        response,
    } = ended;
    // A fork stands on records of another session.
    let means = |erased: &Erased| {
        let means = |session: &str| erased.means(place.tenant, session);
        let mut on = state.path.entries.iter();
        means(&place.session) || on.any(|entry| means(&entry.record.session))
    };
    let leave = app.erasing.leave(place.began, means)?;
    let store = app.records(state.terms.mode);
    let kept =
        said.and_then(|said| stored_content::keep(store, &leave, (place.tenant, state), said));
    let nameless = ending.nameless(state.request.dialect);
    let mut batch = Batch {
        owner: Some(place.tenant.0),
        ..Batch::default()
    };
    let branch = branch.place(app, place, state, (ending.now, nameless));
    let stands = Stands {
        parent: parent(&state.path, ending.now, &mut batch),
        session: place.session.clone(),
        parent_session: place.parent.clone(),
        content: kept.as_ref().map(|kept| kept.id),
        facts: Box::new(TurnFacts {
            branch: branch.name,
            sums: branch.sums,
            ..facts
        }),
    };
    let record = ending::record(state, transcript, ending, stands);
    batch.renewed = renewed(&state.path, record.ended);
    let (id, bytes) = named(&record);
    batch.blobs.push((id.0, bytes));
    let row = session_row(place, state, (id, &record), branch.hours);
    let name = row.session.clone();
    batch.listed = Some(listed(place, row));
    let keys = keys(place, state, &record, nameless);
    let turn = record.turn;
    batch.links.extend(keys.iter().map(|key| Link {
        key: *key,
        id: id.0,
        turn,
    }));
    batch.links.extend(dropped::link(place, state, id));
    if let (Some(response), Some(kept)) = (response, kept) {
        let dialect = state.request.dialect;
        let links = refer::links(place, dialect, (&response, id, turn), &kept);
        batch.links.extend(links);
    }
    app.histories.keep(state, id);
    remember(app, place, state, (&keys, id, record));
    // It leads to content that is written again, so its links are too. What is only watched never goes
    // where it is written.
    if Arc::ptr_eq(store, &app.store) {
        let _held = leave.hold(&batch);
    }
    let ticket = store.commit(batch);
    app.asked.recorded(&place.session, &state.path, &state.asks);
    Some(Committed {
        id,
        row: name,
        ticket,
    })
}

/// Has memory know a path at once, so that the next request need not wait for the disk.
fn remember(
    app: &App,
    place: &RecordPlace,
    state: &TurnState,
    (keys, id, record): (&[Digest], RecordId, TurnRecord),
) {
    let path = Arc::new(state.path.extend(id, Arc::new(record)));
    if let Some(key) = keys.first() {
        app.paths.insert(*key, &path);
        let after = |head| RecordKey::After(head).digest(place.tenant, &place.keys);
        app.paths.outgrow(&state.path, &state.heads, after);
    }
}

/// The keys that lead to a record. The head after its visible response is the first.
fn keys(
    place: &RecordPlace,
    state: &TurnState,
    record: &TurnRecord,
    nameless: Digest,
) -> Vec<Digest> {
    let Some(before) = state.heads.last().copied() else {
        return Vec::new();
    };
    let after = chain::extend(before, record.visible);
    let digest = |key: RecordKey<'_>| key.digest(place.tenant, &place.keys);
    let mut keys = vec![
        digest(RecordKey::After(after)),
        digest(RecordKey::Before(before)),
    ];
    // A conversation without any call is not found across scopes: many begin with the same words. Nor
    // has it any id that could be renamed.
    if !record.calls.is_empty() || state.shapes.iter().any(|shape| !shape.calls.is_empty()) {
        keys.push(digest(RecordKey::Fork(after)));
        let before = chain::nameless(&state.heads, &state.shapes);
        let after = before.last().map(|before| chain::extend(*before, nameless));
        keys.extend(after.map(|after| digest(RecordKey::Nameless(after))));
    }
    let named = record.calls.iter().filter(|(call, _)| !call.0.is_empty());
    // A look-up tries no more of them, and each is a write: an answer may have thousands.
    let tried = named.take(ANCHOR_CALLS);
    keys.extend(tried.map(|(call, name)| digest(RecordKey::Call(call, name))));
    // An answer without calls has no id, so its text is a key together with the call before it.
    if record.calls.is_empty()
        && let Some(before) = chain::call_before(&state.shapes, state.shapes.len())
    {
        keys.push(digest(RecordKey::Text(record.visible, before)));
    }
    keys.push(branch::origin(place, &state.path));
    keys
}

impl Committed {
    /// Resolves when the record is durable.
    ///
    /// # Errors
    /// [`StoreError`] if the record will never be durable.
    pub async fn durable(self) -> Result<(), StoreError> {
        self.ticket.await
    }

    /// The record's id.
    #[must_use]
    pub fn id(&self) -> RecordId {
        self.id
    }

    /// The name of the row that the turn counts in.
    #[must_use]
    pub fn row(&self) -> &str {
        &self.row
    }
}

/// A row of the list of sessions for the store.
fn listed(place: &RecordPlace, row: SessionRow) -> Listed {
    Listed {
        session: SessionRow::identity(place.tenant, &row.session),
        at: row.ended,
        id: row.record.0,
        row: encode(&row),
    }
}

/// What the list of sessions says from this turn on.
fn session_row(
    place: &RecordPlace,
    state: &TurnState,
    (id, record): (RecordId, &TurnRecord),
    before: Vec<HourSums>,
) -> SessionRow {
    let first = state.path.entries.first();
    let facts = &record.facts;
    let branch = facts.branch.clone();
    let is_branch = branch.is_some();
    SessionRow {
        session: branch.unwrap_or_else(|| record.session.clone()),
        tenant: place.tenant.0,
        record: id,
        turn: record.turn,
        began: first.map_or(record.ended, |first| first.record.ended),
        ended: record.ended,
        model: record.model.clone(),
        parent: match is_branch {
            true => Some(record.session.clone()),
            false => record.parent_session.clone(),
        },
        branch: is_branch,
        content: record.content.is_some(),
        client_tokens: state.client_tokens,
        view_tokens: record.hops.last().map_or(0, |hop| hop.estimate),
        sizes: RowSizes {
            tokens_in: facts.tokens_in,
            tokens_out: facts.tokens_out,
            ceiling: facts.ceiling,
            floor: facts.floor,
            over: facts.over,
            watched: facts.watched,
            growth: hours::growth(&state.path.entries, record),
        },
        sums: record.sums(),
        profile: record.profile.clone(),
        split: record.split.clone(),
        agent: place.agent.clone(),
        hours: hours::with(before, record),
    }
}

/// The records that a new one stands on, with their snapshots, if it is the first of its day. A
/// store that removes what is old then keeps them as long as the new one. Later turns of the day
/// need not name them again.
fn renewed(path: &Path, ended: u64) -> Vec<Digest> {
    let day = |ended: u64| ended / DAY_MS;
    let newest = path.entries.last();
    if newest.is_none_or(|newest| day(newest.record.ended) == day(ended)) {
        return Vec::new();
    }
    let named = |entry: &PathEntry| {
        let snapshot = match entry.record.parent {
            Parent::Snapshot(id) => Some(id),
            Parent::Root | Parent::Record(_) => None,
        };
        [Some(entry.id.0), snapshot].into_iter().flatten()
    };
    path.entries.iter().flat_map(named).collect()
}

/// The parent of a record. Writes a snapshot every so many turns, and after every alignment.
fn parent(path: &Path, ended: u64, batch: &mut Batch) -> Parent {
    let Some(newest) = path.entries.last() else {
        return Parent::Root;
    };
    // An aligned path differs from what its records say, so the next record can't stand on those.
    if !path.aligned && !path.next_turn().is_multiple_of(SNAPSHOT_EVERY) {
        return Parent::Record(newest.id);
    }
    let bytes = encode(&path.snapshot());
    let id = dated_id(&bytes, ended);
    batch.blobs.push((id, bytes));
    Parent::Snapshot(id)
}
