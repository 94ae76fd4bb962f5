//! When a sweep begins, and how its copy takes the place of the store. Owns both, on the committer's
//! thread: nothing is written while the one is exchanged for the other, and readers wait for that
//! moment. Never reads what is too old; see [`super::sweep`].

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_model::Digest;

use super::super::error::StoreError;
use super::super::files;
use super::super::settings::Retention;
use super::archive::Archive;
use super::committer::Committer;
use super::journal;
use super::kept::Limits;
use super::shared::Engine;
use super::sweep::{Fresh, Removed, Sweep, Swept};
use super::trees::{Counts, Trees};

/// How long after a sweep that failed the next one begins by itself. What failed it, such as a full
/// disk, does not pass at once.
const AFTER_FAILURE: Duration = Duration::from_secs(600);
/// By how many days the clock may be ahead of the last sweep and be believed at once.
const AHEAD: u16 = 2;
/// After a sweep from which nothing more may go, what part of the bound must be written before the
/// same day sees another one.
const WAIT_PARTS: u64 = 20;
/// What part of the bound a sweep should leave free, so that the next one is not due at once.
const FREE_PARTS: u64 = 20;
/// By how much a sweep aims lower than the last one, which left too little free: seven eighths.
const LESS: (u64, u64) = (7, 8);

/// How long a sweep that has to stop is waited for, and how often it is looked at.
const STOP_WAIT: Duration = Duration::from_secs(5);
const STOP_PAUSE: Duration = Duration::from_millis(1);

/// A sweep that somebody asked for.
pub(super) struct SweepAsk {
    /// What goes whatever its age: blobs, and sessions with their rows.
    pub(super) erased: HashSet<Digest>,
    /// Where it is told how many blobs were removed.
    pub(super) reply: Sender<Result<u64, StoreError>>,
}

/// What the committer knows of sweeps.
#[derive(Default)]
pub(super) struct Sweeps {
    running: Option<Running>,
    /// The day of the last sweep. `None` until it was read from the engine.
    day: Option<u16>,
    /// The day on which the clock was first too far ahead of the last sweep to be believed, 0 if it never was. `None`
    /// until it was read from the engine.
    doubted: Option<u16>,
    /// On this day files that take too much room are not swept again before the archive is so long,
    /// because nothing more may go.
    fit_from: (u16, u64),
    /// What a sweep has to aim at instead of the bound, because the last one left too little free.
    aim: Option<u64>,
    /// When the files were last measured, and when a sweep last failed.
    measured: Option<Instant>,
    failed: Option<Instant>,
}

struct Running {
    thread: JoinHandle<Result<Swept, StoreError>>,
    stop: Arc<AtomicBool>,
    today: u16,
    fit: Option<u64>,
    asks: Vec<SweepAsk>,
}

/// Why a sweep begins.
struct Due {
    asks: Vec<SweepAsk>,
    fit: Option<u64>,
}

impl Sweeps {
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

impl Committer {
    /// Answers those who asked for something beside the batches, and keeps sweeps going.
    pub(super) fn tend_asks(&mut self) {
        self.tell_archive();
        self.tend_sweeps();
    }

    /// Begins a sweep if one is due, and takes over a copy that was made.
    pub(super) fn tend_sweeps(&mut self) {
        if self.failed.is_some() || self.shared.is_degraded() {
            self.stop_sweep();
        } else if let Some(running) = self.sweeps.running.take_if(|it| it.thread.is_finished()) {
            self.end_sweep(running);
        } else if !self.sweeps.is_running()
            && let Some(due) = self.due()
            && let Err(error) = self.begin_sweep(due)
        {
            self.sweep_failed(&error);
        }
    }

    fn due(&mut self) -> Option<Due> {
        let asks = std::mem::take(&mut *self.shared.asked.lock());
        let settings = &self.shared.settings;
        let Retention {
            records,
            content,
            most_bytes,
        } = settings.retention;
        let quiet = self
            .sweeps
            .failed
            .is_some_and(|at| at.elapsed() < AFTER_FAILURE);
        let full = most_bytes.filter(|most| !quiet && self.takes_more_than(*most));
        let full = full.map(|most| self.sweeps.aim.unwrap_or(most));
        if !asks.is_empty() || full.is_some() {
            return Some(Due { asks, fit: full });
        }
        let aged = !quiet && (records.is_some() || content.is_some());
        (aged && self.last_sweep() < self.believed_today()).then_some(Due { asks, fit: None })
    }

