//! The rung `loop-guard`: a line below a new result says that the same call has brought the same
//! result several times running (paper 001, "Loop detection"). Also tells how often that was, for
//! metrics and headers, whether the rung stands on the ladder or not. Never hides a result.

use plimsoll_model::{Kept, Mark};

use super::ask::{Level, Policy, PolicyAsk, Text};
use super::fresh;
use super::pass::Proposal;
use crate::session::index::ItemIndex;
use crate::session::transcript::{Item, Transcript};

/// From so many times running on it is a loop (paper 001: three).
pub const LOOP_FROM: u32 = 3;

/// No more calls than this are compared.
const LOOP_MOST: usize = 50;

/// How often the newest call has been made running, each time with the same result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repetition {
    /// How many times; 0 if no result is new.
    pub times: u32,
    /// How many of those came with this request.
    pub new: u32,
}

impl Repetition {
    /// Whether it is a loop.
    #[must_use]
    pub fn is_loop(self) -> bool {
        self.times >= LOOP_FROM
    }

    /// Whether it became a loop with this request.
    #[must_use]
    pub fn begins(self) -> bool {
        self.is_loop() && self.times - self.new < LOOP_FROM
    }
}

/// How many times running a call had been made when it brought its result, each time with this
/// result. At least 1, and at most 51.
#[must_use]
pub fn times_running<'a>(
    transcript: &Transcript,
    call: ItemIndex,
    originals: &dyn Fn(ItemIndex) -> Option<Text<'a>>,
) -> u32 {
    let calls = transcript.answered_calls().rev();
    let mut before = calls.skip_while(|(at, _)| *at > call);
    let Some((_, newest)) = before.next() else {
        return 1;
    };
    // Most calls differ from the one before, and then no text is read.
    let is_same = |at: ItemIndex, item: &Item| {
        if !(newest.said && item.said) {
            return item.is_same_call(newest);
        }
        // A call that was written as text has no digest: its text is the call.
        let own = originals(call);
        originals(at).is_some_and(|one| own.is_some_and(|own| *own == *one))
    };
    let same = before.take_while(|(at, item)| is_same(*at, item));
    let mut same = same.take(LOOP_MOST);
    let mut times = 1;
    let Some(first) = same.next() else {
        return times;
    };
    let text = |item: &Item| item.pair.and_then(originals);
    let Some(result) = text(newest) else {
        return times;
    };
    for (_, item) in std::iter::once(first).chain(same) {
        if text(item).is_none_or(|other| *other != *result) {
            break;
        }
        times += 1;
    }
    times
}

/// How often the newest new call has been made running with the same result.
#[must_use]
pub fn newest_repetition<'a>(
    transcript: &Transcript,
    originals: &dyn Fn(ItemIndex) -> Option<Text<'a>>,
) -> Repetition {
    let calls = fresh::calls(transcript);
    let Some(newest) = calls.last() else {
        return Repetition::default();
    };
    let times = times_running(transcript, *newest, originals);
    let new = u32::try_from(calls.len()).unwrap_or(u32::MAX).min(times);
    Repetition { times, new }
}

/// Proposes a line for each new result that ends a loop.
pub(super) fn propose(ask: &PolicyAsk<'_>) -> Proposal {
    fresh::edit(ask, Policy::LoopGuard, |call| {
        Some((Level::Loop, kept(ask, call)?))
    })
}

/// What is shown of a result already, and the line; `None` if it ends no loop.
fn kept(ask: &PolicyAsk<'_>, at: ItemIndex) -> Option<Kept> {
    let seen = ask.view.marked();
    let times = times_running(seen.transcript, at, ask.originals);
    if times < LOOP_FROM || seen.mark_of(at) > Mark::Clipped {
        return None;
    }
    let call = seen.transcript.items.get(at)?;
    if let Some(kept) = seen.marks.kept(call.no) {
        return (kept.times != Some(times)).then(|| Kept {
            times: Some(times),
            ..Kept::clone(kept)
        });
    }
    // Nothing may point at a result that has a line of its own.
    if seen.pointers().contains_key(&at) {
        return None;
    }
    let length = u32::try_from((ask.originals)(call.pair?)?.len()).ok()?;
    Some(Kept {
        times: Some(times),
        ..Kept::whole(length)
    })
}
