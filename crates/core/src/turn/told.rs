//! What a record says of a hop and of a turn for those who look at it later: the sizes of what came,
//! what a pass left, and why it left the rest. Pure. Never decides anything, and reads no text.

use std::collections::{HashMap, HashSet};

use plimsoll_model::{Held, ItemKind, ItemNo, ItemSize, PassFacts, StoredMark};

use super::state::{Prepared, TurnState};
use crate::policy::Protection;
use crate::session::index::{EpisodeIndex, ItemIndex};
use crate::session::tombstone;
use crate::session::transcript::{Source, TranscriptEntry};
use crate::session::view::View;

/// The most episodes of which a pass says why they stayed.
const MOST_HELD: usize = 8;

/// Tokens that a view has left of these items, in their order.
#[must_use]
pub fn left(view: &View, moved: &[(ItemNo, StoredMark)]) -> Vec<u32> {
    if moved.is_empty() {
        return Vec::new();
    }
    let wanted: HashSet<ItemNo> = moved.iter().map(|(no, _)| *no).collect();
    let items = view.transcript().items.indexed();
    // A result has the number of its call, and counts with it.
    let found =
        items.filter(|(_, item)| item.kind != ItemKind::Result && wanted.contains(&item.no));
    let left: HashMap<ItemNo, u32> = found
        .map(|(at, item)| (item.no, view.tokens_of(at)))
        .collect();
    let of = |(no, _): &(ItemNo, StoredMark)| left.get(no).copied().unwrap_or(0);
    moved.iter().map(of).collect()
}

/// What the pass before a hop did. None if there was none.
#[must_use]
pub fn pass(prepared: &Prepared) -> Option<PassFacts> {
    let (trigger, _) = prepared.pass.as_ref()?;
    let (before, cut) = prepared.unpassed?;
    Some(PassFacts {
        trigger: trigger.name().to_owned(),
        before: prepared.calibrated(before),
        after: prepared.calibrated(prepared.estimate),
        floor: prepared.calibrated(prepared.floor),
        cut: prepared.calibrated(cut),
        held: held(prepared),
    })
}

/// The largest episodes that are left in a view, with what kept them.
fn held(prepared: &Prepared) -> Vec<(String, u32, Held)> {
    let view = &prepared.view;
    let seen = view.marked();
    let protection = Protection::new(seen, prepared.eviction.protect_recent);
    let open = seen.transcript.graph.current();
    let floor = prepared.estimate <= prepared.floor;
    let mut episodes: Vec<(EpisodeIndex, u32)> = seen
        .transcript
        .graph
        .episodes
        .indexed()
        .map(|(at, episode)| {
            let tokens = episode.items.iter().map(|item| view.tokens_of(*item));
            (at, tokens.sum())
        })
        .filter(|(_, tokens)| *tokens > 0)
        .collect();
    episodes.sort_by_key(|(at, tokens)| (std::cmp::Reverse(*tokens), *at));
    episodes.truncate(MOST_HELD);
    let why = |at: EpisodeIndex| {
        let episode = seen.transcript.graph.episodes.get(at)?;
        let any = |is: &dyn Fn(ItemIndex) -> bool| episode.items.iter().any(|item| is(*item));
        let why = if Some(at) == open || !episode.closed {
            Held::Open
        } else if seen.has_dependents(episode) {
            Held::Needed
        } else if any(&|item| protection.is_recent(item)) {
            Held::Recent
        } else if any(&|item| prepared.eviction.held.has(item)) {
            Held::Kept
        } else if floor {
            Held::Floor
        } else {
            Held::Protected
        };
        Some((tombstone::name(seen.transcript, episode), why))
    };
    let named = episodes.into_iter();
    named
        .filter_map(|(at, tokens)| why(at).map(|(name, why)| (name, tokens, why)))
        .collect()
}

/// The items that a request added to those of the turn before, with their sizes, and the names of the
/// tools that no record has. The answer of the turn before is among them: only now its calls are
/// counted.
#[must_use]
pub fn items(state: &TurnState, prepared: &Prepared) -> (Vec<ItemSize>, Vec<(ItemNo, String)>) {
    let transcript = prepared.view.transcript();
    let steps = state.path.entries.len();
    // Found from the end, so that a long history costs nothing.
    let is_new = |entry: &&TranscriptEntry| match entry.source {
        Source::Client(message) => message >= state.path.covered(),
        Source::LastHop { step, .. }
        | Source::Hop { step, .. }
        | Source::HiddenResult { step, .. } => step + 1 >= steps,
        Source::Guidance => true,
    };
    let mut new: Vec<&TranscriptEntry> =
        transcript.entries.iter().rev().take_while(is_new).collect();
    new.reverse();
    let (mut sizes, mut tools) = (Vec::new(), Vec::new());
    // What this turn said itself stands in its hops.
    let before = |entry: &&TranscriptEntry| match entry.source {
        Source::Client(_) => true,
        Source::LastHop { step, .. }
        | Source::Hop { step, .. }
        | Source::HiddenResult { step, .. } => step < steps,
        // It is counted with what the proxy adds.
        Source::Guidance => false,
    };
    for entry in new.into_iter().filter(before) {
        for item in transcript.items_of(entry) {
            // Hidden calls have their sizes in the record already.
            if item.hidden || item.delimiter.is_some() || is_hidden_result(entry) {
                continue;
            }
            sizes.push(ItemSize::new(item.no, item.kind, item.tokens));
            if item.kind == ItemKind::Call && matches!(entry.source, Source::Client(_)) {
                tools.push((item.no, item.name.to_string()));
            }
        }
    }
    (sizes, tools)
}

fn is_hidden_result(entry: &TranscriptEntry) -> bool {
    matches!(entry.source, Source::HiddenResult { .. })
}
