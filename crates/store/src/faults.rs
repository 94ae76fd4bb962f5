//! What tests make go wrong in a store that has no disk, and what they count of it. Owns the faults. Never part of a program
//! that is released: only tests and the feature `testing` have it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::error::StoreError;

/// The faults that a test wants. A clone shares the same faults, so that a test can set and lift
/// them while the store works.
#[derive(Clone, Default)]
pub struct Faults(Arc<FaultState>);

#[derive(Default)]
struct FaultState {
    plan: Mutex<FaultPlan>,
    lifted: Condvar,
    counts: Mutex<ReadCounts>,
}

/// What was read of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Keys that were looked up.
    pub keys: usize,
    /// Blobs that were asked for.
    pub blobs: usize,
    /// Rows of sessions.
    pub rows: usize,
}

#[derive(Default)]
struct FaultPlan {
    fail_commits: bool,
    fail_reads: bool,
    hold_reads: Option<Duration>,
    delay_commits: Duration,
}

impl Faults {
    /// Makes every commit fail from now on, and keeps nothing of it.
    pub fn fail_commits(&self, on: bool) {
        self.0.plan.lock().fail_commits = on;
    }

    /// Makes every read fail from now on.
    pub fn fail_reads(&self, on: bool) {
        self.0.plan.lock().fail_reads = on;
    }

    /// Makes each commit durable only after `delay`. It can be read at once.
    pub fn delay_commits(&self, delay: Duration) {
        self.0.plan.lock().delay_commits = delay;
    }

    /// Makes reads wait until the guard is dropped, each for `longest` at most.
    #[must_use = "dropping it lets the reads go on"]
    pub fn hold_reads(&self, longest: Duration) -> HeldReads {
        self.0.plan.lock().hold_reads = Some(longest);
        HeldReads(self.clone())
    }

    /// What was read since the last time that this was asked.
    #[must_use]
    pub fn take_counts(&self) -> ReadCounts {
        std::mem::take(&mut self.0.counts.lock())
    }

    /// Counts what is read.
    pub(super) fn count(&self, count: impl FnOnce(&mut ReadCounts)) {
        count(&mut self.0.counts.lock());
    }

    /// Whether the next commit fails, and how long it takes to become durable.
    pub(super) fn of_commit(&self) -> (Result<(), StoreError>, Duration) {
        let plan = self.0.plan.lock();
        let failed = plan.fail_commits.then_some(StoreError::Injected);
        (failed.map_or(Ok(()), Err), plan.delay_commits)
    }

    /// Blocks the thread while reads are held. Fails if reads should fail.
    pub(super) fn pass_read(&self) -> Result<(), StoreError> {
        let mut plan = self.0.plan.lock();
        if let Some(longest) = plan.hold_reads {
            let held = |plan: &mut FaultPlan| plan.hold_reads.is_some();
            self.0.lifted.wait_while_for(&mut plan, held, longest);
        }
        if plan.fail_reads {
            return Err(StoreError::Injected);
        }
        Ok(())
    }
}

/// Holds all reads as long as it lives.
pub struct HeldReads(Faults);

impl Drop for HeldReads {
    fn drop(&mut self) {
        self.0.0.plan.lock().hold_reads = None;
        self.0.0.lifted.notify_all();
    }
}
