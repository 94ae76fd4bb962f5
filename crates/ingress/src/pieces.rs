//! Buffers for bodies, which grow within the room that they have. Never looks into a body.

use bytes::Bytes;

/// The least and the most by which a buffer of unknown size grows.
const GROWTH: [usize; 2] = [64 << 10, 1 << 20];

/// The most room that one body may need. Its packed and unpacked bytes are held at once, the latter
/// with room for the next step.
pub(super) fn most_of_one(cap: usize) -> usize {
    let [_, step] = GROWTH;
    cap.saturating_mul(2).saturating_add(step)
}

/// A buffer that never holds much more than was put into it. It grows by pieces, which are joined
/// at the end.
#[derive(Debug, Default)]
pub(super) struct PieceBuffer {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
    length: usize,
}

impl PieceBuffer {
    /// A buffer whose first piece has this much room.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            last: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    /// How many bytes were put in.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Makes room for `bytes` in total, if there is only one piece so far.
    pub(super) fn expect(&mut self, bytes: usize) {
        if self.full.is_empty() && self.last.capacity() < bytes {
            self.last
                .reserve_exact(bytes.saturating_sub(self.last.len()));
        }
    }

    /// Puts bytes in.
    pub(super) fn push(&mut self, data: &[u8]) {
        let room = self.last.capacity() - self.last.len();
        let (now, later) = data.split_at(room.min(data.len()));
        self.last.extend_from_slice(now);
        if !later.is_empty() {
            let [least, most] = GROWTH;
            let step = self.length.clamp(least, most).max(later.len());
            self.add(Vec::with_capacity(step));
            self.last.extend_from_slice(later);
        }
        self.length += data.len();
    }

    /// Puts a whole piece in.
    pub(super) fn push_piece(&mut self, piece: Vec<u8>) {
        self.length += piece.len();
        self.add(piece);
    }

    fn add(&mut self, piece: Vec<u8>) {
        let full = std::mem::replace(&mut self.last, piece);
        if !full.is_empty() {
            self.full.push(full);
        }
    }

    /// Joins the pieces. Each is dropped as soon as it was copied, so that the bytes are never held
    /// twice.
    pub(super) fn join(self) -> Bytes {
        if self.full.is_empty() {
            return self.last.into();
        }
        let mut whole = Vec::with_capacity(self.length);
        for piece in self.full {
            whole.extend_from_slice(&piece);
        }
        whole.extend_from_slice(&self.last);
        whole.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_join_to_what_was_put_in(
            chunks: Vec<Vec<u8>>,
            room in 0_usize..100,
            expected in 0_usize..100,
        ) {
            let mut pieces = PieceBuffer::with_room(room);
            for (number, chunk) in chunks.iter().enumerate() {
                if number % 3 == 2 {
                    pieces.push_piece(chunk.clone());
                } else {
                    pieces.push(chunk);
                }
                pieces.expect(expected);
            }
            let whole = chunks.concat();
            prop_assert_eq!(pieces.len(), whole.len());
            prop_assert_eq!(pieces.join(), whole);
        }
    }
}
