//! Evicts what an operator named, before any policy of the ladder. The rules of eligibility hold as in any
//! pass (design §5), and what breaks one stays. Of a named call a line is left, so that nothing else has to
//! go with it; a named episode goes as a whole. Never goes on to what nobody named.

use std::sync::Arc;

use plimsoll_model::{ItemKind, Kept, Mark};

use super::ask::{Level, Order, Policy, PolicyAsk};
use super::cut::STUB_FROM;
use super::pass::{Proposal, conclude};
use super::protect::Rules;
use super::work::{Work, bare};
use crate::session::graph::Episode;
use crate::session::ids::RecallTarget;
use crate::session::index::ItemIndex;
use crate::session::stub;
use crate::session::transcript::Item;

/// Evicts the items and the whole episodes that were named, as far as the rules allow. What is held by `ask` stays.
/// The moves are counted for `policy`.
#[must_use]
pub fn evict_asked(policy: Policy, ask: &PolicyAsk<'_>, named: &[RecallTarget]) -> Proposal {
    let rules = match ask.config.order {
        Order::Levels => Rules::Parts,
        Order::Paper => Rules::Strict,
    };
    // No protection is lifted for what is named.
    let protection = ask.protection(ask.config.protect_recent, rules);
    let mut work = Work::new(ask, protection);
    let transcript = work.transcript;
    let items = named.iter().filter_map(|one| match one {
        RecallTarget::Items(items) => Some(items),
        RecallTarget::Episode(_) | RecallTarget::Ledger(_) => None,
    });
    // The newest first: a pointer then goes before the result to which it points.
    let mut items: Vec<ItemIndex> = items.flatten().copied().collect();
    items.sort_unstable_by(|one, other| other.cmp(one));
    for item in items {
        evict_item(&mut work, ask, item);
    }
    let mut whole = false;
    for one in named {
        if let RecallTarget::Episode(at) = one
            && let Some(episode) = transcript.graph.episodes.get(*at)
        {
            whole |= evict_episode(&mut work, episode);
        }
    }
    if whole {
        work.ledger();
    }
    conclude(work, ask, policy)
}

/// Leaves a line of a call's result, and cuts its long arguments; or leaves a line of a text.
fn evict_item(work: &mut Work<'_>, ask: &PolicyAsk<'_>, at: ItemIndex) {
    let Some((item, episode)) = free(work, at) else {
        return;
    };
    match item.kind {
        ItemKind::Call if item.delimiter.is_none() => {
            let trims = trims(ask, at, item, episode);
            let result = work.result(item).map_or(0, |result| result.tokens);
            if work.mark(at) >= Mark::Masked || (result < STUB_FROM && !trims) {
                return;
            }
            let trimmed = trims || work.kept(item).is_some_and(|kept| kept.trimmed);
            let kept = Kept { trimmed, ..bare() };
            let mark = if trims { Mark::Trimmed } else { Mark::Masked };
            work.shrink(Level::Asked, at, mark, Some(Arc::new(kept)));
        }
        // Other texts go only with the whole of their episode.
        ItemKind::Text if episode.carrier.is_none() => {
            if let Some(line) = work.leave_line(at) {
                work.shrink(Level::Asked, at, line.mark, line.kept);
            }
        }
        ItemKind::Call
        | ItemKind::Text
        | ItemKind::Reasoning
        | ItemKind::Result
        | ItemKind::System
        | ItemKind::User
        | ItemKind::Opaque => {}
    }
}

/// An item with its episode, if no rule holds it.
fn free<'a>(work: &Work<'a>, at: ItemIndex) -> Option<(&'a Item, &'a Episode)> {
    let item = work.item(at).filter(|_| !work.protected(at))?;
    let episode = work.transcript.graph.episodes.get(item.episode?)?;
    let strict = work.protection.rules() == Rules::Strict;
    let is_part = !strict && item.kind == ItemKind::Call;
    let seen = work.view.marked();
    let held = (!episode.closed && !is_part) || seen.has_dependents(episode);
    (!held).then_some((item, episode))
}

/// Whether a call has arguments that are long enough to cut. The first call of an unmarked span keeps
/// its arguments until a tombstone stands there.
fn trims(ask: &PolicyAsk<'_>, at: ItemIndex, item: &Item, episode: &Episode) -> bool {
    let free = !item.said && !item.bound && episode.carrier != Some(at);
    let arguments = free.then(|| (ask.originals)(at)).flatten();
    arguments.is_some_and(|arguments| stub::trimmed(&arguments).is_some())
}

/// Evicts an episode as a whole, and says whether anything moved.
fn evict_episode(work: &mut Work<'_>, episode: &Episode) -> bool {
    if !work.is_eligible(episode) {
        return false;
    }
    let moves = if episode.carrier.is_none() {
        let lines = episode.items.iter().filter_map(|at| work.leave_line(*at));
        lines.collect()
    } else {
        work.remove(episode)
    };
    let any = !moves.is_empty();
    work.apply(episode, Level::Asked, moves);
    any
}
