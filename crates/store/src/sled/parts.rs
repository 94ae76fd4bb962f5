//! What the bytes of the archive are made of. Owns that count. Never writes.

use super::super::batch::BatchKind;
use super::super::error::StoreError;
use super::super::stats::ArchiveParts;
use super::SledStore;
use super::entry::{EntryReader, Scanned};
use super::writes::Writes;

/// How many bytes [`Writes::write`] takes beside a blob's own and a row's own: id, age and length; key,
/// id, turn and day; id and age; session, time, id and length.
const BLOB: u64 = 32 + 5 + 4;
const LINK: u64 = 32 + 32 + 4 + 2;
const NAMED: u64 = 32 + 5;
const ROW: u64 = 32 + 8 + 32 + 4;

impl SledStore {
    /// Reads the archive, which has everything once, and counts its bytes.
    pub(crate) fn archive_parts(&self) -> Result<ArchiveParts, StoreError> {
        let (file, end) = self.archive_now()?;
        let failed = |error| self.shared.place.error("reading the archive in")(error);
        let mut parts = ArchiveParts {
            all: end,
            ..ArchiveParts::default()
        };
        let mut entries = EntryReader::between(&file, 0, end);
        while let Some(found) = entries.next().map_err(failed)? {
            if let Scanned::Whole(_, group, _) = found {
                group.iter().for_each(|writes| parts.add(writes));
            }
        }
        Ok(parts)
    }
}

impl ArchiveParts {
    fn add(&mut self, writes: &Writes) {
        for (_, age, bytes) in &writes.blobs {
            let of = match age.kind() {
                BatchKind::Records => &mut self.records,
                BatchKind::Content => &mut self.content,
            };
            *of += bytes.len() as u64;
        }
        let rows: usize = writes.rows.iter().map(|listed| listed.row.len()).sum();
        self.names += writes.blobs.len() as u64 * BLOB + writes.named.len() as u64 * NAMED;
        self.links += writes.links.len() as u64 * LINK;
        self.rows += writes.rows.len() as u64 * ROW + rows as u64;
    }
}
