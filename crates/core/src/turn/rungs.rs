//! Runs the rungs of a ladder in order, each over the view that those before it left (paper 004 §8).
//! Never decides when a pass happens, and never takes one.

use super::filter::RungSettings;
use super::originals::OwnTexts;
use super::settings::Terms;
use crate::commit::Trigger;
use crate::policy::{self, EvictionSettings, ItemSet, Policy, Proposal, Rung, Target, When, Zone};
use crate::session::view::View;

impl OwnTexts<'_> {
    /// What the rungs for new results make of a view. `None` if nothing moves.
    pub fn enter(
        &self,
        terms: &Terms,
        view: &View,
        config: &EvictionSettings,
        target: Target,
    ) -> Option<Proposal> {
        // Most requests bring nothing new that is a result, and copying a view costs.
        if !policy::brings_results(view.transcript()) {
            return None;
        }
        let entry = |rung: &Rung, _, _| rung.when == When::Entry;
        let proposal = self.climb(terms, view, config, target, None, entry)?;
        (!proposal.plan.is_empty()).then_some(proposal)
    }

    /// What the rungs that are due in a pass would evict from a view, after what an operator asked to have
    /// evicted `first`. `trigger` is what started the pass. If no rung is due, nothing goes, and what keeps
    /// the view above its ceiling is named.
    pub fn pass(
        &self,
        terms: &Terms,
        trigger: Trigger,
        view: &View,
        config: &EvictionSettings,
        target: Target,
        first: Option<Proposal>,
    ) -> Proposal {
        let free = matches!(trigger, Trigger::Cold | Trigger::Guidance | Trigger::Asked);
        // A window that is not known is never full.
        let zone = |size| match target.window {
            Some(window) => Zone::of_window(size, window),
            None => Zone::Green,
        };
        // A pass at a new user message has rungs of its own.
        let own = match trigger {
            Trigger::Boundary => Some(When::User),
            Trigger::Forecast => Some(When::Forecast),
            Trigger::Ceiling
            | Trigger::Cold
            | Trigger::Guidance
            | Trigger::Emergency
            | Trigger::Asked => None,
        };
        // An earlier rung may have done all that there is to do.
        let due = |rung: &Rung, floor, size| match rung.when {
            when if own.is_some() => own == Some(when) && size > floor,
            When::Entry | When::User | When::Forecast => false,
            When::Pass => size > floor,
            When::Cold => free && size > floor,
            When::Unmet => size > target.ceiling,
            When::Yellow => size > floor && zone(size) >= Zone::Yellow,
            When::Red => size > floor && zone(size) >= Zone::Red,
        };
        self.climb(terms, view, config, target, first, due)
            .unwrap_or_else(|| self.propose(Policy::None, view, config, target))
    }

    /// Runs the rungs that `due` chooses, given the floor of each and the size before it, over what `all`
    /// leaves.
    fn climb(
        &self,
        terms: &Terms,
        view: &View,
        asked: &EvictionSettings,
        target: Target,
        mut all: Option<Proposal>,
        due: impl Fn(&Rung, u64, u64) -> bool,
    ) -> Option<Proposal> {
        // What is kept binds the policies behind `keep` alone.
        let mut config = EvictionSettings {
            held: ItemSet::default(),
            ..asked.clone()
        };
        let held = &asked.held;
        let plain = RungSettings::default();
        for rung in terms.ladder.rungs() {
            if rung.policy == Policy::Keep {
                config.held = held.clone();
                continue;
            }
            let size = all.as_ref().map(|before| before.size);
            let own = terms.rungs.get(&rung.policy).unwrap_or(&plain);
            let target = own.target(target);
            if !due(
                rung,
                target.floor,
                size.unwrap_or(view.size() + target.fixed),
            ) {
                continue;
            }
            // What the rungs before it left. Most ladders have one rung that moves anything, and
            // need no view in between.
            let moved = all.as_ref().filter(|before| !before.plan.is_empty());
            let between = moved.map(|before| self.after(view, &before.plan));
            let view = between.as_ref().unwrap_or(view);
            config.spared = own.spared(view, self.originals);
            let proposal = self.propose(rung.policy, view, &config, target);
            all = Some(match all {
                Some(before) => before.then(proposal),
                None => proposal,
            });
        }
        all
    }
}
