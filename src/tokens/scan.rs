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

use super::Encoding;

/// The classes of characters in the patterns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
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
fn class_at(bytes: &[u8], at: usize) -> Class {
    match bytes.get(at) {
        None => Class::End,
        Some(b'a'..=b'z') => Class::Lower,
        Some(b'A'..=b'Z') => Class::Upper,
        Some(b' ' | b'\t' | 0x0b | 0x0c) => Class::Blank,
        Some(b'\r' | b'\n') => Class::Newline,
        Some(b'0'..=b'9') => Class::Digit,
        Some(0x80..) => Class::Wide,
        Some(_) => Class::Mark,
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
        Class::Upper | Class::Lower => word(encoding, bytes, start),
        Class::Digit => digits(bytes, start),
        Class::Blank => match class_at(bytes, start + 1) {
            Class::Upper | Class::Lower => word(encoding, bytes, start + 1),
            Class::Mark if bytes.get(start) == Some(&b' ') => marks(encoding, bytes, start + 1),
            Class::Mark | Class::Digit | Class::Blank | Class::Newline | Class::End => {
                blanks(bytes, start)
            }
            Class::Wide => None,
        },
        Class::Newline => blanks(bytes, start),
        Class::Mark => {
            // The pattern of o200k has contractions only behind a word.
            if encoding == Encoding::Cl100k {
                match contraction(bytes, start) {
                    Contraction::Ends(end) => return Some(end),
                    Contraction::Unclear => return None,
                    Contraction::Absent => {}
                }
            }
            match class_at(bytes, start + 1) {
                Class::Upper | Class::Lower => word(encoding, bytes, start + 1),
                Class::Mark | Class::Digit | Class::Blank | Class::Newline | Class::End => {
                    marks(encoding, bytes, start)
                }
                Class::Wide => None,
            }
        }
        Class::Wide | Class::End => None,
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
    while end < at + 3 && class_at(bytes, end) == Class::Digit {
        end += 1;
    }
    (end == at + 3 || class_at(bytes, end) != Class::Wide).then_some(end)
}

/// The end of punctuation whose first mark is at `at`, with the line breaks after it.
#[inline]
fn marks(encoding: Encoding, bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    while class_at(bytes, end) == Class::Mark {
        end += 1;
    }
    match class_at(bytes, end) {
        Class::Wide => None,
        Class::Newline => Some(match encoding {
            Encoding::O200k => run(bytes, end, |byte| matches!(byte, b'\r' | b'\n' | b'/')),
            Encoding::Cl100k => run(bytes, end, |byte| matches!(byte, b'\r' | b'\n')),
        }),
        Class::Upper | Class::Lower | Class::Digit | Class::Blank | Class::Mark | Class::End => {
            Some(end)
        }
    }
}

/// The end of white space from `at` on that belongs to no word and no punctuation.
#[inline]
fn blanks(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    let mut after_newline = None;
    loop {
        match class_at(bytes, end) {
            Class::Blank => end += 1,
            Class::Newline => {
                end += 1;
                after_newline = Some(end);
            }
            Class::Wide => return None,
            Class::End => return Some(after_newline.unwrap_or(end)),
            Class::Upper | Class::Lower | Class::Digit | Class::Mark => {
                // The last blank belongs to what follows, unless it is the only one.
                return Some(after_newline.unwrap_or(end.max(at + 2) - 1));
            }
        }
    }
}
