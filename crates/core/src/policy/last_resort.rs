//! What goes before a budget is reported unmet: every message of the model's but the newest exchange, oldest first,
//! whatever the rules of episodes spare. What is left is the system text, what the user said, the ledger and the newest
//! exchange; the message that holds the ledger goes only if the ceiling can't be met with it. Never takes what no pass
//! may touch, and nothing if what must stay is above the ceiling by itself.

use plimsoll_model::{ItemKind, Mark, Role};

use super::ask::Level;
use super::plan::Move;
use super::protect::Tier;
use super::work::Work;
use crate::session::index::{EntryIndex, ItemIndex};

/// Removes message by message until the target is met. Each episode that loses all of its items is named by the
/// ledger.
pub(super) fn evict(work: &mut Work<'_>, ceiling: u64) {
    // The rules of episodes spare what open work needs.
    work.protection.open(Tier::Kept);
    work.protection.lift_rules();
    let host = host(work);
    let entries: Vec<EntryIndex> = work
        .transcript
        .entries
        .indexed()
        .map(|(at, _)| at)
        .collect();
    // Where what must stay is too much by itself, the rest would go for nothing.
    let freed = entries
        .iter()
        .filter(|at| !moves(work, **at, host).is_empty());
    let freed: u64 = freed.map(|at| whole(work, *at)).sum();
    let freed = freed + host.map_or(0, |host| work.most(host));
    if work.total().saturating_sub(freed) > ceiling {
        return;
    }
    if let Some(host) = host {
        hold_ledger(work, host);
    }
    for entry in entries {
        if work.met() {
            break;
        }
        let moves = moves(work, entry, host);
        if !moves.is_empty() {
            work.raise(Level::Episode, moves);
            // The ledger is longer now. If the rest alone is too much, that changes nothing.
            if work.met() {
                work.ledger();
            }
        }
    }
    // What was removed in part has its line elsewhere.
    work.lines();
    work.target = ceiling;
    if let Some(host) = host.filter(|host| !work.met() && meets_without(work, *host)) {
        // The next tombstone holds a ledger that names all the same episodes.
        work.raise(Level::Ledger, vec![Move::whole(host, Mark::Removed)]);
        work.lines();
    }
}

/// The tokens of an answer and of the results of its calls.
fn whole(work: &Work<'_>, entry: EntryIndex) -> u64 {
    let items = work.transcript.entries.get(entry).into_iter();
    let items = items.flat_map(|entry| work.transcript.items_of(entry));
    let results = items.filter_map(|item| work.result_entry(item));
    let results: u64 = results.map(|at| u64::from(work.size(at))).sum();
    u64::from(work.size(entry)) + results
}

/// Whether the target is met without the call that holds the ledger.
fn meets_without(work: &Work<'_>, host: ItemIndex) -> bool {
    work.total().saturating_sub(work.most(host)) <= work.target
}

/// The call whose result holds the ledger. If there is none yet, that of the newest exploration which can have a
/// tombstone; none where there is none.
fn host(work: &Work<'_>) -> Option<ItemIndex> {
    let explorations = work.transcript.graph.episodes.iter().rev();
    let mut carriers = explorations.filter(|one| one.is_expl());
    let free = |at: &ItemIndex| !work.protected(*at) && work.mark(*at) < Mark::Tombstone;
    let host = work.view.marked().ledger_host();
    host.or_else(|| carriers.find_map(|one| work.carrier(one).filter(free)))
}

/// Has a call hold the ledger.
fn hold_ledger(work: &mut Work<'_>, host: ItemIndex) {
    if let Some(episode) = work
        .episode(host)
        .filter(|_| work.mark(host) < Mark::Tombstone)
    {
        work.apply(
            episode,
            Level::Episode,
            vec![Move::whole(host, Mark::Tombstone)],
        );
    }
}

/// The moves that remove what an answer shows.
fn moves(work: &Work<'_>, entry: EntryIndex, host: Option<ItemIndex>) -> Vec<Move> {
    let Some(entry) = work.transcript.entries.get(entry) else {
        return Vec::new();
    };
    let all = work.transcript.indexed_items_of(entry);
    let holds = all.clone().any(|(at, _)| Some(at) == host);
    let goes = |at: ItemIndex| {
        Some(at) != host
            // The thought of the host's message may have to stay with it.
            && !(holds && work.is_demanded(at))
            && work.mark(at) < Mark::Removed
            && !work.protected(at)
    };
    // In an episode without calls nothing could name what is gone, and its texts are lines by now.
    let has_calls = |at: ItemIndex| {
        let episode = work.episode(at);
        episode.is_some_and(|episode| episode.carrier.is_some())
    };
    let movable = all.filter(|(at, item)| {
        let kind = matches!(
            item.kind,
            ItemKind::Text | ItemKind::Call | ItemKind::Reasoning
        );
        kind && has_calls(*at) && !item.bound && goes(*at)
    });
    match entry.role {
        Role::Assistant => movable
            .map(|(at, _)| Move::whole(at, Mark::Removed))
            .collect(),
        Role::System | Role::User | Role::Tool | Role::Other => Vec::new(),
    }
}
