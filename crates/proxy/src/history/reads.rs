//! Reads the store. Each reading is timed, and look-ups that may wait for a disk run off the async
//! workers, few at once and for a limited time. Never knows what is looked up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_model::Digest;
use plimsoll_store::{Store, StoreError};
use tokio::sync::Semaphore;

use super::{FindError, Patience};
use crate::record::StoreOp;

/// How many look-ups may wait at once. Each of them holds a thread while nothing answers.
const READERS: usize = 16;
/// How many look-ups may be at a disk at once, at least. At most there is one for each processor: what
/// the engine reads stays in its cache, and the allocator keeps what each thread brought there apart. With
/// sixteen threads the same cache took 35 MB more than with two.
const DISK_READERS: usize = 2;
/// How many blobs are read before asking again whether anybody still waits.
const AT_ONCE: usize = 256;

/// Look-ups that may wait for a disk, limited in number and time.
pub struct Readers(Arc<Semaphore>);

impl Readers {
    /// As many as may read a store at once.
    #[must_use]
    pub fn of(store: &Store) -> Self {
        let at_once = match store {
            Store::Sled(_) | Store::Standby(_) => {
                let processors = std::thread::available_parallelism();
                processors.map_or(DISK_READERS, |count| {
                    count.get().clamp(DISK_READERS, READERS)
                })
            }
            Store::Redis(_) | Store::Memory(_) => READERS,
        };
        Self(Arc::new(Semaphore::new(at_once)))
    }

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

    /// These reads, which stop when nobody waits any more.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use plimsoll_store::{Backend, StoreSettings};

    /// How many of forty look-ups were under way at once.
    async fn most_at_once(store: &Store) -> usize {
        let readers = Readers::of(store);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (patience, limit) = (Patience::default(), Duration::from_secs(60));
        let look_ups = (0..40).map(|_| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            readers.run(&patience, limit, move |_| {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
                now.fetch_sub(1, Ordering::Relaxed);
            })
        });
        let looked_up = futures_util::future::join_all(look_ups).await;
        assert!(looked_up.iter().all(Option::is_some));
        most.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_disk_is_read_by_no_more_threads_than_there_are_processors() {
        let dir = tempfile::tempdir().unwrap();
        let settings = StoreSettings {
            backend: Backend::Sled,
            path: dir.path().to_owned(),
            ..StoreSettings::default()
        };
        let disk = Store::open(&settings).unwrap().store;
        let processors = std::thread::available_parallelism().unwrap().get();
        let most = most_at_once(&disk).await;
        assert!(most <= processors.max(DISK_READERS), "{most} at once");
        disk.close().unwrap();
    }

    #[tokio::test]
    async fn look_ups_that_wait_for_a_network_are_more_but_not_without_limit() {
        let memory = Store::Memory(plimsoll_store::memory::Memory::default());
        let most = most_at_once(&memory).await;
        assert!(
            (DISK_READERS + 1..=READERS).contains(&most),
            "{most} at once"
        );
    }
}