    /// Today, as far as the clock is believed when it says what is too old. A clock that is wrong by months would have
    /// everything removed at once. So one that is far ahead of the last sweep has to be so on a second day as well;
    /// until then it counts as the day of that sweep, and nothing more goes for its age.
    fn believed_today(&mut self) -> u16 {
        let settings = &self.shared.settings;
        let today = settings.clock.today();
        let ages = settings.retention.records.or(settings.retention.content);
        let last = self.last_sweep();
        let ahead = today.saturating_sub(last);
        // Without ages a store is swept only when it is too large, which may be seldom.
        if ages.is_none() || last == 0 || last == u16::MAX {
            return today;
        }
        // If that can't be read, tomorrow says the same again.
        let first = self.first_doubt().unwrap_or(today);
        if ahead <= AHEAD {
            // The clock was wrong and is right again. What it said then must not speak for the next time.
            if first != 0 {
                self.note_doubt(0);
            }
            return today;
        }
        if (last..today).contains(&first) {
            return today;
        }
        if first != today {
            tracing::warn!(
                days = ahead,
                "the clock is far ahead of the day on which the store was last swept; nothing is removed for its age before tomorrow"
            );
            self.note_doubt(today);
        }
        last
    }

    /// The day on which the clock was first too far ahead; 0 if there was none.
    fn first_doubt(&mut self) -> Option<u16> {
        if self.sweeps.doubted.is_none() {
            let engine = self.shared.engine.read();
            let place = self.shared.place.engine();
            let doubted = engine.trees().and_then(|trees| trees.doubted(place));
            self.sweeps.doubted = doubted.ok();
        }
        self.sweeps.doubted
    }

    /// Notes the day on which the clock was first too far ahead, or 0 that it is right.
    fn note_doubt(&mut self, day: u16) {
        self.sweeps.doubted = Some(day);
        self.wrote = true;
        let engine = self.shared.engine.read();
        let put = |trees: &Trees| trees.put_doubted(self.shared.place.engine(), day);
        if let Err(error) = engine.trees().and_then(put) {
            tracing::warn!(%error, "whether the clock is believed could not be noted");
        }
    }

    /// The day of the last sweep. A day that never comes if it can't be read now.
    fn last_sweep(&mut self) -> u16 {
        let shared = &self.shared;
        let read = || {
            let engine = shared.engine.read();
            engine.trees()?.swept(shared.place.engine())
        };
        let day = self.sweeps.day.map_or_else(read, Ok);
        self.sweeps.day = day.as_ref().ok().copied();
        day.unwrap_or(u16::MAX)
    }

    /// Whether the files take too much room and it may help to sweep them.
    fn takes_more_than(&mut self, most: u64) -> bool {
        let archived = self.archive.as_ref().map_or(0, Archive::end);
        let look = self.shared.settings.look;
        let (day, from) = self.sweeps.fit_from;
        let waits = archived < from && day == self.shared.settings.clock.today();
        if waits || self.sweeps.measured.is_some_and(|at| at.elapsed() < look) {
            return false;
        }
        self.sweeps.measured = Some(Instant::now());
        self.files() > most
    }

    /// How many bytes the files of the store take. A corrupt store that was moved aside is not for a
    /// sweep to remove.
    fn files(&self) -> u64 {
        let archived = self.archive.as_ref().map_or(0, Archive::end);
        files::bytes(self.shared.place.engine()) + archived + journal::SIZE_BYTES as u64
    }

