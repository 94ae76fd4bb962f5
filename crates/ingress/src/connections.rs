//! How many connections agents have, and which one is closed when a new one needs its place. Owns
//! the count and the state of each. Never reads from one or writes to one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How long a new connection does not count as idle, because its request may still come.
const GRACE: Duration = Duration::from_millis(250);

/// How soon the connections are searched again for an idle one.
const SEARCH_INTERVAL: Duration = Duration::from_millis(25);

/// The value for a connection that serves a request.
const BUSY: u64 = u64::MAX;

/// All open connections.
pub(super) struct Connections {
    most: usize,
    begun: Instant,
    open: Mutex<Open>,
    closed: Notify,
}

#[derive(Default)]
struct Open {
    next: u64,
    slots: HashMap<u64, Arc<ConnectionState>>,
}

/// What is known of one connection.
pub(super) struct ConnectionState {
    begun: Instant,
    /// Since when it is idle, in milliseconds after `begun`, or [`BUSY`].
    idle: AtomicU64,
    /// Whether bytes wait for its client.
    writing: AtomicBool,
    stalled: AtomicBool,
    leave: Notify,
}

/// The place of a connection among the others, until it is dropped.
pub(super) struct HeldConnection {
    connections: Arc<Connections>,
    number: u64,
    slot: Arc<ConnectionState>,
}

/// Marks a connection as busy until it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<ConnectionState>);

impl Connections {
    /// Allows this many connections at once.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            begun: Instant::now(),
            open: Mutex::default(),
            closed: Notify::new(),
        })
    }

    /// Waits until there is room for one more. If all connections serve requests, one of them must
    /// end. Otherwise the one that has been idle longest is asked to leave.
    pub(super) async fn room(&self) {
        loop {
            // Registers first, so that no end is missed.
            let closed = self.closed.notified();
            if self.open.lock().slots.len() < self.most {
                return;
            }
            if let Some(slot) = self.idlest() {
                slot.leave();
            }
            let _in_time = tokio::time::timeout(SEARCH_INTERVAL, closed).await;
        }
    }

    /// Counts a connection as open.
    pub(super) fn hold(self: &Arc<Self>) -> HeldConnection {
        let slot = Arc::new(ConnectionState {
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
        HeldConnection {
            connections: Arc::clone(self),
            number,
            slot,
        }
    }

    fn idlest(&self) -> Option<Arc<ConnectionState>> {
        let until = since(self.begun).saturating_sub(millis(GRACE));
        let open = self.open.lock();
        let idle = |slot: &Arc<ConnectionState>| slot.idle.load(Ordering::Relaxed);
        let all = open.slots.values();
        let found = all.filter(|slot| !slot.writing.load(Ordering::Relaxed));
        let found = found
            .filter(|slot| idle(slot) <= until)
            .min_by_key(|slot| idle(slot));
        found.map(Arc::clone)
    }
}

impl ConnectionState {
    /// Marks the connection as busy until the guard is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.idle.store(BUSY, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Notes whether bytes wait for the client.
    pub(super) fn writing(&self, waits: bool) {
        self.writing.store(waits, Ordering::Relaxed);
    }

    /// Notes that they waited too long.
    pub(super) fn stalled(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ended because its client did not read.
    pub(super) fn has_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Returns when another connection needs the place.
    pub(super) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    fn leave(&self) {
        // A connection that is leaving is not asked again.
        self.idle.store(BUSY, Ordering::Relaxed);
        self.leave.notify_one();
    }
}

impl std::fmt::Debug for ConnectionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

impl HeldConnection {
    pub(super) fn slot(&self) -> &Arc<ConnectionState> {
        &self.slot
    }
}

impl Drop for HeldConnection {
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
