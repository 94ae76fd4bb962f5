//! Immutable blobs under the hash of their bytes, and links from keys to sets of blobs. Owns the
//! promise that what was acknowledged is durable. Never looks into a blob, never edits one, and
//! never decides which of several linked blobs is meant.
//!
//! One thread writes in groups, and a [`Ticket`] acknowledges a batch when it is on disk. Reads see
//! a batch as soon as it was committed. Within a batch, blobs are written before links. So whatever
//! part a crash leaves is sound: a link whose blob is missing is not shown.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::model::{Digest, blob_id};

pub mod codec;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod faults;
mod files;
pub mod memory;
mod overlay;
pub(crate) mod sled;
pub(crate) mod standby;

#[cfg(test)]
mod tests;

pub use error::StoreError;
pub(crate) use error::is_of_disk;

/// Where blobs and links are kept.
pub enum Store {
    /// In this process only, for tests, demos and operators who want no disk.
    Memory(memory::Memory),
    /// In a directory of this machine.
    Sled(sled::SledStore),
    /// In memory, until a disk that refuses works again.
    Standby(standby::Standby),
}

/// The kinds of store that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// [`Store::Memory`].
    Memory,
    /// [`Store::Sled`].
    Sled,
}

/// How to open a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// The kind of store.
    pub backend: Backend,
    /// The data directory. It is made if it is missing.
    pub path: PathBuf,
    /// The engine's page cache in MiB. The engine takes several times as much memory.
    pub cache_mb: u32,
    /// How many batches may wait to be written before commits are refused.
    pub queue: usize,
    /// How many bytes of blobs may wait to be written before commits are refused.
    pub queue_bytes: usize,
    /// How long after a failure of the disk the store is opened again.
    pub retry: Duration,
    /// How long closing may take. After that it is given up, as if the process had been killed.
    pub close_wait: Duration,
    /// How often the store checks that its open files are still those in the directory.
    pub look: Duration,
    /// How often a disk that refuses is tried again while memory takes its place.
    pub stand_by: Duration,
    /// A file that belongs into the directory beside the store. It is written again if somebody
    /// empties the directory.
    pub keepsake: Option<Keepsake>,
}

/// A small secret file that belongs to the store.
#[derive(Clone, PartialEq, Eq)]
pub struct Keepsake {
    /// Its name in the data directory.
    pub name: &'static str,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Keepsake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keepsake")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            backend: Backend::Sled,
            path: PathBuf::from("./data"),
            cache_mb: 48,
            queue: 1024,
            queue_bytes: 64 << 20,
            retry: Duration::from_secs(1),
            close_wait: Duration::from_secs(10),
            look: Duration::from_secs(1),
            stand_by: Duration::from_secs(15),
            keepsake: None,
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

/// What is written together. Writing it twice changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Blobs under their [`blob_id`].
    pub blobs: Vec<(Digest, Bytes)>,
    /// Links to blobs of this batch or of earlier ones.
    pub links: Vec<Link>,
}

impl Batch {
    /// The bytes of all blobs, and a little for each link.
    fn size(&self) -> usize {
        let blobs: usize = self.blobs.iter().map(|(_, bytes)| bytes.len()).sum();
        blobs + self.links.len() * size_of::<Link>()
    }

    /// Checks that every blob matches its id.
    fn verify(&self) -> Result<(), StoreError> {
        match self.blobs.iter().find(|(id, bytes)| blob_id(bytes) != *id) {
            Some((id, _)) => Err(StoreError::WrongId { id: *id }),
            None => Ok(()),
        }
    }
}

/// A store that was opened.
pub struct Opened {
    /// The store.
    pub store: Store,
    /// What opening it found.
    pub report: OpenReport,
}

/// What opening a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Where a corrupt store was moved. The open one has what could still be read of it.
    pub quarantined: Option<PathBuf>,
    /// What was wrong with that store.
    pub reason: Option<String>,
    /// Whether the last stop was clean. Also true for a new directory.
    pub clean: bool,
    /// How many blobs are stored. Each turn writes at least one.
    pub blobs: u64,
    /// How many links are stored.
    pub links: u64,
    /// How many entries were read to check the store after an unclean stop.
    pub checked: u64,
    /// What was acknowledged once and is lost.
    pub lost: Loss,
    /// Files and directories that others could read. They are closed now.
    pub closed: Vec<PathBuf>,
    /// Files and directories that others can still read, and why.
    pub open: Vec<(PathBuf, String)>,
}

impl OpenReport {
    /// What an operator must know of it, one sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(moved) = &self.quarantined {
            notes.push(format!(
                "the store was corrupt ({}): it was moved to {} and rebuilt from its copies; remove the old one by hand",
                self.reason.as_deref().unwrap_or("unknown"),
                moved.display()
            ));
        }
        if self.lost.records() > 0 {
            let Loss {
                writes,
                blobs,
                links,
            } = self.lost;
            notes.push(format!(
                "records are lost to damage: {writes} groups of writes left only a trace, and {blobs} blobs and {links} links of earlier groups are missing; restore a backup if they matter"
            ));
        }
        for (path, why) in &self.open {
            notes.push(format!("others may read {}: {why}", path.display()));
        }
        notes
    }
}

