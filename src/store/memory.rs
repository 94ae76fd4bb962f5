//! The store without a disk: the oracle that the others are held to, and the home of injected
//! faults for tests. It keeps everything until it is dropped, and never writes a file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::model::Digest;

use super::{Batch, Health, StoreError, Ticket};

/// What a test wants to go wrong. A clone is a handle to the same faults, so that a test can
/// set and lift them while the store works. For tests only.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

#[derive(Clone, Copy, Default)]
struct Plan {
    fail_commits: bool,
    fail_reads: bool,
    delay_commits: Duration,
}

impl Faults {
    /// From now on every commit fails, and nothing of it is kept.
    pub fn fail_commits(&self, on: bool) {
        self.0.lock().fail_commits = on;
    }

    /// From now on every read fails.
    pub fn fail_reads(&self, on: bool) {
        self.0.lock().fail_reads = on;
    }

    /// From now on a commit is durable only after `delay`; it can be read at once.
    pub fn delay_commits(&self, delay: Duration) {
        self.0.lock().delay_commits = delay;
    }

    fn plan(&self) -> Plan {
        *self.0.lock()
    }
}

/// Blobs and links in maps.
#[derive(Default)]
pub struct Memory {
    tables: Mutex<Tables>,
    faults: Faults,
}

#[derive(Default)]
struct Tables {
    blobs: HashMap<Digest, Bytes>,
    links: BTreeMap<Digest, BTreeSet<(u32, Digest)>>,
    failed: u64,
    closed: bool,
}

impl Memory {
    /// An empty store that fails as `faults` says. For tests only.
    #[must_use]
    pub fn with_faults(faults: Faults) -> Self {
        Self {
            tables: Mutex::default(),
            faults,
        }
    }

    pub(super) fn links(&self, keys: &[Digest]) -> Result<Vec<Vec<(u32, Digest)>>, StoreError> {
        let tables = self.readable()?;
        let known = |&(_, id): &&(u32, Digest)| tables.blobs.contains_key(id);
        let set = |key| {
            tables
                .links
                .get(key)
                .into_iter()
                .flatten()
                .filter(known)
                .copied()
        };
        Ok(keys.iter().map(|key| set(key).collect()).collect())
    }

    pub(super) fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let tables = self.readable()?;
        Ok(ids.iter().map(|id| tables.blobs.get(id).cloned()).collect())
    }

    pub(super) fn commit(&self, batch: Batch) -> Ticket {
        let plan = self.faults.plan();
        let mut tables = self.tables.lock();
        if tables.closed {
            tables.failed += 1;
            return Ticket::done(Err(StoreError::Closed));
        }
        let outcome = if plan.fail_commits {
            Err(StoreError::Injected)
        } else {
            batch.verify()
        };
        match &outcome {
            Ok(()) => tables.apply(batch),
            Err(_) => tables.failed += 1,
        }
        drop(tables);
        if plan.delay_commits.is_zero() {
            return Ticket::done(outcome);
        }
        let (acknowledge, ticket) = Ticket::waiting();
        std::thread::spawn(move || {
            std::thread::sleep(plan.delay_commits);
            acknowledge.send(outcome);
        });
        ticket
    }

    pub(super) fn close(&self) {
        self.tables.lock().closed = true;
    }

    pub(super) fn health(&self) -> Health {
        Health {
            failed: self.tables.lock().failed,
            ..Health::default()
        }
    }

    fn readable(&self) -> Result<parking_lot::MutexGuard<'_, Tables>, StoreError> {
        if self.faults.plan().fail_reads {
            return Err(StoreError::Injected);
        }
        let tables = self.tables.lock();
        if tables.closed {
            Err(StoreError::Closed)
        } else {
            Ok(tables)
        }
    }
}

impl Tables {
    fn apply(&mut self, batch: Batch) {
        self.blobs.extend(batch.blobs);
        for link in batch.links {
            self.links
                .entry(link.key)
                .or_default()
                .insert((link.turn, link.id));
        }
    }
}
