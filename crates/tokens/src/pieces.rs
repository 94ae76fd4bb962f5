//! Cuts a text into the pieces that are merged separately, by the patterns of a vocabulary.
//!
//! Owns the patterns. Never merges, and is only asked for what `scan` leaves to it, which is text
//! beyond ASCII.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

use super::encoding::Encoding;

/// The pieces of `o200k_base`, except for white space.
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+$";
/// The pieces of `cl100k_base`, except for white space.
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+$";
/// The published patterns end in `\s+(?!\S)|\s+`. An automaton can't look ahead, so the character
/// that follows is matched as well and given back. [`LOOKS_AHEAD`] is the pattern that does this.
const SPACES: [&str; 2] = [r"\s+\s", r"\s+"];
/// The number of the pattern whose last character does not belong to the piece.
const LOOKS_AHEAD: usize = 1;

/// The patterns of one vocabulary.
pub(super) struct PiecePatterns(Option<Regex>);

impl PiecePatterns {
    pub(super) fn of(encoding: Encoding) -> Self {
        let words = match encoding {
            Encoding::O200k => O200K,
            Encoding::Cl100k => CL100K,
        };
        let [ahead, rest] = SPACES;
        // A test counts with both. If one were broken, a text would be one piece.
        Self(Regex::new_many(&[words, ahead, rest]).ok())
    }

    /// The length of the piece with which a text begins. The patterns match any text that is not
    /// empty, and only look ahead. So the rest of a text is cut as it is within the whole.
    pub(super) fn first(&self, text: &str) -> Option<usize> {
        let found = self
            .0
            .as_ref()?
            .find(Input::new(text).anchored(Anchored::Yes))?;
        let mut end = found.end();
        if found.pattern().as_usize() == LOOKS_AHEAD {
            let last = text.get(..end)?.chars().next_back()?;
            end -= last.len_utf8();
        }
        (end > 0).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use bpe_openai::{Tokenizer, cl100k_base, o200k_base};
    use proptest::prelude::*;

    use super::*;

    fn known(encoding: Encoding) -> &'static Tokenizer {
        match encoding {
            Encoding::O200k => o200k_base(),
            Encoding::Cl100k => cl100k_base(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { fork: false, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_cut_as_the_crate_cuts_it(
            text in "\\PC{0,40}|[a-zA-Zé中 \u{a0}\u{3000}\t\r\n'sS1²/.]{0,60}",
        ) {
            for encoding in [Encoding::O200k, Encoding::Cl100k] {
                let pieces = PiecePatterns::of(encoding);
                let mut rest = text.as_str();
                for expected in known(encoding).split(&text) {
                    prop_assert_eq!(pieces.first(rest), Some(expected.len()), "{:?}", rest);
                    rest = &rest[expected.len()..];
                }
                prop_assert_eq!(rest, "");
                prop_assert_eq!(pieces.first(rest), None);
            }
        }
    }
}
