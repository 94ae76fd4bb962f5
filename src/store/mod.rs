//! Immutable blobs under the hash of their bytes, and links from keys to sets of blobs. That is
//! all a store knows: it never looks into a blob, never edits one, and never decides which of
//! several linked blobs is meant.
//!
//! Writes are group-committed by one thread and acknowledged by a [`Ticket`] when they are on
//! disk; reads see a batch from the moment that it was committed. Within a batch blobs are
//! written before links, so every prefix of the writes that a crash leaves is sound: a link
//! whose blob is missing is not shown.

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
    /// In this process only: tests, demos, and whoever wants no disk.
    Memory(memory::Memory),
    /// In a directory of this machine.
    Sled(sled::SledStore),
    /// In memory until a disk that refused gives way.
    Standby(standby::Standby),
}

/// The kinds of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// [`Store::Memory`].
    Memory,
    /// [`Store::Sled`].
    Sled,
}

/// How to open a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which kind.
    pub backend: Backend,
    /// The data directory; made where it is missing.
    pub path: PathBuf,
    /// The engine's page cache in MiB. The engine takes several times as much.
    pub cache_mb: u32,
    /// How many batches may wait to be written before commits are refused.
    pub queue: usize,
    /// How many bytes of blobs may wait to be written before commits are refused.
    pub queue_bytes: usize,
    /// How long after a failure of the disk the store is opened again at the earliest.
    pub retry: Duration,
    /// How long closing may take before it is given up, as if the process had been killed.
    pub close_wait: Duration,
    /// How often it is looked whether the files that are written are still those in the directory.
    pub look: Duration,
    /// How often a disk that refuses is tried again, where memory serves in its place.
    pub stand_by: Duration,
    /// What is to lie in the directory beside the store, also where somebody emptied it.
    pub keepsake: Option<Keepsake>,
}

/// A small secret file that goes with the store.
#[derive(Clone, PartialEq, Eq)]
pub struct Keepsake {
    /// Its name in the data directory.
    pub name: &'static str,
    /// What is in it.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Keepsake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keepsake")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Default for Config {
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

/// From a key to one member of its set: the turn's number and the blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// What is looked up.
    pub key: Digest,
    /// The blob that it leads to.
    pub id: Digest,
    /// The turn's number, by which a set is sorted.
    pub turn: u32,
}

/// What is written together. Writing it twice changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Blobs under their [`blob_id`].
    pub blobs: Vec<(Digest, Bytes)>,
    /// Links, to blobs of this batch or of earlier ones.
    pub links: Vec<Link>,
}

impl Batch {
    /// Bytes of blobs, with a little for each link.
    fn size(&self) -> usize {
        let blobs: usize = self.blobs.iter().map(|(_, bytes)| bytes.len()).sum();
        blobs + self.links.len() * size_of::<Link>()
    }

    /// Holds every blob to its id.
    fn verify(&self) -> Result<(), StoreError> {
        match self.blobs.iter().find(|(id, bytes)| blob_id(bytes) != *id) {
            Some((id, _)) => Err(StoreError::WrongId { id: *id }),
            None => Ok(()),
        }
    }
}

/// A store, and what was met on the way to it.
pub struct Opened {
    /// The store.
    pub store: Store,
    /// What was found.
    pub report: OpenReport,
}

/// What opening a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Where a corrupt store was moved to; the one that is open has what could be read of it.
    pub quarantined: Option<PathBuf>,
    /// What was wrong with the one that was moved.
    pub reason: Option<String>,
    /// Whether the last stop was a clean one (also true of a new directory).
    pub clean: bool,
    /// Blobs stored. Each turn writes at least one.
    pub blobs: u64,
    /// Links stored.
    pub links: u64,
    /// Entries read to check the store after an unclean stop.
    pub checked: u64,
    /// What was acknowledged once and is nowhere any more.
    pub lost: Loss,
    /// Files and directories that others could read and that are closed to them now.
    pub closed: Vec<PathBuf>,
    /// Those that others can still read, and why.
    pub open: Vec<(PathBuf, String)>,
}

impl OpenReport {
    /// What an operator must know of it, a sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(moved) = &self.quarantined {
            notes.push(format!(
                "the store was corrupt ({}): it was moved to {} and put together anew from its copies; remove it by hand",
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
                "records are lost to damage: of {writes} groups of writes nothing but a trace is left, and {blobs} blobs and {links} links of earlier ones are missing; restore a backup if they matter"
            ));
        }
        for (path, why) in &self.open {
            notes.push(format!("others may read {}: {why}", path.display()));
        }
        notes
    }
}

