//! Limits what the proxy keeps of hidden calls, and so sends with every later request, before an
//! answer is recorded. Pure. Never runs a call.

use std::borrow::Cow;

use plimsoll_wire::Dialect;
use plimsoll_wire::answer::{Answer, Block, BlockKind, Call};

use crate::intercept::bounds::kept;
use crate::render::tools::Injected;

/// The most bytes of a provider's own fields of a call, such as signatures. If a call has more, all
/// of them are dropped.
const EXTRA: usize = 64 * 1024;

/// The most hidden calls that are kept of one answer.
pub(super) const CALLS: usize = 32;

/// The answer without the hidden calls that are too many, and those. Every later request would send them, and their
/// results, again.
pub(super) fn few(answer: &Answer) -> (Cow<'_, Answer>, Vec<&Call>) {
    let mut gone = vec![false; answer.calls.len()];
    let mut many = Vec::new();
    for (place, call) in answer.hidden_calls().skip(CALLS) {
        if let Some(slot) = gone.get_mut(place) {
            *slot = true;
            many.push(call);
        }
    }
    if many.is_empty() {
        return (Cow::Borrowed(answer), many);
    }
    // Where each call stands when those are gone.
    let mut next = 0..;
    let places: Vec<Option<usize>> = gone
        .iter()
        .map(|gone| if *gone { None } else { next.next() })
        .collect();
    let mut few = answer.clone();
    let mut kept = gone.iter().map(|gone| !gone);
    few.calls.retain(|_| kept.next().unwrap_or(true));
    // A thought goes with the call that it led to: some providers refuse one with nothing behind it.
    let mut behind = false;
    let mut blocks = Vec::with_capacity(few.blocks.len());
    for mut block in few.blocks.drain(..).rev() {
        match &mut block.kind {
            BlockKind::Call(place) => match places.get(*place) {
                Some(None) => behind = true,
                Some(Some(now)) => (*place, behind) = (*now, false),
                None => behind = false,
            },
            BlockKind::Reasoning => {}
            BlockKind::Text | BlockKind::Other => behind = false,
        }
        if !behind {
            blocks.push(block);
        }
    }
    blocks.reverse();
    few.blocks = blocks;
    (Cow::Owned(few), many)
}

/// The answer as it is kept, with its hidden calls limited.
pub(super) fn answer<'a>(
    dialect: Dialect,
    injected: &Injected,
    answer: &'a Answer,
) -> Cow<'a, Answer> {
    let mut out = Cow::Borrowed(answer);
    for (place, call) in answer.hidden_calls() {
        let tool = injected.of(&call.name).unwrap_or_default();
        let arguments = kept(tool, &call.arguments);
        let extra: usize = call
            .extra
            .iter()
            .map(|(key, raw)| key.len() + raw.len())
            .sum();
        if arguments.is_none() && extra <= EXTRA {
            continue;
        }
        let call = Call {
            arguments: arguments.unwrap_or_else(|| call.arguments.clone()),
            extra: if extra > EXTRA {
                Vec::new()
            } else {
                call.extra.clone()
            },
            ..call.clone()
        };
        replace(dialect, out.to_mut(), place, call);
    }
    out
}

/// Replaces a call in the list of calls and in the blocks of the message.
pub(super) fn replace(dialect: Dialect, answer: &mut Answer, place: usize, call: Call) {
    let of_call = |block: &&mut Block| block.kind == BlockKind::Call(place);
    if let Some(block) = answer.blocks.iter_mut().find(of_call) {
        block.raw = dialect.call_of(&call).into();
    }
    if let Some(slot) = answer.calls.get_mut(place) {
        *slot = call;
    }
}
