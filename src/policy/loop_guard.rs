//! The rung `loop-guard`: a line below a new result says that the same call has brought the same
//! result several times running (paper 001, "Loop detection"). Also tells how often that was, for
//! metrics and headers, whether the rung stands on the ladder or not. Never hides a result.

use super::ask::{Level, Policy, PolicyAsk, Text};
use super::fresh;
use super::pass::Proposal;
use crate::model::{Kept, Mark};
use crate::session::index::ItemIndex;
use crate::session::transcript::{Item, Transcript};

/// From so many times running on it is a loop (paper 001: three).
pub const LOOP_FROM: u32 = 3;

/// No more calls than this are compared.
const LOOP_MOST: usize = 50;

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
    let same = before.take_while(|(_, item)| item.is_same_call(newest));
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

/// How many times running the newest new call was made with the same result; 0 if nothing is new.
#[must_use]
pub fn newest_times_running<'a>(
    transcript: &Transcript,
    originals: &dyn Fn(ItemIndex) -> Option<Text<'a>>,
) -> u32 {
    let newest = fresh::calls(transcript).last().copied();
    newest.map_or(0, |call| times_running(transcript, call, originals))
}

/// Proposes a line for each new result that ends a loop.
pub(super) fn propose(ask: &PolicyAsk<'_>) -> Proposal {
    fresh::edit(ask, Policy::LoopGuard, Level::Loop, |call| kept(ask, call))
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
        lines: vec![(0, length)],
        times: Some(times),
        ..Kept::default()
    })
}
