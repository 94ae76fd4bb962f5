//! Context Window Lifecycle: graduated eviction along the episode graph (paper 000 §4.4, design
//! §5). Acts before exploration, oldest first, level by level, re-counting after each step. Pure;
//! never touches what [`Protection`] covers.

use std::collections::BTreeMap;

use super::plan::{Move, Plan, PlanError};
pub use super::work::Gone;
use super::work::Work;
use super::{Config, Level, Protection, open};
use crate::model::{ItemKind, Mark, Marks};
use crate::session::graph::{Episode, Kind};
use crate::session::transcript::Transcript;
use crate::session::view::{self, Measure};

/// What a pass is asked for, in raw tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The size of what stands outside the transcript: tools, guidance.
    pub fixed: u64,
    /// The size that may not be exceeded.
    pub ceiling: u64,
    /// The size down to which a pass evicts.
    pub floor: u64,
}

/// What a pass would do.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The checked moves.
    pub plan: Plan,
    /// The size of the view after them.
    pub size: u64,
    /// What went at each level.
    pub gone: BTreeMap<Level, Gone>,
    /// What is pinned, where the ceiling can't be met.
    pub pinned: Option<Pinned>,
}

/// What keeps a view above its ceiling, in raw tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Tools and guidance.
    pub fixed: u64,
    /// System text.
    pub system: u64,
    /// User text.
    pub user: u64,
    /// The newest assistant message with everything behind it that is no user text.
    pub newest: u64,
    /// All else: tombstones, the ledger, text without calls.
    pub rest: u64,
}

/// Proposes a pass down to the floor. What can't be freed otherwise is freed last: calls inside
/// an open episode, then the tail of recent tokens.
///
/// # Errors
/// [`PlanError`] if the moves break a rule, which is a mistake in here.
pub fn propose(
    transcript: &Transcript,
    marks: &Marks,
    config: &Config,
    measure: Measure<'_>,
    target: Target,
) -> Result<Proposal, PlanError> {
    let protection = Protection::new(transcript, marks, config.protect_recent);
    let mut work = Work::new(
        transcript,
        marks,
        config,
        measure,
        protection,
        target.fixed,
        target.floor,
    );
    evict_closed(&mut work);
    merge_tombstones(&mut work);
    if work.total > target.ceiling && !config.strict_active {
        open::strip(&mut work);
    }
    if work.total > target.ceiling {
        work.protection = work.protection.without_recent();
        evict_closed(&mut work);
        if work.total > target.ceiling && !config.strict_active {
            open::strip(&mut work);
        }
        merge_tombstones(&mut work);
    }
    if work.total > target.ceiling {
        strip_depended(&mut work, target.ceiling);
    }
    let plan = Plan::check(
        transcript,
        marks,
        &work.protection,
        &last_moves(&work.moves),
    )?;
    let pinned = (work.total > target.ceiling).then(|| pinned(&work, target.fixed));
    Ok(Proposal {
        plan,
        size: work.total,
        gone: work.gone,
        pinned,
    })
}

/// An item may move twice in a pass, folded and then merged: only its last mark is recorded.
fn last_moves(moves: &[Move]) -> Vec<Move> {
    let mut last: BTreeMap<usize, Mark> = BTreeMap::new();
    for one in moves {
        last.insert(one.item, one.mark);
    }
    last.into_iter()
        .map(|(item, mark)| Move { item, mark })
        .collect()
}

/// Acts first, then exploration, each oldest first. Evicting an act may free what it depended on;
/// evicting exploration frees nothing, so one walk over each is enough.
fn evict_closed(work: &mut Work<'_>) {
    let episodes = &work.transcript.graph.episodes;
    for episode in episodes.iter().filter(|episode| episode.kind == Kind::Act) {
        evict(work, episode);
    }
    for episode in episodes.iter().filter(|episode| episode.is_expl()) {
        evict(work, episode);
    }
}

fn evict(work: &mut Work<'_>, episode: &Episode) {
    if work.met() || !eligible(work, episode) {
        return;
    }
    for level in [Level::Reasoning, Level::Bulk, Level::Intermediate] {
        if level == Level::Reasoning && (!episode.is_expl() || work.config.keep_reasoning) {
            continue;
        }
        let moves = work.strip(episode, level);
        work.apply(episode, level, moves);
        if work.met() {
            return;
        }
    }
    let moves = remove(work, episode);
    work.apply(episode, Level::Episode, moves);
}

