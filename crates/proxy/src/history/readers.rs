//! Look-ups that may wait for a disk. Owns that they run off the async workers, few at once and for a
//! limited time, and that those who ask take turns. Never knows what is looked up.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_model::{Digest, Turns};
use plimsoll_store::Store;
use tokio::sync::oneshot;

use super::Patience;

/// How many look-ups may wait at once. Each of them holds a thread while nothing answers.
const READERS: usize = 16;
/// How many look-ups may be at a disk at once, at least. At most there is one for each processor: with
/// sixteen threads the engine's cache took 35 MB more than with two, when the allocator had four arenas for
/// each processor.
const DISK_READERS: usize = 2;
/// When so many wait, or twice as many as did after the last time, those who have left are removed.
const MANY: usize = 64;

/// Look-ups that may wait for a disk, limited in number and time.
pub struct Readers(Arc<Places>);

/// Places for look-ups.
struct Places(Mutex<Waiting>);

struct Waiting {
    /// How many places nobody has.
    free: usize,
    /// Who waits for a place. A look-up for one credential does not wait for all those for another.
    turns: Turns<Digest, oneshot::Sender<Place>>,
    /// When so many wait, those who have left are removed. While a disk is stuck nobody gets a place,
    /// and everybody leaves after a while.
    many: usize,
}

/// A place, which is free again when this goes.
struct Place(Option<Arc<Places>>);

impl Readers {
    /// As many as may read a store at once.
    #[must_use]
    pub fn of(store: &Store) -> Self {
        Self::with(match store {
            Store::Sled(_) | Store::Standby(_) => {
                let processors = std::thread::available_parallelism();
                processors.map_or(DISK_READERS, |count| {
                    count.get().clamp(DISK_READERS, READERS)
                })
            }
            Store::Redis(_) | Store::Memory(_) => READERS,
        })
    }

    fn with(free: usize) -> Self {
        let turns = Turns::new(1);
        let waiting = Waiting {
            free,
            turns,
            many: MANY,
        };
        Self(Arc::new(Places(Mutex::new(waiting))))
    }

    /// Runs a look-up for whoever has a credential, and waits at most `limit` for it; `None` if it is
    /// late. A late look-up keeps its place until its next reading, where it stops. So a stuck disk holds
    /// a limited number of threads.
    ///
    /// It is the credential that has a turn, and not the tenant: what a token says of its tenant may be
    /// forged, and a flood of such tokens must not stand before that tenant's own look-ups.
    pub async fn run<T: Send + 'static>(
        &self,
        credential: Digest,
        patience: &Patience,
        limit: Duration,
        look_up: impl FnOnce(&Patience) -> T + Send + 'static,
    ) -> Option<T> {
        let patience = patience.within(limit);
        let run = async {
            let place = self.0.wait(credential).await.ok()?;
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

impl Places {
    /// Waits for a place.
    fn wait(self: &Arc<Self>, credential: Digest) -> oneshot::Receiver<Place> {
        let (place, receiver) = oneshot::channel();
        let mut waiting = self.0.lock();
        waiting.turns.put(credential, 1, place);
        if waiting.turns.len() >= waiting.many {
            waiting.turns.retain(|place| !place.is_closed());
            // So this costs a few looks for each who comes.
            waiting.many = MANY.max(2 * waiting.turns.len());
        }
        drop(waiting);
        self.hand_out();
        receiver
    }

    /// Gives free places to those who wait.
    fn hand_out(self: &Arc<Self>) {
        while let Some(next) = self.next() {
            // Whoever leaves at this moment gets none. The place is not dropped, which would hand it
            // out here once more.
            if let Err(mut unwanted) = next.send(Place(Some(Arc::clone(self)))) {
                unwanted.0 = None;
                self.0.lock().free += 1;
            }
        }
    }

    /// Who gets a free place, which nobody else then has.
    fn next(&self) -> Option<oneshot::Sender<Place>> {
        let mut waiting = self.0.lock();
        let free = waiting.free.checked_sub(1)?;
        let next = waiting.turns.take_kept(|place| !place.is_closed());
        if waiting.turns.is_empty() {
            waiting.many = MANY;
        }
        let next = next?;
        waiting.free = free;
        Some(next)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = self.0.take() {
            places.0.lock().free += 1;
            places.hand_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;

    use super::*;
    use plimsoll_store::{Backend, StoreSettings};

    fn credential(number: u8) -> Digest {
        Digest([number; 32])
    }

    /// How many of forty look-ups were under way at once.
    async fn most_at_once(store: &Store) -> usize {
        let readers = Readers::of(store);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (patience, limit) = (Patience::default(), Duration::from_secs(60));
        let look_ups = (0..40).map(|_| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            readers.run(credential(0), &patience, limit, move |_| {
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

    #[tokio::test]
    async fn those_who_ask_take_turns_and_whoever_left_has_none() {
        let readers = Readers::with(1);
        let (patience, limit) = (Patience::default(), Duration::from_secs(60));
        let order = Arc::new(Mutex::new(Vec::new()));
        let look_up = |owner, name: usize| {
            let order = Arc::clone(&order);
            let note = move |_: &Patience| order.lock().push(name);
            Box::pin(readers.run(credential(owner), &patience, limit, note))
        };
        // One has the only place for as long as the test wants.
        let (release, held) = std::sync::mpsc::channel::<()>();
        let hold = move |_: &Patience| held.recv().is_ok();
        let mut first = Box::pin(readers.run(credential(0), &patience, limit, hold));
        assert!(first.as_mut().now_or_never().is_none());
        let owned = [1, 1, 1, 1, 2, 2, 3].into_iter().zip(0..);
        let mut waiting: Vec<_> = owned.map(|(owner, name)| look_up(owner, name)).collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        drop(waiting.remove(1));
        // Those who leave are forgotten, although nobody gets a place.
        for name in 0..10 * MANY {
            assert!(look_up(4, name).now_or_never().is_none());
        }
        assert!(readers.0.0.lock().turns.len() <= MANY);
        release.send(()).unwrap();
        assert_eq!(first.await, Some(true));
        futures_util::future::join_all(waiting).await;
        assert_eq!(*order.lock(), [0, 4, 6, 2, 5, 3]);
        // The place is free again.
        assert_eq!(look_up(1, 6).await, Some(()));
    }
}
