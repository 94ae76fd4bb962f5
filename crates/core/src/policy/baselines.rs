//! What the steps of other policies take, to measure ours against. They know items and turns; of episodes they know
//! only the spans of unannotated work. Never touches user text or the newest assistant message with its results,
//! and never parts a call from its result.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_model::{ItemKind, Kept, Mark, Role, ToolClass};

use super::ask::{Level, PolicyAsk};
use super::order::Pick;
use super::plan::Move;
use super::work::{Work, bare};
use crate::session::graph::Episode;
use crate::session::index::{ItemIndex, indices};
use crate::session::transcript::Item;

/// Tokens of results that `three-tier` protects (paper 001, tier 2, `PRUNE_PROTECT`).
const PROTECT: u64 = 40_000;
/// `three-tier` does nothing unless it frees more tokens than this (paper 001, tier 2,
/// `PRUNE_MINIMUM`).
const MINIMUM: u64 = 20_000;
/// Turns that `three-tier` protects, counted by user messages (paper 001, tier 2: "Protect last 2
/// turns").
const PROTECT_TURNS: usize = 2;
/// The tools whose results `three-tier` protects (paper 001, tier 2, `PROTECTED_TOOLS`).
const PROTECT_TOOLS: [&str; 2] = ["skill_execution", "subtask_invocation"];
/// Lines that masking leaves at each end of a result. Paper 003 gives no number.
const ENDS: usize = 3;
/// Bytes that it leaves at each end, if the lines are longer.
const END_BYTES: usize = 240;
/// Results that `keep-recent` leaves.
const KEEP: usize = 3;

/// Calls that have a result, oldest first.
fn calls(work: &Work<'_>) -> Vec<ItemIndex> {
    let items = work.transcript.items.indexed();
    let pair = |item: &Item| item.kind == ItemKind::Call && item.episode.is_some();
    items
        .filter(|(_, item)| pair(item) && item.pair.is_some())
        .map(|(at, _)| at)
        .collect()
}

/// The calls whose results go, in the order in which they do.
fn picked(work: &Work<'_>, pick: Pick) -> Vec<ItemIndex> {
    let mut calls = calls(work);
    match pick {
        Pick::Oldest => {}
        Pick::Largest => calls.sort_by_key(|at| std::cmp::Reverse(result_tokens(work, *at))),
        Pick::AllButNewest => calls.truncate(calls.len().saturating_sub(KEEP)),
    }
    calls
}

fn result_tokens(work: &Work<'_>, call: ItemIndex) -> u32 {
    let result = work.item(call).and_then(|item| work.result(item));
    result.map_or(0, |result| result.tokens)
}

/// Replaces results by one line each until the target is met.
pub(super) fn clear(work: &mut Work<'_>, pick: Pick) {
    let calls = picked(work, pick);
    clear_all(work, calls);
}

fn clear_all(work: &mut Work<'_>, calls: Vec<ItemIndex>) {
    for call in calls {
        if work.met() {
            return;
        }
        let own = work.item(call).is_none_or(|item| item.delimiter.is_some());
        if own || work.mark(call) >= Mark::Masked || work.protected(call) {
            continue;
        }
        work.shrink(Level::Stub, call, Mark::Masked, Some(Arc::new(bare())));
    }
}

/// Masks results of search and shell tools, oldest first, until the target is met: "keeps structural
/// boundary hints while eliding repetitive or low-signal middle content" (paper 003, actions).
pub(super) fn mask(work: &mut Work<'_>, ask: &PolicyAsk<'_>) {
    let low = |item: &Item| matches!(item.class, ToolClass::Bulk | ToolClass::Shell);
    for call in calls(work) {
        if work.met() {
            return;
        }
        let item = work.item(call).filter(|item| low(item));
        let Some(result) = item.and_then(|item| item.pair) else {
            continue;
        };
        if work.mark(call) >= Mark::Clipped || work.protected(call) {
            continue;
        }
        let text = (ask.originals)(result);
        if let Some(kept) = text.and_then(|text| ends(&text)) {
            work.shrink(Level::Skeleton, call, Mark::Clipped, Some(Arc::new(kept)));
        }
    }
}

/// Both ends of a text. `None` if less than half of the text is between them.
fn ends(text: &str) -> Option<Kept> {
    let lines = || text.split_inclusive('\n').map(str::len);
    let front: usize = lines().take(ENDS).sum();
    let back: usize = lines().rev().take(ENDS).sum();
    let is_edge = |at: &usize| text.is_char_boundary(*at);
    let front = (0..=front.min(END_BYTES)).rev().find(is_edge)?;
    let back = (text.len() - back.min(END_BYTES)..=text.len()).find(is_edge)?;
    if back.saturating_sub(front) * 2 < text.len() {
        return None;
    }
    let span = |from: usize, to: usize| Some((u32::try_from(from).ok()?, u32::try_from(to).ok()?));
    Some(Kept {
        of: Some(u32::try_from(text.len()).ok()?),
        lines: vec![span(0, front)?, span(back, text.len())?],
        ..Kept::default()
    })
}

/// Removes calls and their results until the target is met.
pub(super) fn remove(work: &mut Work<'_>) {
    for call in calls(work) {
        if work.met() {
            return;
        }
        let bound = work.item(call).is_none_or(|item| item.bound);
        if !bound && work.mark(call) < Mark::Removed && !work.protected(call) {
            work.shrink(Level::Intermediate, call, Mark::Removed, None);
        }
    }
}

