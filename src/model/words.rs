//! What is known of a text by the distinctive strings in it: enough to tell what stands in several
//! texts without reading any again. Holds hashes only; never keeps the text.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64;

use super::strings;

/// The hash of a distinctive string, or of a whole text.
#[must_use]
pub fn hash(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

/// The distinctive strings of a text, as hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    strings: Box<[u64]>,
    text: Option<u64>,
    bytes: usize,
}

impl Words {
    /// Reads a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let all = strings(text).map(|(_, string)| hash(string));
        Self {
            strings: distinct(all.collect()).into_boxed_slice(),
            text: (!text.is_empty()).then(|| hash(text)),
            bytes: text.len(),
        }
    }

    /// The hashes of its strings, ascending and each once.
    #[must_use]
    pub fn strings(&self) -> &[u64] {
        &self.strings
    }

    /// The hash of the whole text; none of an empty one.
    #[must_use]
    pub fn text(&self) -> Option<u64> {
        self.text
    }

    /// The length of the text in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.strings)
    }
}

/// Hashes ascending and each once.
#[must_use]
pub fn distinct(mut hashes: Vec<u64>) -> Vec<u64> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Builds maps whose keys are hashes already.
pub type Hashed = BuildHasherDefault<AsIs>;

/// Takes a key that is a hash for its own hash.
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
        let words = Words::of("see src/a.rs, then src/b.rs and src/a.rs again");
        let expect = distinct(vec![hash("src/a.rs"), hash("src/b.rs")]);
        assert_eq!(words.strings(), expect);
        assert_ne!(
            words.text(),
            Words::of("see src/a.rs, then src/b.rs").text()
        );
        assert_eq!(Words::of("").text(), None);
        let plain = Words::of("no such");
        assert_eq!((plain.strings().len(), plain.bytes()), (0, 7));
    }
}