    fn begin_sweep(&mut self, due: Due) -> Result<(), StoreError> {
        let Due { asks, fit } = due;
        // The copy begins with what the engine has, and the archive has the rest from here on.
        self.flush_first()?;
        self.publish_archived();
        let today = self.believed_today();
        let shared = Arc::clone(&self.shared);
        let archive = self.archive.as_ref().ok_or(StoreError::Closed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let erased = asks.iter().flat_map(|ask| ask.erased.iter().copied());
        let sweep = Sweep {
            limits: Limits::new(&shared.settings.retention, today),
            fit,
            always: !asks.is_empty(),
            erased: erased.collect(),
            archive: archive
                .file()
                .try_clone()
                .map_err(shared.place.error("reading the archive in"))?,
            from: archive.end(),
            stop: Arc::clone(&stop),
            shared: Arc::clone(&shared),
        };
        let thread = std::thread::Builder::new()
            .name("sweep".to_owned())
            .spawn(move || sweep.run())
            .map_err(shared.place.error("starting a thread for"))?;
        self.sweeps.running = Some(Running {
            thread,
            stop,
            today,
            fit,
            asks,
        });
        Ok(())
    }

    fn end_sweep(&mut self, running: Running) {
        let Running {
            thread,
            today,
            fit,
            asks,
            ..
        } = running;
        let panicked = |_| StoreError::Corrupt {
            detail: "a sweep panicked".to_owned(),
        };
        let swept = thread.join().map_err(panicked).and_then(|swept| swept);
        let ended = swept.and_then(|swept| match swept {
            Swept::Nothing => self.note_sweep(today).map(|()| Removed::default()),
            Swept::Copied {
                fresh,
                until,
                removed,
            } => self.replace(*fresh, until, today).map(|()| removed),
        });
        let ended = ended.and_then(|removed| {
            // What was erased, or sealed, may stand there as it came.
            if !asks.is_empty() {
                let place = &self.shared.place;
                let wiped = self.journal.wipe();
                wiped.map_err(place.error("erasing the journal in"))?;
            }
            Ok(removed)
        });
        match &ended {
            Ok(Removed { blobs: removed, .. }) => {
                self.sweeps.day = Some(today);
                self.sweeps.failed = None;
                // The copy knows nothing of a doubt.
                if let Some(doubted) = self.sweeps.doubted.filter(|day| *day != 0) {
                    self.note_doubt(doubted);
                }
                self.shared.swept.fetch_add(*removed, Ordering::Relaxed);
                if *removed > 0 {
                    tracing::info!(removed, "what is too old was removed from the store");
                }
            }
            Err(error) => self.sweep_failed(error),
        }
        if let (Some(aim), Ok(removed)) = (fit, &ended) {
            self.aim_again(aim, *removed);
        }
        let ended = ended.map(|removed| removed.blobs);
        for ask in asks {
            // Whoever asked may be gone.
            let _ = ask.reply.send(ended.clone());
        }
    }

    pub(super) fn flush_first(&mut self) -> Result<(), StoreError> {
        let flushed = self.flush();
        if let Err(error) = &flushed {
            self.broke(error);
        }
        flushed
    }

    /// Decides when files that take too much room are swept again, and what that aims at.
    fn aim_again(&mut self, aim: u64, removed: Removed) {
        // Without a bound no sweep aims at anything.
        let Some(most) = self.shared.settings.retention.most_bytes else {
            return;
        };
        let today = self.shared.settings.clock.today();
        let archived = self.archive.as_ref().map_or(0, Archive::end);
        let room = most.saturating_sub(self.files());
        (self.sweeps.aim, self.sweeps.fit_from) = match next_aim((aim, most, room), removed) {
            NextAim::Bound => (None, (0, 0)),
            NextAim::Lower(aim) => (Some(aim), (0, 0)),
            NextAim::After(written) => (None, (today, archived.saturating_add(written))),
        };
    }

    fn sweep_failed(&mut self, error: &StoreError) {
        self.sweeps.failed = Some(Instant::now());
        self.shared.place.clear_sweep();
        tracing::warn!("what is too old was not removed from the store, which goes on: {error}");
    }

    /// Stops a sweep, whose copy is then of no use, and refuses those that were asked for.
    pub(super) fn stop_sweep(&mut self) {
        let mut asks = std::mem::take(&mut *self.shared.asked.lock());
        if let Some(running) = self.sweeps.running.take() {
            running.stop.store(true, Ordering::Release);
            // A thread that hangs in its engine, as on a broken disk, must not stop this one.
            let asked = Instant::now();
            while !running.thread.is_finished() && asked.elapsed() < STOP_WAIT {
                std::thread::sleep(STOP_PAUSE);
            }
            asks.extend(running.asks);
            self.shared.place.clear_sweep();
        }
        self.sweeps.day = None;
        for ask in asks {
            let _ = ask.reply.send(Err(StoreError::Closed));
        }
        for ask in std::mem::take(&mut *self.shared.archive_asked.lock()) {
            let _ = ask.send(Err(StoreError::Closed));
        }
    }

    fn note_sweep(&mut self, today: u16) -> Result<(), StoreError> {
        let shared = &self.shared;
        let engine = shared.engine.read();
        self.wrote = true;
        engine.trees()?.put_swept(shared.place.engine(), today)
    }

    /// Completes a copy with what was written since, and puts it in the place of the store.
    fn replace(&mut self, mut fresh: Fresh, until: u64, today: u16) -> Result<(), StoreError> {
        self.flush_first()?;
        let shared = Arc::clone(&self.shared);
        let archive = self.archive.as_ref().ok_or(StoreError::Closed)?;
        fresh.follow(&shared, archive.file(), (until, archive.end()), &|| Ok(()))?;
        let sealed_anew = fresh.is_sealed_anew();
        let counts = fresh.finish(self.group, today)?;
        shared.place.promote()?;
        self.switch(counts)?;
        if sealed_anew && let Err(error) = shared.place.note_keys(&shared.settings.seals) {
            tracing::warn!("the next start asks for a key that nothing needs any more: {error}");
        }
        Ok(())
    }

    /// Exchanges the engine and the archive for those of a copy. Readers go on with the old engine
    /// until the new one is open: its files have other names by then, but it holds them open. If the
    /// exchange can't be finished, the next start does.
    fn switch(&mut self, counts: Counts) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let place = &shared.place;
        let opened = place.adopt().and_then(|_| {
            let archive = Archive::open(place.dir()).map_err(place.error("opening the archive in"));
            Ok((Trees::open(place.engine(), &shared.settings)?, archive?))
        });
        let (trees, archive) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.give_up(error.clone());
                return Err(error);
            }
        };
        let old = std::mem::replace(&mut *shared.engine.write(), Engine::Open(trees));
        if let Engine::Open(old) = old {
            // All that it holds is in the copy, or too old.
            let _ = old.shut(place.engine());
        }
        self.archive = archive.map(|mut archive| {
            archive.last = self.group;
            archive
        });
        self.counts = counts;
        self.flushed = self.position().archived;
        (self.wrote, self.behind) = (true, false);
        self.publish_archived();
        place.clear_sweep();
        Ok(())
    }
}

