//! What the finer order takes of whole episodes once their results are gone: calls, the episodes themselves, and the
//! texts of spans without calls (paper 000 §4.4, design §5). The view is counted again after each call. Never
//! chooses which episodes: the order does.

use plimsoll_model::{ItemKind, Mark};

use super::ask::Level;
use super::levels::Levels;
use super::merge;
use super::order::{CALLS, STAGES};
use super::plan::Move;
use super::work::Work;
use crate::session::graph::{Episode, EpisodeKind};

/// Takes calls of free acts, then the acts whole; then the same of exploration; each oldest first. An evicted act may
/// free what it depended on; evicted exploration frees nothing. So one walk over each is enough.
pub(super) fn take_free<'a>(work: &mut Work<'a>, levels: &mut Levels<'a>) {
    let episodes = &work.transcript.graph.episodes;
    // Acts have left their effects; they go first.
    for act in episodes.iter().filter(|one| one.kind == EpisodeKind::Act) {
        let before = work.moves.len();
        take_one(work, levels, act);
        let moved = work.moves.len() > before;
        // What the act depended on is stripped before it is evicted, like all else.
        if moved {
            let freed = act.dependencies.iter().filter_map(|at| episodes.get(*at));
            let freed: Vec<_> = freed.filter(|one| work.is_eligible(one)).collect();
            levels.strip(work, &freed, &STAGES);
        }
    }
    for expl in episodes.iter().filter(|one| one.is_expl()) {
        take_one(work, levels, expl);
    }
}

fn take_one<'a>(work: &mut Work<'a>, levels: &mut Levels<'a>, episode: &'a Episode) {
    if work.met() || !work.is_eligible(episode) {
        return;
    }
    for level in CALLS {
        one_by_one(work, levels, episode, level);
        if work.met() {
            return;
        }
    }
    let moves = work.remove(episode);
    apply(work, levels, episode, Level::Episode, moves);
}

/// Takes calls of these episodes.
pub(super) fn take_calls<'a>(
    work: &mut Work<'a>,
    levels: &mut Levels<'a>,
    episodes: &[&'a Episode],
) {
    for episode in episodes {
        for level in CALLS {
            if !work.met() {
                one_by_one(work, levels, episode, level);
            }
        }
    }
    // The last of these episodes may hold the ledger.
    work.ledger();
}

/// Takes calls of the open episode, or of the unannotated span at the tail. Never takes its text or its start.
pub(super) fn take_open_calls(work: &mut Work<'_>, open: &[&Episode]) {
    for episode in open {
        for level in CALLS {
            take_batches(work, episode, level);
        }
        // The last span that was stripped may have the newest tombstone, which holds the ledger.
        work.ledger();
    }
}

/// Takes calls of an episode that can still grow. A batch never frees more than is needed, so the pass can still stop
/// as soon as the target is met. Removing calls one by one would write the line of what is gone each time.
fn take_batches(work: &mut Work<'_>, episode: &Episode, level: Level) {
    let (calls, mut batch) = calls_of(work, episode, level);
    let mut due = calls.into_iter().peekable();
    while !work.met() && (due.peek().is_some() || !batch.is_empty()) {
        let excess = work.total().saturating_sub(work.target);
        let mut most: u64 = batch.iter().map(|one| work.most(one.item)).sum();
        while most < excess
            && let Some(one) = due.next()
        {
            most += work.most(one.item);
            batch.push(one);
        }
        work.apply(episode, Level::Open, std::mem::take(&mut batch));
    }
}

/// The calls of a level that go from an episode, and the moves that come with the first of them: they have a line
/// say what is gone.
fn calls_of(work: &Work<'_>, episode: &Episode, level: Level) -> (Vec<Move>, Vec<Move>) {
    let moves = work.strip(episode, |item| {
        item.kind == ItemKind::Call && work.is_bulk(item) == (level == Level::Bulk)
    });
    moves.into_iter().partition(|one| one.mark == Mark::Removed)
}

/// Replaces texts of spans without calls by a line each, oldest first, before any of them is
/// removed.
pub(super) fn take_texts<'a>(work: &mut Work<'a>, levels: &mut Levels<'a>) {
    let episodes = &work.transcript.graph.episodes;
    for episode in episodes.iter().filter(|one| one.carrier.is_none()) {
        if !work.met() && merge::is_silent(work, episode) {
            for item in &episode.items {
                levels.line(work, *item);
            }
        }
    }
}

/// Leaves one message of each of these episodes, with its description: two marks keep the thoughts of two.
pub(super) fn fold<'a>(work: &mut Work<'a>, levels: &mut Levels<'a>, episodes: &[&'a Episode]) {
    for episode in episodes {
        let mut marks = [episode.carrier, episode.end].into_iter().flatten();
        let told = episode
            .carrier
            .is_some_and(|at| work.mark(at) < Mark::Removed);
        if told && !work.met() && marks.any(|at| work.kept_thought(at) > 0) {
            let moves = work.remove(episode);
            apply(work, levels, episode, Level::Episode, moves);
        }
    }
    // The last of these episodes may have the newest tombstone, which holds the ledger.
    work.ledger();
}

/// Takes the calls of a level one by one, with their results, and stops as soon as the target is met. The first
/// step also marks where the line of what is gone is shown.
fn one_by_one<'a>(
    work: &mut Work<'a>,
    levels: &mut Levels<'a>,
    episode: &'a Episode,
    level: Level,
) {
    let (calls, mut first) = calls_of(work, episode, level);
    if calls.is_empty() {
        return apply(work, levels, episode, level, first);
    }
    for call in calls {
        if work.met() {
            return;
        }
        let mut step = std::mem::take(&mut first);
        step.push(call);
        levels.fold(work, &mut step);
        work.apply_part(episode, level, step);
    }
    work.line(episode, level);
}

fn apply<'a>(
    work: &mut Work<'a>,
    levels: &mut Levels<'a>,
    episode: &'a Episode,
    level: Level,
    mut moves: Vec<Move>,
) {
    levels.fold(work, &mut moves);
    work.apply(episode, level, moves);
}
