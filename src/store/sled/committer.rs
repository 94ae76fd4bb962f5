//! The one thread that writes: it drains what waits into a group, makes it durable once, applies it,
//! and acknowledges every batch of it. It never answers before the disk has: the group is in the
//! journal by then, or in the archive. The engine follows, and is never flushed while anybody waits,
//! but for every few hundred kilobytes.

use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::super::codec::Encoder;
use super::super::{Acknowledge, Batch, StoreError};
use super::archive::Archive;
use super::entry::Stamp;
use super::journal::Journal;
use super::trees::{Counts, Position, Trees};
use super::{Engine, Shared};

/// About how many engine operations one group may have: more would only delay the first.
const GROUP: usize = 256;
/// How long nothing must have come before the engine is flushed on its own account.
const PAUSE: Duration = Duration::from_millis(50);
/// How far the archive may run ahead of the engine's last flush: as much is read again after a kill,
/// and must find room in the engine that is opened anew on a full disk.
const AHEAD: u64 = 256 << 10;

/// A batch on its way to disk.
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) acknowledge: Acknowledge,
}

pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) encoder: Encoder,
    pub(super) journal: Journal,
    /// None only until the first recovery of a directory that has none.
    pub(super) archive: Option<Archive>,
    /// What was applied and is not archived yet, in the stored form; the journal has it.
    pub(super) pending: Batch,
    pub(super) counts: Counts,
    /// Whether the engine's entries were counted when it was opened; else the counts are what was
    /// noted last, and the engine may hold some entries more.
    pub(super) counted: bool,
    /// The number of the last group.
    pub(super) group: u64,
    /// Whether the engine has what it was not flushed for.
    pub(super) behind: bool,
    /// How long the archive was when the engine was flushed.
    pub(super) flushed: u64,
    /// Whether anything was written since the start.
    pub(super) wrote: bool,
    /// What an engine that failed lacks, for readers.
    pub(super) held: Vec<Batch>,
    /// When the disk failed last, until the engine was opened again.
    pub(super) failed: Option<(Instant, StoreError)>,
    /// Whether the files were removed, and could not be made again yet.
    pub(super) anew: bool,
    /// When it was looked last whether the files are in place.
    pub(super) looked: Instant,
    /// The directory's lock; goes with the thread.
    pub(super) lock: File,
}

impl Committer {
    /// Works until every sender is gone, then closes the engine and says how that went.
    pub(super) fn run(mut self, jobs: &Receiver<Job>, closed: &Sender<Result<(), StoreError>>) {
        while let Some(first) = self.next(jobs) {
            let mut operations = first.batch.operations();
            let mut group = vec![first];
            while operations < GROUP {
                let Ok(next) = jobs.try_recv() else { break };
                operations += next.batch.operations();
                group.push(next);
            }
            self.commit(group);
        }
        let outcome = self.rest();
        // A process that is being started holds copies of all files until it runs, so dropping the
        // file is not enough to let go of its lock. One that can't be unlocked goes with the file.
        let _ = self.lock.unlock();
        drop(self.lock);
        // Whoever closed may have stopped waiting.
        let _ = closed.send(outcome);
    }

