//! The newest request of each row of sessions, in memory alone, for those who may look at it. Owns how much of
//! them is kept. Never writes one anywhere, and keeps none where content may not be shown.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::model::caches::{bounded, entry};
use crate::model::{CacheName, Dialect, Digest, RecordId, SessionRow, TenantId};

/// The newest request of a session, as its client sent it.
#[derive(Clone, Debug)]
pub struct LiveBody {
    /// The record of its turn.
    pub record: RecordId,
    /// The body, expanded where the client referred to what was said before.
    pub body: Bytes,
    /// Its wire format.
    pub dialect: Dialect,
}

/// The newest requests by session.
pub struct Bodies(Option<Cache<Digest, LiveBody, ByBytes>>);

#[derive(Clone)]
struct ByBytes;

impl Weighter<Digest, LiveBody> for ByBytes {
    fn weight(&self, _key: &Digest, live: &LiveBody) -> u64 {
        (live.body.len() + entry::<Digest, LiveBody>()) as u64
    }
}

impl Bodies {
    /// Keeps as many as fit into their share of `all`, the memory of all caches; none unless `shown`.
    #[must_use]
    pub fn new(all: usize, shown: bool) -> Self {
        Self(shown.then(|| bounded(CacheName::Bodies, all, ByBytes)))
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
        self.0.as_ref().map_or(0, Cache::weight)
    }
}
