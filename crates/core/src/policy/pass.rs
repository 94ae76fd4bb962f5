//! What a pass would do: the types that all policies share. Never chooses what is evicted.

use std::collections::BTreeMap;

use plimsoll_model::{ItemKind, Mark};

use super::ask::{Level, Policy, PolicyAsk};
use super::plan::{Move, Plan, PlanError};
use super::work::{Freed, LastStep, Work};
use crate::session::transcript::Item;

/// What a pass would do.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The checked moves.
    pub plan: Plan,
    /// The size of the view after them.
    pub size: u64,
    /// What it takes last.
    pub last: LastStep,
    /// What each policy evicted, by level.
    pub gone: BTreeMap<(Policy, Level), Freed>,
    /// Moves that broke a rule and were dropped, each of which is a mistake of the policy.
    pub dropped: Vec<(Policy, PlanError)>,
    /// What can't be evicted, if the ceiling can't be met.
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
    /// The newest assistant message, and everything after it that is not user text.
    pub newest: u64,
    /// Content that only its provider understands, and results that have a form of their own.
    pub opaque: u64,
    /// All else: tombstones, the ledger, text without calls.
    pub rest: u64,
}

/// Turns a finished pass of a policy into a proposal. Moves that break a rule are dropped.
pub(super) fn conclude(work: Work<'_>, ask: &PolicyAsk<'_>, policy: Policy) -> Proposal {
    let moves = last_moves(&work.moves);
    let (plan, dropped) = Plan::judge(ask.view.marked(), &work.protection, moves);
    let mut size = work.total();
    if !dropped.is_empty() {
        // The pass counted with moves that are dropped now.
        size = plan.view(ask.view, ask.measure).size() + ask.target.fixed;
    }
    let unmet = size > ask.target.ceiling;
    let pinned = unmet.then(|| pinned(&work, ask.target.fixed));
    let last = work.last_step();
    let gone = work.gone.into_iter();
    Proposal {
        plan,
        size,
        last,
        gone: gone.map(|(level, gone)| ((policy, level), gone)).collect(),
        dropped: dropped.into_iter().map(|error| (policy, error)).collect(),
        pinned,
    }
}

/// The last move of each item, with what was last left of it: an item may move more than once in a
/// pass.
fn last_moves(moves: &[Move]) -> Vec<Move> {
    let mut by_item: Vec<&Move> = moves.iter().collect();
    // The sort is stable, so the moves of an item stay in their order.
    by_item.sort_by_key(|one| one.item);
    let of_items = by_item.chunk_by(|one, next| one.item == next.item);
    of_items.filter_map(last_move).collect()
}

fn last_move(of_item: &[&Move]) -> Option<Move> {
    let left = |before, one: &&Move| match one.mark {
        Mark::Removed => None,
        Mark::Live | Mark::Clipped | Mark::Masked | Mark::Tombstone | Mark::Trimmed => {
            one.kept.clone().or(before)
        }
    };
    let last = of_item.last()?;
    Some(Move {
        item: last.item,
        mark: last.mark,
        kept: of_item.iter().fold(None, left),
    })
}

impl Proposal {
    /// Nothing moves.
    pub(super) fn nothing(ask: &PolicyAsk<'_>) -> Self {
        Self {
            plan: Plan::default(),
            size: ask.view.size() + ask.target.fixed,
            last: LastStep::default(),
            gone: BTreeMap::new(),
            dropped: Vec::new(),
            pinned: None,
        }
    }

    /// This proposal, followed by what a later policy proposes for the view that this one leaves.
    #[must_use]
    pub fn then(mut self, later: Self) -> Self {
        self.plan.append(later.plan);
        if !later.last.items.is_empty() {
            self.last = later.last;
        }
        for (of, gone) in later.gone {
            let sum = self.gone.entry(of).or_default();
            sum.items += gone.items;
            sum.tokens += gone.tokens;
        }
        self.dropped.extend(later.dropped);
        Self {
            size: later.size,
            pinned: later.pinned,
            ..self
        }
    }
}

impl Pinned {
    /// Each part with its name, in the order in which they are reported.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, u64); 6] {
        [
            ("user", self.user),
            ("system", self.system),
            ("tools", self.fixed),
            ("newest", self.newest),
            ("opaque", self.opaque),
            ("rest", self.rest),
        ]
    }
}

/// Whether a message has content that must never be edited.
fn stays(work: &Work<'_>, items: &[Item]) -> bool {
    items.iter().any(|item| {
        let call = item.pair.and_then(|call| work.item(call));
        item.kind == ItemKind::Opaque || item.bound || call.is_some_and(|call| call.stays)
    })
}

fn pinned(work: &Work<'_>, fixed: u64) -> Pinned {
    let mut pinned = Pinned {
        fixed,
        ..Pinned::default()
    };
    for (at, entry) in work.transcript.entries.indexed() {
        let size = u64::from(work.size(at));
        let items = work.transcript.items_of(entry);
        let first = items.first().map(|item| item.kind);
        match first {
            Some(ItemKind::User) => pinned.user += size,
            Some(ItemKind::System) => pinned.system += size,
            _ if work.protection.is_newest(entry.items.start) => pinned.newest += size,
            _ if stays(work, items) => pinned.opaque += size,
            _ => pinned.rest += size,
        }
    }
    pinned
}