    /// Waits for the next batch, and uses pauses to bring the engine up to the journal and to look
    /// after the files.
    fn next(&mut self, jobs: &Receiver<Job>) -> Option<Job> {
        loop {
            let behind = self.behind && self.failed.is_none() && !self.shared.is_degraded();
            let pause = if behind {
                PAUSE
            } else {
                self.shared.config.look
            };
            match jobs.recv_timeout(pause) {
                Ok(job) => {
                    self.look();
                    return Some(job);
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if behind => self.catch_up(),
                Err(RecvTimeoutError::Timeout) => self.look(),
            }
        }
    }

    /// Flushes archive and engine; the journal has all that would be lost if that fails.
    fn catch_up(&mut self) {
        if let Err(error) = self.flush() {
            self.broke(&error);
        }
    }

    fn commit(&mut self, group: Vec<Job>) {
        let jobs = group.into_iter().map(|job| (job.batch, job.acknowledge));
        let (batches, tickets): (Vec<Batch>, Vec<Acknowledge>) = jobs.unzip();
        let mut tickets = tickets.into_iter();
        let outcomes = match self.ready().and_then(|()| self.write_ahead(&batches)) {
            Ok(true) => {
                // Readers find the group in the overlay until the engine has it, too.
                tickets.by_ref().for_each(|ticket| ticket.send(Ok(())));
                self.apply(&batches)
            }
            Ok(false) => self.write_through(&batches),
            Err(error) => Err(error),
        };
        let outcomes = outcomes.unwrap_or_else(|error| {
            self.broke(&error);
            vec![Err(error); batches.len()]
        });
        let failed = outcomes.iter().zip(tickets.as_slice());
        let failed = failed.filter(|(outcome, _)| outcome.is_err()).count();
        self.shared.settle(&batches, failed);
        for (ticket, outcome) in tickets.zip(outcomes) {
            ticket.send(outcome);
        }
    }

    /// Writes a group to the journal, where it is durable; says no where that has no room for it.
    fn write_ahead(&mut self, batches: &[Batch]) -> Result<bool, StoreError> {
        // What will not be applied must not be promised.
        self.shared.engine.read().trees()?;
        let stamp = Stamp {
            first: self.group + 1,
            last: self.group + 1,
            counts: self.counts,
        };
        let dir = self.shared.place.dir();
        let appended = self.journal.append(&stamp, batches);
        let appended =
            appended.map_err(|error| StoreError::io("writing the journal in", dir, &error))?;
        self.group += u64::from(appended);
        Ok(appended)
    }

    /// Applies a group that is in the journal, and has what is new of it archived later.
    fn apply(&mut self, batches: &[Batch]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let engine = shared.engine.read();
        let trees = engine.trees()?;
        self.behind = true;
        let mut outcomes = Vec::with_capacity(batches.len());
        for batch in batches {
            let stored = self.encode(batch);
            outcomes.push(match stored {
                Ok(stored) => {
                    let new = self.put(trees, &stored)?;
                    self.pending.blobs.extend(new.blobs);
                    self.pending.links.extend(new.links);
                    Ok(())
                }
                Err(error @ StoreError::Codec(_)) => Err(error),
                Err(error) => return Err(error),
            });
        }
        Ok(outcomes)
    }

    /// Archives a group that the journal has no room for, with all that the journal holds, and
    /// applies it. One outcome a batch: what is wrong with a batch fails it alone, what is wrong
    /// with the disk fails the group.
    fn write_through(
        &mut self,
        batches: &[Batch],
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let engine = shared.engine.read();
        let trees = engine.trees()?;
        self.behind = true;
        let mut outcomes = Vec::with_capacity(batches.len());
        let mut group = Vec::with_capacity(batches.len());
        for batch in batches {
            match self.encode(batch) {
                Ok(stored) => {
                    group.push(stored);
                    outcomes.push(Ok(()));
                }
                Err(error @ StoreError::Codec(_)) => outcomes.push(Err(error)),
                Err(error) => return Err(error),
            }
        }
        let before = self.counts;
        self.add_new(trees, &group)?;
        self.group += 1;
        self.append_pending()?;
        self.counts = before;
        for batch in &group {
            self.put(trees, batch)?;
        }
        self.note_archived(trees)?;
        Ok(outcomes)
    }

    /// Puts what the engine lacks of a group to what waits for the archive, and counts it.
    fn add_new(&mut self, trees: &Trees, group: &[Batch]) -> Result<(), StoreError> {
        let path = self.shared.place.engine().to_owned();
        let (mut blobs, mut links) = (HashSet::new(), HashSet::new());
        for batch in group {
            for (id, stored) in &batch.blobs {
                if blobs.insert(*id) && !trees.has_blob(&path, id)? {
                    self.counts.blobs += 1;
                    self.pending.blobs.push((*id, stored.clone()));
                }
            }
            for link in &batch.links {
                if links.insert(*link) && !trees.has_link(&path, link)? {
                    self.counts.links += 1;
                    self.pending.links.push(*link);
                }
            }
        }
        Ok(())
    }

    /// Makes the archive whole up to the last group, so that the journal may forget it.
    fn append_pending(&mut self) -> Result<(), StoreError> {
        let Some(archive) = &mut self.archive else {
            return Err(StoreError::Closed);
        };
        let stamp = Stamp {
            first: archive.last + 1,
            last: self.group,
            counts: self.counts,
        };
        let dir = self.shared.place.dir();
        archive
            .append(&stamp, &self.pending)
            .map_err(|error| StoreError::io("writing the archive in", dir, &error))?;
        self.pending = Batch::default();
        self.journal.rewind();
        Ok(())
    }

    /// Notes in the engine that it has all that is archived, and flushes it where it is far behind.
    fn note_archived(&mut self, trees: &Trees) -> Result<(), StoreError> {
        let position = self.position();
        let path = self.shared.place.engine();
        trees.put_position(path, position)?;
        self.wrote = true;
        if position.archived.saturating_sub(self.flushed) > AHEAD {
            trees.sync(path)?;
            self.flushed = position.archived;
        }
        Ok(())
    }

    /// Archives what waits for it.
    pub(super) fn archive_pending(&mut self, trees: &Trees) -> Result<(), StoreError> {
        self.append_pending()?;
        self.note_archived(trees)
    }

    /// Up to where the engine holds what was written, once nothing waits to be archived.
    pub(super) fn position(&self) -> Position {
        Position {
            counts: self.counts,
            group: self.group,
            archived: self.archive.as_ref().map_or(0, Archive::end),
            log: 0,
        }
    }

    /// Makes durable what was applied, in archive and engine.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let engine = shared.engine.read();
        let trees = engine.trees()?;
        if self
            .archive
            .as_ref()
            .is_none_or(|archive| archive.last < self.group)
        {
            self.archive_pending(trees)?;
        }
        trees.sync(shared.place.engine())?;
        self.flushed = self.position().archived;
        self.behind = false;
        Ok(())
    }

    fn broke(&mut self, error: &StoreError) {
        match error {
            StoreError::Corrupt { .. } => self.shared.degrade(),
            StoreError::Io { .. } if self.failed.is_none() => self.fail(error),
            _ => {}
        }
    }

