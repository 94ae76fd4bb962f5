//! What readers and the committer of a directory share: the engine, what waits, and what is counted.
//! Owns who may use the engine when. Never writes to it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use plimsoll_model::Digest;

use super::super::batch::Batch;
use super::super::error::StoreError;
use super::super::overlay::Overlay;
use super::super::settings::StoreSettings;
use super::super::ticket::Ticket;
use super::open::DataDirectory;
use super::replace::SweepAsk;
use super::snapshot::ArchiveAsk;
use super::trees::Trees;

/// What readers and the committer share.
pub(super) struct Shared {
    pub(super) settings: StoreSettings,
    pub(super) place: DataDirectory,
    pub(super) engine: RwLock<Engine>,
    pub(super) overlay: Mutex<Overlay>,
    pub(super) degraded: AtomicBool,
    pub(super) mismatched: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) rebuilt: AtomicU64,
    pub(super) wiped: AtomicU64,
    /// How many blobs were removed because they were too old.
    pub(super) swept: AtomicU64,
    /// Whether the records are of another tenant key than this process's.
    pub(super) other_key: AtomicBool,
    /// How far the archive is durable.
    pub(super) archived: AtomicU64,
    /// Sweeps that somebody asked for.
    pub(super) asked: Mutex<Vec<SweepAsk>>,
    /// Those who wait to be told up to where the archive has everything.
    pub(super) archive_asked: Mutex<Vec<ArchiveAsk>>,
    pub(super) notes: Mutex<Vec<String>>,
}

/// How many notes are kept for whoever asks how the store is. The first ones say how the trouble
/// began.
const NOTES: usize = 20;

pub(super) enum Engine {
    Open(Trees),
    /// The disk failed, and the engine could not be opened again yet.
    Failed(StoreError),
    Closed,
}

impl Engine {
    pub(super) fn trees(&self) -> Result<&Trees, StoreError> {
        match self {
            Self::Open(trees) => Ok(trees),
            Self::Failed(error) => Err(error.clone()),
            Self::Closed => Err(StoreError::Closed),
        }
    }
}

impl Shared {
    /// Reads from the trees. Damage that is found stops the store.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&Trees, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.is_degraded() {
            return Err(StoreError::Degraded);
        }
        let engine = self.engine.read();
        let answer = engine
            .trees()
            .and_then(|trees| work(trees, self.place.engine()));
        if matches!(answer, Err(StoreError::Corrupt { .. })) {
            self.degrade();
        }
        answer
    }

    /// Whether a blob is stored. One that still waits to be written is, because it can be read.
    pub(super) fn has_blob(&self, trees: &Trees, id: &Digest) -> Result<bool, StoreError> {
        let waits = self.overlay.lock().blob(id).is_some();
        Ok(waits || trees.has_blob(self.place.engine(), id)?)
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::Acquire)
    }

    /// Stops all work on the engine until a restart, which then checks everything.
    pub(super) fn degrade(&self) {
        if !self.degraded.swap(true, Ordering::AcqRel) {
            self.place.suspect();
        }
    }

    /// Writes a note to the log and keeps it for whoever asks how the store is.
    pub(super) fn say(&self, note: String) {
        tracing::warn!("{note}");
        let mut notes = self.notes.lock();
        if notes.len() < NOTES {
            notes.push(note);
        }
    }

    pub(super) fn refuse(&self, error: StoreError) -> Ticket {
        self.failed.fetch_add(1, Ordering::Relaxed);
        Ticket::done(Err(error))
    }

    /// Frees the room of pieces, of which `ended` end a batch.
    pub(super) fn free(&self, pieces: &[Batch], ended: usize) {
        self.overlay.lock().free(pieces, ended);
    }

    /// Takes batches out of the overlay that were written or have failed.
    pub(super) fn release(&self, batches: &[Batch]) {
        let mut overlay = self.overlay.lock();
        batches.iter().for_each(|batch| overlay.release(batch));
    }
}
