//! Context Window Lifecycle: graduated eviction along the episode graph (paper 000 §4.4, design
//! §5). Acts before exploration, oldest first, level by level, re-counting after each step. Pure;
//! never touches what [`Protection`] covers.

use std::collections::BTreeMap;

use super::plan::{Move, Plan, PlanError, has_dependents};
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
    evict(&mut work, target.ceiling);
    if work.total > target.ceiling {
        work.protection = work.protection.without_recent();
        evict(&mut work, target.ceiling);
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

/// Everything closed and the ledger; then, where the ceiling is still passed, the open episode.
/// What the ledger costs or frees is only known once it is written, so that part goes round until
/// the target is met or nothing moves any more.
fn evict(work: &mut Work<'_>, ceiling: u64) {
    loop {
        let before = work.moves.len();
        evict_closed(work);
        merge_tombstones(work);
        if work.met() || work.moves.len() == before {
            break;
        }
    }
    if work.total > ceiling && !work.config.strict_active {
        open::strip(work);
    }
}

/// Acts first, then exploration, each oldest first. Evicting an act may free what it depended on;
/// evicting exploration frees nothing, so one walk over each is enough.
fn evict_closed(work: &mut Work<'_>) {
    let episodes = &work.transcript.graph.episodes;
    for episode in episodes.iter().filter(|episode| episode.kind == Kind::Act) {
        evict_one(work, episode);
    }
    for episode in episodes.iter().filter(|episode| episode.is_expl()) {
        evict_one(work, episode);
    }
}

fn evict_one(work: &mut Work<'_>, episode: &Episode) {
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
    work.protection = work.protection.without_depended();
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
    episode.closed
        && !view::is_removed(work.transcript, &work.marks, episode)
        && !has_dependents(work.transcript, &work.marks, episode)
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
        .filter(|index| work.mark(**index) < mark(**index) && !work.is_demanded(**index))
        .map(|index| Move {
            item: *index,
            mark: mark(*index),
        })
        .collect()
}

/// Merges tombstones into the ledger once they pass a tenth of the ceiling, and spans without
/// calls, oldest first, where the target can't be met otherwise. The oldest survivor holds the
/// ledger. The tombstone of an expl with dependents in view stays.
fn merge_tombstones(work: &mut Work<'_>) {
    let transcript = work.transcript;
    let folded = |episode: &&Episode| {
        let carrier = episode.carrier.filter(|_| episode.is_expl());
        carrier.is_some_and(|at| work.mark(at) == Mark::Folded)
            && view::is_removed(transcript, &work.marks, episode)
    };
    let standing: Vec<&Episode> = transcript.graph.episodes.iter().filter(folded).collect();
    let Some(host) = view::ledger_host(transcript, &work.marks) else {
        return;
    };
    let size: u32 = standing
        .iter()
        .map(|episode| tombstone_size(work, episode))
        .sum();
    if size > work.measure.ceiling / 10 {
        for episode in standing {
            let holds = episode.carrier == Some(host);
            if !holds && !has_dependents(transcript, &work.marks, episode) {
                merge(work, episode);
            }
        }
    }
    for episode in &transcript.graph.episodes {
        if !work.met() && is_silent(work, episode) {
            merge(work, episode);
        }
    }
    work.ledger();
}

/// The tokens of a tombstone: its call and the result that holds its text.
fn tombstone_size(work: &Work<'_>, episode: &Episode) -> u32 {
    let item = episode.carrier.and_then(|at| work.item(at));
    item.map_or(0, |item| {
        item.tokens + work.result_entry(item).map_or(0, |at| work.size(at))
    })
}

/// Takes what is left of an episode out of the view: the ledger speaks for it.
fn merge(work: &mut Work<'_>, episode: &Episode) {
    let shown = |index: &&usize| work.mark(**index) != Mark::Removed;
    let left: Vec<usize> = episode.items.iter().filter(shown).copied().collect();
    if left.iter().any(|index| work.protected(*index)) {
        return;
    }
    let moves = left.into_iter().map(|item| Move {
        item,
        mark: Mark::Removed,
    });
    work.apply(episode, Level::Ledger, moves.collect());
}

/// A closed span without calls that still shows its text.
fn is_silent(work: &Work<'_>, episode: &Episode) -> bool {
    episode.kind == Kind::Implicit
        && episode.closed
        && episode.carrier.is_none()
        && !view::is_removed(work.transcript, &work.marks, episode)
}

fn pinned(work: &Work<'_>, fixed: u64) -> Pinned {
    let mut pinned = Pinned {
        fixed,
        ..Pinned::default()
    };
    for (at, entry) in work.transcript.entries.iter().enumerate() {
        let size = u64::from(work.size(at));
        let items = work.transcript.items.get(entry.items.clone());
        let first = items.and_then(|items| items.first()).map(|item| item.kind);
        match first {
            Some(ItemKind::User) => pinned.user += size,
            Some(ItemKind::System) => pinned.system += size,
            _ if work.protection.is_newest(entry.items.start) => pinned.newest += size,
            _ => pinned.rest += size,
        }
    }
    pinned
}
