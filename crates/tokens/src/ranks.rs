//! The tokens of a vocabulary, numbered in the order in which they were merged.
//!
//! Owns the two files that a provider publishes, and their form: a line for each token, with its
//! bytes in base64 and its number. Never learns how tokens merge: that follows from their order,
//! and `merge` finds it faster than a table could be read.

use std::io::{BufRead, BufReader, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::encoding::Encoding;

static O200K: &[u8] = include_bytes!("../../../assets/tokens/o200k_base.tiktoken.zst");
static CL100K: &[u8] = include_bytes!("../../../assets/tokens/cl100k_base.tiktoken.zst");

/// The tokens of one vocabulary.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// The bytes of all tokens, one behind the other.
    bytes: Vec<u8>,
    /// Where each token ends.
    ends: Vec<u32>,
}

impl Ranks {
    /// Unpacks and reads the tokens of an encoding. This takes some tens of milliseconds.
    pub(super) fn of(encoding: Encoding) -> Self {
        let file = match encoding {
            Encoding::O200k => O200K,
            Encoding::Cl100k => CL100K,
        };
        // A test compares every token of both files with another reader's.
        zstd::Decoder::new(file)
            .ok()
            .and_then(Self::read)
            .unwrap_or_default()
    }

    /// `None` if the file has another form, or does not number its tokens in order.
    fn read(file: impl Read) -> Option<Self> {
        let mut ranks = Self::default();
        let mut file = BufReader::new(file);
        let mut line = String::new();
        while file.read_line(&mut line).ok()? > 0 {
            let (token, number) = line.trim_end().split_once(' ')?;
            if number.parse() != Ok(ranks.ends.len()) {
                return None;
            }
            STANDARD.decode_vec(token, &mut ranks.bytes).ok()?;
            ranks.ends.push(u32::try_from(ranks.bytes.len()).ok()?);
            line.clear();
        }
        ranks.bytes.shrink_to_fit();
        ranks.ends.shrink_to_fit();
        Some(ranks)
    }

    /// How many tokens there are.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a token. Empty if there is no such token.
    #[inline]
    pub(super) fn text(&self, token: u32) -> &[u8] {
        let token = token as usize;
        let before = token
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        let start = before.map_or(0, |end| *end as usize);
        let end = self.ends.get(token).map_or(start, |end| *end as usize);
        self.bytes.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use bpe_openai::{cl100k_base, o200k_base};

    use super::*;

    #[test]
    fn both_files_hold_the_tokens_of_the_crate() {
        for (encoding, known) in [
            (Encoding::O200k, &o200k_base().bpe),
            (Encoding::Cl100k, &cl100k_base().bpe),
        ] {
            let ranks = Ranks::of(encoding);
            assert_eq!(ranks.count(), known.num_tokens());
            for token in 0..u32::try_from(known.num_tokens()).unwrap() {
                assert_eq!(ranks.text(token), known.token_bytes(token), "{token}");
            }
            assert_eq!(ranks.text(u32::MAX), b"");
        }
    }

    #[test]
    fn a_file_of_another_form_is_none() {
        assert_eq!(Ranks::read(&b"IQ== 0\nIg== 1\n"[..]).unwrap().count(), 2);
        for file in ["IQ== 0\nIg== 2\n", "IQ==\n", "! 0\n", "IQ== zero\n"] {
            assert!(Ranks::read(file.as_bytes()).is_none(), "{file}");
        }
    }
}
