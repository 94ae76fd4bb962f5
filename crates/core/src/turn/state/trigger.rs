//! Decides when a pass happens before a hop, and whether one that was proposed is worth what it
//! breaks. `commit` has the arithmetic. Never chooses what is evicted.

use plimsoll_model::Role;

use super::{HopContext, TurnState};
use crate::commit::{self, Trigger};
use crate::policy::{Proposal, Target};
use crate::session::view::View;
use crate::turn::asked;

impl TurnState {
    /// What starts a pass before the next hop, if anything does.
    pub(super) fn trigger(
        &self,
        tools: &HopContext<'_>,
        view: &View,
        limits: &Target,
        refused: Option<u64>,
    ) -> Option<Trigger> {
        let size = view.size() + self.fixed;
        if !self.is_managed() {
            return None;
        }
        // The upstream refused the last view as too long.
        if refused.is_some() {
            return Some(Trigger::Emergency);
        }
        if size > limits.ceiling {
            return Some(Trigger::Ceiling);
        }
        // The guidance breaks the prefix anyway. But in a session that is not known it comes in with each
        // request, if the session never will be.
        if self.is_newly_guided() && size > limits.floor && !self.is_unknown() {
            return Some(Trigger::Guidance);
        }
        // An operator knows what it costs.
        let first = self.pending.is_empty();
        if first && ((self.asks.pass && size > limits.floor) || self.evicts_now()) {
            return Some(Trigger::Asked);
        }
        let warmth = self.warmth(tools, self.changed());
        // Only the first hop: the hops after it follow within the time that a cache lasts.
        let due = size > limits.floor || self.awaits_pass();
        let free = first && due && commit::is_cold(&warmth);
        if free {
            return Some(Trigger::Cold);
        }
        let user = first && size > limits.floor;
        user.then(|| self.at_user(tools, view, limits)).flatten()
    }

    /// Whether the conversation was answered before and nothing of it is known.
    fn is_unknown(&self) -> bool {
        let answered = || self.shapes.iter().any(|one| one.role == Role::Assistant);
        !self.path.has_begun() && answered()
    }

    /// Whether the model or the prologue changed after at least three requests with the same.
    fn changed(&self) -> bool {
        let newest: Vec<_> = self.path.entries.iter().rev().take(3).collect();
        let Some(last) = newest.first().map(|entry| &entry.record) else {
            return false;
        };
        let same = |record: &plimsoll_model::TurnRecord| {
            record.model == last.model && record.prologue == last.prologue
        };
        newest.len() == 3
            && newest.iter().all(|entry| same(&entry.record))
            && (last.model != self.request.model || last.prologue != self.prologue)
    }
}

/// Whether a pass is committed. A forced pass that can't reach the ceiling, and a free one, must
/// free enough to be worth the cached prefix that they break. `pays` says whether a free one is worth the
/// thoughts that it ends, and one at a new user message what it costs.
pub(super) fn is_taken(
    trigger: Trigger,
    proposal: &Proposal,
    freed: u64,
    ceiling: u64,
    pays: bool,
) -> bool {
    // A pass without moves frees something where thoughts go.
    let moves = !proposal.plan.is_empty();
    if !moves && (freed == 0 || trigger == Trigger::Asked) {
        return false;
    }
    let worth = commit::is_worth(freed, ceiling);
    match trigger {
        Trigger::Emergency | Trigger::Guidance | Trigger::Asked => true,
        Trigger::Ceiling => proposal.pinned.is_none() || worth,
        Trigger::Boundary => worth && pays,
        Trigger::Forecast => worth,
        // What an operator asked for is taken while that costs nothing.
        Trigger::Cold => (worth && pays) || asked::takes(proposal),
    }
}
