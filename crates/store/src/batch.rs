//! What is handed over together: blobs, links and a row of the list of sessions. Owns their shape and
//! the check of ids. Never writes anything.

use bytes::Bytes;
use plimsoll_model::{Digest, is_id_of};

use super::error::StoreError;

/// How many members of a set are read at most. What many sessions said alike leads to as many
/// records, and a request must not wait for all of them.
pub const MEMBERS: usize = 1024;

/// A member of a set: the number of a turn, and a blob. Sets are sorted by turn and then by id.
pub type Member = (u32, Digest);

/// Which members of a set are read: so many from one of its ends, and at most [`MEMBERS`]. The store looks
/// for the blob of each, so few members cost less than many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Those of the lowest turns.
    First(usize),
    /// Those of the highest turns.
    Last(usize),
}

impl Take {
    /// As many as are ever read.
    pub const ALL: Self = Self::First(MEMBERS);

    /// How many.
    pub(super) fn most(self) -> usize {
        let (Self::First(most) | Self::Last(most)) = self;
        most.min(MEMBERS)
    }

    /// Members of a set in the order in which they are looked at: from the end at which those that are wanted stand.
    pub(super) fn in_order<'a>(
        self,
        set: impl DoubleEndedIterator<Item = Member> + 'a,
    ) -> Box<dyn Iterator<Item = Member> + 'a> {
        match self {
            Self::First(_) => Box::new(set),
            Self::Last(_) => Box::new(set.rev()),
        }
    }

    /// Puts more members into a set, sorts it, and leaves those that are wanted.
    pub(super) fn join(self, set: &mut Vec<Member>, more: impl IntoIterator<Item = Member>) {
        set.extend(more);
        set.sort_unstable();
        set.dedup();
        match self {
            Self::First(_) => set.truncate(self.most()),
            Self::Last(_) => drop(set.drain(..set.len().saturating_sub(self.most()))),
        }
    }
}

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

/// What is handed over together, and acknowledged together. Writing it twice changes nothing.
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
    /// Whose it is. The batches of one owner are written in the order in which they were handed over. A
    /// store with a queue of its own serves the owners in turn, and writes a long batch in pieces, so
    /// that nobody waits for all of it. A batch of no owner waits for all that were handed over before
    /// it. The store does not know what an owner is.
    pub owner: Option<Digest>,
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

    /// Cuts the batch into pieces that take about `most` operations each, so that others need not wait
    /// for all of it. A blob takes as many as `of_blob` says and is never cut, all else takes one. The
    /// pieces have to be written in their order: blobs, what is renewed, links, and the row.
    pub(super) fn pieces(self, most: usize, of_blob: impl Fn(&Bytes) -> usize) -> Vec<Self> {
        let empty = Self {
            kind: self.kind,
            owner: self.owner,
            ..Self::default()
        };
        let mut cut = Cut {
            full: Vec::new(),
            filling: empty.clone(),
            empty,
            room: most,
            most,
        };
        for (id, bytes) in self.blobs {
            cut.piece(of_blob(&bytes)).blobs.push((id, bytes));
        }
        for id in self.renewed {
            cut.piece(1).renewed.push(id);
        }
        for link in self.links {
            cut.piece(1).links.push(link);
        }
        if let Some(listed) = self.listed {
            cut.piece(1).listed = Some(listed);
        }
        cut.full.push(cut.filling);
        cut.full
    }

    /// Checks that every blob matches its id.
    pub(super) fn verify(&self) -> Result<(), StoreError> {
        match self.blobs.iter().find(|(id, bytes)| !is_id_of(id, bytes)) {
            Some((id, _)) => Err(StoreError::WrongId { id: *id }),
            None => Ok(()),
        }
    }
}

/// The pieces of a batch.
struct Cut {
    full: Vec<Batch>,
    /// The piece that more goes into, and how many operations it has room for.
    filling: Batch,
    room: usize,
    /// How many operations a piece has at most.
    most: usize,
    /// A piece without any.
    empty: Batch,
}

impl Cut {
    /// The piece that has room for so many more operations. A blob that takes more than a piece has one
    /// of its own.
    fn piece(&mut self, operations: usize) -> &mut Batch {
        if operations > self.room && self.room < self.most {
            let full = std::mem::replace(&mut self.filling, self.empty.clone());
            self.full.push(full);
            self.room = self.most;
        }
        self.room = self.room.saturating_sub(operations);
        &mut self.filling
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::blob_id;
    use proptest::prelude::*;

    use super::*;

    fn digest(number: usize) -> Digest {
        blob_id(&number.to_le_bytes())
    }

    proptest! {
        /// The pieces are the batch, in its order, and none but a blob alone is larger than it may be.
        #[test]
        fn pieces_are_the_batch(
            blobs in proptest::collection::vec(0..9usize, 0..20),
            (renewed, links) in (0..20usize, 0..20usize),
            listed: bool,
            most in 1..12usize,
        ) {
            let blobs = blobs.into_iter().map(|size| Bytes::from(vec![b'x'; size]));
            let link = |at| Link {
                key: digest(at),
                id: digest(0),
                turn: 1,
            };
            let row = Listed {
                session: digest(0),
                at: 1,
                id: digest(0),
                row: Bytes::new(),
            };
            let batch = Batch {
                blobs: blobs.map(|bytes| (blob_id(&bytes), bytes)).collect(),
                renewed: (0..renewed).map(digest).collect(),
                links: (0..links).map(link).collect(),
                listed: listed.then_some(row),
                kind: BatchKind::Content,
                owner: Some(digest(3)),
            };
            let pieces = batch.clone().pieces(most, Bytes::len);
            let mut joined = Batch { kind: batch.kind, owner: batch.owner, ..Batch::default() };
            for (at, piece) in pieces.into_iter().enumerate() {
                prop_assert_eq!((piece.kind, piece.owner), (batch.kind, batch.owner));
                let chunks: usize = piece.blobs.iter().map(|(_, bytes)| bytes.len()).sum();
                let others = piece.renewed.len() + piece.links.len() + usize::from(piece.listed.is_some());
                let some = piece.blobs.iter().filter(|(_, bytes)| !bytes.is_empty());
                let alone = some.count() == 1 && others == 0;
                prop_assert!(chunks + others <= most || alone);
                prop_assert!(at == 0 || chunks + others > 0, "an empty piece");
                joined.blobs.extend(piece.blobs);
                joined.renewed.extend(piece.renewed);
                joined.links.extend(piece.links);
                prop_assert!(joined.listed.is_none(), "the row is last");
                joined.listed = piece.listed;
            }
            prop_assert_eq!(joined, batch);
        }
    }
}
