//! What happens now, for those who look on: turns that were recorded, and how the upstream does. Owns
//! the numbers of events, and what this process has counted since it began. Never waits for a reader,
//! and does nothing for a turn beyond counting it while nobody listens.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::turn::Mode;
use plimsoll_model::{HourSums, LabelSet as _, RecordId, TenantId, TurnAccount, TurnSums, hours};
use plimsoll_wire::request::Unmanaged;
use tokio::sync::broadcast;

use crate::record::{AbortSide, FailedStage, Route, TurnReport, Unrecorded};

/// How many events wait for a reader. One that falls further behind is told to read anew.
const WAITING: usize = 256;
/// How many events are kept for readers that come back.
const KEPT: usize = 256;
/// Over how many of the newest recorded turns the proxy's own time is told.
const TIMES: usize = 1024;
/// For how many of the newest hours with a request it is told what requests beside sessions came to: those of a month.
const BESIDE_HOURS: usize = 31 * 24;

/// Something that happened.
#[derive(Clone, Debug)]
pub struct LiveEvent {
    /// Its number, from 1. Numbers without a gap mean that nothing is missing.
    pub number: u64,
    /// What it was.
    pub what: Happened,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Happened {
    /// A turn was recorded.
    Turn {
        /// Whose it is.
        tenant: TenantId,
        /// The name of the session's row, or of the branch's.
        session: String,
        /// Its record.
        record: RecordId,
        /// Whether it was only watched, so that its record is in memory alone.
        watched: bool,
    },
    /// The upstream began to fail, or to answer again.
    Upstream,
    /// A request failed.
    Failed {
        /// The short hash of its tenant, if that is known.
        tenant: String,
        /// The name of its session, if it has one.
        session: String,
    },
}

/// The record of a turn.
#[derive(Clone, Debug)]
pub struct RecordedTurn {
    /// Whose it is.
    pub tenant: TenantId,
    /// The record.
    pub record: RecordId,
    /// The name of the row that it counts in.
    pub row: String,
    /// The proxy's own time, as the record has it.
    pub own: Option<Duration>,
}

/// What this process has counted since it began.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Requests of agents.
    pub turns: u64,
    /// Requests that were sent as they came because a stage failed, by stage.
    pub fail_open: Vec<(&'static str, u64)>,
    /// Requests that could not be managed, by reason.
    pub unmanaged: Vec<(&'static str, u64)>,
    /// Turns that were managed, but had no durable record when their answer ended, by reason.
    pub unrecorded: Vec<(&'static str, u64)>,
    /// The proxy's own time of the newest recorded turns, in milliseconds: the median and the 99th
    /// percentile. None before the first.
    pub own_ms: Option<(f64, f64)>,
    /// What requests without a record came to, which stand in no row of the list.
    pub beside: TurnSums,
    /// Upstream calls.
    pub calls: u64,
    /// Upstream calls that failed or were not answered.
    pub errors: u64,
    /// When the newest of these was, in milliseconds since 1970.
    pub last_error: Option<u64>,
    /// Whether the newest call did not fail. None before the first.
    pub healthy: Option<bool>,
}

/// The feed.
pub struct Live {
    sender: broadcast::Sender<LiveEvent>,
    recent: Mutex<Recent>,
    fail_open: Vec<AtomicU64>,
    unmanaged: Vec<AtomicU64>,
    unrecorded: Vec<AtomicU64>,
    turns: AtomicU64,
    calls: AtomicU64,
    errors: AtomicU64,
    clock: fn() -> u64,
    /// Bytes of memory of what readers keep.
    read: AtomicU64,
}

/// What changes together.
#[derive(Default)]
struct Recent {
    /// The number of the newest event.
    number: u64,
    kept: VecDeque<LiveEvent>,
    times: VecDeque<f32>,
    beside: TurnSums,
    beside_hours: VecDeque<HourSums>,
    failing: bool,
    last_error: Option<u64>,
}

impl Recent {
    /// Counts a request without a record, which no row has.
    fn stands_beside(&mut self, hour: u32, cost: Option<&TurnAccount>) {
        self.beside.turns += 1;
        let mut alone = TurnSums {
            turns: 1,
            ..TurnSums::default()
        };
        if let Some(cost) = cost {
            self.beside.add(cost);
            alone.add(cost);
        }
        let alone = HourSums::between(hour, &TurnSums::default(), &alone);
        match self.beside_hours.back_mut() {
            Some(newest) if newest.hour == hour => newest.join(alone),
            Some(_) | None => self.beside_hours.push_back(alone),
        }
        if self.beside_hours.len() > BESIDE_HOURS {
            self.beside_hours.pop_front();
        }
    }
}

/// A reader's place in the feed.
pub struct Listening {
    /// Events that it missed, if they are all known.
    pub missed: Option<Vec<LiveEvent>>,
    /// Events from now on.
    pub events: broadcast::Receiver<LiveEvent>,
    /// The number of the newest event.
    pub newest: u64,
}

impl Live {
    /// A feed that tells the time by this clock.
    #[must_use]
    pub fn new(clock: fn() -> u64) -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            sender: broadcast::channel(WAITING).0,
            recent: Mutex::default(),
            fail_open: zeros(FailedStage::MEMBERS.len()),
            unmanaged: zeros(Unmanaged::MEMBERS.len()),
            unrecorded: zeros(Unrecorded::MEMBERS.len()),
            turns: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            clock,
            read: AtomicU64::new(0),
        }
    }

    /// Counts a request, and tells of its record if it has one, and of its `failure` if it failed. `cost` is
    /// what it came to.
    pub fn turn(
        &self,
        report: &TurnReport,
        recorded: Option<RecordedTurn>,
        cost: Option<&TurnAccount>,
        failure: Option<Happened>,
    ) {
        if report.route == Route::CountTokens {
            return;
        }
        let one = |counters: &[AtomicU64], at: usize| {
            if let Some(counter) = counters.get(at) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        self.turns.fetch_add(1, Ordering::Relaxed);
        if let Some(stage) = report.fail_open {
            one(&self.fail_open, stage.place());
        }
        if let Some(why) = report.unmanaged {
            one(&self.unmanaged, why.place());
        }
        if let Some(why) = report.unrecorded {
            one(&self.unrecorded, why.place());
        }
        self.calls
            .fetch_add(report.hops.len() as u64, Ordering::Relaxed);
        // A client that left took its question back, so no answer is no failure.
        let left = report
            .abort
            .is_some_and(|abort| abort.side == AbortSide::Client);
        let failed = |status: Option<http::StatusCode>| match status {
            Some(status) => status.is_server_error(),
            None => !left,
        };
        let failures = report.hops.iter().filter(|hop| failed(hop.status)).count();
        self.errors.fetch_add(failures as u64, Ordering::Relaxed);
        let mut recent = self.recent.lock();
        // As the record has it, so that a turn and the figures over all turns say the same.
        if let Some(own) = recorded.as_ref().and_then(|turn| turn.own) {
            if recent.times.len() == TIMES {
                recent.times.pop_front();
            }
            recent.times.push_back(own.as_secs_f32() * 1e3);
        }
        if failures > 0 {
            recent.last_error = Some((self.clock)());
        }
        let failing = report.hops.last().map(|hop| failed(hop.status));
        if let Some(failing) = failing.filter(|failing| *failing != recent.failing) {
            recent.failing = failing;
            self.tell(&mut recent, || Happened::Upstream);
        }
        if recorded.is_none() {
            recent.stands_beside(hours::hour((self.clock)()), cost);
        }
        if let Some(recorded) = recorded {
            self.tell(&mut recent, || Happened::Turn {
                tenant: recorded.tenant,
                session: recorded.row,
                record: recorded.record,
                watched: report.mode != Mode::Manage,
            });
        }
        if let Some(failure) = failure {
            self.tell(&mut recent, || failure);
        }
    }

    /// What requests without a record came to by the hour since the process began.
    #[must_use]
    pub fn beside(&self) -> VecDeque<HourSums> {
        self.recent.lock().beside_hours.clone()
    }

    /// Numbers an event. Only if somebody listens it is made at all.
    fn tell(&self, recent: &mut Recent, what: impl FnOnce() -> Happened) {
        recent.number += 1;
        if self.sender.receiver_count() == 0 {
            // Whoever comes back finds a gap, and reads anew.
            recent.kept.clear();
            return;
        }
        let event = LiveEvent {
            number: recent.number,
            what: what(),
        };
        if recent.kept.len() == KEPT {
            recent.kept.pop_front();
        }
        recent.kept.push_back(event.clone());
        // It fails if the last reader has just left.
        let _ = self.sender.send(event);
    }

    /// The number of the newest event.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.recent.lock().number
    }

    /// Begins to listen, unless `most` do already. `last` is the newest event that the reader knows.
    #[must_use]
    pub fn listen(&self, last: Option<u64>, most: usize) -> Option<Listening> {
        let recent = self.recent.lock();
        if self.sender.receiver_count() >= most {
            return None;
        }
        let events = self.sender.subscribe();
        let newest = recent.number;
        let missed = last.and_then(|last| {
            let missed = newest.checked_sub(last)?;
            let known = recent.kept.iter().filter(|event| event.number > last);
            let known: Vec<LiveEvent> = known.cloned().collect();
            (known.len() as u64 == missed).then_some(known)
        });
        Some(Listening {
            missed,
            events,
            newest,
        })
    }

    /// Notes how many bytes of memory readers keep of what they have read.
    pub fn set_read_weight(&self, bytes: u64) {
        self.read.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes of memory that is.
    #[must_use]
    pub fn read_weight(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// What was counted so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let (own_ms, failing, last_error, beside) = {
            let recent = self.recent.lock();
            let mut times: Vec<f32> = recent.times.iter().copied().collect();
            times.sort_by(f32::total_cmp);
            let at = |hundredth: usize| {
                let place = (times.len() * hundredth / 100).min(times.len().saturating_sub(1));
                times.get(place).copied().map(f64::from)
            };
            let own_ms = at(50).zip(at(99));
            (own_ms, recent.failing, recent.last_error, recent.beside)
        };
        let calls = self.calls.load(Ordering::Relaxed);
        Counted {
            turns: self.turns.load(Ordering::Relaxed),
            fail_open: counts(
                FailedStage::MEMBERS.iter().map(|one| one.label()),
                &self.fail_open,
            ),
            unmanaged: counts(
                Unmanaged::MEMBERS.iter().map(|one| one.label()),
                &self.unmanaged,
            ),
            unrecorded: counts(
                Unrecorded::MEMBERS.iter().map(|one| one.label()),
                &self.unrecorded,
            ),
            beside,
            own_ms,
            calls,
            errors: self.errors.load(Ordering::Relaxed),
            last_error,
            healthy: (calls > 0).then_some(!failing),
        }
    }
}

/// The counters that are not zero, with their names.
pub(super) fn counts(
    names: impl Iterator<Item = &'static str>,
    counters: &[AtomicU64],
) -> Vec<(&'static str, u64)> {
    let counted = names.zip(counters);
    let counted = counted.map(|(name, count)| (name, count.load(Ordering::Relaxed)));
    counted.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_price_takes_nothing_from_what_stands_beside_it() {
        let mut recent = Recent::default();
        let cost = |usd| TurnAccount {
            paid: 8.0,
            usd,
            ..TurnAccount::default()
        };
        for (hour, usd) in [(1, Some(0.5)), (1, None), (2, Some(0.5))] {
            recent.stands_beside(hour, Some(&cost(usd)));
        }
        let told = recent.beside_hours.iter();
        let told: Vec<(u32, u32, f32)> = told.map(|one| (one.hour, one.turns, one.paid)).collect();
        assert_eq!(told, [(1, 2, 4.0), (2, 1, 4.0)]);
    }
}
