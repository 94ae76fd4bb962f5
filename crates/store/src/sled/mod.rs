//! The store in a directory, on sled 0.34. The engine is fast and no longer maintained, so it is
//! guarded: its flush is followed by an fdatasync of the store's own, its panics are caught, values
//! are cut into chunks, a corrupt directory is moved aside, and one thread does all the writing. A
//! journal holds what was written last, because it is durable sooner. An archive holds everything,
//! because the engine silently loses what stands behind a damaged place. What is too old, if the
//! settings say so, is left out of a copy that takes the store's place. Never removes anything else
//! that was committed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use plimsoll_model::Digest;

use super::batch::Batch;
use super::codec::Encoder;
use super::error::StoreError;
use super::files;
use super::key_mark::KeyMark;
use super::report::{Health, OpenReport};
use super::settings::StoreSettings;
use super::ticket::Ticket;

mod age;
mod apply;
mod archive;
mod chunks;
mod committer;
mod entry;
mod journal;
mod kept;
mod log_check;
mod mark;
mod open;
mod packs;
mod parts;
mod queue;
mod read;
mod recover;
mod replace;
mod replaced_files;
mod rows;
mod salvage;
mod scan;
mod seals;
mod shared;
mod snapshot;
mod swap;
mod sweep;
mod trees;
mod writes;

#[cfg(test)]
mod tests;

use archive::Archive;
use committer::Committer;
use journal::Journal;
use open::DataDirectory;
use queue::{Queue, pieces, queue};
use replace::{SweepAsk, Sweeps};
use shared::{Engine, Shared};
use writes::Writes;

/// A store in a directory of this machine. Only one process may use it at a time.
pub struct SledStore {
    shared: Arc<Shared>,
    queue: Queue,
    closed: Mutex<Receiver<Result<(), StoreError>>>,
}

