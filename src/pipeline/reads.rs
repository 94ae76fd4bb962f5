//! How the store is read: each reading timed, and look-ups that may wait for a disk off the async
//! workers, few at once and only so long. Never knows what is looked up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::model::Digest;
use crate::record::StoreOp;
use crate::store::{Store, StoreError};

/// How many look-ups may be at a disk at once. More would not make it quicker, and where it is
/// stuck each of them holds a thread until it moves again.
const READERS: usize = 16;

/// Look-ups that may wait for a disk: off the async workers, bounded in number and in time.
pub struct Readers(Arc<Semaphore>);

impl Default for Readers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READERS)))
    }
}

impl Readers {
    /// Runs a look-up and waits for it, `limit` at most; `None` where it is late. A late one goes
    /// on and keeps its place until it ends, so that a stuck disk holds so many threads and no
    /// more.
    pub async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        look_up: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let places = Arc::clone(&self.0);
        let run = async {
            let place = places.acquire_owned().await.ok()?;
            let work = tokio::task::spawn_blocking(move || {
                let found = look_up();
                drop(place);
                found
            });
            work.await.ok()
        };
        tokio::time::timeout(limit, run).await.ok().flatten()
    }
}

/// A store that is read; `told` hears how long each reading took.
pub struct Reads<'a> {
    store: &'a Store,
    told: &'a dyn Fn(StoreOp, Duration),
}

impl<'a> Reads<'a> {
    /// A store, and who wants to know.
    #[must_use]
    pub fn new(store: &'a Store, told: &'a dyn Fn(StoreOp, Duration)) -> Self {
        Self { store, told }
    }

    /// As [`Store::links`].
    pub(super) fn links(&self, keys: &[Digest]) -> Result<Vec<Vec<(u32, Digest)>>, StoreError> {
        self.timed(StoreOp::Links, |store| store.links(keys))
    }

    /// As [`Store::blobs`].
    pub(super) fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.timed(StoreOp::Blobs, |store| store.blobs(ids))
    }

    fn timed<T>(&self, op: StoreOp, read: impl FnOnce(&Store) -> T) -> T {
        let begun = Instant::now();
        let answer = read(self.store);
        (self.told)(op, begun.elapsed());
        answer
    }
}
