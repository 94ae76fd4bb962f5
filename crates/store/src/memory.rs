//! A store without a disk, and the oracle for the others. Keeps everything until it is dropped, or
//! as much as it was told to, whatever its age. Never writes a file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use parking_lot::Mutex;
use plimsoll_model::Digest;

use super::batch::{Batch, BatchKind, Link, Listed, Member, Take};
use super::error::StoreError;
#[cfg(any(test, feature = "testing"))]
use super::faults::Faults;
use super::report::Health;
use super::ticket::Ticket;

/// Blobs and links in maps.
#[derive(Default)]
pub struct Memory {
    tables: Mutex<Tables>,
    #[cfg(any(test, feature = "testing"))]
    faults: Option<Faults>,
}

#[derive(Default)]
struct Tables {
    /// Each entry has the number of the last batch that named it.
    blobs: HashMap<Digest, (Bytes, BatchKind, u64)>,
    links: BTreeMap<Digest, BTreeMap<(u32, Digest), u64>>,
    /// The rows in the order of their times, and where the row of each session is.
    rows: BTreeMap<(u64, Digest), (Listed, u64)>,
    newest: HashMap<Digest, u64>,
    failed: u64,
    closed: bool,
    bound: Option<MemoryLimit>,
}

/// The limit of a store that can't keep everything.
struct MemoryLimit {
    most: usize,
    held: usize,
    /// The batches that are held, oldest first, with their weights.
    batches: VecDeque<(BatchNames, usize)>,
    next: u64,
    /// How many blobs were dropped.
    lost: u64,
}

/// What a batch named, without the bytes.
struct BatchNames {
    number: u64,
    blobs: Vec<Digest>,
    links: Vec<Link>,
    session: Option<Digest>,
}

/// How much a batch holds when everything is handed over.
const PART_BYTES: usize = 1 << 20;
const PART_ENTRIES: usize = 4096;
/// About how many bytes an entry takes in the maps and in the list of batches, besides a blob's
/// own.
const ENTRY_BYTES: usize = 256;

