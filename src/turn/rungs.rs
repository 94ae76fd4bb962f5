//! Runs the rungs of a ladder in order, each over the view that those before it left (paper 004 §8).
//! Never decides when a pass happens, and never takes one.

use super::originals::OwnTexts;
use crate::commit::Trigger;
use crate::policy::{
    self, EvictionSettings, Held, Ladder, Policy, Proposal, Rung, Target, When, Zone,
};
use crate::session::view::View;

impl OwnTexts<'_> {
    /// What the rungs for new results make of a view. `None` if nothing moves.
    pub fn enter(
        &self,
        ladder: &Ladder,
        view: &View,
        config: &EvictionSettings,
        target: Target,
    ) -> Option<Proposal> {
        // Most requests bring nothing new that is a result, and copying a view costs.
        if !policy::brings_results(view.transcript()) {
            return None;
        }
        let entry = |rung: &Rung, _| rung.when == When::Entry;
        let proposal = self.climb(ladder, view, config, target, entry)?;
        (!proposal.plan.is_empty()).then_some(proposal)
    }

    /// What the rungs that are due in a pass would evict from a view. `trigger` is what started the
    /// pass. If no rung is due, nothing goes, and what keeps the view above its ceiling is named.
    pub fn pass(
        &self,
        ladder: &Ladder,
        trigger: Trigger,
        view: &View,
        config: &EvictionSettings,
        target: Target,
    ) -> Proposal {
        let free = matches!(trigger, Trigger::Cold | Trigger::Guidance);
        // A window that is not known is never full.
        let zone = |size| match target.window {
            Some(window) => Zone::of_window(size, window),
            None => Zone::Green,
        };
        // An earlier rung may have done all that there is to do.
        let due = |rung: &Rung, size| match rung.when {
            When::Entry => false,
            When::Pass => size > target.floor,
            When::Cold => free && size > target.floor,
            When::Unmet => size > target.ceiling,
            When::Yellow => size > target.floor && zone(size) >= Zone::Yellow,
            When::Red => size > target.floor && zone(size) >= Zone::Red,
        };
        self.climb(ladder, view, config, target, due)
            .unwrap_or_else(|| self.propose(Policy::None, view, config, target))
    }

    fn climb(
        &self,
        ladder: &Ladder,
        view: &View,
        asked: &EvictionSettings,
        target: Target,
        due: impl Fn(&Rung, u64) -> bool,
    ) -> Option<Proposal> {
        let mut all: Option<Proposal> = None;
        // What is kept binds the policies behind `keep` alone.
        let mut config = EvictionSettings {
            held: Held::default(),
            ..asked.clone()
        };
        let held = &asked.held;
        for rung in ladder.rungs() {
            if rung.policy == Policy::Keep {
                config.held = held.clone();
                continue;
            }
            let size = all.as_ref().map(|before| before.size);
            if !due(rung, size.unwrap_or(view.size() + target.fixed)) {
                continue;
            }
            // What the rungs before it left. Most ladders have one rung that moves anything, and
            // need no view in between.
            let moved = all.as_ref().filter(|before| !before.plan.is_empty());
            let between = moved.map(|before| self.after(view, &before.plan));
            let view = between.as_ref().unwrap_or(view);
            let proposal = self.propose(rung.policy, view, &config, target);
            all = Some(match all {
                Some(before) => before.then(proposal),
                None => proposal,
            });
        }
        all
    }
}
