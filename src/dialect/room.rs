//! The memory that what is read of upstreams' answers may take until it can be taken apart: whole bodies, events that
//! lack their end, and turns that are told at their end. One bound for all of them, in bytes. It holds no bytes, and
//! never decides what happens to an answer that has no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes of answers that are held at once, and so the most of one answer.
pub const ROOM: usize = 256 << 20;
/// So much of each answer is free: nearly all answers ask for no room at all.
const FREE: usize = 1 << 20;

/// Room for answers.
#[derive(Debug, Clone)]
pub struct Room(Arc<AtomicUsize>);

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
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// What an answer takes of it: nothing yet.
    #[must_use]
    pub fn enter(&self) -> Held {
        Held {
            room: self.clone(),
            bytes: 0,
        }
    }
}

/// No room is left for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the answers that are read now take all the memory that they may; try again, or ask for less in one answer"
)]
pub struct Full;

/// What an answer takes of the room. It is given back when this is dropped.
#[derive(Debug)]
pub struct Held {
    room: Room,
    bytes: usize,
}

impl Held {
    /// Takes room for an answer of so many bytes in all, or gives back what is too much.
    ///
    /// # Errors
    /// [`Full`] if there is no room for them. What was taken before stays taken.
    pub fn take(&mut self, bytes: usize) -> Result<(), Full> {
        let wanted = bytes.saturating_sub(FREE);
        let left = &self.room.0;
        if let Some(more) = wanted.checked_sub(self.bytes) {
            let fits = |left: usize| left.checked_sub(more);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
                .map_err(|_| Full)?;
        } else {
            left.fetch_add(self.bytes - wanted, Ordering::Relaxed);
        }
        self.bytes = wanted;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_share_one_room_and_give_it_back() {
        let room = Room::of(10);
        let (mut one, mut other) = (room.enter(), room.enter());
        assert_eq!(one.take(FREE), Ok(()), "small answers ask for none");
        assert_eq!(one.take(FREE + 8), Ok(()));
        assert_eq!(other.take(FREE + 3), Err(Full));
        assert_eq!(other.take(FREE + 2), Ok(()));
        assert_eq!(one.take(FREE + 4), Ok(()), "it gives back");
        assert_eq!(other.take(FREE + 6), Ok(()));
        drop(one);
        assert_eq!(other.take(FREE + 10), Ok(()));
        assert_eq!(other.take(FREE + 11), Err(Full));
        drop(other);
        assert_eq!(room.enter().take(FREE + 10), Ok(()));
    }
}
