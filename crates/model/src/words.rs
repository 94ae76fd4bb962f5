//! The distinctive strings of a text as hashes and places, which is enough to find strings that
//! occur in several texts without reading any text again. Never keeps the text.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use twox_hash::XxHash3_64;

use super::caches::Shared;
use super::strings::{strings, tells_place};
use super::weight::{block, shared};

/// The most strings that are kept of a text. The rest are ignored; only texts above some ten
/// megabytes have more.
const MOST: usize = 1 << 20;

/// The hash of a distinctive string, or of a whole text.
#[must_use]
pub fn hash(text: &str) -> u64 {
    XxHash3_64::oneshot(text.as_bytes())
}

/// A distinctive string and its place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    hash: u64,
    start: u32,
    /// The length in bytes, with the two flags below in its upper bits.
    length: u32,
}

/// Set on the first occurrence of a string in its text.
const FIRST: u32 = 1 << 31;
/// Set on a string that says where something is.
const PLACE: u32 = 1 << 30;

impl Word {
    /// `None` for a string beyond 4 GiB or longer than 1 GiB, which no body can have.
    fn new(at: usize, string: &str, hash: u64, first: bool) -> Option<Self> {
        let length = u32::try_from(string.len()).ok()?;
        let flags = if first { FIRST } else { 0 } | if tells_place(string) { PLACE } else { 0 };
        (length < PLACE).then_some(Self {
            hash,
            start: u32::try_from(at).ok()?,
            length: length | flags,
        })
    }

    /// The hash of the string.
    #[must_use]
    pub fn hash(self) -> u64 {
        self.hash
    }

    /// Its place in bytes.
    #[must_use]
    pub fn span(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.bytes()
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        (self.length & !(FIRST | PLACE)) as usize
    }

    /// Whether it says where something is: it has a slash, a dot, an underscore, a digit or an
    /// inner capital.
    #[must_use]
    pub fn is_place(self) -> bool {
        self.length & PLACE != 0
    }
}

/// The distinctive strings of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    all: Box<[Word]>,
    distinct: usize,
    text: Option<u64>,
    longest: usize,
    failure: bool,
}

impl Words {
    /// Reads a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut seen: HashSet<u64, Hashed> = HashSet::default();
        let all = strings(text).take(MOST).filter_map(|(at, string)| {
            let hash = hash(string);
            Word::new(at, string, hash, seen.insert(hash))
        });
        Self {
            all: all.collect(),
            distinct: seen.len(),
            text: (!text.is_empty()).then(|| hash(text)),
            longest: text.len(),
            failure: false,
        }
    }

    /// These words as those of a result that says that its call failed, or that it did not.
    #[must_use]
    pub fn with_failure(self, failure: bool) -> Self {
        Self { failure, ..self }
    }

    /// Whether the text is that of a result, and says that its call failed.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.failure
    }

    /// These words as those of a text that joins several, the longest of which has so many bytes.
    #[must_use]
    pub fn with_longest(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// All of them, in order.
    #[must_use]
    pub fn all(&self) -> &[Word] {
        &self.all
    }

    /// The hashes of its strings, each once.
    pub fn strings(&self) -> impl Iterator<Item = u64> {
        let first = self.all.iter().filter(|word| word.length & FIRST != 0);
        first.map(|word| word.hash)
    }

    /// How many different strings there are.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.distinct
    }

    /// The hash of the whole text; none of an empty one.
    #[must_use]
    pub fn text(&self) -> Option<u64> {
        self.text
    }

    /// The length in bytes of the longest of the texts that were joined, or of the text itself.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }
}

impl Shared for Words {
    fn weight(&self) -> usize {
        shared::<Self>() + block(size_of_val(&*self.all))
    }
}

/// Sorts hashes and drops repeated ones.
#[must_use]
pub fn distinct(mut hashes: Vec<u64>) -> Vec<u64> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Builds maps whose keys are hashes already.
pub type Hashed = BuildHasherDefault<AsIs>;

/// Uses a key that is a hash as its own hash.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_known_by_its_strings_and_as_a_whole() {
        let text = "see src/a.rs, then everywhere and src/a.rs again";
        let words = Words::of(text);
        let each: Vec<u64> = words.strings().collect();
        assert_eq!(each, [hash("src/a.rs"), hash("everywhere")]);
        let all = words.all().iter().map(|word| &text[word.span()]);
        let all: Vec<&str> = all.collect();
        assert_eq!(all, ["src/a.rs", "everywhere", "src/a.rs"]);
        let places: Vec<bool> = words.all().iter().map(|word| word.is_place()).collect();
        assert_eq!(places, [true, false, true]);
        assert_ne!(
            words.text(),
            Words::of("see src/a.rs, then everywhere").text()
        );
        assert_eq!(Words::of("").text(), None);
        let plain = Words::of("no such");
        assert_eq!((plain.distinct(), plain.longest()), (0, 7));
    }
}
