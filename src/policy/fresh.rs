//! Results that came in with the request and were never sent before. Editing them breaks no cached
//! prefix. Never edits any.

use crate::model::{ItemKind, Role};
use crate::session::index::ItemIndex;
use crate::session::transcript::Transcript;

/// The client's calls whose results are new, in order: those results stand behind the newest
/// assistant message.
pub(super) fn calls(transcript: &Transcript) -> Vec<ItemIndex> {
    let mut entries = transcript.entries.iter();
    let Some(newest) = entries.rfind(|entry| entry.role == Role::Assistant) else {
        return Vec::new();
    };
    let behind = transcript.items.indexed().rev();
    let behind = behind.take_while(|(at, _)| *at >= newest.items.end);
    let results = behind.filter(|(_, item)| item.kind == ItemKind::Result && !item.stays);
    let is_clients = |call: &ItemIndex| {
        let call = transcript.items.get(*call);
        call.is_some_and(|call| !call.hidden && !call.stays && call.delimiter.is_none())
    };
    let mut calls: Vec<ItemIndex> = results
        .filter_map(|(_, item)| item.pair)
        .filter(is_clients)
        .collect();
    calls.reverse();
    calls
}

/// Whether a request brings results of the client's that were never sent before.
#[must_use]
pub fn brings_results(transcript: &Transcript) -> bool {
    !calls(transcript).is_empty()
}
