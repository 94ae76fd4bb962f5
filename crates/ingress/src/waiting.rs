//! The wait of a body for room. Owns who waits, and in which order. Never knows who has the room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_model::room::{Full, Held, Room};
use tokio::sync::{Mutex, Notify};

/// How long a body waits for room.
const WAIT: Duration = Duration::from_secs(2);

/// How much longer it waits for each body that waits already, up to a limit. Bodies that wait for
/// each other would otherwise all give up at the same moment, although the first to do so makes
/// room for the rest.
const WAIT_PER_BODY: Duration = Duration::from_millis(100);
const MAX_BODIES_AHEAD: u32 = 20;

/// The room that bodies wait for.
#[derive(Debug)]
pub(super) struct BodyRoom {
    room: Room,
    freed: Arc<Notify>,
    /// The turn of the body that waits for the longest.
    turn: Mutex<()>,
    waiting: AtomicU32,
}

/// Counts a body as waiting until it is dropped.
struct WaitingBody<'a>(&'a AtomicU32);

impl Drop for WaitingBody<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BodyRoom {
    pub(super) fn new(room: &Room) -> Self {
        let freed = Arc::new(Notify::new());
        let told = Arc::clone(&freed);
        room.when_freed(move || told.notify_one());
        Self {
            room: room.clone(),
            freed,
            turn: Mutex::default(),
            waiting: AtomicU32::default(),
        }
    }

    /// What a body takes of the room: nothing yet.
    pub(super) fn enter(&self) -> Held {
        self.room.enter()
    }

    /// Takes more for a body, and waits for it if necessary. The first to wait is the first to be served
    /// and the first to give up, so that of bodies that wait for each other some get through.
    ///
    /// # Errors
    /// [`Full`] if not enough came free in time.
    pub(super) async fn grow(&self, held: &mut Held, bytes: usize) -> Result<(), Full> {
        // Nobody overtakes those who wait.
        if self.waiting.load(Ordering::Relaxed) == 0 && held.try_grow(bytes) {
            return Ok(());
        }
        // Later bodies wait longer, so that not all of them give up at once.
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = WaitingBody(&self.waiting);
        let wait = WAIT + WAIT_PER_BODY * before.min(MAX_BODIES_AHEAD);
        let granted = async {
            let _turn = self.turn.lock().await;
            while !held.try_grow(bytes) {
                self.freed.notified().await;
            }
        };
        tokio::time::timeout(wait, granted).await.map_err(|_| Full)
    }
}