impl Memory {
    /// An empty store with these faults.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_faults(faults: Faults) -> Self {
        Self {
            faults: Some(faults),
            ..Self::default()
        }
    }

    /// An empty store that keeps about `most` bytes. When more comes, the oldest batches are
    /// dropped, and [`Health::lost`] counts their blobs.
    pub(super) fn bounded(most: usize) -> Self {
        let bound = MemoryLimit {
            most,
            held: 0,
            batches: VecDeque::new(),
            next: 0,
            lost: 0,
        };
        let tables = Tables {
            bound: Some(bound),
            ..Tables::default()
        };
        Self {
            tables: Mutex::new(tables),
            #[cfg(any(test, feature = "testing"))]
            faults: None,
        }
    }

    /// About how many bytes it holds. 0 if it has no limit.
    pub(super) fn held(&self) -> u64 {
        let tables = self.tables.lock();
        tables.bound.as_ref().map_or(0, |bound| bound.held as u64)
    }

    /// Drops everything, because it is stored elsewhere now.
    pub(super) fn release(&self) {
        let mut tables = self.tables.lock();
        (tables.blobs, tables.links) = Default::default();
        (tables.rows, tables.newest) = Default::default();
        if let Some(bound) = &mut tables.bound {
            bound.held = 0;
            bound.batches = VecDeque::new();
        }
    }

    /// Removes blobs with these ids, the links that lead to them, and rows of these sessions. Returns how
    /// many blobs went.
    pub(super) fn erase(&self, ids: &HashSet<Digest>) -> u64 {
        let mut tables = self.tables.lock();
        let before = tables.blobs.len();
        tables.blobs.retain(|id, _| !ids.contains(id));
        tables.links.retain(|_, set| {
            set.retain(|(_, id), _| !ids.contains(id));
            !set.is_empty()
        });
        tables.rows.retain(|(_, session), _| !ids.contains(session));
        tables.newest.retain(|session, _| !ids.contains(session));
        (before - tables.blobs.len()) as u64
    }

    /// Whether readers may have to wait, which only a fault makes them.
    pub(super) fn reads_wait(&self) -> bool {
        #[cfg(any(test, feature = "testing"))]
        return self.faults.is_some();
        #[cfg(not(any(test, feature = "testing")))]
        false
    }

    pub(super) fn links(
        &self,
        keys: &[Digest],
        take: Take,
    ) -> Result<Vec<Vec<Member>>, StoreError> {
        #[cfg(any(test, feature = "testing"))]
        self.count(|counts| counts.keys += keys.len());
        let tables = self.readable()?;
        let known = |(_, id): &Member| tables.blobs.contains_key(id);
        let set = |key| {
            let all = tables.links.get(key).into_iter().flat_map(BTreeMap::keys);
            let mut set = Vec::new();
            let known = take.in_order(all.copied()).filter(known);
            take.join(&mut set, known.take(take.most()));
            set
        };
        Ok(keys.iter().map(set).collect())
    }

    pub(super) fn linked(&self) -> Result<Vec<(u32, Digest)>, StoreError> {
        let tables = self.readable()?;
        let known = |(_, id): &(u32, Digest)| tables.blobs.contains_key(id);
        let members = tables.links.values().flat_map(BTreeMap::keys).copied();
        let set: BTreeSet<(u32, Digest)> = members.filter(known).collect();
        Ok(set.into_iter().collect())
    }

    pub(super) fn sessions(
        &self,
        before: Option<(u64, Digest)>,
        most: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        let tables = self.readable()?;
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = tables.rows.range((Bound::Unbounded, end)).rev();
        let rows: Vec<Listed> = rows.take(most).map(|(_, (row, _))| row.clone()).collect();
        #[cfg(any(test, feature = "testing"))]
        self.count(|counts| counts.rows += rows.len());
        Ok(rows)
    }

    pub(super) fn each(
        &self,
        each: &mut dyn FnMut(Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        // Whoever is handed a batch may take its time, and others need the tables meanwhile.
        let batches = self.readable()?.batches();
        batches.into_iter().try_for_each(each)
    }

    /// Everything that it holds, in batches of moderate size. Blobs go first, so that no link ever
    /// leads to a blob that is still to come.
    pub(super) fn batches(&self) -> Vec<Batch> {
        self.tables.lock().batches()
    }

    pub(super) fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, StoreError> {
        #[cfg(any(test, feature = "testing"))]
        self.count(|counts| counts.blobs += ids.len());
        let tables = self.readable()?;
        let blob = |id| tables.blobs.get(id).map(|(value, ..)| value.clone());
        Ok(ids.iter().map(blob).collect())
    }

    pub(super) fn commit(&self, batch: Batch) -> Ticket {
        #[cfg(any(test, feature = "testing"))]
        if let Some(faults) = &self.faults {
            let (verdict, delay) = faults.of_commit();
            // The batch can be read at once, and only its acknowledgement is late, as on a slow
            // disk.
            let outcome = self.keep(batch, verdict);
            if delay.is_zero() {
                return Ticket::done(outcome);
            }
            let (acknowledge, ticket) = Ticket::waiting();
            std::thread::spawn(move || {
                std::thread::sleep(delay);
                acknowledge.send(outcome);
            });
            return ticket;
        }
        Ticket::done(self.keep(batch, Ok(())))
    }

    /// Takes a batch, unless `verdict` says that it fails.
    fn keep(&self, batch: Batch, verdict: Result<(), StoreError>) -> Result<(), StoreError> {
        let mut tables = self.tables.lock();
        if tables.closed {
            tables.failed += 1;
            return Err(StoreError::Closed);
        }
        let outcome = verdict.and_then(|()| batch.verify());
        match &outcome {
            Ok(()) => tables.apply(batch),
            Err(_) => tables.failed += 1,
        }
        outcome
    }

    pub(super) fn close(&self) {
        self.tables.lock().closed = true;
    }

    pub(super) fn health(&self) -> Health {
        let tables = self.tables.lock();
        Health {
            failed: tables.failed,
            lost: tables.bound.as_ref().map_or(0, |bound| bound.lost),
            ..Health::default()
        }
    }

    /// Lets a test count what is read.
    #[cfg(any(test, feature = "testing"))]
    fn count(&self, count: impl FnOnce(&mut super::faults::ReadCounts)) {
        if let Some(faults) = &self.faults {
            faults.count(count);
        }
    }

    fn readable(&self) -> Result<parking_lot::MutexGuard<'_, Tables>, StoreError> {
        #[cfg(any(test, feature = "testing"))]
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
        // What is renewed counts as part of this batch from now on.
        let renewed = batch.renewed.iter();
        let renewed = renewed.filter_map(|id| Some((*id, self.blobs.get(id)?.0.clone())));
        let batch = Batch {
            blobs: batch.blobs.iter().cloned().chain(renewed).collect(),
            ..batch
        };
        let number = self.bound.as_mut().map_or(0, |bound| bound.take(&batch));
        for (id, value) in batch.blobs {
            let known = self.blobs.get(&id).map(|(_, kind, _)| *kind);
            let kind = known.map_or(batch.kind, |known| known.or(batch.kind));
            self.blobs.insert(id, (value, kind, number));
        }
        for link in batch.links {
            let set = self.links.entry(link.key).or_default();
            set.insert((link.turn, link.id), number);
        }
        if let Some(listed) = batch.listed {
            self.list(listed, number);
        }
        while let Some(oldest) = self.bound.as_mut().and_then(MemoryLimit::pass) {
            self.drop_batch(&oldest);
        }
    }

    /// Keeps a row in place of the one that its session has, unless that is newer.
    fn list(&mut self, listed: Listed, number: u64) {
        let session = listed.session;
        let old = self.newest.get(&session).map(|at| (*at, session));
        if let Some(place) = old {
            let newer = |(old, _): &(Listed, u64)| !listed.replaces(old) && *old != listed;
            if self.rows.get(&place).is_some_and(newer) {
                return;
            }
            self.rows.remove(&place);
        }
        self.newest.insert(session, listed.at);
        self.rows.insert(listed.place(), (listed, number));
    }

    fn batches(&self) -> Vec<Batch> {
        let mut batches = Vec::new();
        for kind in [BatchKind::Records, BatchKind::Content] {
            let mut part = Batch::default();
            for (id, (value, of, _)) in &self.blobs {
                if *of != kind {
                    continue;
                }
                part.blobs.push((*id, value.clone()));
                if part.size() >= PART_BYTES || part.blobs.len() >= PART_ENTRIES {
                    batches.push(Batch {
                        kind,
                        ..std::mem::take(&mut part)
                    });
                }
            }
            batches.push(Batch { kind, ..part });
        }
        let links: Vec<Link> = self
            .links
            .iter()
            .flat_map(|(key, set)| {
                set.keys().map(|&(turn, id)| Link {
                    key: *key,
                    id,
                    turn,
                })
            })
            .collect();
        batches.extend(links.chunks(PART_ENTRIES).map(|links| Batch {
            links: links.to_vec(),
            ..Batch::default()
        }));
        batches.extend(self.rows.values().map(|(row, _)| Batch {
            listed: Some(row.clone()),
            ..Batch::default()
        }));
        batches.retain(|batch| {
            *batch
                != Batch {
                    kind: batch.kind,
                    ..Batch::default()
                }
        });
        batches
    }

    /// Drops what a batch named and no later batch did.
    fn drop_batch(&mut self, batch: &BatchNames) {
        let mut lost = 0;
        // A later batch may have named the same blob. It then belongs to that batch.
        for id in &batch.blobs {
            if self
                .blobs
                .get(id)
                .is_some_and(|(.., last)| *last == batch.number)
            {
                self.blobs.remove(id);
                lost += 1;
            }
        }
        for link in &batch.links {
            let Some(set) = self.links.get_mut(&link.key) else {
                continue;
            };
            let member = (link.turn, link.id);
            if set.get(&member) == Some(&batch.number) {
                set.remove(&member);
            }
            if set.is_empty() {
                self.links.remove(&link.key);
            }
        }
        let place = batch
            .session
            .and_then(|session| Some((*self.newest.get(&session)?, session)));
        if let Some(place) = place
            && self
                .rows
                .get(&place)
                .is_some_and(|(_, last)| *last == batch.number)
        {
            self.rows.remove(&place);
            self.newest.remove(&place.1);
        }
        if let Some(bound) = &mut self.bound {
            bound.lost += lost;
        }
    }
}

impl MemoryLimit {
    /// Weighs a new batch and gives it a number.
    fn take(&mut self, batch: &Batch) -> u64 {
        let weight = batch.size() + ENTRY_BYTES * (batch.blobs.len() + batch.links.len());
        self.next += 1;
        self.held += weight;
        let named = BatchNames {
            number: self.next,
            blobs: batch.blobs.iter().map(|(id, _)| *id).collect(),
            links: batch.links.clone(),
            session: batch.listed.as_ref().map(|listed| listed.session),
        };
        self.batches.push_back((named, weight));
        self.next
    }

    /// Takes the oldest batch out if there is too much. The newest batch stays, however large it
    /// is.
    fn pass(&mut self) -> Option<BatchNames> {
        if self.held <= self.most || self.batches.len() < 2 {
            return None;
        }
        let (oldest, weight) = self.batches.pop_front()?;
        self.held -= weight;
        Some(oldest)
    }
}
