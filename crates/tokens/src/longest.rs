//! Finds the longest token with which a text begins.
//!
//! Owns the tokens in the order of their bytes. Never learns how tokens merge.
//!
//! In that order, take the last token that does not come after the text. It is the token that is
//! searched, or begins with it, because whatever stands between the beginning of a text and the
//! text begins with that beginning. Tokens with the same first three bytes stand side by side, and
//! the next eight bytes distinguish them. So a search touches two or three cache lines, where a
//! tree would touch one for each byte.

use super::pairs::{NONE, TOKEN_BITS};
use super::ranks::Ranks;

/// How many bytes tokens are grouped by.
const GROUP_BYTES: usize = 3;
/// Up to this length, the key of a token holds all of it.
const KEYED_BYTES: usize = GROUP_BYTES + 8;
/// The size of the table of groups, which has a hundred and thirty thousand places.
const GROUP_BITS: u32 = 17;

/// A token of at least three bytes: the eight bytes from the fourth on, and the rest packed.
#[derive(Clone, Copy)]
struct TokenEntry {
    key: u64,
    /// From the lowest bits on: the token, how many entries before it the longest shorter token
    /// stands with which it begins (0 if that has fewer than three bytes), and its length.
    packed: u64,
}

impl TokenEntry {
    #[inline]
    fn token(self) -> u32 {
        self.packed as u32 & NONE
    }

    #[inline]
    fn back(self) -> usize {
        (self.packed >> TOKEN_BITS) as usize & NONE as usize
    }

    #[inline]
    fn length(self) -> usize {
        (self.packed >> (2 * TOKEN_BITS)) as usize
    }
}

/// The tokens of a vocabulary, by their bytes.
pub(super) struct Longest {
    ranks: Ranks,
    /// The tokens of single bytes.
    bytes: [u32; 256],
    /// The tokens of two bytes, by the first byte and then the second. Where there is none, the
    /// token of the first byte.
    twos: Vec<u32>,
    /// For each three first bytes, where the entries begin and how many there are. Both are packed
    /// into one word, in a table with open addressing. Zero is a free place.
    groups: Vec<u64>,
    entries: Vec<TokenEntry>,
}