/// What damage took that no copy holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Groups of writes of which nothing but a trace is left. One that was not yet acknowledged
    /// when the machine lost power leaves such a trace, too.
    pub writes: u64,
    /// Blobs fewer than were counted.
    pub blobs: u64,
    /// Links fewer than were counted.
    pub links: u64,
}

impl Loss {
    /// How much is lost in one number; 0 only if nothing is.
    #[must_use]
    pub fn records(self) -> u64 {
        let least = u64::from(self.links > 0);
        self.writes.max(self.blobs).max(least)
    }
}

/// How a store fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The store met a corruption and answers nothing but errors until a restart.
    pub degraded: bool,
    /// Blobs that were read and did not match their id, and were reported as absent.
    pub mismatched: u64,
    /// Batches that could not be written.
    pub failed: u64,
    /// Batches that wait to be written.
    pub waiting: usize,
    /// Records that were acknowledged and are gone.
    pub lost: u64,
    /// How often a damaged store was put together anew.
    pub rebuilt: u64,
    /// How often files were removed or replaced while they were in use.
    pub wiped: u64,
    /// Nothing outlives the process, though it should: the disk refuses.
    pub memory_only: bool,
}

/// So many members of a set are read: what many sessions have said alike leads to as many records,
/// and a request must not wait for all of them.
pub const MEMBERS: usize = 1024;

impl Store {
    /// Opens or makes the store that `config` asks for. A corrupt one is moved aside and a new
    /// one begun with what could be read of it, which the report says; everything lives below `config.path`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] where another process holds the directory, [`StoreError::Format`]
    /// where a newer version wrote it, [`StoreError::Io`] where the system refuses.
    pub fn open(config: &Config) -> Result<Opened, StoreError> {
        match config.backend {
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
                let (store, report) = sled::SledStore::open(config)?;
                Ok(Opened {
                    store: Self::Sled(store),
                    report,
                })
            }
        }
    }

    /// As [`Self::open`], but where the disk itself refuses, because it is full, broken or mounted
    /// to be read, the store stands by in memory and tries again from time to time.
    ///
    /// # Errors
    /// As [`Self::open`], where somebody has to do something first.
    pub fn open_or_stand_by(config: &Config) -> Result<Opened, StoreError> {
        let there = config.path.exists();
        match Self::open(config) {
            Err(error) if error.is_of_disk(there) => Ok(Opened {
                store: Self::Standby(standby::Standby::new(config, error)?),
                report: OpenReport::default(),
            }),
            other => other,
        }
    }

    /// A store in memory that keeps about `most` bytes: where more comes, what was written first goes.
    #[must_use]
    pub fn forgetful(most: usize) -> Self {
        Self::Memory(memory::Memory::bounded(most))
    }

    /// The bytes of memory that a store which forgets takes; 0 of any other.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Memory(store) => store.held(),
            Self::Sled(_) | Self::Standby(_) => 0,
        }
    }

    /// The set of each key, sorted by turn, then id, of up to [`MEMBERS`]: the first ones of larger
    /// sets. Links whose blob is not stored are left out. May read the disk.
    ///
    /// # Errors
    /// Any, where the store can't be read; never a partial answer.
    pub fn links(&self, keys: &[Digest]) -> Result<Vec<Vec<(u32, Digest)>>, StoreError> {
        match self {
            Self::Memory(store) => store.links(keys),
            Self::Sled(store) => store.links(keys),
            Self::Standby(store) => store.links(keys),
        }
    }

    /// The blob of each id, or `None` where it is not stored, or what is stored does not match
    /// the id (which [`Health::mismatched`] counts). May read the disk.
    ///
    /// # Errors
    /// Any, where the store can't be read; never a partial answer.
    pub fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, StoreError> {
        match self {
            Self::Memory(store) => store.blobs(ids),
            Self::Sled(store) => store.blobs(ids),
            Self::Standby(store) => store.blobs(ids),
        }
    }

    /// Every blob that a link leads to, with the turn of the link, sorted by turn, then id. Reads
    /// all links, and so may take long: for commands, never for a request.
    ///
    /// # Errors
    /// Any, where the store can't be read; never a partial answer.
    pub fn linked(&self) -> Result<Vec<(u32, Digest)>, StoreError> {
        match self {
            Self::Memory(store) => store.linked(),
            Self::Sled(store) => store.linked(),
            Self::Standby(store) => store.linked(),
        }
    }

    /// Whether a read may wait for a disk: then it belongs on no async worker.
    #[must_use]
    pub fn reads_wait(&self) -> bool {
        match self {
            Self::Memory(store) => store.reads_wait(),
            Self::Sled(_) | Self::Standby(_) => true,
        }
    }

    /// Hands a batch over to be written and returns at once; it can be read from now on. The
    /// ticket says when it is durable, or why it never will be. A full queue, a closed and a
    /// degraded store refuse at once.
    #[must_use = "the ticket says whether the batch was written"]
    pub fn commit(&self, batch: Batch) -> Ticket {
        match self {
            Self::Memory(store) => store.commit(batch),
            Self::Sled(store) => store.commit(batch),
            Self::Standby(store) => store.commit(batch),
        }
    }

    /// Hands over what may be left out where the store is busy: only as long as half of its queue
    /// is free, so that records, without which hidden exchanges are lost, have the other half.
    #[must_use = "the ticket says whether the batch was written"]
    pub fn commit_spare(&self, batch: Batch) -> Ticket {
        match self {
            Self::Memory(store) => store.commit(batch),
            Self::Sled(store) => store.commit_spare(batch),
            Self::Standby(store) => store.commit_spare(batch),
        }
    }

    /// Writes what waits, makes it durable and lets go of the directory. Blocks up to
    /// [`Config::close_wait`]; afterwards the store answers [`StoreError::Closed`].
    ///
    /// # Errors
    /// Where it could not be closed cleanly. Nothing that was acknowledged is lost by that; the
    /// next start takes longer.
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

    /// How the store fares, for metrics and readiness.
    #[must_use]
    pub fn health(&self) -> Health {
        match self {
            Self::Memory(store) => store.health(),
            Self::Sled(store) => store.health(),
            Self::Standby(store) => store.health(),
        }
    }

    /// Bytes of the files in the data directory, the quarantined ones included; 0 in memory. Looks
    /// at the directory, and so is for whoever reads metrics, never for a request.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        match self {
            Self::Memory(_) => 0,
            Self::Sled(store) => store.disk_bytes(),
            Self::Standby(store) => store.disk_bytes(),
        }
    }

    /// What an operator must know of the store, a sentence each; nothing where all is well.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Sled(store) => store.notes(),
            Self::Standby(store) => store.notes(),
        }
    }

    /// Whether what is committed now outlives the process.
    #[must_use]
    pub fn is_durable(&self, health: &Health) -> bool {
        !matches!(self, Self::Memory(_)) && !health.memory_only && !health.degraded
    }

    /// Whether a corruption stopped the store until a restart.
    #[must_use]
    pub fn degraded(&self) -> bool {
        self.health().degraded
    }
}

