//! The one thread that writes: it drains what waits into a group, applies it, makes it durable
//! once, and acknowledges every batch of it. It never answers before the disk has: the group is
//! in the journal by then, or the engine was flushed.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::super::codec::Encoder;
use super::super::{Acknowledge, Batch, StoreError};
use super::journal::Journal;
use super::trees::{Counts, Trees};
use super::{Engine, Shared};

/// About how many engine operations one group may have: more would only delay the first.
const GROUP: usize = 256;
/// How long nothing must have come before the engine is flushed on its own account.
const PAUSE: Duration = Duration::from_millis(50);

/// A batch on its way to disk.
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) acknowledge: Acknowledge,
}

pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) encoder: Encoder,
    pub(super) journal: Journal,
    pub(super) counts: Counts,
    /// Whether anything was written since the start.
    pub(super) wrote: bool,
    /// When the disk failed last, until the engine was opened again.
    pub(super) failed: Option<(Instant, StoreError)>,
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

    /// Waits for the next batch, and uses a pause to bring the engine up to the journal.
    fn next(&mut self, jobs: &Receiver<Job>) -> Option<Job> {
        if !self.journal.is_empty() && self.failed.is_none() {
            match jobs.recv_timeout(PAUSE) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.catch_up(),
            }
        }
        jobs.recv().ok()
    }

    /// Flushes the engine; the journal has all that would be lost if that fails.
    fn catch_up(&mut self) {
        if !self.shared.is_degraded()
            && let Err(error) = self.flush()
        {
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
            Ok(false) => self.apply(&batches).and_then(|outcomes| {
                self.flush()?;
                Ok(outcomes)
            }),
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
        let dir = self.shared.place.dir();
        let appended = self.journal.append(batches);
        appended.map_err(|error| StoreError::io("writing the journal in", dir, &error))
    }

    /// Makes durable what was applied, so that the journal may forget it.
    fn flush(&mut self) -> Result<(), StoreError> {
        let engine = self.shared.engine.read();
        engine.trees()?.sync(self.shared.place.engine())?;
        self.journal.restart();
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

    /// One outcome a batch: what is wrong with a batch fails it alone, what is wrong with the
    /// engine fails the group.
    fn apply(&mut self, batches: &[Batch]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let engine = shared.engine.read();
        let trees = engine.trees()?;
        let before = self.counts;
        let mut outcomes = Vec::with_capacity(batches.len());
        for batch in batches {
            outcomes.push(match self.put(trees, batch) {
                Err(error @ StoreError::Codec(_)) => Err(error),
                other => Ok(other?),
            });
        }
        if self.counts != before {
            trees.put_counts(shared.place.engine(), self.counts)?;
            self.wrote = true;
        }
        Ok(outcomes)
    }

    /// Applies what the journal holds and the engine may have lost. It stays in the journal: the
    /// engine has it in memory only, and is flushed in a pause or when the journal is full.
    pub(super) fn replay(&mut self, trees: &Trees) -> Result<(), StoreError> {
        let place = self.shared.place.clone();
        let read = self.journal.batches();
        let batches =
            read.map_err(|error| StoreError::io("reading the journal in", place.dir(), &error))?;
        for batch in &batches {
            match self.put(trees, batch) {
                // It was refused when it was new, too.
                Err(StoreError::Codec(_)) => {}
                other => other?,
            }
        }
        if !batches.is_empty() {
            trees.put_counts(place.engine(), self.counts)?;
            self.wrote = true;
        }
        Ok(())
    }

    /// Blobs before links: a crash in between leaves blobs that nothing leads to.
    fn put(&mut self, trees: &Trees, batch: &Batch) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let path = shared.place.engine();
        for (id, value) in &batch.blobs {
            let new = trees.put_blob(path, &mut self.encoder, id, value)?;
            self.counts.blobs += u64::from(new);
        }
        for link in &batch.links {
            let new = trees.put_link(path, link)?;
            self.counts.links += u64::from(new);
        }
        Ok(())
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
        let closed = !matches!(*self.shared.engine.read(), Engine::Open(_));
        let taken = self.shared.place.probe();
        let open = taken.and_then(|()| if closed { self.reopen() } else { Ok(()) });
        self.failed = open.clone().err().map(|error| (Instant::now(), error));
        open
    }

    /// Opens the engine anew. Once its disk has failed it refuses all work, reads too, until then.
    fn reopen(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let mut engine = shared.engine.write();
        if let Engine::Open(trees) = std::mem::replace(&mut *engine, Engine::Closed) {
            // It failed already, and how it goes changes nothing.
            let _ = trees.shut(shared.place.engine());
        }
        let opened = shared.place.reopen(&shared.config);
        let replayed = opened.and_then(|(trees, counts)| {
            self.counts = counts;
            self.replay(&trees).map(|()| trees)
        });
        match replayed {
            Ok(trees) => {
                *engine = Engine::Open(trees);
                Ok(())
            }
            Err(error) => {
                *engine = Engine::Failed(error.clone());
                Err(error)
            }
        }
    }

    fn rest(&self) -> Result<(), StoreError> {
        let shared = &self.shared;
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
