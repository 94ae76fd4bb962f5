//! Counts the tokens of a text as the provider's BPE would.
//!
//! Owns the memos, and what goes to `tiktoken-rs`: pieces that no memo has, one by one. Never reads
//! a special token: a text that spells one is counted as ordinary text, because a provider treats
//! it so. Never allocates for ASCII text whose pieces it has met before.

use std::sync::OnceLock;

use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};

use super::encoding::Encoding;
use super::memo::{MemoPool, PieceMemo, ShortKey};
use super::pieces::PiecePatterns;
use super::scan;

/// How many memos the common and the rare encoding have at most. Together they take less than 32
/// MB.
const O200K_MEMOS: usize = 7;
const CL100K_MEMOS: usize = 1;

/// How many bytes of a text are counted exactly. Each byte after that counts as one token, which no
/// token is shorter than. A text with that many tokens exceeds any window, and the worst texts take
/// fifty times as long as the best.
const EXACT_BYTES: usize = 4 << 20;
/// The size of the parts in which a longer piece is counted. Nobody writes such a piece. A cut nearly
/// always adds at most one token. The crate cuts a piece again by its own pattern, which leaves one
/// that was not cut whole, and panics where that takes a million steps, as a megabyte of blanks does: a part takes a
/// fifteenth of them. It takes 48 bytes of memory for each byte of a part. A part takes little more
/// than linear time, at most 4 seconds for 10 MB of the worst; parts of 4 KiB would take 3.
const PART_BYTES: usize = 64 << 10;

/// Counts tokens. It is loaded once at the start and shared by reference. Counts run in parallel,
/// and each uses what earlier ones learned about a piece.
pub struct Counter {
    o200k: Vocabulary,
    cl100k: OnceLock<Vocabulary>,
}

impl Counter {
    /// Loads `o200k` now, which takes some hundred milliseconds and tens of megabytes. `cl100k` is
    /// loaded when it is first needed. Each is loaded once and shared by all counters.
    #[must_use]
    pub fn load() -> Self {
        Self {
            o200k: Vocabulary::new(Encoding::O200k, O200K_MEMOS),
            cl100k: OnceLock::new(),
        }
    }

    /// The number of tokens in `text`. Up to 4 MiB this is what `tiktoken` encodes it to, except
    /// for single pieces of more than 64 KiB. For longer texts it is never less than that. Time is
    /// linear in the text for any input, and so is memory up to a few megabytes. A text of more
    /// than four billion tokens saturates.
    #[must_use]
    pub fn count(&self, encoding: Encoding, text: &str) -> u32 {
        let vocabulary = match encoding {
            Encoding::O200k => &self.o200k,
            Encoding::Cl100k => self
                .cl100k
                .get_or_init(|| Vocabulary::new(Encoding::Cl100k, CL100K_MEMOS)),
        };
        vocabulary.count(text)
    }
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counter").finish_non_exhaustive()
    }
}

/// One encoding, and what was learned about it.
struct Vocabulary {
    encoding: Encoding,
    pieces: PiecePatterns,
    bpe: &'static CoreBPE,
    memos: MemoPool,
}

impl Vocabulary {
    fn new(encoding: Encoding, memos: usize) -> Self {
        let bpe = match encoding {
            Encoding::O200k => o200k_base_singleton(),
            Encoding::Cl100k => cl100k_base_singleton(),
        };
        Self {
            encoding,
            pieces: PiecePatterns::of(encoding),
            bpe,
            memos: MemoPool::new(memos),
        }
    }

    fn count(&self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        // The border is that of a character, because the patterns read whole characters.
        let (text, rest) = text.split_at(text.floor_char_boundary(EXACT_BYTES));
        let exact = self.memos.lend(|memo| match memo {
            Some(memo) => self.sum(text, |start, end| self.remembered(memo, text, start, end)),
            None => self.sum(text, |start, end| self.piece(slice(text, start, end))),
        });
        exact.saturating_add(u32::try_from(rest.len()).unwrap_or(u32::MAX))
    }

    /// Adds up `count` over all pieces of the text.
    #[inline]
    fn sum(&self, text: &str, mut count: impl FnMut(usize, usize) -> u32) -> u32 {
        let bytes = text.as_bytes();
        let mut total = 0_u32;
        let mut start = 0;
        while start < bytes.len() {
            let end = scan::piece_end(self.encoding, bytes, start)
                .unwrap_or_else(|| self.wide_end(text, start));
            total = total.saturating_add(count(start, end));
            start = end;
        }
        total
    }

    /// The end of the piece at `start` by the vocabulary's own patterns, for text that is not
    /// ASCII.
    fn wide_end(&self, text: &str, start: usize) -> usize {
        let rest = text.get(start..).unwrap_or_default();
        // The patterns match any text. If they did not, the rest would be one piece, and the loop
        // would end.
        start + self.pieces.first(rest).unwrap_or(rest.len().max(1))
    }

    /// How many tokens a piece is merged into.
    fn piece(&self, mut piece: &str) -> u32 {
        let mut count = 0;
        while !piece.is_empty() {
            let (part, rest) = piece.split_at(piece.floor_char_boundary(PART_BYTES));
            count += self.bpe.count_ordinary(part);
            piece = rest;
        }
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    #[inline]
    fn remembered(&self, memo: &mut PieceMemo, text: &str, start: usize, end: usize) -> u32 {
        let bpe = || self.piece(slice(text, start, end));
        match ShortKey::of(text.as_bytes(), start, end) {
            Some(key) => memo.short(key, bpe),
            None => memo.long(slice(text, start, end).as_bytes(), bpe),
        }
    }
}

fn slice(text: &str, start: usize, end: usize) -> &str {
    text.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where all memos are lent, a count goes without one and says the same.
    #[test]
    fn a_count_without_a_memo_is_the_same() {
        let text = include_str!("counter.rs");
        let with = Vocabulary::new(Encoding::O200k, 1);
        let without = Vocabulary::new(Encoding::O200k, 0);
        assert_eq!(with.count(text), without.count(text));
        // A count within a count finds the only memo lent.
        let nested = with.memos.lend(|memo| (memo.is_some(), with.count(text)));
        assert_eq!(nested, (true, without.count(text)));
    }
}