/// Folds turns, oldest first, until the target is met: "chronologically folds the oldest
/// conversational spans while preserving the latest user turn" (paper 003, baselines). The spans
/// are episodes of the graph: unannotated work is cut at user messages and by length. The result of
/// a span's first call becomes a line that names what went; a text without calls leaves a line in
/// its own place.
pub(super) fn fold(work: &mut Work<'_>) {
    for turn in turns(work) {
        if work.met() {
            return;
        }
        if let Some(moves) = folded(work, turn) {
            for (episode, moves) in moves {
                work.apply(episode, Level::Episode, moves);
            }
            // If there is a ledger, it moves to the newest line.
            work.ledger();
        }
    }
}

/// The moves that fold a turn, grouped by the spans of its items. `None` if a span can't have its
/// line.
fn folded<'a>(work: &Work<'a>, turn: Range<ItemIndex>) -> Option<Vec<(&'a Episode, Vec<Move>)>> {
    let mut spans: Vec<(&'a Episode, Vec<Move>)> = Vec::new();
    for at in indices(turn) {
        let episode = work.item(at)?.episode?;
        let episode = work.transcript.graph.episodes.get(episode)?;
        // The first item of a span decides whether its line can be put.
        let known = spans.iter().any(|(one, _)| std::ptr::eq(*one, episode));
        if !known {
            let moves = match line(work, episode) {
                SpanLine::Stands => Vec::new(),
                SpanLine::Goes(line) => vec![line],
                SpanLine::Held => return None,
            };
            spans.push((episode, moves));
        }
        // A span without calls has no result for its line, so each text leaves one.
        let silent = episode.carrier.is_none();
        let text = work.item(at)?.kind == ItemKind::Text;
        let one = if silent && text {
            work.leave_line(at)
        } else {
            let goes = episode.carrier != Some(at) && work.mark(at) < Mark::Removed;
            goes.then(|| Move::whole(at, Mark::Removed))
        };
        let (_, moves) = spans
            .iter_mut()
            .find(|(own, _)| std::ptr::eq(*own, episode))?;
        moves.extend(one);
    }
    spans.retain(|(_, moves)| !moves.is_empty());
    Some(spans)
}

/// Whether a span can have its line, in the result of its carrier.
enum SpanLine {
    /// It is there already, or the span has no carrier and needs none.
    Stands,
    /// This move puts it there.
    Goes(Move),
    /// The carrier is protected, so the line can't be put there.
    Held,
}

fn line(work: &Work<'_>, episode: &Episode) -> SpanLine {
    let Some(carrier) = episode.carrier else {
        return SpanLine::Stands;
    };
    // An act has no tombstone; only a line at its start can be shown.
    let mark = if episode.is_expl() {
        Mark::Tombstone
    } else {
        Mark::Masked
    };
    if work.mark(carrier) >= mark {
        SpanLine::Stands
    } else if work.protected(carrier) {
        SpanLine::Held
    } else {
        SpanLine::Goes(Move::whole(carrier, mark))
    }
}

/// The items of assistant messages that may be removed whole with their results, oldest first. A
/// message with a protected item may not.
fn turns(work: &Work<'_>) -> Vec<Range<ItemIndex>> {
    let movable = |at: ItemIndex| {
        let item = work.item(at);
        let item = item.is_some_and(|item| item.episode.is_some() && !item.bound);
        item && !work.protected(at)
    };
    let messages = work.transcript.entries.iter();
    let messages = messages.filter(|entry| entry.role == Role::Assistant);
    let whole = messages.filter(|entry| indices(entry.items.clone()).all(movable));
    whole.map(|entry| entry.items.clone()).collect()
}

/// Removes turns, oldest first, until the target is met.
pub(super) fn drop_turns(work: &mut Work<'_>) {
    for turn in turns(work) {
        if work.met() {
            return;
        }
        for at in indices(turn) {
            if work.mark(at) < Mark::Removed {
                work.shrink(Level::Episode, at, Mark::Removed, None);
            }
        }
    }
}

/// Walks the messages backwards (paper 001, tier 2). The newest turns are skipped and not counted,
/// so a session of one user turn is left alone. Of the results before them all but the newest
/// tokens are cleared, if they come to enough. There is no floor.
pub(super) fn three_tier(work: &mut Work<'_>) {
    let transcript = work.transcript;
    let (mut turns, mut seen, mut size, mut due) = (0, 0, 0, Vec::new());
    for entry in transcript.entries.iter().rev() {
        turns += usize::from(entry.role == Role::User);
        // The newest turns are neither cleared nor counted.
        if turns < PROTECT_TURNS {
            continue;
        }
        for call in indices(entry.items.clone()) {
            let own = |item: &&Item| item.kind == ItemKind::Call && item.delimiter.is_none();
            let Some(item) = work.item(call).filter(own) else {
                continue;
            };
            if item.pair.is_none() || PROTECT_TOOLS.contains(&&*item.name) {
                continue;
            }
            // Cleared by an earlier pass, and so is everything before it.
            if work.mark(call) >= Mark::Masked {
                break;
            }
            let tokens = u64::from(result_tokens(work, call));
            seen += tokens;
            if seen > PROTECT {
                size += tokens;
                due.push(call);
            }
        }
    }
    if size > MINIMUM {
        clear_all(work, due);
    }
}