/// What damage destroyed that no copy holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How many groups of writes left only a trace. A group that was not acknowledged yet when the
    /// machine lost power also leaves one.
    pub writes: u64,
    /// How many blobs are missing.
    pub blobs: u64,
    /// How many links are missing.
    pub links: u64,
}

impl Loss {
    /// How much is lost, as one number. It is 0 only if nothing is lost.
    #[must_use]
    pub fn records(self) -> u64 {
        let least = u64::from(self.links > 0);
        self.writes.max(self.blobs).max(least)
    }
}

/// The state of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The store found corruption and answers only with errors until a restart.
    pub degraded: bool,
    /// How many blobs did not match their id when they were read. They were reported as absent.
    pub mismatched: u64,
    /// How many batches could not be written.
    pub failed: u64,
    /// How many batches wait to be written.
    pub waiting: usize,
    /// How many records were acknowledged and are lost.
    pub lost: u64,
    /// How often a damaged store was rebuilt.
    pub rebuilt: u64,
    /// How often files were removed or replaced while they were in use.
    pub wiped: u64,
    /// Nothing outlives the process although it should, because the disk refuses.
    pub memory_only: bool,
}

/// How many members of a set are read at most. What many sessions said alike leads to as many
/// records, and a request must not wait for all of them.
pub const MEMBERS: usize = 1024;

impl Store {
    /// Opens the store that `settings` describe, and makes it if it is missing. A corrupt store is
    /// moved aside, and a new one begins with what could be read of it, which the report says.
    /// Everything stays below `settings.path`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process holds the directory, [`StoreError::Format`] if a
    /// newer version wrote it, [`StoreError::Io`] if the system refuses.
    pub fn open(settings: &StoreSettings) -> Result<Opened, StoreError> {
        match settings.backend {
            Backend::Memory => {
                let report = OpenReport {
                    clean: true,
                    ..OpenReport::default()
                };
                Ok(Opened {
                    store: Self::Memory(memory::Memory::default()),
                    report,
                })
            }
            Backend::Sled => {
                let (store, report) = sled::SledStore::open(settings)?;
                Ok(Opened {
                    store: Self::Sled(store),
                    report,
                })
            }
        }
    }

    /// Does the same as [`Self::open`]. But if the disk refuses, because it is full, broken or
    /// mounted read-only, the store stands by in memory and tries the disk again from time to time.
    ///
    /// # Errors
    /// The errors of [`Self::open`] that somebody has to act on first.
    pub fn open_or_stand_by(settings: &StoreSettings) -> Result<Opened, StoreError> {
        let there = settings.path.exists();
        match Self::open(settings) {
            Err(error) if error.is_of_disk(there) => Ok(Opened {
                store: Self::Standby(standby::Standby::new(settings, error)?),
                report: OpenReport::default(),
            }),
            other => other,
        }
    }

    /// A store in memory that keeps about `most` bytes. When more comes, what was written first is
    /// dropped.
    #[must_use]
    pub fn forgetful(most: usize) -> Self {
        Self::Memory(memory::Memory::bounded(most))
    }

