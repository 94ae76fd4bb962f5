//! The policies that others use, to be measured against: they know items and turns, no episodes but
//! as spans of turns. All evict down to the same floor as `cwl` but for those whose definition has
//! none, keep user text and the newest assistant message with its results, and leave pairs whole.

use std::ops::Range;
use std::sync::Arc;

use super::pass::{Proposal, conclude};
use super::plan::{Move, PlanError};
use super::work::{Work, bare};
use super::{Ask, Level, Policy, Protection};
use crate::model::{ItemKind, Kept, Mark, Role, ToolClass};
use crate::session::graph::Episode;
use crate::session::transcript::Item;

/// Tokens of results that `three-tier` protects (paper 001, tier 2, `PRUNE_PROTECT`).
const PROTECT: u64 = 40_000;
/// Tokens that `three-tier` frees more than, or does nothing (paper 001, tier 2, `PRUNE_MINIMUM`).
const MINIMUM: u64 = 20_000;
/// Turns, told by user messages, that `three-tier` protects (paper 001, tier 2: "Protect last 2
/// turns").
const PROTECT_TURNS: usize = 2;
/// The tools whose results `three-tier` protects (paper 001, tier 2, `PROTECTED_TOOLS`).
const PROTECT_TOOLS: [&str; 2] = ["skill_execution", "subtask_invocation"];
/// Lines at either end of a result that masking leaves. Paper 003 gives no number.
const ENDS: usize = 3;
/// Bytes at either end that it leaves of longer lines.
const END_BYTES: usize = 240;
/// Results that `keep-recent` leaves.
const KEEP: usize = 3;
/// Tokens at the tail that `compaction` keeps word for word, or a quarter of a small ceiling.
const VERBATIM: u64 = 8000;

/// Proposes a pass of one of the baselines.
///
/// # Errors
/// [`PlanError`] if the moves break a rule, which is a mistake in here.
pub(super) fn propose(policy: Policy, ask: &Ask<'_>) -> Result<Proposal, PlanError> {
    let recent = match policy {
        Policy::Compaction => {
            u32::try_from(VERBATIM.min(ask.target.ceiling / 4)).unwrap_or(u32::MAX)
        }
        Policy::ThreeTier | Policy::KeepRecent | Policy::None => 0,
        Policy::Recency
        | Policy::OldestTurn
        | Policy::ToolPrune
        | Policy::ToolMaskPrune
        | Policy::Hybrid
        | Policy::CwlPaper
        | Policy::Cwl => ask.config.protect_recent,
    };
    let protection = Protection::new(ask.view.marked(), recent).without_episodes();
    let mut work = Work::new(ask, protection);
    run(policy, &mut work, ask);
    if work.total() > ask.target.ceiling && recent > 0 {
        work.protection = work.protection.without_recent();
        run(policy, &mut work, ask);
    }
    conclude(work, ask)
}

fn run(policy: Policy, work: &mut Work<'_>, ask: &Ask<'_>) {
    match policy {
        Policy::None | Policy::Cwl | Policy::CwlPaper => {}
        Policy::Recency => {
            let calls = calls(work);
            remove(work, calls);
        }
        Policy::OldestTurn => fold(work),
        Policy::ToolPrune => {
            let calls = largest(work);
            clear(work, calls);
        }
        // "first masks low-signal tool spans and then prunes remaining tool outputs when additional
        // budget is needed" (paper 003, baselines).
        Policy::ToolMaskPrune => {
            mask(work, ask);
            let calls = calls(work);
            clear(work, calls);
        }
        // "combines chronological turn folding with tool-output pruning" (paper 003, baselines).
        Policy::Hybrid => {
            let target = work.target;
            work.target += work.total().saturating_sub(target) / 2;
            let calls = largest(work);
            clear(work, calls);
            work.target = target;
            fold(work);
        }
        Policy::ThreeTier => three_tier(work),
        Policy::KeepRecent => {
            let mut calls = calls(work);
            calls.truncate(results(work).saturating_sub(KEEP));
            work.target = 0;
            clear(work, calls);
        }
        Policy::Compaction => {
            work.target = 0;
            drop_turns(work);
        }
    }
}

/// Calls that have a result, oldest first.
fn calls(work: &Work<'_>) -> Vec<usize> {
    let items = work.transcript.items.iter().enumerate();
    let pair = |item: &Item| item.kind == ItemKind::Call && item.episode.is_some();
    items
        .filter(|(_, item)| pair(item) && item.pair.is_some())
        .map(|(at, _)| at)
        .collect()
}

/// How many results there are.
fn results(work: &Work<'_>) -> usize {
    calls(work).len()
}

/// Calls by the size of their results, largest first.
fn largest(work: &Work<'_>) -> Vec<usize> {
    let mut calls = calls(work);
    calls.sort_by_key(|at| std::cmp::Reverse(result_tokens(work, *at)));
    calls
}

