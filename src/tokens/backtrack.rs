//! Byte pair encoding from left to right: the longest token that fits, and back where none does.
//!
//! Owns the search. It never decides which texts are encoded this way.
//!
//! The search is that of the `bpe` crate, and so is the reason why it is exact: a token sequence
//! is the encoding of its text exactly if each two neighbours are the encoding of their own joined
//! text. No place that led nowhere is entered again, so the search is linear in the text. It has
//! tables of its own because those of the crate are scattered: on text of rare tokens it waits
//! for memory most of the time.

use super::merge::{Merges, NONE};

/// The tokens of a text.
pub(super) fn encode(merges: &Merges, text: &[u8]) -> Vec<u32> {
    let mut token = merges.longest(text);
    if token == NONE || merges.length(token) == text.len() {
        return (token != NONE).then_some(token).into_iter().collect();
    }
    let mut tokens = Vec::with_capacity(text.len() / 3 + 1);
    let mut nowhere = Places::new(text.len());
    let mut at = 0;
    while token != NONE {
        let before = tokens.last().copied();
        loop {
            let end = at + merges.length(token);
            if !nowhere.has(end) && before.is_none_or(|before| merges.are_sound(before, token)) {
                tokens.push(token);
                at = end;
                token = merges.longest(text.get(at..).unwrap_or_default());
                break;
            }
            token = merges.shorter(token);
            if token == NONE {
                nowhere.add(at);
                let Some(before) = tokens.pop() else {
                    break;
                };
                at -= merges.length(before);
                token = before;
                break;
            }
        }
    }
    tokens
}

/// Places in a text.
struct Places(Vec<u64>);

impl Places {
    fn new(upto: usize) -> Self {
        Self(vec![0; upto / 64 + 1])
    }

    #[inline]
    fn has(&self, at: usize) -> bool {
        self.0
            .get(at / 64)
            .is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    #[inline]
    fn add(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }
}
