//! Byte pair encoding from left to right: takes the longest token that fits, and goes back where
//! none does.
//!
//! Owns the search. Never decides which texts are encoded in this way.
//!
//! The search is that of the `bpe` crate, and it is exact for the same reason: a sequence of tokens
//! is the encoding of its text exactly if every two neighbours are the encoding of their joined
//! text. A place that led nowhere is never entered again, so the search is linear in the text. It
//! has tables of its own because those of the crate are scattered over memory: on text of rare
//! tokens it would mostly wait for memory.

use super::merge::{Merges, NONE};

/// The tokens of a text.
pub(super) fn encode(merges: &Merges, text: &[u8]) -> Vec<u32> {
    let mut token = merges.longest(text);
    // A text that is one token, or no token at all, needs no search.
    if token == NONE || merges.length(token) == text.len() {
        return (token != NONE).then_some(token).into_iter().collect();
    }
    let mut tokens = Vec::with_capacity(text.len() / 3 + 1);
    let mut nowhere = Places::new(text.len());
    let mut at = 0;
    while token != NONE {
        let before = tokens.last().copied();
        loop {
            // A token fits if it leads to a place that is not known as a dead end, and forms no
            // earlier token with the one before it.
            let end = at + merges.length(token);
            if !nowhere.has(end) && before.is_none_or(|before| merges.are_sound(before, token)) {
                tokens.push(token);
                at = end;
                token = merges.longest(text.get(at..).unwrap_or_default());
                break;
            }
            token = merges.shorter(token);
            if token == NONE {
                // No token fits here, so this place is a dead end, and the token before has to be
                // shorter.
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

/// A set of places in a text.
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

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use bpe_openai::{Tokenizer, cl100k_base, o200k_base};
    use proptest::prelude::*;

    use super::super::encoding::Encoding;
    use super::super::ranks::Ranks;
    use super::*;

    static BOTH: LazyLock<[(&Tokenizer, Merges); 2]> = LazyLock::new(|| {
        [
            (o200k_base(), Encoding::O200k),
            (cl100k_base(), Encoding::Cl100k),
        ]
        .map(|(known, encoding)| (known, Merges::new(Ranks::of(encoding))))
    });

    #[track_caller]
    fn check(text: &[u8]) {
        for (tokenizer, merges) in BOTH.iter() {
            let expected = tokenizer.bpe.encode_via_backtracking(text);
            let shown = String::from_utf8_lossy(text);
            assert_eq!(encode(merges, text), expected, "{shown:?}");
        }
    }

    #[test]
    fn a_token_is_encoded_to_itself_and_merged_from_two() {
        for (tokenizer, merges) in BOTH.iter() {
            for token in 0..u32::try_from(tokenizer.bpe.num_tokens()).unwrap() {
                let text = merges.text(token);
                assert_eq!(encode(merges, text), [token]);
                assert_eq!(merges.length(token), text.len());
                // Only one way to cut its text gives two tokens that merge into it.
                let halves = (1..text.len()).filter(|at| {
                    let (left, right) = text.split_at(*at);
                    let (left, right) = (merges.longest(left), merges.longest(right));
                    merges.of(left, right) == token
                        && merges.length(left) + merges.length(right) == text.len()
                });
                assert_eq!(halves.count(), usize::from(text.len() > 1), "{text:?}");
            }
        }
    }

    /// The longest token by trying all lengths, for each place of some telling texts.
    #[test]
    fn the_longest_token_is_the_longest() {
        let (tokenizer, merges) = &BOTH[0];
        let tokens = 0..u32::try_from(tokenizer.bpe.num_tokens()).unwrap();
        let known: std::collections::HashMap<&[u8], u32> = tokens
            .clone()
            .map(|token| (merges.text(token), token))
            .collect();
        let check = |text: &[u8]| {
            let lengths = (1..=text.len().min(200)).rev();
            let expected = lengths
                .filter_map(|length| known.get(&text[..length]))
                .next();
            assert_eq!(
                merges.longest(text),
                expected.copied().unwrap_or(NONE),
                "{text:?}"
            );
        };
        check(b"");
        for token in tokens.step_by(3) {
            let text = merges.text(token);
            let begin = &text[..text.len() - 1];
            check(begin);
            for behind in [b"" as &[u8], b"\0", b"\xff", b" ", b"zz", text] {
                check(&[text, behind].concat());
                check(&[begin, behind].concat());
            }
        }
    }

    /// Tokens of one kind without anything that would part them: those of small letters, of any
    /// letters, and any at all, which are not even text.
    #[test]
    fn long_texts_of_rare_tokens() {
        let kinds: [fn(&str) -> bool; 3] = [
            |token| token.chars().all(|c| c.is_ascii_lowercase()),
            |token| token.chars().all(char::is_alphabetic),
            |_| true,
        ];
        let mut state = 7_u64;
        for kind in kinds {
            let bpe = &o200k_base().bpe;
            let fit: Vec<&[u8]> = (0..u32::try_from(bpe.num_tokens()).unwrap())
                .map(|token| bpe.token_bytes(token))
                .filter(|text| kind(&String::from_utf8_lossy(text)))
                .collect();
            let mut text = Vec::new();
            while text.len() < 200_000 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                text.extend(fit[usize::try_from(state >> 33).unwrap() % fit.len()]);
            }
            check(&text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, fork: false, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_encoded_as_the_crate_does(text in any::<Vec<u8>>()) {
            check(&text);
        }

        #[test]
        fn few_letters_are_encoded_as_the_crate_does(text in "[a-e]{0,80}|[estaino]{0,300}|[ -~]{0,80}") {
            check(text.as_bytes());
        }
    }
}
