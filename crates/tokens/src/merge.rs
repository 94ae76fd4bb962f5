//! Which two tokens a vocabulary merges into which one.
//!
//! Owns the tables of a vocabulary, which are made for speed on text with rare tokens: everything
//! about a token is one word, and everything about a pair is one bit and at most one more word.
//! Never encodes a text.

use super::longest::Longest;
use super::pairs::Pairs;
pub(super) use super::pairs::{NONE, TOKEN_BITS};
use super::ranks::Ranks;

/// The merges of one vocabulary. All threads share them without a lock.
pub(super) struct Merges {
    longest: Longest,
    pairs: Pairs,
    tokens: Vec<Token>,
}

/// Everything about one token: from the lowest bits on, the two tokens that it is merged from
/// (itself twice if there are none), the longest shorter token with which it begins, and its
/// length.
#[derive(Clone, Copy)]
struct Token(u64);

impl Token {
    fn new(halves: (u32, u32), shorter: u32, length: usize) -> Self {
        let packed = [shorter, halves.1, halves.0]
            .iter()
            .fold(length.min(usize::from(u8::MAX)) as u64, |packed, part| {
                packed << TOKEN_BITS | u64::from(*part)
            });
        Self(packed)
    }

    #[inline]
    fn left(self) -> u32 {
        self.0 as u32 & NONE
    }

    #[inline]
    fn right(self) -> u32 {
        (self.0 >> TOKEN_BITS) as u32 & NONE
    }

    #[inline]
    fn shorter(self) -> u32 {
        (self.0 >> (2 * TOKEN_BITS)) as u32 & NONE
    }

    #[inline]
    fn length(self) -> usize {
        (self.0 >> (3 * TOKEN_BITS)) as usize
    }
}

impl Merges {
    /// Finds the merges of a vocabulary. This takes some tens of milliseconds and 9 MB.
    pub(super) fn new(ranks: Ranks) -> Self {
        let count = u32::try_from(ranks.count()).unwrap_or(NONE);
        debug_assert!(count < NONE, "token numbers take {TOKEN_BITS} bits");
        let (longest, shorter) = Longest::new(ranks, count);
        let tokens = (0..).zip(shorter).map(|(id, shorter)| {
            let length = longest.text(id).len();
            Token::new((id, id), shorter, length)
        });
        let tokens = tokens.collect();
        let mut merges = Self {
            longest,
            pairs: Pairs::new(),
            tokens,
        };
        // Tokens are added in their order, because the halves of a token are always earlier than
        // the token.
        for id in 0..count {
            if let Some((left, right)) = merges.halves(id) {
                merges.pairs.add(left, right, id);
                let whole = merges.token(id);
                if let Some(token) = merges.tokens.get_mut(id as usize) {
                    *token = Token::new((left, right), whole.shorter(), whole.length());
                }
            }
        }
        merges
    }

    /// The two tokens that a token is merged from. A vocabulary is made by merging what it has
    /// already, so these are the two earlier tokens into which earlier merges encode its text.
    fn halves(&self, id: u32) -> Option<(u32, u32)> {
        let text = self.text(id);
        let mut left = self.token(id).shorter();
        while left != NONE {
            let rest = text.get(self.length(left)..).unwrap_or_default();
            let right = self.longest.of(rest);
            if right != NONE
                && self.length(right) == rest.len()
                && left.max(right) < id
                && self.are_sound(left, right)
            {
                return Some((left, right));
            }
            left = self.token(left).shorter();
        }
        None
    }

    /// Whether the encoding of two tokens' joined text is exactly these two.
    ///
    /// It is not if, at a moment when both were merged only in part, the parts in the middle merged
    /// into an earlier token than the next one of either. So the tokens are taken apart towards the
    /// middle, the later one first.
    #[inline]
    pub(super) fn are_sound(&self, mut left: u32, mut right: u32) -> bool {
        let mut limit = u32::MAX;
        loop {
            let merged = self.of(left, right);
            if merged != NONE && merged < limit {
                return false;
            }
            let (left_part, right_part) = (self.token(left).right(), self.token(right).left());
            let left_first = left > right;
            if left_part != left && (left_first || right_part == right) {
                limit = left;
                left = left_part;
            } else if right_part != right {
                limit = right + 1;
                right = right_part;
            } else {
                return true;
            }
        }
    }

    #[inline]
    fn token(&self, token: u32) -> Token {
        let known = self.tokens.get(token as usize).copied();
        known.unwrap_or(Token(u64::MAX))
    }

    /// The token of a single byte.
    pub(super) fn byte(&self, byte: u8) -> u32 {
        self.longest.byte(byte)
    }

    /// The bytes of a token.
    pub(super) fn text(&self, token: u32) -> &[u8] {
        self.longest.text(token)
    }

    /// The number of bytes in a token.
    #[inline]
    pub(super) fn length(&self, token: u32) -> usize {
        self.token(token).length()
    }

    /// The longest token with which a text begins, or [`NONE`].
    #[inline]
    pub(super) fn longest(&self, text: &[u8]) -> u32 {
        self.longest.of(text)
    }

    /// The longest shorter token with which a token begins, or [`NONE`].
    #[inline]
    pub(super) fn shorter(&self, token: u32) -> u32 {
        self.token(token).shorter()
    }

    /// The token that two neighbours merge into, or [`NONE`]. It is always later than both.
    #[inline]
    pub(super) fn of(&self, left: u32, right: u32) -> u32 {
        self.pairs.of(left, right)
    }
}
