//! The end of a turn: what its record stands on, the keys that lead to it, and the wait until it is durable.
//! Never edits a record that was written.

use std::sync::Arc;

use bytes::Bytes;

use super::app::App;
use super::content;
use super::place::{Place, parent_session, session};
use super::refer;
use crate::history::usage_key;
use crate::model::{Digest, Parent, RecordId, TurnRecord, Usage, blob_id};
use crate::session::chain::{self, RecordKey};
use crate::session::path::Path;
use crate::store::{Batch, Link, Store, StoreError, Ticket};
use crate::turn::ending::{encode, named};
use crate::turn::state::TurnState;

/// How many turns a snapshot bounds the fold to.
const SNAPSHOT_EVERY: u32 = 32;

/// A record on its way to the disk.
pub struct Committed {
    id: RecordId,
    key: Option<Digest>,
    path: Arc<Path>,
    /// Where it is kept.
    store: Arc<Store>,
    ticket: Ticket,
}

/// A turn that came to its end.
pub struct Ended {
    /// Its record, which does not say yet what it stands on and whose it is.
    pub record: TurnRecord,
    /// The visible response, where the client's content is stored.
    pub said: Option<Bytes>,
    /// The response's id, where the client may refer to it later.
    pub response: Option<String>,
}

/// Writes a record and what leads to it, and remembers the path that ends with it. Content is
/// written before it and for itself: where there is no room for that, the record still has its own.
/// The store writes in order, so a record that is durable has its content with it, and the ids by
/// which either is referred to come with the record.
pub fn commit(app: &App, place: &Place, state: &TurnState, ended: Ended) -> Committed {
    let Ended {
        mut record,
        said,
        response,
    } = ended;
    let store = app.records(state.terms.mode);
    let kept = said.and_then(|said| content::keep(store, state, said));
    record.content = kept.as_ref().map(|kept| kept.id);
    record.session = session(place, state);
    record.parent_session = parent_session(place);
    let mut batch = Batch::default();
    record.parent = parent(&state.path, record.turn, &mut batch);
    let (id, bytes) = named(&record);
    batch.blobs.push((id.0, bytes));
    let keys = keys(place, state, &record);
    let turn = record.turn;
    batch.links.extend(keys.iter().map(|key| Link {
        key: *key,
        id: id.0,
        turn,
    }));
    if let (Some(response), Some(kept)) = (response, kept) {
        let dialect = state.request.dialect;
        let links = refer::links(place, dialect, (&response, id, turn), &kept);
        batch.links.extend(links);
    }
    let path = Arc::new(state.path.extend(id, Arc::new(record)));
    let key = keys.first().copied();
    if let Some(key) = key {
        app.paths.insert(key, &path);
        let after = |head| RecordKey::After(head).digest(place.tenant, &place.keys);
        app.paths.outgrow(&state.path, &state.heads, after);
    }
    Committed {
        id,
        key,
        path,
        store: Arc::clone(store),
        ticket: store.commit(batch),
    }
}

/// The keys that lead to a record; the head after its visible response first.
fn keys(place: &Place, state: &TurnState, record: &TurnRecord) -> Vec<Digest> {
    let Some(before) = state.heads.last().copied() else {
        return Vec::new();
    };
    let after = chain::extend(before, record.visible);
    let digest = |key: RecordKey<'_>| key.digest(place.tenant, &place.keys);
    let mut keys = vec![
        digest(RecordKey::After(after)),
        digest(RecordKey::Before(before)),
    ];
    if !record.calls.is_empty() || state.shapes.iter().any(|shape| !shape.calls.is_empty()) {
        keys.push(digest(RecordKey::Fork(after)));
    }
    let named = record.calls.iter().filter(|(call, _)| !call.0.is_empty());
    keys.extend(named.map(|(call, name)| digest(RecordKey::Call(call, name))));
    if record.calls.is_empty()
        && let Some(before) = chain::call_before(&state.shapes, state.shapes.len())
    {
        keys.push(digest(RecordKey::Text(record.visible, before)));
    }
    keys
}

impl Committed {
    /// Resolves when the record is durable.
    ///
    /// # Errors
    /// Where it never will be.
    pub async fn durable(self) -> Result<(), StoreError> {
        self.ticket.await
    }

    /// Writes usage that came after the record, and remembers it with the path. Nobody waits for
    /// it: without it the next turn's ratio is one turn older.
    pub fn reported(&self, app: &App, usage: Usage) {
        let bytes = encode(&usage);
        let blob = blob_id(&bytes);
        let link = Link {
            key: usage_key(self.id),
            id: blob,
            turn: 0,
        };
        drop(self.store.commit(Batch {
            blobs: vec![(blob, bytes)],
            links: vec![link],
        }));
        let mut path = Path::clone(&self.path);
        if let Some(entry) = path.entries.last_mut() {
            entry.reported = Some(usage);
        }
        if let Some(key) = self.key {
            app.paths.insert(key, &Arc::new(path));
        }
    }
}

/// What the record stands on; a snapshot every so many turns, and after every alignment.
fn parent(path: &Path, turn: u32, batch: &mut Batch) -> Parent {
    let Some(newest) = path.entries.last() else {
        return Parent::Root;
    };
    if !path.aligned && !turn.is_multiple_of(SNAPSHOT_EVERY) {
        return Parent::Record(newest.id);
    }
    let bytes = encode(&path.snapshot());
    let id = blob_id(&bytes);
    batch.blobs.push((id, bytes));
    Parent::Snapshot(id)
}
