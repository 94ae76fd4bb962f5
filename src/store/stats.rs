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
    /// The earliest time in the list of sessions, in milliseconds since 1970.
    pub oldest: Option<u64>,
    /// The latest one.
    pub newest: Option<u64>,
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
