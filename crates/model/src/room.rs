//! The memory that requests and answers may take: their bytes, what is made of them, and what is held of an answer
//! until it can be handed on. One bound for all of them, in bytes. Owns who has how much of it. It holds no bytes, and
//! never decides what happens to what has no room.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// The room that there is if nobody sets another, in bytes.
pub const ROOM: usize = 512 << 20;
/// So many bytes of each answer are free: nearly all answers ask for no room at all.
const FREE: usize = 256 << 10;

/// Room for requests and answers.
#[derive(Clone)]
pub struct Room(Arc<Space>);

struct Space {
    most: usize,
    free: AtomicUsize,
    /// Called whenever some came free.
    freed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Room").field(&self.0.free).finish()
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::of(ROOM)
    }
}

/// Rooms differ in what they are for, and are equal wherever settings are compared.
impl PartialEq for Room {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Room {}

impl Room {
    /// Room for so many bytes.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        Self(Arc::new(Space {
            most: bytes,
            free: AtomicUsize::new(bytes),
            freed: OnceLock::new(),
        }))
    }

    /// How many bytes there is room for in all.
    #[must_use]
    pub fn most(&self) -> usize {
        self.0.most
    }

    /// Has this called whenever some room came free. Whoever waits for room asks for it once.
    pub fn when_freed(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.freed.set(Box::new(call));
    }

    /// What a request takes of it: nothing yet.
    #[must_use]
    pub fn enter(&self) -> Held {
        Held {
            room: self.clone(),
            bytes: 0,
        }
    }

    /// What an answer takes of it: nothing yet, and nothing of its first 256 KiB.
    #[must_use]
    pub fn enter_answer(&self) -> HeldAnswer {
        HeldAnswer(self.enter())
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.0.free.fetch_add(bytes, Ordering::AcqRel);
            if let Some(call) = self.0.freed.get() {
                call();
            }
        }
    }
}

/// No room is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the requests and answers that are read now take all the memory that they may; try again, ask for less in one \
     answer, or raise server.body_budget"
)]
pub struct Full;

/// What a request takes of the room. It is given back when this is dropped.
#[derive(Debug)]
pub struct Held {
    room: Room,
    bytes: usize,
}

impl Held {
    /// Takes more, if that much is free now.
    #[must_use]
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let fits = |free: usize| free.checked_sub(bytes);
        let free = &self.room.0.free;
        let taken = free.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
        if taken.is_ok() {
            self.bytes += bytes;
        }
        taken.is_ok()
    }

    /// Gives back what exceeds `bytes`.
    fn keep(&mut self, bytes: usize) {
        let over = self.bytes.saturating_sub(bytes);
        self.bytes -= over;
        self.room.give_back(over);
    }

    /// Wraps bytes so that their room is given back when the last slice of them is dropped. What exceeds them is given
    /// back at once.
    #[must_use]
    pub fn hold(mut self, bytes: Bytes) -> Bytes {
        self.keep(bytes.len());
        Bytes::from_owner(HeldBytes { bytes, _held: self })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.give_back(self.bytes);
    }
}

/// What an answer takes of the room. It never waits: the answer is paid for, and comes from elsewhere.
#[derive(Debug)]
pub struct HeldAnswer(Held);

impl HeldAnswer {
    /// Takes room for an answer of so many bytes in all, or gives back what is too much.
    ///
    /// # Errors
    /// [`Full`] if there is no room for them. What was taken before stays taken.
    pub fn take(&mut self, bytes: usize) -> Result<(), Full> {
        let wanted = bytes.saturating_sub(FREE);
        let more = wanted.saturating_sub(self.0.bytes);
        // Nearly all answers need none, and are asked for each read of them.
        if more > 0 && !self.0.try_grow(more) {
            return Err(Full);
        }
        self.0.keep(wanted);
        Ok(())
    }

    /// Wraps the bytes of the answer, which alone are left of it, so that the room is given back when the last slice
    /// of them is dropped.
    #[must_use]
    pub fn hold(mut self, bytes: Bytes) -> Bytes {
        self.0.keep(bytes.len().saturating_sub(FREE));
        match self.0.bytes {
            0 => bytes,
            _ => self.0.hold(bytes),
        }
    }
}

struct HeldBytes {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back() {
        let room = Room::of(100);
        let mut held = room.enter();
        assert!(held.try_grow(60) && !held.try_grow(41));
        let held = held.hold(Bytes::from_static(&[0; 50]));
        let slice = held.slice(10..20);
        drop(held);
        assert!(!room.enter().try_grow(51) && room.enter().try_grow(50));
        drop(slice);
        assert!(room.enter().try_grow(100));
    }

    #[test]
    fn answers_and_requests_share_one_room() {
        let room = Room::of(10);
        let (mut one, mut other) = (room.enter_answer(), room.enter_answer());
        assert_eq!(one.take(FREE), Ok(()), "small answers ask for none");
        assert_eq!(one.take(FREE + 8), Ok(()));
        assert_eq!(other.take(FREE + 3), Err(Full));
        assert_eq!(other.take(FREE + 2), Ok(()));
        assert_eq!(one.take(FREE + 4), Ok(()), "it gives back");
        let mut request = room.enter();
        assert!(request.try_grow(4) && !request.try_grow(1));
        assert_eq!(other.take(FREE + 6), Err(Full), "a request has it");
        drop(request);
        assert_eq!(other.take(FREE + 6), Ok(()));
        drop(one);
        assert_eq!(other.take(FREE + 10), Ok(()));
        assert_eq!(other.take(FREE + 11), Err(Full));
        drop(other);
        assert_eq!(room.enter_answer().take(FREE + 10), Ok(()));
    }
}
