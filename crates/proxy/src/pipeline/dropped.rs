//! Histories that clients drop after something was evicted from them: their requests, kept in memory, and how they are
//! found again when a conversation begins anew or a hidden call needs them. Owns how much of them is kept. Never writes
//! one anywhere: what is stored of it was stored with its turns.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::session::chain::RecordKey;
use plimsoll_core::session::path::Path;
use plimsoll_core::turn::state::TurnState;
use plimsoll_core::turn::{Dropped, Mode, Terms};
use plimsoll_model::caches::{Bounded, Weigh, bounded};
use plimsoll_model::{CacheName, Digest, Head, Marks, RecordId, TenantId};
use plimsoll_store::{Link, Take};
use plimsoll_tokens::Family;
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::Answer;

use super::app::App;
use super::managed_turn::ManagedTurn;
use super::record_place::RecordPlace;
use super::refer::{self, Room};
use crate::history::{self, FindError, Patience, Reads};

/// How long a conversation that begins, or a hidden call, waits for the store. Without an answer it goes on without what
/// was dropped.
const PATIENCE: Duration = Duration::from_millis(250);
/// What is made of a history takes so many times its bytes.
const MADE_OF_IT: usize = 3;

/// Requests from which something was evicted, by the record of their turn.
pub struct Histories(Bounded<RecordId, HeldHistory>);

/// A request from which something was evicted.
#[derive(Clone)]
struct HeldHistory {
    body: Bytes,
    dialect: Dialect,
}

impl Weigh for HeldHistory {
    fn owned(&self) -> usize {
        self.body.len()
    }
}

impl Histories {
    /// Keeps as many as fit into their share of `all`, the memory of all caches.
    #[must_use]
    pub fn new(all: usize) -> Self {
        Self(bounded(CacheName::Histories, all))
    }

    /// Keeps the request of a turn, if something was evicted up to there. It takes the place of the last but one on its
    /// path, because it holds all of that, unless the client has dropped some. The last one stays: an agent may go on from
    /// there once this turn has made it a summary.
    pub(super) fn keep(&self, state: &TurnState, record: RecordId) {
        if !state.terms.recalls_dropped() || !has_evicted(state) {
            return;
        }
        let before = state.path.entries.iter().rev().nth(1).map(|entry| entry.id);
        if let Some(before) = before.filter(|before| !state.path.dropped.contains(before)) {
            self.0.remove(&before);
        }
        let (body, dialect) = (state.request.body.clone(), state.request.dialect);
        self.0.insert(record, HeldHistory { body, dialect });
    }

    fn get(&self, record: RecordId) -> Option<HeldHistory> {
        self.0.get(&record)
    }

    /// Forgets all of them.
    pub fn forget(&self) {
        self.0.clear();
    }

    /// How many bytes of memory they take.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.0.weight()
    }
}

/// Whether anything was evicted up to a turn, so that what its client drops later may be missed.
pub(super) fn has_evicted(state: &TurnState) -> bool {
    state.terms.mode == Mode::Manage && *state.marks != Marks::default()
}

/// The key that leads to the records of a session's turns up to which something was evicted. Their ids, which begin with
/// the time, put them in order.
fn key(place: &RecordPlace) -> Digest {
    RecordKey::Evicted(&place.session).digest(place.tenant, &place.keys)
}

/// The link to a turn up to which something was evicted. A client that drops its history begins anew in the same
/// session; without a name of the session nothing leads back.
pub(super) fn link(place: &RecordPlace, state: &TurnState, id: RecordId) -> Option<Link> {
    (has_evicted(state) && !place.scope.0.is_empty()).then(|| Link {
        key: key(place),
        id: id.0,
        turn: 0,
    })
}

/// Where a conversation stands that begins in a session whose client had something evicted before, as far as anything of
/// that is still there.
pub(super) async fn behind(
    app: &Arc<App>,
    (place, heads): (&RecordPlace, &[Head]),
    credential: Digest,
    patience: &Patience,
) -> Option<Path> {
    let (worker, place, heads) = (Arc::clone(app), place.clone(), heads.to_vec());
    let find = move |patience: &Patience| {
        let told = |op, time| worker.metrics.observe_store(op, time);
        let reads = Reads::new(&worker.store, &told).while_waited_for(patience);
        find(&worker, &reads, &place, &heads)
    };
    let found = app.readers.run(credential, patience, PATIENCE, find).await;
    match found? {
        Ok(path) => path,
        Err(error) => {
            tracing::warn!(%error, "a conversation begins without what its session had before");
            None
        }
    }
}

fn find(
    app: &App,
    reads: &Reads<'_>,
    place: &RecordPlace,
    heads: &[Head],
) -> Result<Option<Path>, FindError> {
    let newest = reads.links(&[key(place)], Take::Last(1))?;
    let Some((_, newest)) = newest.into_iter().flatten().next() else {
        return Ok(None);
    };
    let newest = RecordId(newest);
    if app.histories.get(newest).is_none() && !is_stored(reads, newest)? {
        return Ok(None);
    }
    let Some(path) = history::load(reads, newest)? else {
        return Ok(None);
    };
    let Some(first) = path.entries.first() else {
        return Ok(None);
    };
    // A client that sends its first request again has dropped nothing, so it begins where that one did.
    let position = first.record.position as usize;
    let before = heads.last().filter(|_| heads.len() == position + 1);
    let before = before.map(|head| RecordKey::Before(*head).digest(place.tenant, &place.keys));
    let again = match before {
        Some(key) => reads.links(&[key], Take::ALL)?,
        None => Vec::new(),
    };
    if again.iter().flatten().any(|(_, id)| *id == first.id.0) {
        return Ok(Some(path.beginning()));
    }
    Ok(Some(Path::behind(&path, newest)))
}

