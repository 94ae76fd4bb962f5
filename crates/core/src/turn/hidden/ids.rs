//! Ids for hidden calls whose own ids are unusable: some providers send none, or the same in every
//! answer, and refuse the request that repeats them. Never changes a visible call, whose id is the
//! client's concern.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;
use plimsoll_model::{CallId, Digest, HiddenCall};
use plimsoll_wire::answer::Answer;

use crate::turn::bounded::replace;
use crate::turn::state::TurnState;

/// The answer with unique ids for its hidden calls. All replicas make the same ones.
pub(super) fn usable<'a>(state: &TurnState, answer: &'a Answer) -> Cow<'a, Answer> {
    let mut mended = Cow::Borrowed(answer);
    for (place, call) in answer.hidden_calls() {
        let taken = |id: &str| is_taken(state, &mended, place, id);
        let odd = call.id.trim().is_empty() || taken(&call.id);
        let mut new = call.clone();
        if odd {
            let tries = (0..).map(|number| made(state, place, number));
            new.id = tries.into_iter().find(|id| !taken(id)).unwrap_or_default();
        }
        // The item's own name is optional; it is removed if it is unusable.
        let unnamed = |(key, name): &(String, Bytes)| {
            key == "id" && (odd || name.len() <= 2 || is_named(state, name))
        };
        new.extra.retain(|extra| !unnamed(extra));
        if new != *call {
            replace(state.request.dialect, mended.to_mut(), place, new);
        }
    }
    mended
}

/// All earlier hidden calls.
fn earlier(state: &TurnState) -> impl Iterator<Item = &HiddenCall> {
    let recorded = state
        .path
        .entries
        .iter()
        .flat_map(|entry| &entry.record.hops);
    recorded.chain(&state.pending).flat_map(|hop| &hop.calls)
}

/// Whether another call has this id: of the client's messages, of earlier hidden calls, or of the
/// same answer. Of two hidden calls of one answer the first keeps it.
fn is_taken(state: &TurnState, answer: &Answer, place: usize, id: &str) -> bool {
    let visible = state.shapes.iter().flat_map(|shape| &shape.calls);
    let mut beside = answer.calls.iter().enumerate();
    visible.map(|call| &call.id).any(|CallId(own)| own == id)
        || earlier(state).any(|call| call.id.0 == id)
        || beside.any(|(at, call)| at != place && (at < place || !call.hidden) && call.id == id)
}

/// Whether an earlier hidden call's item has this name.
fn is_named(state: &TurnState, name: &[u8]) -> bool {
    let member = [br#""id":"#, name].concat();
    earlier(state).any(|call| memmem::find(call.bytes.as_bytes(), &member).is_some())
}

/// An id that follows from the place of the call.
fn made(state: &TurnState, place: usize, number: u32) -> String {
    let head = state.heads.last().map_or(Digest([0; 32]), |head| head.0);
    let at = [state.pending.len(), place].map(|at| (at as u64).to_le_bytes());
    let digest = Digest::of(&[
        b"call",
        head.as_bytes(),
        &state.path.next_turn().to_le_bytes(),
        &at.concat(),
        &number.to_le_bytes(),
    ]);
    format!("call_{}", digest.short())
}
