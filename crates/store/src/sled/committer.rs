//! The one thread that writes. It takes what waits into a group, makes the group durable,
//! acknowledges each batch that ends with it, and applies the group to the engine. Never acknowledges
//! before the disk has the group, in the journal or in the archive. The engine is not flushed while
//! anybody waits, except once every few hundred kilobytes.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use plimsoll_model::Digest;

use super::super::batch::{Batch, Listed};
use super::super::codec::Encoder;
use super::super::error::StoreError;
use super::apply::Outcome;
use super::archive::Archive;
use super::entry::{Form, Stamp};
use super::journal::Journal;
use super::queue::{Nothing, Piece, PieceEnd, Pieces, taken_apart};
use super::replace::Sweeps;
use super::shared::{Engine, Shared};
use super::trees::{Counts, Position, Trees};
use super::writes::Writes;

/// How long no batch must have come before the engine is flushed.
const FLUSH_AFTER: Duration = Duration::from_millis(50);
/// How far the archive may run ahead of the engine's last flush. This much is read again after a
/// kill, and an engine that is opened again on a full disk must have room for it.
const AHEAD_BYTES: u64 = 512 << 10;

/// What becomes of the pieces of a group.
pub(super) struct Tickets<'a> {
    shared: &'a Shared,
    batches: &'a [Batch],
    open: Vec<PieceEnd>,
}

impl Tickets<'_> {
    /// Resolves the tickets, if that was not done already. Others get the room of the batches.
    /// Readers find what is durable in the overlay until the engine has it.
    pub(super) fn send(&mut self, outcomes: &[Outcome]) {
        if self.open.is_empty() {
            return;
        }
        // Whoever learns that a batch is durable finds room for the next one.
        let ended = self.open.iter().filter(|end| end.is_last()).count();
        self.shared.free(self.batches, ended);
        for (end, outcome) in self.open.drain(..).zip(outcomes) {
            end.send(outcome.clone(), &self.shared.failed);
        }
    }
}

pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) encoder: Encoder,
    pub(super) journal: Journal,
    /// `None` only until the first recovery of a directory without one.
    pub(super) archive: Option<Archive>,
    /// What was applied but not archived yet, in the stored form. The journal holds it as well.
    pub(super) pending: Writes,
    pub(super) counts: Counts,
    /// Whether the engine's entries were counted when it was opened. If not, the counts are those
    /// that were noted last, and the engine may hold a few more entries.
    pub(super) counted: bool,
    /// The number of the last group.
    pub(super) group: u64,
    /// Whether the engine holds writes that were not flushed, or lacks rows that wait.
    pub(super) behind: bool,
    /// How long the archive was when the engine was flushed.
    pub(super) flushed: u64,
    /// Whether anything was written since the start.
    pub(super) wrote: bool,
    /// The newest row of each session whose row the engine does not have yet. Readers find it in
    /// the overlay.
    pub(super) rows: HashMap<Digest, Listed>,
    /// What readers must find although a failed engine lacks it.
    pub(super) held: Vec<Batch>,
    /// When and how the disk failed last. `None` once the engine is open again.
    pub(super) failed: Option<(Instant, StoreError)>,
    /// Whether the files were removed and could not be made again yet.
    pub(super) anew: bool,
    /// When the files were last checked.
    pub(super) looked: Instant,
    pub(super) sweeps: Sweeps,
    /// The lock of the directory. It is released with the thread.
    pub(super) lock: File,
}

impl Committer {
    /// Works until the queue is closed and empty. Then closes the engine and sends the outcome.
    pub(super) fn run(mut self, pieces: &Pieces, closed: &Sender<Result<(), StoreError>>) {
        while let Some(first) = self.next(pieces) {
            self.commit(pieces.group(first));
        }
        let outcome = self.rest();
        // A process that is just being spawned holds copies of all files until it runs, so dropping
        // the file does not release its lock. If unlocking fails, dropping it has to do.
        let _ = self.lock.unlock();
        drop(self.lock);
        // The caller of close may have stopped waiting.
        let _ = closed.send(outcome);
    }

    /// Waits for the next piece. Uses pauses to flush the engine and to check the files.
    fn next(&mut self, pieces: &Pieces) -> Option<Piece> {
        loop {
            let behind = self.behind && self.failed.is_none() && !self.shared.is_degraded();
            // A pause this short is only worth waking up for if the engine has to catch up.
            let pause = if behind || self.sweeps.is_running() {
                FLUSH_AFTER
            } else {
                self.shared.settings.look
            };
            match pieces.wait(pause) {
                Ok(piece) => {
                    self.look();
                    self.tend_asks();
                    return Some(piece);
                }
                Err(Nothing::More) => return None,
                Err(Nothing::Yet) if behind => self.catch_up(),
                Err(Nothing::Yet) => {
                    self.look();
                    self.tend_asks();
                }
            }
        }
    }