/// Whether the content of a record's turn is stored.
fn is_stored(reads: &Reads<'_>, record: RecordId) -> Result<bool, FindError> {
    let record = history::record(reads, record)?;
    Ok(record.is_some_and(|record| record.content.is_some()))
}

/// What the histories are looked for by.
struct Search {
    dialect: Dialect,
    dropped: Vec<RecordId>,
    model: String,
    /// The most bytes that are read.
    most: usize,
}

/// Histories that were found, the oldest first.
type Found = Vec<(Path, HeldHistory)>;

impl ManagedTurn {
    /// Reads what the client has dropped, if the hidden calls of an answer need it.
    pub(super) async fn fetch_dropped(&mut self, app: &Arc<App>, answer: &Answer) {
        if self.searched || !self.state.needs_dropped(answer) {
            return;
        }
        self.searched = true;
        let search = Search {
            dialect: self.state.request.dialect,
            dropped: self.state.path.dropped.clone(),
            model: self.state.request.model.clone(),
            most: app.serving.body_cap,
        };
        let (worker, credential) = (Arc::clone(app), self.request.identity.credential);
        let (_waiting, patience) = Patience::new();
        let read = move |patience: &Patience| search.read(&worker, patience);
        let found = match app.readers.run(credential, &patience, PATIENCE, read).await {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                tracing::warn!(%error, "what the client has dropped can't be read");
                return;
            }
            None => {
                tracing::warn!(limit = ?PATIENCE, "the store did not answer in time, so nothing of what was dropped is found");
                return;
            }
        };
        let bytes: usize = found.iter().map(|(_, held)| held.body.len()).sum();
        if !self.held.try_grow(bytes.saturating_mul(MADE_OF_IT)) {
            tracing::warn!("there is no room to look through what the client has dropped");
            return;
        }
        // What is brought back is looked for in all of it.
        self.size += bytes;
        let turn = app.large.clone().acquire_owned().await.ok();
        let (tenant, family) = (self.place.tenant, Family::clone(&self.family));
        let (terms, worker) = (self.state.terms.clone(), Arc::clone(app));
        let read = move || {
            let _turn = turn;
            read_items(&worker, (tenant, &family, &terms), found)
        };
        if let Ok(mut dropped) = tokio::task::spawn_blocking(read).await {
            dropped.leave_out(self.prepared.view.transcript());
            self.state.dropped = Arc::new(dropped);
        }
    }
}

impl Search {
    /// The newest histories that there is anything of, as far as the bytes go.
    fn read(self, app: &App, patience: &Patience) -> Result<Found, FindError> {
        let told = |op, time| app.metrics.observe_store(op, time);
        let reads = Reads::new(&app.store, &told).while_waited_for(patience);
        let (mut found, mut bytes) = (Vec::new(), 0);
        for newest in self.dropped.iter().rev() {
            let Some((path, held)) = self.history(app, &reads, *newest)? else {
                continue;
            };
            bytes += held.body.len();
            if bytes > self.most {
                break;
            }
            found.push((path, held));
        }
        found.reverse();
        Ok(found)
    }

    /// A history from memory, or from what was stored with its turns, and the path to its newest record.
    fn history(
        &self,
        app: &App,
        reads: &Reads<'_>,
        newest: RecordId,
    ) -> Result<Option<(Path, HeldHistory)>, FindError> {
        let held = app.histories.get(newest);
        if held.is_none() && !is_stored(reads, newest)? {
            return Ok(None);
        }
        // A path may be long, so it is read once something is there to be read by it.
        if let Some(held) = held {
            return Ok(history::load(reads, newest)?.map(|path| (path, held)));
        }
        let said = refer::said_until(reads, newest, &mut Room(self.most))?;
        Ok(said.map(|said| {
            let dialect = self.dialect;
            let body = dialect.whole_request(&self.model, &said.messages, None);
            (said.path, HeldHistory { body, dialect })
        }))
    }
}

/// The items of histories. One that can't be read any more has none.
fn read_items(
    app: &App,
    (tenant, family, terms): (TenantId, &Family, &Terms),
    found: Found,
) -> Dropped {
    let mut dropped = Dropped::default();
    for (path, held) in found {
        let Ok(request) = held.dialect.decode(held.body) else {
            continue;
        };
        let profile = terms.choice.profile.as_deref();
        let tools = app.tools(family, tenant, held.dialect, profile);
        let state = TurnState::again(request, Arc::new(path), terms.clone(), &tools.reader);
        if let Ok(state) = state {
            state.add_to(&mut dropped, &tools);
        }
    }
    dropped
}