fn result_tokens(work: &Work<'_>, call: usize) -> u32 {
    let result = work.item(call).and_then(|item| work.item(item.pair?));
    result.map_or(0, |result| result.tokens)
}

/// Replaces results by one line each until the target is met.
fn clear(work: &mut Work<'_>, calls: Vec<usize>) {
    for call in calls {
        if work.met() {
            return;
        }
        let own = work.item(call).is_none_or(|item| item.delimiter.is_some());
        if own || work.mark(call) >= Mark::Masked || work.protected(call) {
            continue;
        }
        work.shrink(Level::Stub, call, Mark::Masked, Some(bare()));
    }
}

/// Masks results of search and shell tools, oldest first, until the target is met: "keeps structural
/// boundary hints while eliding repetitive or low-signal middle content" (paper 003, actions).
fn mask(work: &mut Work<'_>, ask: &Ask<'_>) {
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

/// Both ends of a text. None where less than half of it lies between them.
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

/// Takes calls out with their results until the target is met.
fn remove(work: &mut Work<'_>, calls: Vec<usize>) {
    for call in calls {
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
/// conversational spans while preserving the latest user turn" (paper 003, baselines). What a span is
/// is said by the graph: unmarked work is cut at user messages and by length. The result of its first
/// call becomes the line that names what went of it; a text without calls leaves a line in its place.
fn fold(work: &mut Work<'_>) {
    for turn in turns(work) {
        if work.met() {
            return;
        }
        if let Some(moves) = folded(work, turn) {
            for (episode, moves) in moves {
                work.apply(episode, Level::Episode, moves);
            }
            // A ledger, where marks call for one, stands in the newest line.
            work.ledger();
        }
    }
}

/// The moves that fold a turn, by the spans that its items belong to. None where the line of one
/// could not be put.
fn folded<'a>(work: &Work<'a>, turn: Range<usize>) -> Option<Vec<(&'a Episode, Vec<Move>)>> {
    let mut spans: Vec<(&'a Episode, Vec<Move>)> = Vec::new();
    for at in turn {
        let episode = work.item(at)?.episode?;
        let episode = work.transcript.graph.episodes.get(episode)?;
        let known = spans.iter().any(|(one, _)| std::ptr::eq(*one, episode));
        if !known {
            let line = episode.carrier.map(|carrier| line(work, episode, carrier));
            spans.push((episode, line.unwrap_or(Some(None))?.into_iter().collect()));
        }
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

/// The move that puts the line of a span at its carrier, or `Some(None)` where it stands there
/// already. None where it can't be put.
fn line(work: &Work<'_>, episode: &Episode, carrier: usize) -> Option<Option<Move>> {
    // Of an act nothing but a line at its start can be shown.
    let mark = if episode.is_expl() {
        Mark::Folded
    } else {
        Mark::Masked
    };
    if work.mark(carrier) >= mark {
        return Some(None);
    }
    (!work.protected(carrier)).then(|| Some(Move::whole(carrier, mark)))
}

/// The items of assistant messages that may go whole, with their results, oldest first. One that is
/// protected in part may not.
fn turns(work: &Work<'_>) -> Vec<Range<usize>> {
    let movable = |at: usize| {
        let item = work.item(at);
        let item = item.is_some_and(|item| item.episode.is_some() && !item.bound);
        item && !work.protected(at)
    };
    let messages = work.transcript.entries.iter();
    let messages = messages.filter(|entry| entry.role == Role::Assistant);
    let whole = messages.filter(|entry| entry.items.clone().all(movable));
    whole.map(|entry| entry.items.clone()).collect()
}

/// Takes turns out, oldest first, until the target is met.
fn drop_turns(work: &mut Work<'_>) {
    for turn in turns(work) {
        if work.met() {
            return;
        }
        for at in turn {
            if work.mark(at) < Mark::Removed {
                work.shrink(Level::Episode, at, Mark::Removed, None);
            }
        }
    }
}

/// Backwards over the messages (paper 001, tier 2): the newest turns are left alone and not counted,
/// so that nothing happens in a session of one user turn; of the results before them all but the
/// newest tokens go, if they come to enough. There is no floor.
fn three_tier(work: &mut Work<'_>) {
    let transcript = work.transcript;
    let (mut turns, mut seen, mut size, mut due) = (0, 0, 0, Vec::new());
    for entry in transcript.entries.iter().rev() {
        turns += usize::from(entry.role == Role::User);
        if turns < PROTECT_TURNS {
            continue;
        }
        for call in entry.items.clone() {
            let own = |item: &&Item| item.kind == ItemKind::Call && item.delimiter.is_none();
            let Some(item) = work.item(call).filter(own) else {
                continue;
            };
            if item.pair.is_none() || PROTECT_TOOLS.contains(&&*item.name) {
                continue;
            }
            // Cleared before, and so is what stands beside it.
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
        work.target = 0;
        clear(work, due);
    }
}
