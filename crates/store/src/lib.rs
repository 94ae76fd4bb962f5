//! Immutable blobs under the hash of their bytes, links from keys to sets of blobs, and the list of
//! sessions. Owns the promise that what was acknowledged is durable. Never looks into a blob, never edits one, and
//! never decides which of several linked blobs is meant.
//!
//! One thread writes in groups, and a [`Ticket`] acknowledges a batch when it is on disk. In a
//! directory owners take turns, and a long batch of theirs is written in pieces: no owner waits for
//! all that another has to write. Reads see a batch as soon as it was committed. Within a batch,
//! blobs are written before links and the row last. So whatever part a crash leaves is sound: a link
//! whose blob is missing is not shown.

use std::collections::HashSet;

use bytes::Bytes;
use plimsoll_model::Digest;

mod batch;
pub mod codec;
mod copy;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod faults;
mod files;
mod key_mark;
pub mod memory;
mod overlay;
pub(crate) mod redis;
mod report;
mod sealing;
mod settings;
pub(crate) mod sled;
mod snapshot;
pub(crate) mod standby;
mod stats;
mod ticket;

#[cfg(test)]
mod tests;

pub use self::redis::is_redis_url;
pub use batch::{Batch, BatchKind, Link, Listed, MEMBERS, Member, Take};
pub use copy::{Copied, Lacking, copy, lacking};
pub use error::{StoreError, holder, is_of_disk};
pub use files::{QUARANTINE, make_data_directory};
pub use key_mark::KeyMark;
pub use report::{Health, Loss, OpenReport};
pub use sealing::{KeyName, Seals};
pub use settings::{Backend, Clock, Keepsake, RedisSettings, Retention, StoreSettings};
pub use snapshot::Snapshot;
pub use stats::{ArchiveParts, StoreStats};
pub use ticket::Ticket;

/// Where blobs and links are kept.
pub enum Store {
    /// In this process only, for tests, demos and operators who want no disk.
    Memory(memory::Memory),
    /// In a directory of this machine.
    Sled(sled::SledStore),
    /// In a server that several proxies may share.
    Redis(redis::RedisStore),
    /// In memory, until a disk that refuses works again.
    Standby(standby::Standby),
}

/// How many rows of the list of sessions are read at a time.
const ROWS_OF_A_PAGE: usize = 1_000;

/// A store that was opened.
pub struct OpenedStore {
    /// The store.
    pub store: Store,
    /// What opening it found.
    pub report: OpenReport,
}

