//! A table of pairs: what two tokens merge into.
//!
//! Owns the table. Never learns what a token is. Most pairs that are looked up are not in it. A
//! filter that fits into the second-level cache answers for nearly all of these.

/// How many bits the number of a token takes. One number is left to stand for none.
pub(super) const TOKEN_BITS: u32 = 18;
/// No token.
pub(super) const NONE: u32 = (1 << TOKEN_BITS) - 1;
/// The size of the filter, which has 32 thousand words.
const FILTER_BITS: u32 = 15;
/// The size of the table. It has as many places as there may be tokens, because each pair merges
/// into a different token.
const SLOT_BITS: u32 = 18;

/// Open addressing. A pair and what it merges into are packed into one word. Zero is a free place.
pub(super) struct Pairs {
    filter: Vec<u64>,
    slots: Vec<u64>,
}

impl Pairs {
    pub(super) fn new() -> Self {
        Self {
            filter: vec![0; 1 << FILTER_BITS],
            slots: vec![0; 1 << SLOT_BITS],
        }
    }

    /// Adds a pair that is not there yet. It must not merge into token 0.
    pub(super) fn add(&mut self, left: u32, right: u32, merged: u32) {
        let (key, hash) = hashed(left, right);
        let (word, bits) = filtered(hash);
        if let Some(word) = self.filter.get_mut(word) {
            *word |= bits;
        }
        let mut at = slot(hash);
        while let Some(slot) = self.slots.get_mut(at) {
            if *slot == 0 {
                *slot = key << TOKEN_BITS | u64::from(merged);
                return;
            }
            at = behind(at);
        }
    }

    /// What the two tokens merge into, or [`NONE`].
    #[inline]
    pub(super) fn of(&self, left: u32, right: u32) -> u32 {
        let (key, hash) = hashed(left, right);
        let (word, bits) = filtered(hash);
        if self.filter.get(word).is_none_or(|word| word & bits != bits) {
            return NONE;
        }
        let mut at = slot(hash);
        while let Some(slot) = self.slots.get(at).filter(|slot| **slot != 0) {
            if slot >> TOKEN_BITS == key {
                return *slot as u32 & NONE;
            }
            at = behind(at);
        }
        NONE
    }
}

#[inline]
fn hashed(left: u32, right: u32) -> (u64, u64) {
    let key = u64::from(left) << TOKEN_BITS | u64::from(right);
    (key, key.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The word of the filter for a hash, and two bits in it.
#[inline]
fn filtered(hash: u64) -> (usize, u64) {
    let word = hash >> (u64::BITS - FILTER_BITS);
    let (one, other) = (hash >> 37 & 63, hash >> 31 & 63);
    (word as usize, 1 << one | 1 << other)
}

#[inline]
fn slot(hash: u64) -> usize {
    (hash >> (u64::BITS - SLOT_BITS)) as usize
}

#[inline]
fn behind(slot: usize) -> usize {
    (slot + 1) & ((1 << SLOT_BITS) - 1)
}
