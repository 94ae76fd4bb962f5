//! Reads everything that an engine holds, part by part, so that nobody who needs the engine has to
//! wait for all of it. Also counts it. Owns the order: blobs, then the links that lead to them, then
//! rows. Never writes.

use std::ops::Bound;
use std::path::Path;

use ::sled::Tree;

use super::super::error::StoreError;
use super::chunks::{AGE_NUMBER, BlobAtHand, ReadBlob, chunk_key};
use super::packs::PACK_LINKS;
use super::rows::parse_row;
use super::trees::{Checked, Counts, Trees, guarded};
use super::writes::Writes;

/// How many entries a part has at most, however small they are.
const PART_ENTRIES: usize = 4096;

/// How far a reading has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    section: Section,
    /// The last key that was read of it.
    last: Option<Vec<u8>>,
}

impl Cursor {
    /// Begins behind all blobs.
    pub(super) fn links() -> Self {
        Self {
            section: Section::Packs,
            last: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    #[default]
    Blobs,
    Packs,
    Rows,
    End,
}

impl Section {
    fn next(self) -> Self {
        match self {
            Self::Blobs => Self::Packs,
            Self::Packs => Self::Rows,
            Self::Rows | Self::End => Self::End,
        }
    }
}

impl Trees {
    /// The next part, of about `most` bytes: blobs in their stored form, links or rows. Leaves out
    /// blobs that lack a chunk. `None` at the end.
    pub(super) fn part(
        &self,
        path: &Path,
        cursor: &mut Cursor,
        most: usize,
    ) -> Result<Option<Writes>, StoreError> {
        let mut part = Writes::default();
        while cursor.section != Section::End && part.is_empty() {
            let more = match cursor.section {
                Section::Blobs => self.blob_part(path, cursor, most, &mut part)?,
                Section::Packs => self.pack_part(path, cursor, &mut part)?,
                Section::Rows => self.row_part(path, cursor, &mut part)?,
                Section::End => false,
            };
            if !more {
                *cursor = Cursor {
                    section: cursor.section.next(),
                    last: None,
                };
            }
        }
        Ok((!part.is_empty()).then_some(part))
    }

    /// Reads blobs until there are `most` bytes. Returns whether there may be more.
    fn blob_part(
        &self,
        path: &Path,
        cursor: &mut Cursor,
        most: usize,
        part: &mut Writes,
    ) -> Result<bool, StoreError> {
        let mut entries = after(&self.blobs, cursor);
        let mut blob = ReadBlob::default();
        let mut bytes = 0;
        while let Some((key, value)) = guarded(path, || entries.next().transpose())? {
            let Some(whole) = blob.next(&key, &value) else {
                continue;
            };
            bytes += whole.2.len();
            cursor.last = Some(chunk_key(&whole.0, AGE_NUMBER).to_vec());
            part.blobs.push(whole);
            if bytes >= most || part.blobs.len() >= PART_ENTRIES {
                return Ok(true);
            }
        }
        part.blobs.extend(blob.take());
        Ok(false)
    }

    /// Reads the links of some packs. Returns whether there may be more.
    fn pack_part(
        &self,
        path: &Path,
        cursor: &mut Cursor,
        part: &mut Writes,
    ) -> Result<bool, StoreError> {
        let mut packs = self.packs_after(cursor.last.as_deref());
        for _ in 0..PART_ENTRIES / PACK_LINKS {
            let Some(pack) = guarded(path, || packs.next().transpose())? else {
                return Ok(false);
            };
            part.links.extend(pack.links());
            cursor.last = Some(pack.key.to_vec());
        }
        Ok(true)
    }

    /// Reads some rows. Returns whether there may be more.
    fn row_part(
        &self,
        path: &Path,
        cursor: &mut Cursor,
        part: &mut Writes,
    ) -> Result<bool, StoreError> {
        let mut entries = after(&self.rows, cursor);
        for _ in 0..PART_ENTRIES {
            let Some((key, value)) = guarded(path, || entries.next().transpose())? else {
                return Ok(false);
            };
            part.rows.extend(parse_row(&key, &value));
            cursor.last = Some(key.to_vec());
        }
        Ok(true)
    }

    /// Reads up to `limit` entries of each tree. If that is all of them, checks them against the
    /// noted counts. A blob that lacks a chunk does not count.
    pub(super) fn check(&self, path: &Path, limit: usize) -> Result<Checked, StoreError> {
        let (met, read, all) = guarded(path, || {
            let (mut met, mut read) = (Counts::default(), 0u64);
            let mut entries = self.blobs.iter();
            let mut blob = BlobAtHand::default();
            for entry in entries.by_ref().take(limit) {
                let (key, chunk) = entry?;
                met.blobs += u64::from(blob.is_whole_with(&key, &chunk));
                read += 1;
            }
            let mut packs = self.packs_after(None);
            for pack in packs.by_ref().take(limit) {
                met.links += pack?.len() as u64;
                read += 1;
            }
            let mut rows = self.newest.iter();
            for entry in rows.by_ref().take(limit) {
                entry?;
                met.rows += 1;
                read += 1;
            }
            let left = [entries.next(), rows.next()];
            let all = left.iter().all(Option::is_none) && packs.next().is_none();
            Ok((met, read, all))
        })?;
        let counted = self.position(path)?.counts;
        if !all {
            return Ok(Checked {
                counts: counted,
                read,
                ..Checked::default()
            });
        }
        // There may be more than was noted, because counts are noted after the entries. There can't
        // be fewer.
        let Counts { blobs, links, rows } = counted;
        if met.blobs < blobs || met.links < links || met.rows < rows {
            return Err(StoreError::Corrupt {
                detail: format!(
                    "{} blobs, {} links and {} rows are left of {blobs}, {links} and {rows}",
                    met.blobs, met.links, met.rows
                ),
            });
        }
        Ok(Checked {
            counts: met,
            counted: true,
            read,
            ..Checked::default()
        })
    }
}

/// The entries behind the last one that was read.
fn after(tree: &Tree, cursor: &Cursor) -> ::sled::Iter {
    let start = match &cursor.last {
        Some(last) => Bound::Excluded(last.clone()),
        None => Bound::Unbounded,
    };
    tree.range::<Vec<u8>, _>((start, Bound::Unbounded))
}
