//! Which two tokens a vocabulary merges into which one.
//!
//! Owns an index of the vocabulary by bytes, and a table of the answers given last. It never
//! merges anything itself.

use std::sync::atomic::{AtomicU64, Ordering};

use bpe_openai::Tokenizer;
use xxhash_rust::xxh3::xxh3_64;

/// Token numbers fit into so many bits, with one to spare that stands for none.
const TOKEN_BITS: u32 = 18;
/// No token.
pub(super) const NONE: u32 = (1 << TOKEN_BITS) - 1;
/// The answers that are kept: at most 256 KB.
const ANSWER_BITS: u32 = 15;
/// The longest text that two tokens may merge into; longer tokens are in no vocabulary.
const LONGEST: usize = 256;

/// The merges of one vocabulary. Shared by all threads without a lock.
pub(super) struct Merges {
    tokenizer: &'static Tokenizer,
    /// Token numbers by the hash of their bytes, open addressing.
    ids: Vec<u32>,
    /// The tokens of single bytes.
    bytes: Vec<u32>,
    /// The length of the longest token.
    longest: usize,
    /// Two tokens and what they merge into, packed into one word each.
    answers: Vec<AtomicU64>,
}

impl Merges {
    /// Indexes a vocabulary; takes some milliseconds and 2 MB.
    pub(super) fn new(tokenizer: &'static Tokenizer) -> Self {
        let count = u32::try_from(tokenizer.bpe.num_tokens()).unwrap_or(NONE);
        debug_assert!(count < NONE, "token numbers take {TOKEN_BITS} bits");
        let size = 2 * (count as usize).next_power_of_two();
        let mut merges = Self {
            tokenizer,
            ids: vec![NONE; size],
            bytes: vec![NONE; 256],
            longest: 0,
            answers: Vec::new(),
        };
        merges
            .answers
            .resize_with(1 << ANSWER_BITS, AtomicU64::default);
        for id in 0..count {
            merges.add(id);
        }
        merges
    }

    fn add(&mut self, id: u32) {
        let text = self.tokenizer.bpe.token_bytes(id);
        self.longest = self.longest.max(text.len()).min(LONGEST);
        if let [byte] = text
            && let Some(slot) = self.bytes.get_mut(usize::from(*byte))
        {
            *slot = id;
        }
        let mut at = self.slot(text);
        while let Some(slot) = self.ids.get_mut(at) {
            if *slot == NONE {
                *slot = id;
                return;
            }
            at = (at + 1) & (self.ids.len() - 1);
        }
    }

    fn slot(&self, text: &[u8]) -> usize {
        xxh3_64(text) as usize & (self.ids.len() - 1)
    }

    /// The token of a single byte.
    pub(super) fn byte(&self, byte: u8) -> u32 {
        self.bytes.get(usize::from(byte)).copied().unwrap_or(NONE)
    }

    /// The bytes of a token.
    pub(super) fn text(&self, token: u32) -> &'static [u8] {
        self.tokenizer.bpe.token_bytes(token)
    }

    /// The token that two neighbours merge into, or [`NONE`]. It is always a later one than both:
    /// a vocabulary is made by merging what it has already.
    #[inline]
    pub(super) fn of(&self, left: u32, right: u32) -> u32 {
        let key = (u64::from(left) << TOKEN_BITS | u64::from(right)) + 1;
        let slot = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ANSWER_BITS);
        let Some(slot) = self.answers.get(slot as usize) else {
            return NONE;
        };
        let known = slot.load(Ordering::Relaxed);
        if known >> TOKEN_BITS == key {
            return known as u32 & NONE;
        }
        let merged = self.look_up(left, right);
        slot.store(key << TOKEN_BITS | u64::from(merged), Ordering::Relaxed);
        merged
    }

    #[cold]
    fn look_up(&self, left: u32, right: u32) -> u32 {
        let (first, second) = (self.text(left), self.text(right));
        let length = first.len() + second.len();
        if length > self.longest {
            return NONE;
        }
        let mut joined = [0; LONGEST];
        for (to, from) in joined.iter_mut().zip(first.iter().chain(second)) {
            *to = *from;
        }
        let merged = self.find(joined.get(..length).unwrap_or_default());
        if merged > left.max(right) {
            merged
        } else {
            NONE
        }
    }

    fn find(&self, text: &[u8]) -> u32 {
        let mut at = self.slot(text);
        while let Some(id) = self.ids.get(at).copied().filter(|id| *id != NONE) {
            if self.text(id) == text {
                return id;
            }
            at = (at + 1) & (self.ids.len() - 1);
        }
        NONE
    }
}
