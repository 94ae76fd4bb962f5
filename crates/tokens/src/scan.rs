//! Cuts ASCII text into the pieces that a BPE merges, without a regular expression.
//!
//! Owns the two patterns for pre-tokenisation, written as scanners. Never decides about text that
//! is not ASCII: as soon as a piece touches such a byte, the answer is `None`, and the caller asks
//! the tokeniser's own pattern. The patterns, in their order of preference
//! (<https://github.com/openai/tiktoken>, `openai_public.py`):
//!
//! ```text
//! o200k   [^\r\n\p{L}\p{N}]?[upper]*[lower]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//!       | [^\r\n\p{L}\p{N}]?[upper]+[lower]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//!       | \p{N}{1,3} |  ?[^\s\p{L}\p{N}]+[\r\n/]* | \s*[\r\n]+ | \s+(?!\S) | \s+
//! cl100k  (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+
//!       | \p{N}{1,3} |  ?[^\s\p{L}\p{N}]+[\r\n]*  | \s*[\r\n]+ | \s+(?!\S) | \s+
//! ```

use super::encoding::Encoding;

/// The classes of characters in the patterns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Upper,
    Lower,
    Digit,
    /// White space that is not a line break.
    Blank,
    Newline,
    /// Everything else in ASCII, including control characters.
    Mark,
    /// The first byte of a character outside ASCII.
    Wide,
    /// The end of the text.
    End,
}

#[inline]
fn class_at(bytes: &[u8], at: usize) -> CharClass {
    match bytes.get(at) {
        None => CharClass::End,
        Some(b'a'..=b'z') => CharClass::Lower,
        Some(b'A'..=b'Z') => CharClass::Upper,
        Some(b' ' | b'\t' | 0x0b | 0x0c) => CharClass::Blank,
        Some(b'\r' | b'\n') => CharClass::Newline,
        Some(b'0'..=b'9') => CharClass::Digit,
        Some(0x80..) => CharClass::Wide,
        Some(_) => CharClass::Mark,
    }
}

/// The first position from `at` on whose byte does not satisfy `keep`.
#[inline]
fn run(bytes: &[u8], at: usize, keep: impl Fn(u8) -> bool) -> usize {
    let mut end = at;
    while bytes.get(end).is_some_and(|byte| keep(*byte)) {
        end += 1;
    }
    end
}

/// The end of the piece at `start`. `None` if a character outside ASCII takes part in it. `start`
/// must be the start of a piece, and lie before the end of `bytes`.
#[inline]
pub(super) fn piece_end(encoding: Encoding, bytes: &[u8], start: usize) -> Option<usize> {
    match class_at(bytes, start) {
        CharClass::Upper | CharClass::Lower => word(encoding, bytes, start),
        CharClass::Digit => digits(bytes, start),
        CharClass::Blank => match class_at(bytes, start + 1) {
            CharClass::Upper | CharClass::Lower => word(encoding, bytes, start + 1),
            CharClass::Mark if bytes.get(start) == Some(&b' ') => marks(encoding, bytes, start + 1),
            CharClass::Mark
            | CharClass::Digit
            | CharClass::Blank
            | CharClass::Newline
            | CharClass::End => blanks(bytes, start),
            CharClass::Wide => None,
        },
        CharClass::Newline => blanks(bytes, start),
        CharClass::Mark => {
            // The pattern of o200k has contractions only behind a word.
            if encoding == Encoding::Cl100k {
                match contraction(bytes, start) {
                    Contraction::Ends(end) => return Some(end),
                    Contraction::Unclear => return None,
                    Contraction::Absent => {}
                }
            }
            match class_at(bytes, start + 1) {
                CharClass::Upper | CharClass::Lower => word(encoding, bytes, start + 1),
                CharClass::Mark
                | CharClass::Digit
                | CharClass::Blank
                | CharClass::Newline
                | CharClass::End => marks(encoding, bytes, start),
                CharClass::Wide => None,
            }
        }
        CharClass::Wide | CharClass::End => None,
    }
}

/// The end of a word whose first letter is at `at`.
#[inline]
fn word(encoding: Encoding, bytes: &[u8], at: usize) -> Option<usize> {
    let end = match encoding {
        Encoding::O200k => {
            let upper = run(bytes, at, |byte| byte.is_ascii_uppercase());
            run(bytes, upper, |byte| byte.is_ascii_lowercase())
        }
        Encoding::Cl100k => run(bytes, at, |byte| byte.is_ascii_alphabetic()),
    };
    match (encoding, bytes.get(end)) {
        (_, Some(0x80..)) => None,
        (Encoding::O200k, Some(b'\'')) => match contraction(bytes, end) {
            Contraction::Ends(end) => Some(end),
            Contraction::Absent => Some(end),
            Contraction::Unclear => None,
        },
        (Encoding::O200k | Encoding::Cl100k, _) => Some(end),
    }
}

/// An English contraction, such as `'s` or `'ll`.
enum Contraction {
    /// There is one, and it ends here.
    Ends(usize),
    /// There is none.
    Absent,
    /// A character outside ASCII might fold to one of its letters.
    Unclear,
}

/// The contraction whose apostrophe is at `at`.
#[inline]
fn contraction(bytes: &[u8], at: usize) -> Contraction {
    if bytes.get(at) != Some(&b'\'') {
        return Contraction::Absent;
    }
    let lower = |at: usize| bytes.get(at).map(u8::to_ascii_lowercase);
    match (lower(at + 1), lower(at + 2)) {
        (Some(0x80..), _) => Contraction::Unclear,
        (Some(b's' | b't' | b'm' | b'd'), _) => Contraction::Ends(at + 2),
        (Some(b'r' | b'v'), Some(b'e')) | (Some(b'l'), Some(b'l')) => Contraction::Ends(at + 3),
        (_, Some(0x80..)) => Contraction::Unclear,
        _ => Contraction::Absent,
    }
}

/// The end of one to three digits from `at` on.
#[inline]
fn digits(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at + 1;
    while end < at + 3 && class_at(bytes, end) == CharClass::Digit {
        end += 1;
    }
    (end == at + 3 || class_at(bytes, end) != CharClass::Wide).then_some(end)
}

/// The end of punctuation whose first mark is at `at`, with the line breaks after it.
#[inline]
fn marks(encoding: Encoding, bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    while class_at(bytes, end) == CharClass::Mark {
        end += 1;
    }
    match class_at(bytes, end) {
        CharClass::Wide => None,
        CharClass::Newline => Some(match encoding {
            Encoding::O200k => run(bytes, end, |byte| matches!(byte, b'\r' | b'\n' | b'/')),
            Encoding::Cl100k => run(bytes, end, |byte| matches!(byte, b'\r' | b'\n')),
        }),
        CharClass::Upper
        | CharClass::Lower
        | CharClass::Digit
        | CharClass::Blank
        | CharClass::Mark
        | CharClass::End => Some(end),
    }
}

/// The end of white space from `at` on that belongs to no word and no punctuation.
#[inline]
fn blanks(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    let mut after_newline = None;
    loop {
        match class_at(bytes, end) {
            CharClass::Blank => end += 1,
            CharClass::Newline => {
                end += 1;
                after_newline = Some(end);
            }
            CharClass::Wide => return None,
            CharClass::End => return Some(after_newline.unwrap_or(end)),
            CharClass::Upper | CharClass::Lower | CharClass::Digit | CharClass::Mark => {
                // The last blank belongs to what follows, unless it is the only one.
                return Some(after_newline.unwrap_or(end.max(at + 2) - 1));
            }
        }
    }
}
