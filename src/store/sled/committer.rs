//! The one thread that writes: it drains what waits into a group, applies it, makes it durable
//! once, and acknowledges every batch of it. It never answers before the disk has.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use super::super::codec::Encoder;
use super::super::{Acknowledge, Batch, StoreError};
use super::trees::{Counts, Trees};
use super::{Engine, Shared};

/// About how many engine operations one group may have: more would only delay the first.
const GROUP: usize = 256;

/// A batch on its way to disk.
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) acknowledge: Acknowledge,
}

pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) encoder: Encoder,
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
        while let Ok(first) = jobs.recv() {
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

    fn commit(&mut self, group: Vec<Job>) {
        let outcomes = self.write(&group);
        self.shared.settle(&group, &outcomes);
        for (job, outcome) in group.into_iter().zip(outcomes) {
            job.acknowledge.send(outcome);
        }
    }

    /// One outcome a batch: what is wrong with a batch fails it alone, what is wrong with the
    /// engine fails the group.
    fn write(&mut self, group: &[Job]) -> Vec<Result<(), StoreError>> {
        match self.ready().and_then(|()| self.apply(group)) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                match &error {
                    StoreError::Corrupt { .. } => self.shared.degrade(),
                    StoreError::Io { .. } if self.failed.is_none() => self.fail(&error),
                    _ => {}
                }
                vec![Err(error); group.len()]
            }
        }
    }

    /// The disk failed under the engine: it is opened anew at once, so that reads go on.
    fn fail(&mut self, error: &StoreError) {
        self.failed = Some((Instant::now(), error.clone()));
        if let Err(StoreError::Corrupt { .. }) = self.reopen() {
            self.shared.degrade();
        }
    }

    fn apply(&mut self, group: &[Job]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let engine = shared.engine.read();
        let trees = engine.trees()?;
        let before = self.counts;
        let mut outcomes = Vec::with_capacity(group.len());
        for Job { batch, .. } in group {
            outcomes.push(match self.put(trees, batch) {
                Err(error @ StoreError::Codec(_)) => Err(error),
                other => Ok(other?),
            });
        }
        if self.counts != before {
            trees.put_counts(shared.place.engine(), self.counts)?;
            self.wrote = true;
        }
        trees.sync(shared.place.engine())?;
        Ok(outcomes)
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
        match shared.place.reopen(&shared.config) {
            Ok((trees, counts)) => {
                *engine = Engine::Open(trees);
                self.counts = counts;
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
