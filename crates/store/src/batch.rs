//! What is written together: blobs, links and a row of the list of sessions. Owns their shape and
//! the check of ids. Never writes anything.

use bytes::Bytes;
use plimsoll_model::{Digest, is_id_of};

use super::error::StoreError;

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
    /// Blobs under their ids: [`blob_id`] for what several may write, [`dated_id`] for what only one does.
    ///
    /// [`blob_id`]: plimsoll_model::blob_id
    /// [`dated_id`]: plimsoll_model::dated_id
    pub blobs: Vec<(Digest, Bytes)>,
    /// Links to blobs of this batch or of earlier ones.
    pub links: Vec<Link>,
    /// What the blobs and links are, which decides how long they are kept.
    pub kind: BatchKind,
    /// Blobs of earlier batches that are kept as long as the blobs of this one, because these stand
    /// on them. Their bytes are not written again.
    pub renewed: Vec<Digest>,
    /// The newest row of a session, if the batch ends one of its turns.
    pub listed: Option<Listed>,
}

/// A row of the list of sessions. A store keeps one for each session: that with the latest time. Of
/// several with the same time it keeps the greatest by `row` and then by `id`, so that stores that
/// were handed the same rows in any order agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which session it is. The store does not know what it is made of.
    pub session: Digest,
    /// The time by which the list is sorted, in milliseconds since 1970.
    pub at: u64,
    /// The blob that the row tells of. When this is removed because of its age, the row is removed
    /// with it. It may be written in the same batch or in an earlier one.
    pub id: Digest,
    /// What is listed. The store never looks into it.
    pub row: Bytes,
}

impl Listed {
    /// Whether a store that holds `other` for the same session keeps this row in its place.
    #[must_use]
    pub fn replaces(&self, other: &Self) -> bool {
        (self.at, &self.row, self.id) > (other.at, &other.row, other.id)
    }

    /// Where the row stands in the list, which is sorted by this from the greatest down.
    #[must_use]
    pub fn place(&self) -> (u64, Digest) {
        (self.at, self.session)
    }
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

impl BatchKind {
    /// The kind of what batches of both kinds named.
    #[must_use]
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Content, Self::Content) => Self::Content,
            (Self::Records, _) | (_, Self::Records) => Self::Records,
        }
    }
}

impl Batch {
    /// The bytes of all blobs and of the row, and a little for each link and each renewed blob.
    pub(super) fn size(&self) -> usize {
        let blobs: usize = self.blobs.iter().map(|(_, bytes)| bytes.len()).sum();
        let row = self.listed.as_ref().map_or(0, |listed| listed.row.len());
        let names = self.links.len() * size_of::<Link>() + self.renewed.len() * size_of::<Digest>();
        blobs + row + names
    }

    /// Checks that every blob matches its id.
    pub(super) fn verify(&self) -> Result<(), StoreError> {
        match self.blobs.iter().find(|(id, bytes)| !is_id_of(id, bytes)) {
            Some((id, _)) => Err(StoreError::WrongId { id: *id }),
            None => Ok(()),
        }
    }
}