    /// The disk failed under the engine: it is opened anew at once, so that reads go on.
    fn fail(&mut self, error: &StoreError) {
        self.failed = Some((Instant::now(), error.clone()));
        if let Err(StoreError::Corrupt { .. }) = self.reopen() {
            self.shared.degrade();
        }
    }

    /// A batch with its blobs in their stored form.
    pub(super) fn encode(&mut self, batch: &Batch) -> Result<Batch, StoreError> {
        let mut blobs = Vec::with_capacity(batch.blobs.len());
        for (id, value) in &batch.blobs {
            blobs.push((*id, self.encoder.encode(value)?.into()));
        }
        let links = batch.links.clone();
        Ok(Batch { blobs, links })
    }

    /// Blobs before links: a crash in between leaves blobs that nothing leads to. Returns what was
    /// new of a batch.
    pub(super) fn put(&mut self, trees: &Trees, stored: &Batch) -> Result<Batch, StoreError> {
        let shared = Arc::clone(&self.shared);
        let path = shared.place.engine();
        let mut new = Batch::default();
        for (id, bytes) in &stored.blobs {
            let put = trees.put_blob(path, id, bytes)?;
            self.counts.blobs += u64::from(put.new);
            if put.wrote {
                new.blobs.push((*id, bytes.clone()));
            }
        }
        for link in &stored.links {
            if trees.put_link(path, link)? {
                self.counts.links += 1;
                new.links.push(*link);
            }
        }
        Ok(new)
    }

    /// Sees to it that there is an engine to write to. After a failure of the disk that is found
    /// out once in `config.retry`, by a file of our own: an engine that meets the failure again
    /// would have to be opened anew again.
    fn ready(&mut self) -> Result<(), StoreError> {
        if self.shared.is_degraded() {
            return Err(StoreError::Degraded);
        }
        let Some((since, error)) = &self.failed else {
            return Ok(());
        };
        if since.elapsed() < self.shared.config.retry {
            return Err(error.clone());
        }
        if self.anew {
            let begun = self.begin_anew();
            if let Err(error) = &begun {
                *self.shared.engine.write() = Engine::Failed(error.clone());
                self.failed = Some((Instant::now(), error.clone()));
            }
            return begun;
        }
        let open = self.shared.place.probe().and_then(|()| self.resume());
        self.failed = open.clone().err().map(|error| (Instant::now(), error));
        open
    }

    /// Opens the engine anew, to read from: once its disk has failed it refuses all work, reads too,
    /// until then. What it lacks is read from where it is held; it may have no room for it.
    fn reopen(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let mut engine = shared.engine.write();
        if let Engine::Open(trees) = std::mem::replace(&mut *engine, Engine::Closed) {
            // It failed already, and how it goes changes nothing.
            let _ = trees.shut(shared.place.engine());
        }
        let opened = shared.place.reopen(&shared.config);
        let held = opened.and_then(|(trees, checked)| {
            (self.counts, self.counted) = (checked.counts, checked.counted);
            let held = self.unapplied(&trees)?;
            Ok((trees, held))
        });
        match held {
            Ok((trees, held)) => {
                self.hold(held);
                *engine = Engine::Open(trees);
                Ok(())
            }
            Err(error) => {
                *engine = Engine::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Brings an engine that was opened anew up to what it lacks.
    fn resume(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        if !matches!(*shared.engine.read(), Engine::Open(_)) {
            self.reopen()?;
        }
        let engine = shared.engine.read();
        // What is missing was told at the start: this engine failed, and nothing was damaged.
        let resumed = engine.trees().and_then(|trees| {
            self.recover(trees, false)?;
            self.archive_pending(trees)
        });
        drop(engine);
        match &resumed {
            Ok(()) => self.hold(Vec::new()),
            Err(_) => self.reopen()?,
        }
        resumed
    }

    /// Lets readers find what the engine lacks, in place of what they found before.
    fn hold(&mut self, held: Vec<Batch>) {
        let mut overlay = self.shared.overlay.lock();
        for batch in &held {
            overlay.hold(batch);
        }
        for batch in std::mem::replace(&mut self.held, held) {
            overlay.release(&batch);
        }
    }

    fn rest(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        if !shared.is_degraded() && self.failed.is_none() && self.behind {
            // Where that fails the journal has it, and the next start looks at everything.
            self.flush()?;
        }
        let engine = std::mem::replace(&mut *shared.engine.write(), Engine::Closed);
        match (engine, &self.failed) {
            // Dropping a damaged engine might wait for ever for writes that it can't do.
            (engine, _) if shared.is_degraded() => {
                std::mem::forget(engine);
                Err(StoreError::Degraded)
            }
            (Engine::Open(trees), None) => shared.place.rest(&shared.config, trees, self.wrote),
            (Engine::Open(trees), Some((_, error))) => {
                trees.shut(shared.place.engine())?;
                Err(error.clone())
            }
            (Engine::Failed(error), _) => Err(error),
            (Engine::Closed, _) => Err(StoreError::Closed),
        }
    }
}
