//! What is written together: blobs and links. Owns their shape and the check of ids. Never writes
//! anything.

use bytes::Bytes;

use super::error::StoreError;
use crate::model::{Digest, blob_id};

/// How many members of a set are read at most. What many sessions said alike leads to as many
/// records, and a request must not wait for all of them.
pub const MEMBERS: usize = 1024;

/// A link from a key to one member of its set: a blob and the number of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// The key.
    pub key: Digest,
    /// The blob that it leads to.
    pub id: Digest,
    /// The number of the turn, by which the set is sorted.
    pub turn: u32,
}

/// What is written together. Writing it twice changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Blobs under their [`blob_id`].
    pub blobs: Vec<(Digest, Bytes)>,
    /// Links to blobs of this batch or of earlier ones.
    pub links: Vec<Link>,
    /// What the blobs and links are, which decides how long they are kept.
    pub kind: BatchKind,
    /// Blobs of earlier batches that are kept as long as the blobs of this one, because these stand
    /// on them. Their bytes are not written again.
    pub renewed: Vec<Digest>,
}

/// What a batch holds. Each kind has an age of its own at which it is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BatchKind {
    /// Records of turns, and what is needed to find and fold them.
    #[default]
    Records,
    /// What the client and the model said.
    Content,
}

impl Batch {
    /// The bytes of all blobs, and a little for each link.
    pub(super) fn size(&self) -> usize {
        let blobs: usize = self.blobs.iter().map(|(_, bytes)| bytes.len()).sum();
        blobs + self.links.len() * size_of::<Link>()
    }

    /// Checks that every blob matches its id.
    pub(super) fn verify(&self) -> Result<(), StoreError> {
        match self.blobs.iter().find(|(id, bytes)| blob_id(bytes) != *id) {
            Some((id, _)) => Err(StoreError::WrongId { id: *id }),
            None => Ok(()),
        }
    }
}
