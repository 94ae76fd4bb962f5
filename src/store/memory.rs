//! The store without a disk: the oracle that the others are held to, and the home of injected
//! faults for tests. It keeps everything until it is dropped, and never writes a file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::model::Digest;

use super::{Batch, Health, Link, MEMBERS, StoreError, Ticket};

/// What a test wants to go wrong. A clone is a handle to the same faults, so that a test can
/// set and lift them while the store works. For tests only.
#[derive(Clone, Default)]
pub struct Faults(Arc<Injected>);

#[derive(Default)]
struct Injected {
    plan: Mutex<Plan>,
    lifted: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Plan {
    fail_commits: bool,
    fail_reads: bool,
    hold_reads: Option<Duration>,
    delay_commits: Duration,
}

impl Faults {
    /// From now on every commit fails, and nothing of it is kept.
    pub fn fail_commits(&self, on: bool) {
        self.0.plan.lock().fail_commits = on;
    }

    /// From now on every read fails.
    pub fn fail_reads(&self, on: bool) {
        self.0.plan.lock().fail_reads = on;
    }

    /// From now on a commit is durable only after `delay`; it can be read at once.
    pub fn delay_commits(&self, delay: Duration) {
        self.0.plan.lock().delay_commits = delay;
    }

    /// From now on reads are stuck until the answer is dropped, each for `longest` at most.
    #[must_use = "dropping it lets the reads go on"]
    pub fn hold_reads(&self, longest: Duration) -> Held {
        self.0.plan.lock().hold_reads = Some(longest);
        Held(self.clone())
    }

    fn plan(&self) -> Plan {
        *self.0.plan.lock()
    }

    /// Blocks the thread while reads are held, and says whether they fail.
    fn pass_read(&self) -> Result<(), StoreError> {
        let mut plan = self.0.plan.lock();
        if let Some(longest) = plan.hold_reads {
            let held = |plan: &mut Plan| plan.hold_reads.is_some();
            self.0.lifted.wait_while_for(&mut plan, held, longest);
        }
        if plan.fail_reads {
            return Err(StoreError::Injected);
        }
        Ok(())
    }
}

/// Reads are stuck as long as this lives.
pub struct Held(Faults);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.plan.lock().hold_reads = None;
        self.0.0.lifted.notify_all();
    }
}

/// Blobs and links in maps.
#[derive(Default)]
pub struct Memory {
    tables: Mutex<Tables>,
    faults: Option<Faults>,
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
            faults: Some(faults),
        }
    }

    /// Only an injected fault makes a reader wait.
    pub(super) fn reads_wait(&self) -> bool {
        self.faults.is_some()
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
                .take(MEMBERS)
                .copied()
        };
        Ok(keys.iter().map(|key| set(key).collect()).collect())
    }

    pub(super) fn linked(&self) -> Result<Vec<(u32, Digest)>, StoreError> {
        let tables = self.readable()?;
        let known = |(_, id): &(u32, Digest)| tables.blobs.contains_key(id);
        let members = tables.links.values().flatten().copied();
        let set: BTreeSet<(u32, Digest)> = members.filter(known).collect();
        Ok(set.into_iter().collect())
    }

    /// All that it holds, a batch for each key and one for what no link leads to.
    pub(super) fn batches(&self) -> Vec<Batch> {
        let tables = self.tables.lock();
        let mut batches = Vec::new();
        for (id, value) in &tables.blobs {
            let blobs = vec![(*id, value.clone())];
            batches.push(Batch {
                blobs,
                links: Vec::new(),
            });
        }
        for (key, set) in &tables.links {
            let link = |&(turn, id)| Link {
                key: *key,
                id,
                turn,
            };
            batches.push(Batch {
                blobs: Vec::new(),
                links: set.iter().map(link).collect(),
            });
        }
        batches
    }

    pub(super) fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let tables = self.readable()?;
        Ok(ids.iter().map(|id| tables.blobs.get(id).cloned()).collect())
    }

    pub(super) fn commit(&self, batch: Batch) -> Ticket {
        let plan = self.faults.as_ref().map(Faults::plan).unwrap_or_default();
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
        if let Some(faults) = &self.faults {
            faults.pass_read()?;
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
