//! Reads the store. Each reading is timed, and look-ups that may wait for a disk run off the async
//! workers, few at once and for a limited time. Never knows what is looked up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{FindError, Patience};
use crate::model::Digest;
use crate::record::StoreOp;
use crate::store::{Store, StoreError};

/// How many look-ups may be at a disk at once. More would not be quicker, and each of them holds a
/// thread while the disk is stuck.
const READERS: usize = 16;
/// How many blobs are read before asking again whether anybody still waits.
const AT_ONCE: usize = 256;

/// Look-ups that may wait for a disk, limited in number and time.
pub struct Readers(Arc<Semaphore>);

impl Default for Readers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READERS)))
    }
}

impl Readers {
    /// Runs a look-up and waits at most `limit` for it; `None` if it is late. A late look-up keeps
    /// its place until its next reading, where it stops. So a stuck disk holds a limited number of
    /// threads.
    pub async fn run<T: Send + 'static>(
        &self,
        patience: &Patience,
        limit: Duration,
        look_up: impl FnOnce(&Patience) -> T + Send + 'static,
    ) -> Option<T> {
        let places = Arc::clone(&self.0);
        let patience = patience.within(limit);
        let run = async {
            let place = places.acquire_owned().await.ok()?;
            let work = tokio::task::spawn_blocking(move || {
                let found = look_up(&patience);
                drop(place);
                found
            });
            work.await.ok()
        };
        tokio::time::timeout(limit, run).await.ok().flatten()
    }
}

/// A store, and a function that is told how long each reading took.
pub struct Reads<'a> {
    store: &'a Store,
    told: &'a dyn Fn(StoreOp, Duration),
    patience: Patience,
}

impl<'a> Reads<'a> {
    /// Reads a store and tells `told` of each reading.
    #[must_use]
    pub fn new(store: &'a Store, told: &'a dyn Fn(StoreOp, Duration)) -> Self {
        Self {
            store,
            told,
            patience: Patience::default(),
        }
    }

    /// The same, but stops when nobody waits any more.
    #[must_use]
    pub fn while_waited_for(self, patience: &Patience) -> Self {
        Self {
            patience: patience.clone(),
            ..self
        }
    }

    /// As [`Store::links`].
    pub fn links(&self, keys: &[Digest]) -> Result<Vec<Vec<(u32, Digest)>>, FindError> {
        self.timed(StoreOp::Links, |store| store.links(keys))
    }

    /// As [`Store::blobs`], but a few at a time, so that a long list can be stopped.
    pub fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, FindError> {
        let mut blobs = Vec::with_capacity(ids.len());
        for some in ids.chunks(AT_ONCE) {
            blobs.append(&mut self.timed(StoreOp::Blobs, |store| store.blobs(some))?);
        }
        Ok(blobs)
    }

    fn timed<T>(
        &self,
        op: StoreOp,
        read: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> Result<T, FindError> {
        if self.patience.is_over() {
            return Err(FindError::Late);
        }
        let begun = Instant::now();
        let answer = read(self.store);
        (self.told)(op, begun.elapsed());
        Ok(answer?)
    }
}