/// What the next sweep of files that take too much room aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextAim {
    /// At the bound, as soon as they take more than that.
    Bound,
    /// At less, because the last one left too little free.
    Lower(u64),
    /// At the bound, but on this day not before so many bytes were written, because nothing more may
    /// go.
    After(u64),
}

/// What follows from a sweep that aimed at `aim` where files may take `most`, and that left `room` of
/// that free. All are bytes.
fn next_aim((aim, most, room): (u64, u64, u64), removed: Removed) -> NextAim {
    if removed.blobs > 0 && room >= most / FREE_PARTS {
        NextAim::Bound
    } else if removed.exhausted {
        NextAim::After(most / WAIT_PARTS)
    } else {
        // How much the engine's log takes for what it holds can only be estimated, and it grows by
        // whole segments.
        NextAim::Lower(aim / LESS.1 * LESS.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1_000 << 20;

    fn next(aim: u64, room: u64, blobs: u64, exhausted: bool) -> NextAim {
        next_aim((aim, MOST, room), Removed { blobs, exhausted })
    }

    #[test]
    fn a_sweep_that_left_too_little_room_is_followed_by_one_that_aims_lower() {
        assert_eq!(next(MOST, MOST / 20, 9, false), NextAim::Bound);
        assert_eq!(
            next(MOST, MOST / 20 - 1, 9, false),
            NextAim::Lower(MOST / 8 * 7)
        );
        assert_eq!(
            next(MOST / 8 * 7, 0, 9, false),
            NextAim::Lower(MOST / 64 * 49)
        );
        // This sweep removed nothing, but something may still go.
        assert_eq!(next(MOST, MOST, 0, false), NextAim::Lower(MOST / 8 * 7));
    }

    #[test]
    fn where_nothing_more_may_go_a_sweep_waits() {
        assert_eq!(next(MOST, 0, 9, true), NextAim::After(MOST / 20));
        assert_eq!(next(MOST, MOST, 0, true), NextAim::After(MOST / 20));
        // Nothing more may go, but enough is free.
        assert_eq!(next(MOST, MOST / 20, 9, true), NextAim::Bound);
    }
}