    /// Flushes the archive and the engine. If that fails, the journal still holds everything.
    fn catch_up(&mut self) {
        if let Err(error) = self.flush() {
            self.broke(&error);
        }
    }

    /// Ends pieces of batches of which an earlier piece has failed. They are not written.
    fn pass_over(&self, pieces: Vec<Piece>) {
        let (batches, open) = taken_apart(pieces);
        let failed = open.iter().map(|end| end.failed().cloned());
        let outcomes: Vec<Outcome> = failed.map(|error| error.map_or(Ok(()), Err)).collect();
        self.shared.release(&batches);
        let mut tickets = Tickets {
            shared: &self.shared,
            batches: &batches,
            open,
        };
        tickets.send(&outcomes);
    }

    fn commit(&mut self, group: Vec<Piece>) {
        let of_failed = |piece: &Piece| piece.end.failed().is_some();
        let (failed, group): (Vec<Piece>, Vec<Piece>) = group.into_iter().partition(of_failed);
        self.pass_over(failed);
        if group.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let (batches, tickets) = taken_apart(group);
        let mut tickets = Tickets {
            shared: &shared,
            batches: &batches,
            open: tickets,
        };
        let today = shared.settings.clock.today();
        let group: Vec<Writes> = batches
            .iter()
            .map(|batch| Writes::of(batch, today))
            .collect();
        let (group, form, fits) = match self.journaled(group) {
            Ok((group, form)) => (group, form, true),
            Err(group) => (group, Form::Usual, false),
        };
        let ahead = self.ready().and_then(|()| {
            if fits {
                self.write_ahead((&group, form))
            } else {
                Ok(false)
            }
        });
        let outcomes = match ahead {
            Ok(true) => {
                tickets.send(&vec![Ok(()); batches.len()]);
                let applied = self.apply(group, form);
                // Nobody waits for these any more, so they are only counted.
                let failed = applied.iter().flatten().filter(|outcome| outcome.is_err());
                let failed = failed.count() as u64;
                shared.failed.fetch_add(failed, Ordering::Relaxed);
                applied
            }
            Ok(false) => self.write_through((group, form), &mut tickets),
            Err(error) => Err(error),
        };
        // A failure of the disk concerns every batch of the group that is not on disk yet.
        let outcomes = outcomes.unwrap_or_else(|error| {
            self.broke(&error);
            vec![Err(error); tickets.open.len()]
        });
        shared.release(&batches);
        tickets.send(&outcomes);
    }

    /// Writes a group to the journal, which makes it durable. Returns false if the journal has no
    /// room.
    fn write_ahead(&mut self, group: (&[Writes], Form)) -> Result<bool, StoreError> {
        // The engine must be open: what can't be applied must not be acknowledged.
        self.shared.engine.read().trees()?;
        let stamp = Stamp {
            first: self.group + 1,
            last: self.group + 1,
            counts: self.counts,
        };
        let dir = self.shared.place.dir();
        let appended = self.journal.append(&stamp, group);
        let appended =
            appended.map_err(|error| StoreError::io("writing the journal in", dir, &error))?;
        self.group += u64::from(appended);
        Ok(appended)
    }

    /// Completes the archive up to the last group, so that the journal can be overwritten.
    pub(super) fn append_pending(&mut self) -> Result<(), StoreError> {
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
        // The journal only holds what the archive does not, so it can begin anew.
        self.pending = Writes::default();
        self.journal.rewind();
        self.publish_archived();
        Ok(())
    }

    /// Tells a sweep how far it may read.
    pub(super) fn publish_archived(&self) {
        let archived = self.position().archived;
        self.shared.archived.store(archived, Ordering::Release);
    }

    /// Completes the engine if the archive is far ahead of what is durable in it.
    pub(super) fn complete_if_far_behind(&mut self, trees: &Trees) -> Result<(), StoreError> {
        if self.position().archived.saturating_sub(self.flushed) > AHEAD_BYTES {
            self.complete(trees)?;
        }
        Ok(())
    }

    /// Brings the engine all that it lacks of the archive, which is rows, notes in it that it has
    /// everything up to here, and makes it durable.
    pub(super) fn complete(&mut self, trees: &Trees) -> Result<(), StoreError> {
        self.put_rows(trees)?;
        let path = self.shared.place.engine();
        let position = self.position();
        trees.put_position(path, position)?;
        self.wrote = true;
        trees.sync(path)?;
        self.flushed = position.archived;
        self.behind = false;
        Ok(())
    }