impl Store {
    /// Opens the store that `settings` describe, and makes it if it is missing. A corrupt store is
    /// moved aside, and a new one begins with what could be read of it, which the report says.
    /// Everything stays below `settings.path`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process holds the directory, [`StoreError::Format`] if a
    /// newer version wrote it, [`StoreError::Sealed`] if it is sealed under a key that was not given,
    /// [`StoreError::Io`] if the system refuses.
    pub fn open(settings: &StoreSettings) -> Result<OpenedStore, StoreError> {
        match settings.backend {
            Backend::Memory => {
                let report = OpenReport {
                    clean: true,
                    ..OpenReport::default()
                };
                Ok(OpenedStore {
                    store: Self::Memory(memory::Memory::default()),
                    report,
                })
            }
            Backend::Sled => {
                let (store, report) = sled::SledStore::open(settings)?;
                Ok(OpenedStore {
                    store: Self::Sled(store),
                    report,
                })
            }
            Backend::Redis => {
                let (store, report) = redis::RedisStore::open(settings)?;
                Ok(OpenedStore {
                    store: Self::Redis(store),
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
    pub fn open_or_stand_by(settings: &StoreSettings) -> Result<OpenedStore, StoreError> {
        let there = settings.path.exists();
        match Self::open(settings) {
            Err(error) if error.is_of_disk(there) => Ok(OpenedStore {
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
            Self::Sled(_) | Self::Redis(_) | Self::Standby(_) => 0,
        }
    }

    /// Some members of the set of each key, sorted by turn and then by id. Leaves out links whose blob is
    /// not stored. May read the disk.
    ///
    /// # Errors
    /// Any error of reading. There is never a partial answer.
    pub fn links(&self, keys: &[Digest], take: Take) -> Result<Vec<Vec<Member>>, StoreError> {
        match self {
            Self::Memory(store) => store.links(keys, take),
            Self::Sled(store) => store.links(keys, take),
            Self::Redis(store) => store.links(keys, take),
            Self::Standby(store) => store.links(keys, take),
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
            Self::Redis(store) => store.blobs(ids),
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
            Self::Redis(store) => store.linked(),
            Self::Standby(store) => store.linked(),
        }
    }

    /// The rows of sessions, newest first, up to `most` of them. With `before`, only those behind
    /// that [`Listed::place`], so that the last row of a page begins the next page. Reads nothing
    /// but the list. May read the disk.
    ///
    /// # Errors
    /// Any error of reading. There is never a partial answer.
    pub fn sessions(
        &self,
        before: Option<(u64, Digest)>,
        most: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        match self {
            Self::Memory(store) => store.sessions(before, most),
            Self::Sled(store) => store.sessions(before, most),
            Self::Redis(store) => store.sessions(before, most),
            Self::Standby(store) => store.sessions(before, most),
        }
    }

    /// Hands over the rows of all sessions, newest first and page by page, until `each` says that it has enough. No page
    /// is empty.
    ///
    /// # Errors
    /// As [`Self::sessions`], and what `each` fails with.
    pub fn each_page<E: From<StoreError>>(
        &self,
        each: impl FnMut(&[Listed]) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.each_page_behind(None, each)
    }

    /// As [`Self::each_page`], from behind a place of the list.
    ///
    /// # Errors
    /// As [`Self::each_page`].
    pub fn each_page_behind<E: From<StoreError>>(
        &self,
        mut behind: Option<(u64, Digest)>,
        mut each: impl FnMut(&[Listed]) -> Result<bool, E>,
    ) -> Result<(), E> {
        loop {
            let page = self.sessions(behind, ROWS_OF_A_PAGE)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            behind = Some(last.place());
            if !each(&page)? || page.len() < ROWS_OF_A_PAGE {
                return Ok(());
            }
        }
    }

    /// Hands over everything that is stored, in batches of moderate size and of the right kind:
    /// each blob before the links that lead to it, and rows last. Something may be handed over
    /// twice. What is committed meanwhile may be left out, or come in part. What was written before
    /// kinds were noted counts as records. Reads everything, so it is for commands and never for a
    /// request.
    ///
    /// # Errors
    /// Any error of reading, and the error of `each`. Both end it.
    pub fn each(
        &self,
        each: &mut dyn FnMut(Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.each(each),
            Self::Sled(store) => store.each(each),
            Self::Redis(store) => store.each(each),
            Self::Standby(store) => store.each(each),
        }
    }

    /// Removes what is too old now, and gives back the room that it took. Returns how many blobs were
    /// removed. Waits until that is done, which takes as long as copying the rest, so it is never
    /// called for a request. Batches are taken and read meanwhile. Nothing is too old in memory. Redis
    /// removes by itself what is too old, and here only the links that led there.
    ///
    /// # Errors
    /// Why nothing was removed. The store then goes on as it was.
    pub fn sweep(&self) -> Result<u64, StoreError> {
        self.erase(HashSet::new())
    }

    /// Does the same, and also removes what has one of these ids, whatever its age: blobs, with the
    /// links that lead to them, and rows by [`Listed::session`]. A batch that comes meanwhile may
    /// bring some of it back.
    ///
    /// # Errors
    /// As [`Self::sweep`]. Of a store that stands by for a disk, what is in memory is gone all the same.
    pub fn erase(&self, ids: HashSet<Digest>) -> Result<u64, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.erase(&ids)),
            Self::Sled(store) => store.sweep(ids),
            Self::Redis(store) => store.erase(&ids),
            Self::Standby(store) => store.sweep(ids),
        }
    }

    /// Whether a read may wait for a disk, so that it must not run on an async worker.
    #[must_use]
    pub fn reads_wait(&self) -> bool {
        match self {
            Self::Memory(store) => store.reads_wait(),
            Self::Sled(_) | Self::Redis(_) | Self::Standby(_) => true,
        }
    }

    /// Whether other processes may read what this one writes.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Redis(_) => true,
            Self::Memory(_) | Self::Sled(_) | Self::Standby(_) => false,
        }
    }

    /// Hands a batch over to be written and returns at once. The batch can be read from now on. The
    /// ticket says when all of it is durable, or why it never will be: then some of its blobs and links
    /// may be stored, but not its row. A store that is full, closed or degraded refuses at once.
    #[must_use = "the ticket says whether the batch was written"]
    pub fn commit(&self, batch: Batch) -> Ticket {
        match self {
            Self::Memory(store) => store.commit(batch),
            Self::Sled(store) => store.commit(batch),
            Self::Redis(store) => store.commit(batch),
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
            Self::Redis(store) => store.commit_spare(batch),
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
            Self::Redis(store) => store.close(),
            Self::Standby(store) => store.close(),
        }
    }

    /// The state of the store, for metrics and readiness.
    #[must_use]
    pub fn health(&self) -> Health {
        match self {
            Self::Memory(store) => store.health(),
            Self::Sled(store) => store.health(),
            Self::Redis(store) => store.health(),
            Self::Standby(store) => store.health(),
        }
    }

    /// How many bytes the files in the data directory hold, including quarantined ones. 0 in
    /// memory. Reads the directory, so it is for metrics and never for a request.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        match self {
            Self::Memory(_) | Self::Redis(_) => 0,
            Self::Sled(store) => store.disk_bytes(),
            Self::Standby(store) => store.disk_bytes(),
        }
    }

    /// How many bytes the disk of the data directory has free for it. 0 in memory.
    #[must_use]
    pub fn disk_free(&self) -> u64 {
        match self {
            Self::Memory(_) | Self::Redis(_) => 0,
            Self::Sled(store) => store.disk_free(),
            Self::Standby(store) => store.disk_free(),
        }
    }

    /// What an operator must know of the store, one sentence each. Empty if all is well.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Sled(store) => store.notes(),
            Self::Redis(store) => store.notes(),
            Self::Standby(store) => store.notes(),
        }
    }

    /// The mark of the tenant key under which its records are found. `None` if it has none, or does not say.
    /// May wait for a server, so it is for commands and never for a request.
    #[must_use]
    pub fn key_mark(&self) -> Option<KeyMark> {
        match self {
            Self::Memory(_) | Self::Standby(_) => None,
            Self::Sled(store) => store.key_mark(),
            Self::Redis(store) => store.key_mark(),
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
