//! Tombstones that merge into the ledger, oldest first and no more than it takes. Never merges one that an act in
//! view depends on, and never the one that holds the ledger.

use plimsoll_model::Mark;

use super::ask::Level;
use super::plan::Move;
use super::work::Work;
use crate::session::graph::{Episode, EpisodeKind};

/// Merges tombstones into the ledger, oldest first, once they take more than a tenth of the ceiling: until they take
/// a twentieth, so that not each pass has to rewrite the front of the view, or the target is met. Merges spans without
/// calls too, oldest first, if the target can't be met otherwise.
pub(super) fn tombstones(work: &mut Work<'_>) {
    if work.view.marked().ledger_host().is_none() {
        return;
    }
    let standing = standing(work);
    let sizes: Vec<u64> = standing.iter().map(|one| size(work, one).into()).collect();
    let ceiling = u64::from(work.measure.ceiling);
    let mut all: u64 = sizes.iter().sum();
    let least = if all > ceiling / 10 {
        ceiling / 20
    } else {
        all
    };
    for (episode, own) in standing.into_iter().zip(sizes) {
        if work.met() || all <= least {
            break;
        }
        if merge_unless_needed(work, episode) {
            all -= own;
            named(work);
        }
    }
    for episode in &work.transcript.graph.episodes {
        if !work.met() && is_silent(work, episode) {
            merge(work, episode);
        }
    }
    work.ledger();
}

/// Merges tombstones, oldest first, until the target is met, although descriptions are shortened.
pub(super) fn to_the_target(work: &mut Work<'_>) {
    for episode in standing(work) {
        if !work.met() && merge_unless_needed(work, episode) {
            named(work);
        }
    }
    work.ledger();
}

/// Has the ledger name what was merged, if that could matter: it is longer then, and writing it costs a count.
fn named(work: &mut Work<'_>) {
    if work.met() {
        work.ledger();
    }
}

/// Whether an episode is a closed span without calls whose text is still shown.
pub(super) fn is_silent(work: &Work<'_>, episode: &Episode) -> bool {
    episode.kind == EpisodeKind::Implicit
        && episode.closed
        && episode.carrier.is_none()
        && !work.view.marked().is_removed(episode)
}

/// The episodes of which nothing but a tombstone is shown, oldest first.
fn standing<'a>(work: &Work<'a>) -> Vec<&'a Episode> {
    let seen = work.view.marked();
    let all = work.transcript.graph.episodes.iter();
    let folded = |one: &&Episode| seen.tombstone(one).is_some() && seen.is_removed(one);
    all.filter(folded).collect()
}

/// Merges an episode unless its tombstone holds the ledger, or an act in view depends on it. Says whether it did.
fn merge_unless_needed(work: &mut Work<'_>, episode: &Episode) -> bool {
    let seen = work.view.marked();
    let holds = seen
        .ledger_host()
        .is_none_or(|host| seen.carrier(episode) == Some(host));
    !holds && !seen.has_dependents(episode) && merge(work, episode)
}

/// The tokens of a tombstone: what stays of its call's message, a thought that must stay with it included, and the
/// result that holds its text.
fn size(work: &Work<'_>, episode: &Episode) -> u32 {
    let carrier = work.view.marked().carrier(episode);
    carrier.map_or(0, |carrier| {
        let result = work.item(carrier).and_then(|item| work.result_entry(item));
        work.carried(carrier) + result.map_or(0, |at| work.size(at))
    })
}

/// Removes what is left of an episode. From now on the ledger names it. Says whether anything moved.
fn merge(work: &mut Work<'_>, episode: &Episode) -> bool {
    if work.holds_protected(episode) {
        return false;
    }
    let due = episode.items.iter();
    let due = due.filter(|index| work.mark(**index) != Mark::Removed);
    let moves: Vec<Move> = due
        .map(|index| Move::whole(*index, Mark::Removed))
        .collect();
    let any = !moves.is_empty();
    work.apply(episode, Level::Ledger, moves);
    any
}