    /// Archives what waits, and completes the engine.
    pub(super) fn archive_pending(&mut self, trees: &Trees) -> Result<(), StoreError> {
        self.append_pending()?;
        self.complete(trees)
    }

    /// Up to where the engine holds what was written, provided that nothing waits to be archived.
    pub(super) fn position(&self) -> Position {
        Position {
            counts: self.counts,
            group: self.group,
            archived: self.archive.as_ref().map_or(0, Archive::end),
            log: 0,
        }
    }

    /// Makes everything that was applied durable, in the archive and in the engine.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let engine = shared.engine.read();
        let trees = engine.trees()?;
        if !self.behind {
            return Ok(());
        }
        if self
            .archive
            .as_ref()
            .is_none_or(|archive| archive.last < self.group)
        {
            self.append_pending()?;
        }
        self.complete(trees)
    }

    pub(super) fn broke(&mut self, error: &StoreError) {
        match error {
            StoreError::Corrupt { .. } => self.shared.degrade(),
            StoreError::Io { .. } if self.failed.is_none() => self.fail(error),
            _ => {}
        }
    }

    /// The disk failed under the engine. Opens the engine again at once, so that reads go on.
    fn fail(&mut self, error: &StoreError) {
        self.stop_sweep();
        self.failed = Some((Instant::now(), error.clone()));
        if let Err(StoreError::Corrupt { .. }) = self.reopen() {
            self.shared.degrade();
        }
    }

    /// Makes sure that there is an engine to write to. After a failure of the disk this is tried
    /// once in every `settings.retry`, by writing a file of the store's own: an engine that meets
    /// the failure again would have to be opened again.
    fn ready(&mut self) -> Result<(), StoreError> {
        if self.shared.is_degraded() {
            return Err(StoreError::Degraded);
        }
        let Some((since, error)) = &self.failed else {
            return Ok(());
        };
        if since.elapsed() < self.shared.settings.retry {
            return Err(error.clone());
        }
        // The files themselves are gone, so there is nothing to open again.
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

    /// Opens the engine again for reading. After its disk has failed it refuses all work, even
    /// reads. Readers find what it lacks in memory, because the disk may have no room for it.
    fn reopen(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let mut engine = shared.engine.write();
        if let Engine::Open(trees) = std::mem::replace(&mut *engine, Engine::Closed) {
            // The engine has failed already. How its closing goes changes nothing.
            let _ = trees.shut(shared.place.engine());
        }
        let opened = shared.place.reopen(&shared.settings);
        let held = opened.and_then(|(trees, checked)| {
            (self.counts, self.counted) = (checked.counts, checked.counted);
            let held = self.unapplied(&trees)?;
            Ok((trees, held))
        });
        match held {
            Ok((trees, held)) => {
                self.hold(held);
                self.forget_rows();
                *engine = Engine::Open(trees);
                Ok(())
            }
            Err(error) => {
                *engine = Engine::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Brings an engine that was opened again up to date.
    fn resume(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        if !matches!(*shared.engine.read(), Engine::Open(_)) {
            self.reopen()?;
        }
        let engine = shared.engine.read();
        // Losses were reported at the start. This engine failed, but nothing was damaged.
        let resumed = engine.trees().and_then(|trees| {
            self.recover(trees, false, None)?;
            self.archive_pending(trees)
        });
        drop(engine);
        match &resumed {
            Ok(()) => self.hold(Vec::new()),
            Err(_) => self.reopen()?,
        }
        resumed
    }

    /// Shows readers what the engine lacks, in place of what was shown before.
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
        self.stop_sweep();
        let shared = Arc::clone(&self.shared);
        if !shared.is_degraded() && self.failed.is_none() && self.behind {
            // If this fails, the journal holds the writes, and the next start checks everything.
            self.flush()?;
        }
        // Readers get an error from here on, and not a half-closed engine.
        let engine = std::mem::replace(&mut *shared.engine.write(), Engine::Closed);
        match (engine, &self.failed) {
            // Closing a damaged engine may wait for ever for writes that it can't do.
            (engine, _) if shared.is_degraded() => {
                std::mem::forget(engine);
                Err(StoreError::Degraded)
            }
            (Engine::Open(trees), None) => shared.place.rest(&shared.settings, trees, self.wrote),
            (Engine::Open(trees), Some((_, error))) => {
                trees.shut(shared.place.engine())?;
                Err(error.clone())
            }
            (Engine::Failed(error), _) => Err(error),
            (Engine::Closed, _) => Err(StoreError::Closed),
        }
    }
}