impl SledStore {
    /// Opens or makes the store below `settings.path` and starts its thread.
    ///
    /// # Errors
    /// The errors of [`super::Store::open`].
    pub fn open(settings: &StoreSettings) -> Result<(Self, OpenReport), StoreError> {
        let place = DataDirectory::new(&settings.path);
        let lock = place.lock()?;
        place.admit(&settings.seals)?;
        let (trees, checked, mut report) = place.open(settings)?;
        let journal = Journal::open(place.dir()).map_err(place.error("opening the journal in"))?;
        let archive = Archive::open(place.dir()).map_err(place.error("opening the archive in"))?;
        // The engine becomes visible to readers only after recovery, so it starts as closed.
        let shared = Arc::new(Shared {
            settings: settings.clone(),
            place,
            engine: RwLock::new(Engine::Closed),
            overlay: Mutex::default(),
            degraded: AtomicBool::new(false),
            mismatched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            rebuilt: AtomicU64::new(u64::from(report.quarantined.is_some())),
            wiped: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            other_key: AtomicBool::new(false),
            archived: AtomicU64::new(0),
            asked: Mutex::default(),
            archive_asked: Mutex::default(),
            notes: Mutex::default(),
        });
        let (queue, waiting) = queue();
        let (said, closed) = channel();
        let mut committer = Committer {
            shared: Arc::clone(&shared),
            encoder: Encoder::new(settings.seals.clone())?,
            journal,
            archive,
            pending: Writes::default(),
            counts: checked.counts,
            counted: checked.counted,
            group: 0,
            behind: false,
            flushed: 0,
            wrote: false,
            rows: HashMap::new(),
            held: Vec::new(),
            failed: None,
            anew: false,
            looked: Instant::now(),
            sweeps: Sweeps::default(),
            lock,
        };
        match committer.recover(&trees, report.clean, checked.before) {
            Ok(lost) => {
                report.lost = lost;
                committer.settle_recovered(&trees)?;
            }
            // The next start checks everything. Until then this process serves without a store.
            Err(StoreError::Corrupt { .. }) => shared.degrade(),
            Err(error) => return Err(error),
        }
        shared.lost.store(report.lost.records(), Ordering::Relaxed);
        let holds_records = committer.counts.blobs > 0;
        let other_key = shared.place.claim(settings.key_mark, holds_records)?;
        shared.other_key.store(other_key, Ordering::Relaxed);
        *shared.notes.lock() = report.notes();
        (report.blobs, report.links) = (committer.counts.blobs, committer.counts.links);
        *shared.engine.write() = Engine::Open(trees);
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || committer.run(&waiting, &said))
            .map_err(|error| StoreError::io("starting the thread of", &settings.path, &error))?;
        Ok((
            Self {
                shared,
                queue,
                closed: Mutex::new(closed),
            },
            report,
        ))
    }

    /// The mark of the tenant key under which the records are found. `None` if it can't be read.
    pub(super) fn key_mark(&self) -> Option<KeyMark> {
        self.shared.place.key_mark().ok().flatten()
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        files::bytes(&self.shared.settings.path)
    }

    pub(super) fn disk_free(&self) -> u64 {
        files::free(&self.shared.settings.path)
    }

    /// Does the same as [`Self::commit`], but leaves half of the queue free.
    pub(super) fn commit_spare(&self, batch: Batch) -> Ticket {
        let shared = &self.shared;
        let StoreSettings {
            queue, queue_bytes, ..
        } = shared.settings;
        if !shared
            .overlay
            .lock()
            .has_room(&batch, queue / 2, queue_bytes / 2)
        {
            return shared.refuse(StoreError::Busy);
        }
        self.commit(batch)
    }

    pub(super) fn commit(&self, batch: Batch) -> Ticket {
        let shared = &self.shared;
        // A blob with a wrong id must not be readable even while it waits.
        if let Err(error) = batch.verify() {
            return shared.refuse(error);
        }
        let (pieces, ticket) = pieces(batch);
        let Some(open) = self.queue.open() else {
            return shared.refuse(StoreError::Closed);
        };
        if shared.is_degraded() {
            return shared.refuse(StoreError::Degraded);
        }
        let StoreSettings {
            queue, queue_bytes, ..
        } = shared.settings;
        // The overlay takes the batch before the queue does, so that no reader can miss it.
        let mut overlay = shared.overlay.lock();
        if !overlay.add(pieces.iter().map(|piece| &piece.batch), queue, queue_bytes) {
            return shared.refuse(StoreError::Busy);
        }
        drop(overlay);
        open.put(pieces);
        ticket
    }

    /// Removes what is too old, and what has one of these ids: blobs, with the links that lead to
    /// them, and rows of sessions. Waits until that is done, and returns how many blobs went.
    pub(super) fn sweep(&self, erased: HashSet<Digest>) -> Result<u64, StoreError> {
        let (reply, outcome) = channel();
        {
            // The committer answers all that asked before the store was closed.
            let _open = self.queue.open().ok_or(StoreError::Closed)?;
            self.shared.asked.lock().push(SweepAsk { erased, reply });
        }
        outcome.recv().unwrap_or(Err(StoreError::Closed))
    }

    pub(super) fn close(&self) -> Result<(), StoreError> {
        let closed = self.closed.lock();
        if !self.queue.close() {
            return Err(StoreError::Closed);
        }
        let waited = self.shared.settings.close_wait;
        closed
            .recv_timeout(waited)
            .unwrap_or(Err(StoreError::Slow { waited }))
    }

    pub(super) fn health(&self) -> Health {
        let shared = &self.shared;
        Health {
            degraded: shared.is_degraded(),
            mismatched: shared.mismatched.load(Ordering::Relaxed),
            failed: shared.failed.load(Ordering::Relaxed),
            waiting: shared.overlay.lock().len(),
            lost: shared.lost.load(Ordering::Relaxed),
            rebuilt: shared.rebuilt.load(Ordering::Relaxed),
            wiped: shared.wiped.load(Ordering::Relaxed),
            swept: shared.swept.load(Ordering::Relaxed),
            other_key: shared.other_key.load(Ordering::Relaxed),
            ..Health::default()
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.shared.notes.lock().clone();
        if self.shared.other_key.load(Ordering::Relaxed) {
            notes.push(self.shared.place.other_key());
        }
        if self.shared.is_degraded() {
            notes.push(StoreError::Degraded.to_string());
        }
        // Whoever asks must not wait while the engine is rebuilt.
        match self.shared.engine.try_read().as_deref() {
            Some(Engine::Failed(error)) => notes.push(error.to_string()),
            Some(Engine::Open(_) | Engine::Closed) => {}
            None => notes.push("the store is being rebuilt".to_owned()),
        }
        notes
    }
}
