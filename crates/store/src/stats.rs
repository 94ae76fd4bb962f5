//! What a store holds, in figures. Owns the count, which is the same for every kind of store. Reads
//! everything for it, and never writes.

use std::collections::HashSet;

use super::Store;
use super::batch::{Batch, BatchKind};
use super::error::StoreError;

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// How many sessions are in the list.
    pub sessions: u64,
    /// How many blobs are records, or belong to records.
    pub records: u64,
    /// How many blobs are content.
    pub content: u64,
    /// Bytes of the former, before compression.
    pub record_bytes: u64,
    /// Bytes of the latter, before compression.
    pub content_bytes: u64,
    /// How many links there are.
    pub links: u64,
    /// Bytes of all files in the data directory.
    pub disk_bytes: u64,
    /// What the archive of a data directory is made of.
    pub archive: Option<ArchiveParts>,
    /// The earliest time in the list of sessions, in milliseconds since 1970.
    pub oldest: Option<u64>,
    /// The latest one.
    pub newest: Option<u64>,
}

/// What the bytes of an archive are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveParts {
    /// All of it.
    pub all: u64,
    /// Records, and what belongs to records, in their stored form.
    pub records: u64,
    /// Content, in its stored form.
    pub content: u64,
    /// Ids, ages and lengths of both.
    pub names: u64,
    /// Links.
    pub links: u64,
    /// Rows of the list of sessions.
    pub rows: u64,
}

impl ArchiveParts {
    /// What frames the entries: stamps, checksums and counts.
    #[must_use]
    pub fn frames(&self) -> u64 {
        let parts = self.records + self.content + self.names + self.links + self.rows;
        self.all.saturating_sub(parts)
    }
}

impl Store {
    /// Counts what is stored. Reads all of it, which may take minutes, so it is for commands and
    /// never for a request.
    ///
    /// # Errors
    /// Any error of reading.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        let mut stats = StoreStats {
            disk_bytes: self.disk_bytes(),
            archive: match self {
                Self::Sled(store) => Some(store.archive_parts()?),
                Self::Memory(_) | Self::Redis(_) | Self::Standby(_) => None,
            },
            ..StoreStats::default()
        };
        // What waits to be written may be handed over twice. All else is counted as it comes.
        let mut listed = HashSet::new();
        self.each(&mut |batch: Batch| {
            let bytes: usize = batch.blobs.iter().map(|(_, value)| value.len()).sum();
            let (blobs, of) = match batch.kind {
                BatchKind::Records => (&mut stats.records, &mut stats.record_bytes),
                BatchKind::Content => (&mut stats.content, &mut stats.content_bytes),
            };
            *blobs += batch.blobs.len() as u64;
            *of += bytes as u64;
            stats.links += batch.links.len() as u64;
            if let Some(row) = batch.listed {
                stats.sessions += u64::from(listed.insert(row.session));
                stats.oldest = Some(stats.oldest.map_or(row.at, |oldest| oldest.min(row.at)));
                stats.newest = stats.newest.max(Some(row.at));
            }
            Ok(())
        })?;
        Ok(stats)
    }
}