/// The last that is freed before a budget is unmet: results of exploration that an act in view
/// depends on. Its start, its description and the line of what is gone stay, and no more goes than
/// the ceiling asks for.
fn strip_depended(work: &mut Work<'_>, ceiling: u64) {
    work.target = ceiling;
    for episode in &work.transcript.graph.episodes {
        if !episode.is_expl() || !episode.closed || eligible(work, episode) {
            continue;
        }
        for level in [Level::Bulk, Level::Intermediate] {
            if work.met() {
                return;
            }
            let moves = work.strip(episode, level);
            work.apply(episode, level, moves);
        }
    }
}

/// Closed, not yet removed, every act that depends on it removed already.
fn eligible(work: &Work<'_>, episode: &Episode) -> bool {
    let removed = |index: &usize| {
        let act = work.transcript.graph.episodes.get(*index);
        act.is_none_or(|act| view::is_removed(work.transcript, &work.marks, act))
    };
    episode.closed
        && !view::is_removed(work.transcript, &work.marks, episode)
        && episode.dependents.iter().all(removed)
}

/// The moves that remove an episode whole: an act leaves nothing, an expl its folded carrier. None
/// while any of it is protected, and none for a span without calls, whose text the ledger takes.
fn remove(work: &Work<'_>, episode: &Episode) -> Vec<Move> {
    let shown = |index: &&usize| work.mark(**index) != Mark::Removed;
    if episode
        .items
        .iter()
        .filter(shown)
        .any(|index| work.protected(*index))
    {
        return Vec::new();
    }
    if episode.is_expl() && episode.carrier.is_none() {
        return Vec::new();
    }
    let mark = |index: usize| {
        if episode.is_expl() && Some(index) == episode.carrier {
            Mark::Folded
        } else {
            Mark::Removed
        }
    };
    episode
        .items
        .iter()
        .filter(|index| work.mark(**index) < mark(**index))
        .map(|index| Move {
            item: *index,
            mark: mark(*index),
        })
        .collect()
}

/// Merges tombstones into the ledger once they pass a tenth of the ceiling. The oldest survivor
/// holds the ledger; the others, and spans without calls, leave the view.
fn merge_tombstones(work: &mut Work<'_>) {
    let transcript = work.transcript;
    let folded = |work: &Work<'_>, episode: &Episode| {
        episode.is_expl()
            && view::is_removed(transcript, &work.marks, episode)
            && episode
                .carrier
                .is_some_and(|at| work.mark(at) == Mark::Folded)
    };
    let episodes = &transcript.graph.episodes;
    let standing: Vec<&Episode> = episodes.iter().filter(|e| folded(work, e)).collect();
    let silent: Vec<&Episode> = episodes.iter().filter(|e| is_silent(work, e)).collect();
    let size: u32 = standing
        .iter()
        .filter_map(|episode| episode.carrier.and_then(|at| work.item(at)))
        .map(|item| work.size(item.entry) + work.result_entry(item).map_or(0, |at| work.size(at)))
        .chain(silent.iter().map(|episode| episode.tokens))
        .sum();
    let standing_but_host = standing.get(1..).unwrap_or_default();
    if size <= work.measure.ceiling / 10 || (standing_but_host.is_empty() && silent.is_empty()) {
        return;
    }
    if standing.is_empty() {
        return;
    }
    for episode in standing_but_host.iter().chain(&silent) {
        let moves: Vec<Move> = episode
            .items
            .iter()
            .filter(|index| work.mark(**index) != Mark::Removed)
            .filter(|index| !work.protected(**index))
            .map(|index| Move {
                item: *index,
                mark: Mark::Removed,
            })
            .collect();
        work.apply(episode, Level::Ledger, moves);
    }
    work.ledger();
}

/// A closed span without calls that still shows its text.
fn is_silent(work: &Work<'_>, episode: &Episode) -> bool {
    episode.kind == Kind::Implicit
        && episode.closed
        && episode.carrier.is_none()
        && !episode.items.iter().any(|index| work.protected(*index))
        && episode
            .items
            .iter()
            .any(|index| work.mark(*index) != Mark::Removed)
}

fn pinned(work: &Work<'_>, fixed: u64) -> Pinned {
    let mut pinned = Pinned {
        fixed,
        ..Pinned::default()
    };
    for (at, entry) in work.transcript.entries.iter().enumerate() {
        let size = u64::from(work.size(at));
        let first = work.item(entry.items.start).map(|item| item.kind);
        match first {
            Some(ItemKind::User) => pinned.user += size,
            Some(ItemKind::System) => pinned.system += size,
            _ if work.protection.is_newest(entry.items.start) => pinned.newest += size,
            _ => pinned.rest += size,
        }
    }
    pinned
}
