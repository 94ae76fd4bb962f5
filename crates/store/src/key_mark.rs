//! Under which tenant key the records of a store are found: a mark of that key, which is kept beside them.
//! A store without one takes the key that opens it, and so does one without records. Owns the form of the
//! mark. Never holds a key, and never keeps anybody from using a store.

use std::fmt;

/// Separates the mark from all other uses of the key.
const PURPOSE: &str = "plimsoll 2026-11 mark of a tenant key";

/// What tells keys apart. It says nothing about the key: it is a keyed hash of a fixed text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyMark(blake3::Hash);

impl KeyMark {
    /// The mark of a key.
    #[must_use]
    pub fn of(key: &[u8; 32]) -> Self {
        Self(blake3::keyed_hash(key, PURPOSE.as_bytes()))
    }

    /// Reads what [`fmt::Display`] writes. `None` if it is no mark, which counts as if there were none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text.trim()).ok().map(Self)
    }

    /// What becomes of the mark beside the records when a process opens the store with this one.
    pub(super) fn judge(self, there: Option<Self>, holds_records: bool) -> Claim {
        match there {
            Some(there) if there == self => Claim::Own,
            Some(_) if holds_records => Claim::Other,
            Some(_) | None => Claim::Free,
        }
    }
}

impl fmt::Display for KeyMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl fmt::Debug for KeyMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whose records a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Those of this key.
    Own,
    /// Nobody's, as far as is known: the mark is to be written.
    Free,
    /// Those of another key.
    Other,
}

/// What an operator must know where the records are of another key. `undo` says how the new key is meant.
pub(super) fn other_key(undo: &str) -> String {
    format!(
        "the store has sessions that were recorded under another tenant key, and under this one they are not found: start with the tenant.key or the PLIMSOLL__TENANT__KEY of before; if the new key is meant, {undo} and start again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_is_written_and_is_not_the_key() {
        let mark = KeyMark::of(&[7; 32]);
        assert_eq!(KeyMark::parse(&format!("{mark}\n")), Some(mark));
        assert_ne!(KeyMark::of(&[8; 32]), mark);
        assert!(!mark.to_string().contains("0707"));
        for text in ["", "07", &"g".repeat(64)] {
            assert_eq!(KeyMark::parse(text), None, "{text}");
        }
    }
}
