//! Remembers how many tokens a piece has, by its exact bytes.
//!
//! Owns one set of tables with a fixed size. [`MemoPool`] owns a few of these sets, so that concurrent
//! counts never wait for each other. Never counts anything itself, and never answers for bytes that
//! it was not given, because keys are compared whole.

use parking_lot::Mutex;
use twox_hash::XxHash3_64;

/// Up to this many bytes, a piece stands in the short table.
pub(super) const SHORT_MAX: usize = 15;
/// Up to this many bytes, a piece stands in the middle table.
const MIDDLE_MAX: usize = 128;
/// A longer piece is not remembered.
pub(super) const LONG_MAX: usize = 4096;

const SHORT_SLOTS: usize = 1 << 16;
const MIDDLE_SLOTS: usize = 1 << 12;
const LONG_SLOTS: usize = 1 << 9;

/// A short piece as one integer: up to 15 bytes, its length in bits 120 to 123, and bits 124 to 127
/// for its count. No piece is zero, because a piece has at least one byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ShortKey(u128);

const COUNT_SHIFT: u32 = 124;

impl ShortKey {
    /// The key of `bytes[start..end]`, or `None` if that is longer than [`SHORT_MAX`].
    #[inline]
    pub(super) fn of(bytes: &[u8], start: usize, end: usize) -> Option<Self> {
        let len = end - start;
        if len > SHORT_MAX {
            return None;
        }
        // If the text has sixteen bytes here, they are loaded at once and masked.
        let window = bytes.get(start..start + 16);
        let word = match window.and_then(|window| <[u8; 16]>::try_from(window).ok()) {
            Some(window) => u128::from_le_bytes(window) & ((1 << (8 * len)) - 1),
            None => bytes
                .get(start..end)
                .unwrap_or_default()
                .iter()
                .rev()
                .fold(0, |word, byte| (word << 8) | u128::from(*byte)),
        };
        Some(Self(word | ((len as u128) << 120)))
    }

    #[inline]
    fn slot(self) -> usize {
        let (low, high) = (self.0 as u64, (self.0 >> 64) as u64);
        let mixed = (low ^ high.rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed >> 48) as usize & (SHORT_SLOTS - 1)
    }
}

/// One piece in a table of longer pieces.
struct MemoEntry {
    key: Box<[u8]>,
    count: u32,
}

/// The tables of one count at a time, of at most 3.6 MB.
pub(super) struct PieceMemo {
    short: Vec<u128>,
    middle: Vec<Option<MemoEntry>>,
    long: Vec<Option<MemoEntry>>,
}

impl PieceMemo {
    fn new() -> Self {
        let empty = |slots| std::iter::repeat_with(|| None).take(slots).collect();
        Self {
            short: vec![0; SHORT_SLOTS],
            middle: empty(MIDDLE_SLOTS),
            long: empty(LONG_SLOTS),
        }
    }

    /// The count of a short piece, from the table or else from `count`.
    #[inline]
    pub(super) fn short(&mut self, key: ShortKey, count: impl FnOnce() -> u32) -> u32 {
        let Some(slot) = self.short.get_mut(key.slot()) else {
            return count();
        };
        if *slot & ((1 << COUNT_SHIFT) - 1) == key.0 {
            return (*slot >> COUNT_SHIFT) as u32;
        }
        let count = count();
        // A piece has at most as many tokens as bytes, and fifteen fit into four bits.
        *slot = key.0 | (u128::from(count) << COUNT_SHIFT);
        count
    }

    /// The count of a longer piece, from the tables or else from `count`.
    pub(super) fn long(&mut self, piece: &[u8], count: impl FnOnce() -> u32) -> u32 {
        let table = if piece.len() <= MIDDLE_MAX {
            &mut self.middle
        } else if piece.len() <= LONG_MAX {
            &mut self.long
        } else {
            return count();
        };
        // The table is a cache with one place for each hash. A newer piece takes the place of an
        // older one.
        let slot = XxHash3_64::oneshot(piece) as usize & (table.len() - 1);
        let Some(slot) = table.get_mut(slot) else {
            return count();
        };
        match slot {
            Some(entry) if *entry.key == *piece => entry.count,
            Some(_) | None => {
                let count = count();
                *slot = Some(MemoEntry {
                    key: piece.into(),
                    count,
                });
                count
            }
        }
    }
}

/// Memos that are lent to one count at a time.
pub(super) struct MemoPool {
    state: Mutex<PoolState>,
    most: usize,
}

struct PoolState {
    /// The memo that was given back last is on top, so that a lone thread keeps meeting the same
    /// warm tables.
    idle: Vec<PieceMemo>,
    made: usize,
}

impl MemoPool {
    /// A pool of at most `most` memos. Each is made when it is first needed.
    pub(super) fn new(most: usize) -> Self {
        Self {
            state: Mutex::new(PoolState {
                idle: Vec::new(),
                made: 0,
            }),
            most,
        }
    }

    /// Runs `work` with a memo, or with none if all are lent. A count without a memo is slower and
    /// gives the same result.
    pub(super) fn lend<T>(&self, work: impl FnOnce(Option<&mut PieceMemo>) -> T) -> T {
        let Some(mut memo) = self.take() else {
            return work(None);
        };
        let result = work(Some(&mut memo));
        self.state.lock().idle.push(memo);
        result
    }

    fn take(&self) -> Option<PieceMemo> {
        let mut state = self.state.lock();
        if let Some(memo) = state.idle.pop() {
            return Some(memo);
        }
        if state.made == self.most {
            return None;
        }
        state.made += 1;
        drop(state);
        Some(PieceMemo::new())
    }
}
