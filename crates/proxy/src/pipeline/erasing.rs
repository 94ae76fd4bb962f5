//! What was erased while turns were under way. Owns which turns may still be recorded: a turn that
//! began before its session was gone would bring back what it read. Never removes anything itself.

use std::collections::VecDeque;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use plimsoll_model::Erased;
use plimsoll_store::Batch;

/// How many erasures are remembered. Turns that began before all of them are not recorded.
const MOST_ERASED: usize = 1024;
/// How many bytes are held of what is written during an erasure.
const MOST_HELD: usize = 64 << 20;

/// Erasures, past and present.
#[derive(Debug, Default)]
pub struct Erasing(RwLock<Erasures>);

#[derive(Debug, Default)]
struct Erasures {
    /// The number of the newest.
    newest: u64,
    /// The newest ones with their numbers.
    past: VecDeque<(u64, Erased)>,
    /// The number of the newest that is not among them.
    forgotten: u64,
    /// What is being erased now.
    present: Option<Erased>,
    /// What was written meanwhile.
    held: Mutex<Held>,
    /// What the store refused to take once more at the end of an erasure.
    unwritten: Vec<Batch>,
}

#[derive(Debug, Default)]
struct Held {
    batches: Vec<Batch>,
    bytes: usize,
}

/// When a turn began: after the erasure of this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Began(u64);

/// Leave to write what belongs to a turn. While somebody has it, nothing begins or ends to be erased.
pub struct Leave<'a>(RwLockReadGuard<'a, Erasures>);

impl Erasing {
    /// Notes that a turn begins, before it reads anything.
    #[must_use]
    pub fn began(&self) -> Began {
        Began(self.0.read().newest)
    }

    /// Leave to write for a turn. `None` if something was erased since it began, or is being erased, that
    /// means its session or what the turn stands on, as `means` says.
    #[must_use]
    pub fn leave(&self, began: Began, means: impl Fn(&Erased) -> bool) -> Option<Leave<'_>> {
        let erasures = self.0.read();
        let since = |(number, erased): &(u64, Erased)| *number > began.0 && means(erased);
        let gone = began.0 < erasures.forgotten
            || erasures.present.as_ref().is_some_and(&means)
            || erasures.past.iter().any(since);
        (!gone).then_some(Leave(erasures))
    }

    /// Begins to erase. No turn of what is meant is recorded from here on. `forget` empties what
    /// remembers any of it.
    pub fn begin(&self, whose: &Erased, forget: impl FnOnce()) {
        let mut erasures = self.0.write();
        erasures.present = Some(whose.clone());
        forget();
    }

    /// Ends it. Turns of what was meant are recorded again if they begin from here on. Returns what
    /// was written meanwhile, which has to be written once more: some of its content may have been
    /// taken for content that only erased sessions have.
    #[must_use]
    pub fn end(&self, forget: impl FnOnce()) -> Vec<Batch> {
        let mut erasures = self.0.write();
        forget();
        erasures.newest += 1;
        let newest = erasures.newest;
        if let Some(erased) = erasures.present.take() {
            erasures.past.push_back((newest, erased));
        }
        if erasures.past.len() > MOST_ERASED
            && let Some((number, _)) = erasures.past.pop_front()
        {
            erasures.forgotten = number;
        }
        std::mem::take(erasures.held.get_mut()).batches
    }

    /// Keeps what the store refused at the end of an erasure.
    pub fn keep_unwritten(&self, batches: Vec<Batch>) {
        self.0.write().unwritten.extend(batches);
    }

    /// Hands back what the store refused at the end of earlier erasures. It has to be written before the
    /// next one begins, which may mean some of it.
    #[must_use]
    pub fn take_unwritten(&self) -> Vec<Batch> {
        std::mem::take(&mut self.0.write().unwritten)
    }
}

impl Leave<'_> {
    /// Holds what is about to be written, if something is being erased. Returns false if there
    /// is no room for it: content then must not be written.
    #[must_use]
    pub fn hold(&self, batch: &Batch) -> bool {
        if self.0.present.is_none() {
            return true;
        }
        let mut held = self.0.held.lock();
        let bytes: usize = batch.blobs.iter().map(|(_, bytes)| bytes.len()).sum();
        if held.bytes + bytes > MOST_HELD {
            return false;
        }
        held.bytes += bytes;
        held.batches.push(batch.clone());
        true
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use plimsoll_model::{Digest, TenantId, blob_id};

    fn tenant(number: u8) -> TenantId {
        TenantId(Digest([number; 32]))
    }

    fn leave<'a>(
        erasing: &'a Erasing,
        began: Began,
        tenant: TenantId,
        session: &str,
    ) -> Option<Leave<'a>> {
        erasing.leave(began, |erased| erased.means(tenant, session))
    }

    fn session(name: &str) -> Erased {
        Erased::Session(name.to_owned())
    }

    #[test]
    fn a_turn_that_began_before_its_session_was_erased_is_not_recorded() {
        let erasing = Erasing::default();
        let before = erasing.began();
        assert!(leave(&erasing, before, tenant(1), "a").is_some());
        erasing.begin(&session("a"), || {});
        let meanwhile = erasing.began();
        assert!(leave(&erasing, before, tenant(1), "a").is_none());
        assert!(leave(&erasing, meanwhile, tenant(1), "a").is_none());
        assert!(leave(&erasing, before, tenant(1), "b").is_some());
        let _ = erasing.end(|| {});
        for began in [before, meanwhile] {
            assert!(leave(&erasing, began, tenant(1), "a").is_none());
            assert!(leave(&erasing, began, tenant(1), "b").is_some());
        }
        assert!(leave(&erasing, erasing.began(), tenant(1), "a").is_some());
        erasing.begin(&Erased::Tenant(tenant(1)), || {});
        let _ = erasing.end(|| {});
        assert!(leave(&erasing, before, tenant(1), "b").is_none());
        assert!(leave(&erasing, before, tenant(2), "b").is_some());
    }

    #[test]
    fn what_is_written_meanwhile_is_handed_back_and_bounded() {
        let erasing = Erasing::default();
        let sized = |bytes: usize| {
            let bytes = Bytes::from(vec![7; bytes]);
            Batch {
                blobs: vec![(blob_id(&bytes), bytes)],
                ..Batch::default()
            }
        };
        let hold = |bytes| {
            let leave = leave(&erasing, erasing.began(), tenant(1), "b").unwrap();
            leave.hold(&sized(bytes))
        };
        assert!(hold(3));
        erasing.begin(&session("a"), || {});
        assert!(hold(4) && hold(5));
        assert!(!hold(MOST_HELD));
        assert_eq!(erasing.end(|| {}), [sized(4), sized(5)]);
        assert_eq!(erasing.end(|| {}), []);
    }

    #[test]
    fn no_more_erasures_are_remembered_than_fit() {
        let erasing = Erasing::default();
        let before = erasing.began();
        for number in 0..=MOST_ERASED {
            erasing.begin(&session(&number.to_string()), || {});
            let _ = erasing.end(|| {});
        }
        assert!(leave(&erasing, before, tenant(1), "other").is_none());
        assert!(leave(&erasing, erasing.began(), tenant(1), "other").is_some());
        assert_eq!(erasing.0.read().past.len(), MOST_ERASED);
    }
}
