//! What is written together, with the day of each piece, and its form in the journal and in the
//! archive. Owns that form. Never decides what is new.
//!
//! With numbers in little-endian: `blobs (u32) ‖ for each: id (32), age (5), length (u32), bytes ‖
//! links (u32) ‖ for each: key (32), id (32), turn (u32), day (u16) ‖ named (u32) ‖ for each: id
//! (32), age (5) ‖ rows (u32) ‖ for each: session (32), time (u64), id (32), length (u32), bytes`.

use bytes::Bytes;
use plimsoll_model::Digest;

use super::super::batch::{Batch, Link, Listed};
use super::age::Age;
use super::trees::CHUNK_BYTES;

/// What is written together. In the archive blobs are in their stored form, in the journal as they
/// came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    pub(super) blobs: Vec<(Digest, Age, Bytes)>,
    /// Links, with the day on which each was last written.
    pub(super) links: Vec<(Link, u16)>,
    /// Blobs that are stored already and are named again.
    pub(super) named: Vec<(Digest, Age)>,
    pub(super) rows: Vec<Listed>,
}

impl Writes {
    /// What a batch brings today, with blobs as they came.
    pub(super) fn of(batch: &Batch, today: u16) -> Self {
        let age = Age::new(batch.kind, today);
        let renewed = Age::renewed(batch.kind, today);
        let blobs = batch.blobs.iter();
        Self {
            blobs: blobs.map(|(id, bytes)| (*id, age, bytes.clone())).collect(),
            links: batch.links.iter().map(|link| (*link, today)).collect(),
            named: batch.renewed.iter().map(|id| (*id, renewed)).collect(),
            rows: batch.listed.iter().cloned().collect(),
        }
    }

    /// What readers can find in it, with blobs as they came.
    pub(super) fn batches(self) -> impl Iterator<Item = Batch> {
        let mut rows = self.rows.into_iter();
        let first = Batch {
            blobs: self
                .blobs
                .into_iter()
                .map(|(id, _, bytes)| (id, bytes))
                .collect(),
            links: self.links.into_iter().map(|(link, _)| link).collect(),
            listed: rows.next(),
            ..Batch::default()
        };
        let more = rows.map(|row| Batch {
            listed: Some(row),
            ..Batch::default()
        });
        std::iter::once(first).chain(more)
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.blobs.extend(more.blobs);
        self.links.extend(more.links);
        self.named.extend(more.named);
        self.rows.extend(more.rows);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// How many blobs, links, names and rows there are.
    pub(super) fn entries(&self) -> usize {
        self.blobs.len() + self.links.len() + self.named.len() + self.rows.len()
    }

    /// The bytes of all blobs and rows, and a little for each link and each name. Not more than the
    /// form takes.
    pub(super) fn size(&self) -> usize {
        let blobs: usize = self.blobs.iter().map(|(.., bytes)| bytes.len()).sum();
        let rows: usize = self.rows.iter().map(|listed| listed.row.len()).sum();
        let names = self.blobs.len() + self.named.len() + self.rows.len() + 2 * self.links.len();
        blobs + rows + names * size_of::<Digest>()
    }

    /// Adds the form. `None` if there is more than it can count.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Option<()> {
        let number = |count: usize| u32::try_from(count).ok().map(u32::to_le_bytes);
        out.extend(number(self.blobs.len())?);
        for (id, age, bytes) in &self.blobs {
            out.extend(id.as_bytes());
            out.extend(age.bytes());
            out.extend(number(bytes.len())?);
            out.extend_from_slice(bytes);
        }
        out.extend(number(self.links.len())?);
        for (link, day) in &self.links {
            out.extend(link.key.as_bytes());
            out.extend(link.id.as_bytes());
            out.extend(link.turn.to_le_bytes());
            out.extend(day.to_le_bytes());
        }
        out.extend(number(self.named.len())?);
        for (id, age) in &self.named {
            out.extend(id.as_bytes());
            out.extend(age.bytes());
        }
        out.extend(number(self.rows.len())?);
        for listed in &self.rows {
            out.extend(listed.session.as_bytes());
            out.extend(listed.at.to_le_bytes());
            out.extend(listed.id.as_bytes());
            out.extend(number(listed.row.len())?);
            out.extend_from_slice(&listed.row);
        }
        Some(())
    }

    /// Takes one off the front.
    pub(super) fn read(rest: &mut &[u8]) -> Option<Self> {
        let mut writes = Self::default();
        for _ in 0..count(rest)? {
            let (id, age) = (Digest(take(rest)?), Age::read(take(rest)?));
            writes.blobs.push((id, age, bytes(rest)?));
        }
        for _ in 0..count(rest)? {
            let link = read_link(rest)?;
            writes.links.push((link, u16::from_le_bytes(take(rest)?)));
        }
        for _ in 0..count(rest)? {
            writes
                .named
                .push((Digest(take(rest)?), Age::read(take(rest)?)));
        }
        for _ in 0..count(rest)? {
            writes.rows.push(Listed {
                session: Digest(take(rest)?),
                at: u64::from_le_bytes(take(rest)?),
                id: Digest(take(rest)?),
                row: bytes(rest)?,
            });
        }
        Some(writes)
    }
}

impl Batch {
    /// About how many engine operations the batch takes.
    pub(super) fn operations(&self) -> usize {
        let blobs = self.blobs.iter();
        let chunks: usize = blobs.map(|(_, bytes)| blob_operations(bytes)).sum();
        chunks + self.links.len() + self.renewed.len() + usize::from(self.listed.is_some())
    }
}

/// About how many engine operations a blob takes.
pub(super) fn blob_operations(blob: &Bytes) -> usize {
    1 + blob.len() / CHUNK_BYTES
}

fn count(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn bytes(rest: &mut &[u8]) -> Option<Bytes> {
    let length = count(rest)? as usize;
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(Bytes::copy_from_slice(bytes))
}

fn read_link(rest: &mut &[u8]) -> Option<Link> {
    Some(Link {
        key: Digest(take(rest)?),
        id: Digest(take(rest)?),
        turn: u32::from_le_bytes(take(rest)?),
    })
}

/// Takes so many bytes off the front.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}