    /// How many bytes of memory a bounded store takes. 0 for any other store.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Memory(store) => store.held(),
            Self::Sled(_) | Self::Standby(_) => 0,
        }
    }

    /// The set of each key, sorted by turn and then by id, up to [`MEMBERS`] of each. Leaves out
    /// links whose blob is not stored. May read the disk.
    ///
    /// # Errors
    /// Any error of reading. There is never a partial answer.
    pub fn links(&self, keys: &[Digest]) -> Result<Vec<Vec<(u32, Digest)>>, StoreError> {
        match self {
            Self::Memory(store) => store.links(keys),
            Self::Sled(store) => store.links(keys),
            Self::Standby(store) => store.links(keys),
        }
    }

    /// The blob of each id. `None` if it is not stored, or if the stored bytes do not match the id,
    /// which [`Health::mismatched`] counts. May read the disk.
    ///
    /// # Errors
    /// Any error of reading. There is never a partial answer.
    pub fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, StoreError> {
        match self {
            Self::Memory(store) => store.blobs(ids),
            Self::Sled(store) => store.blobs(ids),
            Self::Standby(store) => store.blobs(ids),
        }
    }

    /// Every blob that a link leads to, with the turn of the link, sorted by turn and then by id.
    /// Reads all links, which may take long, so it is for commands and never for a request.
    ///
    /// # Errors
    /// Any error of reading. There is never a partial answer.
    pub fn linked(&self) -> Result<Vec<(u32, Digest)>, StoreError> {
        match self {
            Self::Memory(store) => store.linked(),
            Self::Sled(store) => store.linked(),
            Self::Standby(store) => store.linked(),
        }
    }

    /// Whether a read may wait for a disk, so that it must not run on an async worker.
    #[must_use]
    pub fn reads_wait(&self) -> bool {
        match self {
            Self::Memory(store) => store.reads_wait(),
            Self::Sled(_) | Self::Standby(_) => true,
        }
    }

    /// Hands a batch over to be written and returns at once. The batch can be read from now on. The
    /// ticket says when it is durable, or why it never will be. A store that is full, closed or
    /// degraded refuses at once.
    #[must_use = "the ticket says whether the batch was written"]
    pub fn commit(&self, batch: Batch) -> Ticket {
        match self {
            Self::Memory(store) => store.commit(batch),
            Self::Sled(store) => store.commit(batch),
            Self::Standby(store) => store.commit(batch),
        }
    }

    /// Hands over a batch that may be left out if the store is busy. It is accepted only while half
    /// of the queue is free. The other half is for records, without which hidden exchanges would be
    /// lost.
    #[must_use = "the ticket says whether the batch was written"]
    pub fn commit_spare(&self, batch: Batch) -> Ticket {
        match self {
            Self::Memory(store) => store.commit(batch),
            Self::Sled(store) => store.commit_spare(batch),
            Self::Standby(store) => store.commit_spare(batch),
        }
    }

    /// Writes what waits, makes it durable and releases the directory. Blocks for up to
    /// [`StoreSettings::close_wait`]. After that the store answers [`StoreError::Closed`].
    ///
    /// # Errors
    /// Why it could not be closed cleanly. Nothing that was acknowledged is lost, but the next
    /// start takes longer.
    pub fn close(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => {
                store.close();
                Ok(())
            }
            Self::Sled(store) => store.close(),
            Self::Standby(store) => store.close(),
        }
    }

    /// The state of the store, for metrics and readiness.
    #[must_use]
    pub fn health(&self) -> Health {
        match self {
            Self::Memory(store) => store.health(),
            Self::Sled(store) => store.health(),
            Self::Standby(store) => store.health(),
        }
    }

    /// How many bytes the files in the data directory hold, including quarantined ones. 0 in
    /// memory. Reads the directory, so it is for metrics and never for a request.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        match self {
            Self::Memory(_) => 0,
            Self::Sled(store) => store.disk_bytes(),
            Self::Standby(store) => store.disk_bytes(),
        }
    }

    /// What an operator must know of the store, one sentence each. Empty if all is well.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Sled(store) => store.notes(),
            Self::Standby(store) => store.notes(),
        }
    }

    /// Whether what is committed now will outlive the process.
    #[must_use]
    pub fn is_durable(&self, health: &Health) -> bool {
        !matches!(self, Self::Memory(_)) && !health.memory_only && !health.degraded
    }

    /// Whether corruption has stopped the store until a restart.
    #[must_use]
    pub fn degraded(&self) -> bool {
        self.health().degraded
    }
}

/// How the name of a store begins that was moved aside.
pub const QUARANTINE: &str = "quarantine-";

/// A free name below `dir` for a corrupt store.
fn quarantine_path(dir: &Path) -> PathBuf {
    let free = |path: &PathBuf| !path.exists();
    let mut names = (1u32..).map(|n| dir.join(format!("{QUARANTINE}{n}")));
    names.find(free).unwrap_or_else(|| dir.join(QUARANTINE))
}

/// Resolves when a batch is durable, or has failed. Dropping it does not take the batch back.
#[derive(Debug)]
pub struct Ticket(TicketState);

#[derive(Debug)]
enum TicketState {
    Done(Result<(), StoreError>),
    Waiting(oneshot::Receiver<Result<(), StoreError>>),
}

/// The other end of a [`Ticket`].
struct Acknowledge(oneshot::Sender<Result<(), StoreError>>);

impl Acknowledge {
    /// Resolves the ticket. It does no harm if nobody waits for it any more.
    fn send(self, outcome: Result<(), StoreError>) {
        let _ = self.0.send(outcome);
    }
}

impl Ticket {
    fn done(outcome: Result<(), StoreError>) -> Self {
        Self(TicketState::Done(outcome))
    }

    /// Whether the batch was refused or has failed already.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.0, TicketState::Done(Err(_)))
    }

    /// Blocks until the outcome is known. Only for the store's own threads.
    fn wait(self) -> Result<(), StoreError> {
        match self.0 {
            TicketState::Done(outcome) => outcome,
            TicketState::Waiting(receiver) => {
                let closed = |_| Err(StoreError::Closed);
                receiver.blocking_recv().unwrap_or_else(closed)
            }
        }
    }

    fn waiting() -> (Acknowledge, Self) {
        let (sender, receiver) = oneshot::channel();
        (Acknowledge(sender), Self(TicketState::Waiting(receiver)))
    }
}

impl Future for Ticket {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            TicketState::Done(outcome) => Poll::Ready(outcome.clone()),
            TicketState::Waiting(receiver) => {
                // The writer went away without an answer, so the store was closed.
                let closed = |_| Err(StoreError::Closed);
                Pin::new(receiver)
                    .poll(cx)
                    .map(|answer| answer.unwrap_or_else(closed))
            }
        }
    }
}
