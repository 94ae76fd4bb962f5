//! The policies that others use, to be measured against: they know items and turns, no episodes.
//! All evict down to the same floor as `cwl` but for those whose definition has none, keep user
//! text and the newest assistant message with its results, and leave pairs whole.

use std::sync::Arc;

use super::pass::{Proposal, conclude};
use super::plan::PlanError;
use super::work::Work;
use super::{Ask, Level, Policy, Protection};
use crate::model::{ItemKind, Kept, Mark, Role, ToolClass};
use crate::session::transcript::Item;

/// Tokens of results that `three-tier` protects (paper 001, `PRUNE_PROTECT`).
const PROTECT: u64 = 40_000;
/// Tokens below which `three-tier` does nothing (paper 001, `PRUNE_MINIMUM`).
const MINIMUM: u64 = 20_000;
/// Turns, told by user messages, whose results `three-tier` protects.
const PROTECT_TURNS: usize = 2;
/// The tools whose results `three-tier` protects (paper 001, `PROTECTED_TOOLS`).
const PROTECT_TOOLS: [&str; 3] = ["skill", "skill_execution", "subtask_invocation"];
/// Results that `keep-recent` leaves.
const KEEP: usize = 3;
/// Tokens at the tail that `compaction` keeps word for word.
const VERBATIM: u32 = 8000;

/// Proposes a pass of one of the baselines.
///
/// # Errors
/// [`PlanError`] if the moves break a rule, which is a mistake in here.
pub(super) fn propose(policy: Policy, ask: &Ask<'_>) -> Result<Proposal, PlanError> {
    let recent = match policy {
        Policy::Compaction => VERBATIM,
        Policy::ThreeTier | Policy::KeepRecent | Policy::None => 0,
        Policy::Recency
        | Policy::OldestTurn
        | Policy::ToolPrune
        | Policy::ToolMaskPrune
        | Policy::Hybrid
        | Policy::CwlPaper
        | Policy::Cwl => ask.config.protect_recent,
    };
    let protection = Protection::new(ask.transcript, ask.marks, recent).without_episodes();
    let mut work = Work::new(ask, protection);
    run(policy, &mut work);
    if work.total > ask.target.ceiling && recent > 0 {
        work.protection = work.protection.without_recent();
        run(policy, &mut work);
    }
    conclude(work, ask)
}

fn run(policy: Policy, work: &mut Work<'_>) {
    match policy {
        Policy::None | Policy::Cwl | Policy::CwlPaper => {}
        Policy::Recency => {
            let calls = calls(work);
            remove(work, calls);
        }
        Policy::OldestTurn => turns(work),
        Policy::ToolPrune => {
            let calls = largest(work);
            clear(work, calls);
        }
        Policy::ToolMaskPrune => {
            let low = |item: &Item| matches!(item.class, ToolClass::Bulk | ToolClass::Shell);
            let all = calls(work);
            let (first, rest): (Vec<_>, Vec<_>) = all
                .into_iter()
                .partition(|at| work.item(*at).is_some_and(low));
            clear(work, first);
            clear(work, rest);
        }
        Policy::Hybrid => {
            let target = work.target;
            work.target += work.total.saturating_sub(target) / 2;
            let calls = largest(work);
            clear(work, calls);
            work.target = target;
            turns(work);
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
            turns(work);
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
        let kept = Kept {
            of: Some(0),
            ..Kept::default()
        };
        work.shrink(Level::Stub, call, Mark::Masked, Some(Arc::new(kept)));
    }
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

/// Takes assistant messages out with their results, oldest first, until the target is met. One
/// that is protected in part stays.
fn turns(work: &mut Work<'_>) {
    let transcript = work.transcript;
    let messages = transcript.entries.iter();
    for entry in messages.filter(|entry| entry.role == Role::Assistant) {
        if work.met() {
            return;
        }
        let movable = |at: &usize| {
            let item = work.item(*at);
            let item = item.is_some_and(|item| item.episode.is_some() && !item.bound);
            item && !work.protected(*at)
        };
        if !entry.items.clone().all(|at| movable(&at)) {
            continue;
        }
        for at in entry.items.clone() {
            if work.mark(at) < Mark::Removed {
                work.shrink(Level::Episode, at, Mark::Removed, None);
            }
        }
    }
}

/// Backwards over the results: the newest turns and the newest tokens are protected, of the rest
/// all go if they come to enough (paper 001, pruning). Down to the floor, as all others.
fn three_tier(work: &mut Work<'_>) {
    let transcript = work.transcript;
    let users = transcript.entries.iter().filter(|e| e.role == Role::User);
    let newest = users.rev().nth(PROTECT_TURNS - 1);
    // With fewer turns than are protected, the newest tokens alone are.
    let until = newest.map_or(transcript.items.len(), |entry| entry.items.start);
    let (mut seen, mut due, mut size) = (0, Vec::new(), 0);
    for call in calls(work).into_iter().rev() {
        let tokens = u64::from(result_tokens(work, call));
        let name = work.item(call).map(|item| item.name.clone());
        let spared = name.is_none_or(|name| PROTECT_TOOLS.contains(&&*name));
        if work.mark(call) >= Mark::Masked || spared {
            continue;
        }
        seen += tokens;
        if seen > PROTECT && call < until {
            size += tokens;
            due.push(call);
        }
    }
    if size >= MINIMUM {
        due.reverse();
        clear(work, due);
    }
}
