//! A body in pieces: slices of the client's bytes with replacements between them, so that changing
//! a few bytes doesn't copy a history of megabytes. Never looks into a piece.

use std::collections::VecDeque;

use bytes::Bytes;

/// Bytes in pieces, in order.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    pieces: VecDeque<Bytes>,
    length: usize,
    /// What was written since the last shared piece.
    written: Vec<u8>,
}

impl From<Bytes> for Rope {
    fn from(bytes: Bytes) -> Self {
        let mut rope = Self::default();
        rope.share(bytes);
        rope
    }
}

impl Rope {
    /// Appends a copy of bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Appends bytes that are held elsewhere, without copying them.
    pub fn share(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.settle();
        self.length += bytes.len();
        self.pieces.push_back(bytes);
    }

    /// Appends another rope.
    pub fn append(&mut self, mut other: Self) {
        other.settle();
        for piece in other.pieces {
            self.share(piece);
        }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The pieces in order.
    #[must_use]
    pub fn into_pieces(mut self) -> VecDeque<Bytes> {
        self.settle();
        self.pieces
    }

    /// Whether these are the same bytes.
    #[must_use]
    pub fn is(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        let pieces = self
            .pieces
            .iter()
            .map(Bytes::as_ref)
            .chain([self.written.as_slice()]);
        for piece in pieces {
            match rest.strip_prefix(piece) {
                Some(left) => rest = left,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// All bytes in one piece: for tests and small bodies.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut whole = Vec::with_capacity(self.length);
        self.pieces
            .iter()
            .for_each(|piece| whole.extend_from_slice(piece));
        whole.extend_from_slice(&self.written);
        Bytes::from(whole)
    }

    fn settle(&mut self) {
        if !self.written.is_empty() {
            self.pieces
                .push_back(Bytes::from(std::mem::take(&mut self.written)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_order_and_length() {
        let mut rope = Rope::default();
        rope.write(b"a");
        rope.write(b"b");
        rope.share(Bytes::from_static(b"cd"));
        rope.share(Bytes::new());
        let mut other = Rope::from(Bytes::from_static(b"e"));
        other.write(b"f");
        rope.append(other);
        rope.write(b"g");
        assert_eq!(
            (rope.len(), rope.to_bytes()),
            (7, Bytes::from_static(b"abcdefg"))
        );
        assert!(rope.is(b"abcdefg") && !rope.is(b"abcdef") && !rope.is(b"abcdefgh"));
        assert_eq!(
            rope.into_pieces(),
            ["ab", "cd", "e", "f", "g"].map(Bytes::from)
        );
        assert!(Rope::default().is_empty());
    }
}
