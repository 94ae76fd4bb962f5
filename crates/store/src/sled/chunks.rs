//! How a blob lies in the engine: in chunks, with its age behind the last one, and a younger age
//! apart. Owns those keys and values. Never touches the engine.
//!
//! `id ‖ chunk number (u32, big-endian)` leads to at most 6 KB of the stored form. The last chunk is
//! followed by the [`Age`] with which the blob was written. `id ‖ ffffffff` leads to the age with which
//! it was named again, if it ever was on a later day: that costs some bytes where writing the chunk
//! again would cost some thousand.

use bytes::Bytes;
use plimsoll_model::Digest;

use super::super::codec;
use super::age::{AGE_BYTES, Age};
use super::trees::CHUNK_BYTES;

/// The number in the key of an age that stands apart. No blob has as many chunks.
pub(super) const AGE_NUMBER: u32 = u32::MAX;

/// The key of a chunk, or of an age that stands apart.
pub(super) fn chunk_key(id: &Digest, number: u32) -> [u8; 36] {
    let mut key = [0; 36];
    let (head, tail) = key.split_at_mut(32);
    head.copy_from_slice(id.as_bytes());
    tail.copy_from_slice(&number.to_be_bytes());
    key
}

pub(super) fn parse_chunk(key: &[u8]) -> Option<(Digest, u32)> {
    let (id, rest) = key.split_first_chunk::<32>()?;
    let number = <[u8; 4]>::try_from(rest).ok()?;
    Some((Digest(*id), u32::from_be_bytes(number)))
}

/// The chunks of a stored form, each with its number, the last one with the age behind it.
pub(super) fn chunks(stored: &[u8], age: Age) -> impl Iterator<Item = (u32, Chunk<'_>)> {
    let last = stored.len().div_ceil(CHUNK_BYTES).saturating_sub(1);
    let numbered = (0u32..).zip(stored.chunks(CHUNK_BYTES));
    numbered.map(move |(number, bytes)| {
        let age = (number as usize == last).then_some(age);
        (number, Chunk { bytes, age })
    })
}

/// A chunk as it should be stored.
pub(super) struct Chunk<'a> {
    bytes: &'a [u8],
    /// The age behind it, if it is the last.
    age: Option<Age>,
}

impl Chunk<'_> {
    /// What is stored of it.
    pub(super) fn value(&self) -> Vec<u8> {
        let age = self.age.map(Age::bytes);
        [self.bytes, age.as_ref().map_or(&[][..], |age| age)].concat()
    }

    /// The age behind it. None of any blob stands behind a chunk that is not the last.
    pub(super) fn age(&self) -> Age {
        self.age.unwrap_or_default()
    }

    /// The age behind a chunk that is stored, if it has these bytes. `None` if it has others.
    pub(super) fn age_if_same(&self, old: &[u8]) -> Option<Age> {
        match (old.strip_prefix(self.bytes)?, self.age) {
            ([], None) => Some(Age::default()),
            (rest, Some(_)) => rest.try_into().ok().map(Age::read),
            (_, None) => None,
        }
    }
}

/// The blob whose chunks are being read, in their order.
#[derive(Default)]
pub(super) struct BlobAtHand {
    id: Option<Digest>,
    /// How many bytes its chunks had so far.
    have: usize,
    /// How many bytes it has to have, without its age. Its first chunk says so.
    want: usize,
}

impl BlobAtHand {
    /// Takes the next chunk. Returns whether its blob is whole with it.
    pub(super) fn is_whole_with(&mut self, key: &[u8], chunk: &[u8]) -> bool {
        match parse_chunk(key) {
            Some((_, AGE_NUMBER)) => return false,
            Some((id, 0)) => {
                // What can't be read is not missing.
                let want = codec::stored_len(chunk);
                let want = want.unwrap_or(chunk.len().saturating_sub(AGE_BYTES));
                *self = Self {
                    id: Some(id),
                    have: chunk.len(),
                    want,
                };
            }
            Some((id, _)) if self.id == Some(id) => self.have += chunk.len(),
            _ => return false,
        }
        self.have == self.want + AGE_BYTES
    }
}

/// A blob of which every chunk was read, and what stands behind them.
#[derive(Default)]
pub(super) struct ReadBlob {
    id: Option<Digest>,
    bytes: Vec<u8>,
    apart: Age,
}

impl ReadBlob {
    /// Takes the next entry. Returns the blob before, if that was whole.
    pub(super) fn next(&mut self, key: &[u8], value: &[u8]) -> Option<(Digest, Age, Bytes)> {
        match parse_chunk(key) {
            Some((id, AGE_NUMBER)) if self.id == Some(id) => {
                self.apart = value.try_into().map(Age::read).unwrap_or_default();
                None
            }
            Some((id, 1..)) if self.id == Some(id) => {
                self.bytes.extend_from_slice(value);
                None
            }
            Some((id, 0)) => {
                let before = self.take();
                self.id = Some(id);
                self.bytes.extend_from_slice(value);
                before
            }
            // What has lost its first chunk.
            Some(_) | None => self.take(),
        }
    }

    /// The blob at hand, if it is whole: its own length says whether a chunk is missing.
    pub(super) fn take(&mut self) -> Option<(Digest, Age, Bytes)> {
        let Self {
            id,
            mut bytes,
            apart,
        } = std::mem::take(self);
        let length = codec::stored_len(&bytes).ok()?;
        let age = Age::read(bytes.get(length..)?.try_into().ok()?);
        bytes.truncate(length);
        Some((id?, age.with(apart), bytes.into()))
    }
}
