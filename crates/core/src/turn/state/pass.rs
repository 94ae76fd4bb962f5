//! Makes a pass that is due over a view, if it is worth what it breaks. Never decides when one is due, and never
//! chooses what is evicted.

use super::trigger::is_taken;
use super::{HopContext, TurnState};
use crate::commit::{self, Trigger};
use crate::policy::{self, EvictionSettings, ItemSet, Pinned, Policy, Proposal, Target};
use crate::render::prefix::Bonds;
use crate::session::view::View;
use crate::turn::keep;
use crate::turn::originals::OwnTexts;

/// What came of a pass that was due.
pub(super) struct PassMade {
    /// What can't be evicted, if the budget can't be met.
    pub pinned: Option<Pinned>,
    /// The pass, if it was taken.
    pub taken: Option<TakenPass>,
    /// Whether it was not taken although it would have moved something.
    pub declined: bool,
}

/// A pass that was taken.
pub(super) struct TakenPass {
    pub view: View,
    pub bonds: Option<Bonds>,
    /// Tokens at the front that it left as they were.
    pub cut: u64,
    pub proposal: Box<Proposal>,
}

impl TurnState {
    /// What a pass takes last, and how many results it can't keep. Texts are read for this, so it is not done before a
    /// pass is due.
    pub(super) fn held(
        &self,
        tools: &HopContext<'_>,
        written: &OwnTexts<'_>,
        view: &View,
        (config, limits, trigger): (&EvictionSettings, Target, Trigger),
    ) -> (ItemSet, u32) {
        let terms = &self.terms;
        let (held, loosened) = match terms.ladder.has(Policy::Keep) {
            true => keep::held(
                &terms.keep,
                terms.ceiling,
                &self.pins,
                view,
                written.originals,
                tools.reader,
            ),
            false => (ItemSet::default(), 0),
        };
        // A result that has just come may say that what it means stands further up. What an operator names goes all the same.
        let new = self.pending.is_empty() && trigger != Trigger::Asked;
        let referred = match terms.ladder.has(Policy::Repeat) && new {
            true => written.asking(view, config, limits, policy::referred),
            false => Vec::new(),
        };
        (held.with(referred), loosened)
    }

    /// Makes a pass that is due, if it is worth what it breaks.
    pub(super) fn pass(
        &self,
        tools: &HopContext<'_>,
        written: &OwnTexts<'_>,
        view: &View,
        trigger: Trigger,
        config: &EvictionSettings,
        limits: Target,
    ) -> PassMade {
        let thoughtless = self.before_pass(tools, written, view);
        let begun = thoughtless.as_ref().unwrap_or(view);
        let proposal = self.proposed(written, trigger, begun, config, limits);
        let freed = (view.size() + self.fixed).saturating_sub(proposal.size);
        let stake = self.stake(tools.family, view.transcript());
        let pays = match trigger {
            Trigger::Boundary => self.pays_at_user(tools, begun, &proposal, limits.ceiling),
            Trigger::Ceiling
            | Trigger::Cold
            | Trigger::Guidance
            | Trigger::Emergency
            | Trigger::Asked
            | Trigger::Forecast => {
                commit::pays_for_thoughts(freed, self.write_price(tools.family), stake)
            }
        };
        let pinned = proposal.pinned;
        if !is_taken(trigger, &proposal, freed, limits.ceiling, pays) {
            return PassMade {
                pinned,
                taken: None,
                declined: !proposal.plan.is_empty(),
            };
        }
        let (plan, most) = (&proposal.plan, limits.ceiling);
        let (after, bonds) = self.after_pass(tools, written, view, thoughtless, plan, most);
        PassMade {
            pinned,
            taken: Some(TakenPass {
                cut: self.cut(view, &after),
                view: after,
                bonds,
                proposal: Box::new(proposal),
            }),
            declined: false,
        }
    }
}
