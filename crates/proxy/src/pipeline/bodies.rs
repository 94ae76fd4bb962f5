//! The newest request of each row of sessions, and what its client changed lately, in memory alone, for those who may look
//! at them. Owns how much of them is kept. Never writes one anywhere, and keeps none where content may not be shown.

use bytes::Bytes;
use plimsoll_model::caches::{Bounded, Weigh, bounded};
use plimsoll_model::{CacheName, Digest, RecordId, SessionRow, TenantId};
use plimsoll_wire::Dialect;

use super::changed::Changes;

/// The newest request of a session, as its client sent it.
#[derive(Clone, Debug)]
pub struct LiveBody {
    /// The record of its turn.
    pub record: RecordId,
    /// The body, expanded where the client referred to what was said before.
    pub body: Bytes,
    /// Its wire format.
    pub dialect: Dialect,
    /// What the client changed of what its provider had cached.
    pub changes: Changes,
}

/// The newest requests by session.
pub struct Bodies(Option<Bounded<Digest, LiveBody>>);

impl Weigh for LiveBody {
    fn owned(&self) -> usize {
        self.body.len() + self.changes.bytes()
    }
}

impl Bodies {
    /// Keeps as many as fit into their share of `all`, the memory of all caches; none unless `shown`.
    #[must_use]
    pub fn new(all: usize, shown: bool) -> Self {
        Self(shown.then(|| bounded(CacheName::Bodies, all)))
    }

    /// Keeps the newest request of a session or a branch, by the name of its row, in place of the one before.
    pub fn keep(&self, tenant: TenantId, row: &str, live: LiveBody) {
        if let Some(cache) = &self.0 {
            cache.insert(SessionRow::identity(tenant, row), live);
        }
    }

    /// The newest request of a session, by [`SessionRow::identity`].
    #[must_use]
    pub fn get(&self, session: &Digest) -> Option<LiveBody> {
        self.0.as_ref()?.get(session)
    }

    /// Forgets all of them.
    pub fn forget(&self) {
        if let Some(cache) = &self.0 {
            cache.clear();
        }
    }

    /// How many bytes of memory they take.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.0.as_ref().map_or(0, Bounded::weight)
    }
}
