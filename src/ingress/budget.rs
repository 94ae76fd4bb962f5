//! Memory for the bodies of all requests: one budget, and buffers that grow within it. Owns who has
//! how much of it. Never looks into a body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::pipeline::{ProxyError, ServingLimit};

/// How long a body waits for room.
const WAIT: Duration = Duration::from_secs(2);

/// How much longer it waits for each body that waits already, up to a limit. Bodies that wait for
/// each other would otherwise all give up at the same moment, although the first to do so makes
/// room for the rest.
const LATER: Duration = Duration::from_millis(100);
const LATER_MOST: u32 = 20;

/// The least and the most by which a buffer of unknown size grows.
const STEPS: [usize; 2] = [64 << 10, 1 << 20];

/// The bytes that all bodies together may take.
#[derive(Clone, Debug)]
pub(super) struct BodyBudget {
    room: Arc<Semaphore>,
    waiting: Arc<AtomicU32>,
}

/// What one body has of the budget. Dropping it gives that back.
#[derive(Debug)]
pub(super) struct BodyShare {
    budget: BodyBudget,
    held: usize,
}

/// Counts a body as waiting until it is dropped.
struct WaitingBody<'a>(&'a AtomicU32);

impl BodyBudget {
    /// A budget of this many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))),
            waiting: Arc::default(),
        }
    }

    /// The most that one body may need. Its packed and unpacked bytes are held at once, the latter
    /// with room for the next step.
    pub(super) fn least(cap: usize) -> usize {
        let [_, step] = STEPS;
        cap.saturating_mul(2).saturating_add(step)
    }

    /// The share of a body that has nothing yet.
    pub(super) fn share(&self) -> BodyShare {
        BodyShare {
            budget: self.clone(),
            held: 0,
        }
    }
}

impl BodyShare {
    /// Takes more, if that much is free now.
    pub(super) fn try_grow(&mut self, bytes: usize) -> bool {
        let Ok(permits) = u32::try_from(bytes) else {
            return false;
        };
        let Ok(taken) = self.budget.room.try_acquire_many(permits) else {
            return false;
        };
        taken.forget();
        self.held += bytes;
        true
    }

    /// Takes more, and waits for it if necessary. The first to wait is the first to be served and
    /// the first to give up, so that of bodies that wait for each other some get through.
    ///
    /// # Errors
    /// [`ProxyError::Overloaded`] if not enough came free in time.
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), ProxyError> {
        if self.try_grow(bytes) {
            return Ok(());
        }
        let full = ProxyError::Overloaded(ServingLimit::Bodies);
        let Ok(permits) = u32::try_from(bytes) else {
            return Err(full);
        };
        // Later bodies wait longer, so that not all of them give up at once.
        let before = self.budget.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = WaitingBody(&self.budget.waiting);
        let wait = WAIT + LATER * before.min(LATER_MOST);
        let granted = tokio::time::timeout(wait, self.budget.room.acquire_many(permits)).await;
        drop(waiting);
        match granted {
            Ok(Ok(taken)) => {
                taken.forget();
                self.held += bytes;
                Ok(())
            }
            Ok(Err(_)) | Err(_) => Err(full),
        }
    }

    /// Gives back what exceeds `bytes`.
    fn keep(&mut self, bytes: usize) {
        let over = self.held.saturating_sub(bytes);
        self.held -= over;
        self.budget.room.add_permits(over);
    }

    /// Wraps bytes so that the share is given back when the last slice of them is dropped.
    pub(super) fn hold(mut self, bytes: Bytes) -> Bytes {
        self.keep(bytes.len());
        Bytes::from_owner(SharedBytes {
            bytes,
            _share: self,
        })
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.budget.room.add_permits(self.held);
    }
}

impl Drop for WaitingBody<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct SharedBytes {
    bytes: Bytes,
    _share: BodyShare,
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A buffer that never holds much more than was put into it. It grows by pieces, which are joined
/// at the end.
#[derive(Debug, Default)]
pub(super) struct PieceBuffer {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
    length: usize,
}

impl PieceBuffer {
    /// A buffer whose first piece has this much room.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            last: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    /// How many bytes were put in.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Makes room for `bytes` in total, if there is only one piece so far.
    pub(super) fn expect(&mut self, bytes: usize) {
        if self.full.is_empty() && self.last.capacity() < bytes {
            self.last
                .reserve_exact(bytes.saturating_sub(self.last.len()));
        }
    }

    /// Puts bytes in.
    pub(super) fn push(&mut self, data: &[u8]) {
        let room = self.last.capacity() - self.last.len();
        let (now, later) = data.split_at(room.min(data.len()));
        self.last.extend_from_slice(now);
        if !later.is_empty() {
            let [least, most] = STEPS;
            let step = self.length.clamp(least, most).max(later.len());
            self.add(Vec::with_capacity(step));
            self.last.extend_from_slice(later);
        }
        self.length += data.len();
    }

    /// Puts a whole piece in.
    pub(super) fn push_piece(&mut self, piece: Vec<u8>) {
        self.length += piece.len();
        self.add(piece);
    }

    fn add(&mut self, piece: Vec<u8>) {
        let full = std::mem::replace(&mut self.last, piece);
        if !full.is_empty() {
            self.full.push(full);
        }
    }

    /// Joins the pieces. Each is dropped as soon as it was copied, so that the bytes are never held
    /// twice.
    pub(super) fn join(self) -> Bytes {
        if self.full.is_empty() {
            return self.last.into();
        }
        let mut whole = Vec::with_capacity(self.length);
        for piece in self.full {
            whole.extend_from_slice(&piece);
        }
        whole.extend_from_slice(&self.last);
        whole.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_dropped_is_given_back() {
        let budget = BodyBudget::new(100);
        let mut share = budget.share();
        assert!(share.try_grow(60) && !share.try_grow(41));
        let held = share.hold(Bytes::from_static(&[0; 50]));
        let slice = held.slice(10..20);
        drop(held);
        assert!(!budget.share().try_grow(51) && budget.share().try_grow(50));
        drop(slice);
        assert!(budget.share().try_grow(100));
    }

    proptest! {
        #[test]
        fn pieces_join_to_what_was_put_in(
            chunks: Vec<Vec<u8>>,
            room in 0_usize..100,
            expected in 0_usize..100,
        ) {
            let mut pieces = PieceBuffer::with_room(room);
            for (number, chunk) in chunks.iter().enumerate() {
                if number % 3 == 2 {
                    pieces.push_piece(chunk.clone());
                } else {
                    pieces.push(chunk);
                }
                pieces.expect(expected);
            }
            let whole = chunks.concat();
            prop_assert_eq!(pieces.len(), whole.len());
            prop_assert_eq!(pieces.join(), whole);
        }
    }
}
