//! How many connections agents have, and which one goes where a further one needs its descriptor.
//! Owns the count and the state of each; never reads or writes one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A connection may bring its request for so long before it counts as idle.
const YOUNG: Duration = Duration::from_millis(250);

/// How soon is looked again for one that has become idle.
const LOOK: Duration = Duration::from_millis(25);

/// Stands for the time since when a connection that serves a request is idle.
const BUSY: u64 = u64::MAX;

/// All connections that are open.
pub(super) struct Connections {
    most: usize,
    begun: Instant,
    open: Mutex<Open>,
    closed: Notify,
}

#[derive(Default)]
struct Open {
    next: u64,
    slots: HashMap<u64, Arc<Slot>>,
}

/// What is known of one connection.
pub(super) struct Slot {
    begun: Instant,
    /// Milliseconds since `begun`, or [`BUSY`].
    idle: AtomicU64,
    /// Whether bytes wait for its client.
    writing: AtomicBool,
    stalled: AtomicBool,
    leave: Notify,
}

/// A connection's place among the others, until it is dropped.
pub(super) struct Held {
    connections: Arc<Connections>,
    number: u64,
    slot: Arc<Slot>,
}

/// A connection serves a request until this is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Slot>);

impl Connections {
    /// At most so many at once.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            begun: Instant::now(),
            open: Mutex::default(),
            closed: Notify::new(),
        })
    }

    /// Waits until there may be one more. Where all serve requests that is when one ends; else who
    /// has been idle for the longest is asked to leave.
    pub(super) async fn room(&self) {
        loop {
            // Registered first, so that no end is missed.
            let closed = self.closed.notified();
            if self.open.lock().slots.len() < self.most {
                return;
            }
            if let Some(slot) = self.idlest() {
                slot.leave();
            }
            let _in_time = tokio::time::timeout(LOOK, closed).await;
        }
    }

    /// Counts a connection as open.
    pub(super) fn hold(self: &Arc<Self>) -> Held {
        let slot = Arc::new(Slot {
            begun: self.begun,
            idle: AtomicU64::new(since(self.begun)),
            writing: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            leave: Notify::new(),
        });
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        open.slots.insert(number, Arc::clone(&slot));
        Held {
            connections: Arc::clone(self),
            number,
            slot,
        }
    }

    fn idlest(&self) -> Option<Arc<Slot>> {
        let until = since(self.begun).saturating_sub(millis(YOUNG));
        let open = self.open.lock();
        let idle = |slot: &Arc<Slot>| slot.idle.load(Ordering::Relaxed);
        let all = open.slots.values();
        let found = all.filter(|slot| !slot.writing.load(Ordering::Relaxed));
        let found = found
            .filter(|slot| idle(slot) <= until)
            .min_by_key(|slot| idle(slot));
        found.map(Arc::clone)
    }
}

impl Slot {
    /// Notes that a request is served until the guard is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.idle.store(BUSY, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Notes whether bytes wait for the client.
    pub(super) fn writing(&self, waits: bool) {
        self.writing.store(waits, Ordering::Relaxed);
    }

    /// Notes that they have waited too long.
    pub(super) fn stalled(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ended because its client did not read.
    pub(super) fn has_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Returns once another connection needs the place.
    pub(super) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    fn leave(&self) {
        // Whoever is leaving is not asked again.
        self.idle.store(BUSY, Ordering::Relaxed);
        self.leave.notify_one();
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

impl Held {
    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.connections.open.lock().slots.remove(&self.number);
        self.connections.closed.notify_one();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.idle.store(since(self.0.begun), Ordering::Relaxed);
    }
}

fn since(begun: Instant) -> u64 {
    millis(begun.elapsed())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(BUSY - 1)
}