/// The name of a moved-aside store in the data directory begins so.
pub const QUARANTINE: &str = "quarantine-";

/// A free name for a corrupt store below `dir`.
fn quarantine_path(dir: &Path) -> PathBuf {
    let free = |path: &PathBuf| !path.exists();
    let mut names = (1u32..).map(|n| dir.join(format!("{QUARANTINE}{n}")));
    names.find(free).unwrap_or_else(|| dir.join(QUARANTINE))
}

/// Resolves when a batch is durable, or has failed. Dropping it does not take the batch back.
#[derive(Debug)]
pub struct Ticket(Outcome);

#[derive(Debug)]
enum Outcome {
    Done(Result<(), StoreError>),
    Waiting(oneshot::Receiver<Result<(), StoreError>>),
}

/// The other end of a [`Ticket`].
struct Acknowledge(oneshot::Sender<Result<(), StoreError>>);

impl Acknowledge {
    /// Resolves the ticket; nobody may be waiting any more, and that is fine.
    fn send(self, outcome: Result<(), StoreError>) {
        let _ = self.0.send(outcome);
    }
}

impl Ticket {
    fn done(outcome: Result<(), StoreError>) -> Self {
        Self(Outcome::Done(outcome))
    }

    /// Whether the batch was refused or has failed at once.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.0, Outcome::Done(Err(_)))
    }

    /// Blocks until it is decided: for threads of the store's own.
    fn wait(self) -> Result<(), StoreError> {
        match self.0 {
            Outcome::Done(outcome) => outcome,
            Outcome::Waiting(receiver) => {
                let closed = |_| Err(StoreError::Closed);
                receiver.blocking_recv().unwrap_or_else(closed)
            }
        }
    }

    fn waiting() -> (Acknowledge, Self) {
        let (sender, receiver) = oneshot::channel();
        (Acknowledge(sender), Self(Outcome::Waiting(receiver)))
    }
}

impl Future for Ticket {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Outcome::Done(outcome) => Poll::Ready(outcome.clone()),
            Outcome::Waiting(receiver) => {
                // A writer that went away without a word was closed under the batch.
                let closed = |_| Err(StoreError::Closed);
                Pin::new(receiver)
                    .poll(cx)
                    .map(|answer| answer.unwrap_or_else(closed))
            }
        }
    }
}
