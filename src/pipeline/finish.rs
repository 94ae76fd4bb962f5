//! The end of a turn: its record, the keys that lead to it, and the wait until it is durable.
//! Never edits a record that was written.

use std::sync::Arc;

use bytes::Bytes;

use super::app::App;
use super::content;
use super::find::usage_key;
use super::hop::State;
use super::refer;
use crate::dialect::answer::Answer;
use crate::dialect::edit::bare;
use crate::dialect::message::ParsedCall;
use crate::model::{
    CallId, Dialect, Digest, Hop, Parent, RecordId, Role, Scope, TenantId, TurnRecord, Usage,
};
use crate::session::chain::{self, Key};
use crate::session::path::Path;
use crate::store::{Batch, Link, Store, StoreError, Ticket, blob_id};

/// How many turns a snapshot bounds the fold to.
const SNAPSHOT_EVERY: u32 = 32;

/// What a turn came to.
pub struct Ending<'a> {
    /// The texts of all hops in order, the last one's included.
    pub texts: Vec<&'a str>,
    /// The last hop's answer; its visible calls are the client's.
    pub answer: &'a Answer,
    /// The last hop as it is recorded.
    pub last: Hop,
    /// A line that the proxy put at the end, where the turn was ended at the hop cap.
    pub line: Option<&'a str>,
    /// Now, in milliseconds since 1970.
    pub now: u64,
}

/// Where a record belongs.
#[derive(Clone, Debug)]
pub struct Place {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its explicit session.
    pub scope: Scope,
    /// The session's records of this dialect: an agent that changes its dialect in the middle
    /// begins anew, because bytes of one are none of the other's. What is only watched has records of
    /// its own, because nothing of it was sent.
    pub keys: Scope,
    /// The session that this one is a child of, where the client names it.
    pub parent: Option<Scope>,
}

impl Place {
    /// The place of a tenant's session in a dialect.
    #[must_use]
    pub fn new(tenant: TenantId, scope: Scope, parent: Option<Scope>, dialect: Dialect) -> Self {
        let keys = match dialect {
            Dialect::Chat => scope.clone(),
            Dialect::Responses | Dialect::Messages => {
                Scope(format!("{}\u{1e}{}", dialect.name(), scope.0))
            }
        };
        Self {
            tenant,
            scope,
            keys,
            parent,
        }
    }
}

impl Place {
    /// The same for what is only watched.
    #[must_use]
    pub fn watched(self) -> Self {
        let keys = Scope(format!("watched\u{1e}{}", self.keys.0));
        Self { keys, ..self }
    }
}

/// The record of a turn.
#[must_use]
pub fn record(state: &State, base: u32, first_item: u32, ending: Ending<'_>) -> TurnRecord {
    let texts: Vec<&str> = ending.texts.iter().copied().chain(ending.line).collect();
    let (text, at) = state.request.dialect.join(texts.iter().copied());
    // What earlier hops handed out ends where the client's own last text begins. A last hop that
    // the record keeps whole has handed out its text too, as has a line of the proxy's.
    let handed = match &ending.last.message {
        Some(_) => text.clone(),
        None => text.get(..at).unwrap_or_default().to_owned(),
    };
    let calls: Vec<ParsedCall<'_>> = ending
        .answer
        .visible_calls()
        .map(|(_, call)| ParsedCall {
            id: call.id.as_str().into(),
            name: call.name.as_str().into(),
            arguments: call.arguments.as_str().into(),
        })
        .collect();
    let ids = calls
        .iter()
        .map(|call| (CallId(call.id.to_string()), call.name.to_string()));
    let mut hops = state.pending.clone();
    let nudged = hops
        .iter()
        .chain([&ending.last])
        .any(|hop| hop.calls.iter().any(|call| call.nudge));
    let passed = hops
        .iter()
        .chain([&ending.last])
        .any(|hop| !hop.marks.is_empty());
    let before = state.path.newest().is_some_and(|record| record.nudged);
    hops.push(ending.last);
    TurnRecord {
        parent: Parent::Root,
        turn: state.path.next_turn(),
        position: u32::try_from(state.shapes.len()).unwrap_or(u32::MAX),
        base,
        first_item,
        hops,
        handed,
        visible: state.request.dialect.canonical_of_answer(&text, &calls),
        bare: bare(&text),
        calls: ids.collect(),
        tooled: state.request.tools.is_some(),
        injected: state.injected.delimiter.clone(),
        recall: state.injected.recall.clone(),
        prologue: state.prologue,
        model: state.request.model.clone(),
        ended: ending.now,
        nudged: nudged || (before && !passed),
        session: String::new(),
        parent_session: None,
        content: None,
        without: state.known,
        guide: state.guide,
    }
}

/// A record's bytes, and the id that they give it.
#[must_use]
pub fn named(record: &TurnRecord) -> (RecordId, Bytes) {
    let bytes = encode(record);
    (RecordId(blob_id(&bytes)), bytes)
}

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

/// The session's name towards the client: its scope, else the root of its chain, hashed.
#[must_use]
pub fn session(place: &Place, state: &State) -> String {
    let tenant = place.tenant.0;
    if place.scope.0.is_empty() {
        let first = state
            .shapes
            .iter()
            .position(|shape| shape.role == Role::User);
        let root = first.and_then(|at| state.heads.get(at + 1)).copied();
        let root = root.map_or(Digest([0; 32]), |head| head.0);
        return Digest::of(&[b"session", tenant.as_bytes(), root.as_bytes()]).short();
    }
    explicit(place.tenant, &place.scope)
}

/// The name of the session that this one is a child of: the one under which the client knows that.
#[must_use]
pub fn parent_session(place: &Place) -> Option<String> {
    let parent = place.parent.as_ref()?;
    Some(explicit(place.tenant, parent))
}

fn explicit(tenant: TenantId, scope: &Scope) -> String {
    Digest::of(&[b"session", tenant.0.as_bytes(), scope.0.as_bytes()]).short()
}

/// Writes a record and what leads to it, and remembers the path that ends with it. Content is
/// written before it and for itself: where there is no room for that, the record still has its own.
/// The store writes in order, so a record that is durable has its content with it, and the ids by
/// which either is referred to come with the record.
pub fn commit(app: &App, place: &Place, state: &State, ended: Ended) -> Committed {
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
        let after = |head| Key::After(head).digest(place.tenant, &place.keys);
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
fn keys(place: &Place, state: &State, record: &TurnRecord) -> Vec<Digest> {
    let Some(before) = state.heads.last().copied() else {
        return Vec::new();
    };
    let after = chain::extend(before, record.visible);
    let digest = |key: Key<'_>| key.digest(place.tenant, &place.keys);
    let mut keys = vec![digest(Key::After(after)), digest(Key::Before(before))];
    if !record.calls.is_empty() || state.shapes.iter().any(|shape| !shape.calls.is_empty()) {
        keys.push(digest(Key::Fork(after)));
    }
    let named = record.calls.iter().filter(|(call, _)| !call.0.is_empty());
    keys.extend(named.map(|(call, name)| digest(Key::Call(call, name))));
    if record.calls.is_empty()
        && let Some(before) = chain::call_before(&state.shapes, state.shapes.len())
    {
        keys.push(digest(Key::Text(record.visible, before)));
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

/// The stored form of a value.
pub(super) fn encode<T: serde::Serialize>(value: &T) -> Bytes {
    // Encoding into memory fails only for types that these are not; an empty blob is read as no
    // record, which is what a record that could not be written is.
    Bytes::from(rmp_serde::to_vec_named(value).unwrap_or_default())
}
