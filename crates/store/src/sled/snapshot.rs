//! Snapshots of a directory that is in use. The archive only grows, so its first bytes are a copy of
//! the store as it was when it ended there. Owns that the archive is whole up to there. Never stops
//! anybody from writing.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};

use super::super::error::StoreError;
use super::super::snapshot::{self, Snapshot};
use super::committer::Committer;
use super::entry::EntryReader;
use super::{SledStore, archive, mark, seals};

/// Files of the data directory without which a snapshot is not found or not read.
const BESIDE: [&str; 3] = ["tenant.key", mark::FILE_NAME, seals::FILE_NAME];

/// Whoever waits to be told up to where the archive has everything.
pub(super) type ArchiveAsk = Sender<Result<(File, u64), StoreError>>;

impl SledStore {
    /// The archive, and up to where it has everything that was acknowledged by now.
    pub(super) fn archive_now(&self) -> Result<(File, u64), StoreError> {
        let (reply, outcome) = channel();
        {
            // The committer answers all that asked before the store was closed.
            let _open = self.queue.open().ok_or(StoreError::Closed)?;
            self.shared.archive_asked.lock().push(reply);
        }
        outcome.recv().unwrap_or(Err(StoreError::Closed))
    }

    pub(crate) fn snapshot(&self, target: &Path) -> Result<Snapshot, StoreError> {
        let (file, end) = self.archive_now()?;
        let read = |error: std::io::Error| StoreError::snapshot(target, &error.to_string());
        let mut entries = EntryReader::between(&file, 0, end);
        while entries.next().map_err(read)?.is_some() {}
        if !entries.is_sound() {
            let detail =
                "the archive is damaged: `plimsoll store gc` writes it anew from what is stored";
            return Err(StoreError::snapshot(target, detail));
        }
        let data = self.shared.place.dir();
        snapshot::write(target, (&file, end, archive::FILE_NAME), (data, &BESIDE))
    }
}

impl Committer {
    /// Tells everybody who asked up to where the archive has everything, which is all that was
    /// acknowledged.
    pub(super) fn tell_archive(&mut self) {
        let asks = std::mem::take(&mut *self.shared.archive_asked.lock());
        if asks.is_empty() {
            return;
        }
        let told = self.archived_file();
        for ask in asks {
            let copy = told.as_ref().map_err(StoreError::clone);
            let copy = copy.and_then(|(file, end)| Ok((self.cloned(file)?, *end)));
            // Whoever asked may be gone.
            let _ = ask.send(copy);
        }
    }

    fn archived_file(&mut self) -> Result<(File, u64), StoreError> {
        if self.shared.is_degraded() {
            return Err(StoreError::Degraded);
        }
        if let Some((_, error)) = &self.failed {
            return Err(error.clone());
        }
        self.flush_first()?;
        let archive = self.archive.as_ref().ok_or(StoreError::Closed)?;
        Ok((self.cloned(archive.file())?, archive.end()))
    }

    fn cloned(&self, file: &File) -> Result<File, StoreError> {
        file.try_clone()
            .map_err(self.shared.place.error("reading the archive in"))
    }
}
