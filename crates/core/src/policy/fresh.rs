//! Results that came in with the request and were never sent before, and how a rung edits them. What was
//! sent before is never touched, so no cached prefix breaks. Never chooses what is edited.

use std::sync::Arc;

use plimsoll_model::{ItemKind, Kept, Mark};

use super::ask::{Level, Policy, PolicyAsk};
use super::pass::{Proposal, conclude};
use super::protect::Protection;
use super::work::Work;
use crate::session::index::ItemIndex;
use crate::session::transcript::{Item, Transcript};

/// The client's calls whose results are new, in order: those results stand behind the newest
/// assistant message.
pub(super) fn calls(transcript: &Transcript) -> Vec<ItemIndex> {
    let Some(newest) = transcript.newest_answer() else {
        return Vec::new();
    };
    let behind = transcript.items.indexed().rev();
    let behind = behind.take_while(|(at, _)| *at >= newest.items.end);
    let results = behind.filter(|(_, item)| item.kind == ItemKind::Result && !item.stays);
    let editable = |call: &Item| call.is_clients_call() && !call.stays && !call.whole;
    let mut calls: Vec<ItemIndex> = results
        .filter_map(|(_, item)| item.pair)
        .filter(|call| transcript.items.get(*call).is_some_and(editable))
        .collect();
    calls.reverse();
    calls
}

/// Whether a request brings results of the client's that were never sent before.
#[must_use]
pub fn brings_results(transcript: &Transcript) -> bool {
    !calls(transcript).is_empty()
}

/// Proposes an edit of each new result of which `choose` says what stays, and at which level.
pub(super) fn edit(
    ask: &PolicyAsk<'_>,
    policy: Policy,
    mut choose: impl FnMut(ItemIndex) -> Option<(Level, Kept)>,
) -> Proposal {
    let calls = calls(ask.view.transcript()).into_iter();
    let touched = calls.filter(|call| !ask.config.spared.has(*call));
    let chosen: Vec<_> = touched
        .filter_map(|call| Some((call, choose(call)?)))
        .collect();
    // Most requests bring nothing that is edited, and the state of a pass is a copy of the view.
    if chosen.is_empty() {
        return Proposal::nothing(ask);
    }
    let mut work = Work::new(ask, Protection::of_entry());
    for (call, (level, kept)) in chosen {
        work.shrink(level, call, Mark::Clipped, Some(Arc::new(kept)));
    }
    conclude(work, ask, policy)
}
