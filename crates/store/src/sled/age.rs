//! The day on which something was last named, apart for each kind of batch. Owns its bytes, and
//! which of two ages is the younger. Never reads a clock, and never decides what is too old.
//!
//! The bytes: `day as a record (u16) ‖ day as content (u16) ‖ renewed (u8)`, with days in big-endian,
//! counted from 1970. Day 0 is none.

use super::super::batch::BatchKind;

/// How many bytes an age takes.
pub(super) const AGE_BYTES: usize = 5;

/// When a blob was last named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Age {
    /// The last day on which a batch of records named it.
    pub(super) records: u16,
    /// The last day on which a batch of content named it.
    pub(super) content: u16,
    /// Whether a later batch renewed it. Its links then stay with it, whatever their own days.
    pub(super) renewed: bool,
}

impl Age {
    /// The age of what a batch of a kind brings today.
    pub(super) fn new(kind: BatchKind, today: u16) -> Self {
        match kind {
            BatchKind::Records => Self {
                records: today,
                ..Self::default()
            },
            BatchKind::Content => Self {
                content: today,
                ..Self::default()
            },
        }
    }

    /// The age of what such a batch renews.
    pub(super) fn renewed(kind: BatchKind, today: u16) -> Self {
        Self {
            renewed: true,
            ..Self::new(kind, today)
        }
    }

    /// The latest days of both.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            records: self.records.max(other.records),
            content: self.content.max(other.content),
            renewed: self.renewed || other.renewed,
        }
    }

    /// What a blob of this age is. What both kinds named is a record.
    pub(super) fn kind(self) -> BatchKind {
        if self.records == 0 && self.content > 0 {
            BatchKind::Content
        } else {
            BatchKind::Records
        }
    }

    pub(super) fn bytes(self) -> [u8; AGE_BYTES] {
        let ([a, b], [c, d]) = (self.records.to_be_bytes(), self.content.to_be_bytes());
        [a, b, c, d, u8::from(self.renewed)]
    }

    pub(super) fn read([a, b, c, d, renewed]: [u8; AGE_BYTES]) -> Self {
        Self {
            records: u16::from_be_bytes([a, b]),
            content: u16::from_be_bytes([c, d]),
            renewed: renewed != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_only_grows_younger_and_is_read_as_it_was_written() {
        let (first, later) = (
            Age::new(BatchKind::Content, 19_000),
            Age::renewed(BatchKind::Records, 300),
        );
        assert_eq!(
            (first.kind(), later.kind()),
            (BatchKind::Content, BatchKind::Records)
        );
        let both = first.with(later);
        assert_eq!(both, later.with(first).with(Age::default()));
        assert_eq!(
            (both.records, both.content, both.renewed),
            (300, 19_000, true)
        );
        assert_eq!(both.kind(), BatchKind::Records);
        assert_eq!(Age::default().kind(), BatchKind::Records);
        assert_eq!(Age::read(both.bytes()), both);
    }
}