impl Longest {
    /// Sorts the tokens of a vocabulary, which are numbered below `count`. Also returns, for each
    /// token, the longest shorter token with which it begins, or [`NONE`].
    pub(super) fn new(ranks: Ranks, count: u32) -> (Self, Vec<u32>) {
        let text = |id| ranks.text(id);
        let mut sorted: Vec<(u64, u32)> = (0..count).map(|id| (key(text(id)), id)).collect();
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| text(a.1).cmp(text(b.1))));
        let mut shorter = vec![NONE; sorted.len()];
        let mut longest = Self {
            ranks: Ranks::default(),
            bytes: [NONE; 256],
            twos: vec![NONE; 1 << 16],
            groups: vec![0; 1 << GROUP_BITS],
            entries: Vec::with_capacity(sorted.len()),
        };
        // The tokens with which the next one may begin, and the numbers of their entries.
        let mut open: Vec<(u32, usize)> = Vec::new();
        for (_, id) in sorted {
            let own = text(id);
            while open
                .pop_if(|(token, _)| !own.starts_with(text(*token)))
                .is_some()
            {}
            let before = open.last().copied();
            if let (Some((before, _)), Some(shorter)) = (before, shorter.get_mut(id as usize)) {
                *shorter = before;
            }
            let entry = longest.entries.len();
            open.push((id, entry));
            match own {
                [] => {}
                [byte] => put(&mut longest.bytes, usize::from(*byte), id),
                [first, second] => put(&mut longest.twos, two(*first, *second), id),
                [_, _, _, ..] => {
                    let back = before.filter(|(token, _)| text(*token).len() >= GROUP_BYTES);
                    let back = back.map_or(0, |(_, before)| entry - before);
                    longest.push(own, id, back);
                }
            }
        }
        for (first, token) in longest.bytes.iter().enumerate() {
            for slot in longest.twos.iter_mut().skip(first << 8).take(256) {
                *slot = if *slot == NONE { *token } else { *slot };
            }
        }
        longest.ranks = ranks;
        (longest, shorter)
    }

    fn push(&mut self, text: &[u8], id: u32, back: usize) {
        let entry = self.entries.len() as u64;
        let length = text.len() as u64;
        self.entries.push(TokenEntry {
            key: key(text.get(GROUP_BYTES..).unwrap_or_default()),
            packed: length << (2 * TOKEN_BITS) | (back as u64) << TOKEN_BITS | u64::from(id),
        });
        let head = head(text);
        let mut at = place(head);
        while let Some(slot) = self.groups.get_mut(at) {
            if *slot == 0 {
                *slot = head << (2 * TOKEN_BITS) | entry << TOKEN_BITS;
            }
            if *slot >> (2 * TOKEN_BITS) == head {
                *slot += 1;
                return;
            }
            at = (at + 1) & ((1 << GROUP_BITS) - 1);
        }
    }

    /// The bytes of a token.
    #[inline]
    pub(super) fn text(&self, token: u32) -> &[u8] {
        self.ranks.text(token)
    }

    /// The token of a single byte, or [`NONE`].
    #[inline]
    pub(super) fn byte(&self, byte: u8) -> u32 {
        self.bytes.get(usize::from(byte)).copied().unwrap_or(NONE)
    }

    /// The longest token with which a text begins, or [`NONE`].
    #[inline]
    pub(super) fn of(&self, text: &[u8]) -> u32 {
        match text {
            [] => NONE,
            [byte] => self.byte(*byte),
            [first, second, rest @ ..] => {
                let found = if rest.is_empty() {
                    None
                } else {
                    self.entry(text)
                };
                found.unwrap_or_else(|| {
                    let token = self.twos.get(two(*first, *second)).copied();
                    token.unwrap_or(NONE)
                })
            }
        }
    }

    /// The longest token of at least three bytes with which a text of at least three bytes begins.
    #[inline]
    fn entry(&self, text: &[u8]) -> Option<u32> {
        let (start, group) = self.group(head(text))?;
        let wanted = key(text.get(GROUP_BYTES..).unwrap_or_default());
        let mut upto = group.partition_point(|entry| entry.key <= wanted);
        let mut last = group.get(upto.checked_sub(1)?)?;
        if last.key == wanted && last.length() > KEYED_BYTES {
            // Long tokens with the same key are compared by their whole texts.
            upto = group.partition_point(|entry| {
                (entry.key, self.long_text(*entry)) <= (wanted, Some(text))
            });
            last = group.get(upto.checked_sub(1)?)?;
        }
        // A token with which the last one begins is also a beginning of the text, provided that it
        // is not longer than this.
        let same = match self.long_text(*last) {
            Some(own) if last.key == wanted => {
                let pairs = own.iter().zip(text);
                pairs.take_while(|(own, other)| own == other).count()
            }
            Some(_) | None => GROUP_BYTES + (last.key ^ wanted).leading_zeros() as usize / 8,
        };
        let same = same.min(text.len());
        let mut at = start + upto - 1;
        loop {
            let entry = self.entries.get(at)?;
            if entry.length() <= same {
                return Some(entry.token());
            }
            at -= (entry.back() > 0).then_some(entry.back())?;
        }
    }

    /// The text of a token whose key does not hold all of it.
    fn long_text(&self, entry: TokenEntry) -> Option<&[u8]> {
        (entry.length() > KEYED_BYTES).then(|| self.text(entry.token()))
    }

    #[inline]
    fn group(&self, head: u64) -> Option<(usize, &[TokenEntry])> {
        let mut at = place(head);
        loop {
            let slot = *self.groups.get(at).filter(|slot| **slot != 0)?;
            if slot >> (2 * TOKEN_BITS) == head {
                let start = (slot >> TOKEN_BITS) as usize & NONE as usize;
                let count = slot as usize & NONE as usize;
                return Some((start, self.entries.get(start..start + count)?));
            }
            at = (at + 1) & ((1 << GROUP_BITS) - 1);
        }
    }
}

/// The first eight bytes as a number with the same order. Missing bytes are zeros.
#[inline]
fn key(text: &[u8]) -> u64 {
    if let Some(eight) = text.first_chunk() {
        return u64::from_be_bytes(*eight);
    }
    let mut padded = [0; 8];
    for (to, from) in padded.iter_mut().zip(text) {
        *to = *from;
    }
    u64::from_be_bytes(padded)
}

/// The first three bytes as a number.
#[inline]
fn head(text: &[u8]) -> u64 {
    text.first_chunk().map_or(0, |[first, second, third]| {
        u64::from(*first) << 16 | u64::from(*second) << 8 | u64::from(*third)
    })
}

#[inline]
fn place(head: u64) -> usize {
    (head.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - GROUP_BITS)) as usize
}

#[inline]
fn two(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

fn put(values: &mut [u32], at: usize, value: u32) {
    if let Some(slot) = values.get_mut(at) {
        *slot = value;
    }
}
