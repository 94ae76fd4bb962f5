//! A new user message as a moment for a pass: whether one there pays, and whether the work that follows it would reach
//! the ceiling. `commit` has the arithmetic. Never makes a pass.

use plimsoll_model::Role;

use super::{HopContext, TurnState};
use crate::commit::moments::{self, Moment, Passed};
use crate::commit::{Growth, Trigger};
use crate::policy::{self, Proposal, Target, When};
use crate::session::index::EntryIndex;
use crate::session::transcript::Transcript;
use crate::session::view::View;

impl TurnState {
    /// What starts a pass at a new user message, if anything does. A pass that would pay is named even where no policy
    /// runs there. It is judged as if it went down to the floor and left what the next pass is expected to leave,
    /// because making every one to find out would cost too much.
    pub(super) fn at_user(
        &self,
        tools: &HopContext<'_>,
        view: &View,
        limits: &Target,
    ) -> Option<Trigger> {
        let moment = self.moment(view)?;
        let growth = self.growth(tools, view.transcript(), limits.ceiling);
        let cut = policy::next_cut(view.marked())?;
        let pays = self.pays(view, &moment, &growth, (limits.floor, cut));
        let ladder = &self.terms.ladder;
        if ladder.runs_at(When::Forecast)
            && !(pays && ladder.runs_at(When::User))
            && moments::reaches(&moment, &growth)
        {
            return Some(Trigger::Forecast);
        }
        pays.then_some(Trigger::Boundary)
    }

    /// Whether a pass would pay at a new user message, and no policy runs there to make it.
    pub(super) fn is_only_counted(&self, due: Trigger) -> bool {
        due == Trigger::Boundary && !self.terms.ladder.runs_at(When::User)
    }

    /// Whether a pass at a new user message pays, as it was proposed.
    pub(super) fn pays_at_user(
        &self,
        tools: &HopContext<'_>,
        view: &View,
        proposal: &Proposal,
        ceiling: u64,
    ) -> bool {
        let transcript = view.transcript();
        let first = proposal.plan.moves().iter().map(|(no, _)| *no).min();
        let mut items = transcript.items.iter();
        let first = items.find(|item| Some(item.no) == first);
        let (Some(moment), Some(first)) = (self.moment(view), first) else {
            return false;
        };
        let growth = self.growth(tools, transcript, ceiling);
        self.pays(view, &moment, &growth, (proposal.size, first.entry))
    }

    /// Whether a pass pays that leaves a view of this size, and all before this message as it was.
    fn pays(
        &self,
        view: &View,
        moment: &Moment,
        growth: &Growth,
        (size, cut): (u64, EntryIndex),
    ) -> bool {
        let sizes = view.sizes().indexed();
        let before = sizes.take_while(|(at, _)| *at < cut);
        let before: u64 = before.map(|(_, size)| u64::from(*size)).sum();
        let after = Passed {
            size,
            cut: self.fixed + before,
        };
        moments::saves(moment, after, growth).is_some_and(|saved| saved > 0.0)
    }

    /// The moment, if this request brings a user message and no result since the newest answer.
    fn moment(&self, view: &View) -> Option<Moment> {
        let (new, boundaries) = user_messages(view.transcript());
        new.then(|| Moment {
            size: view.size() + self.fixed,
            requests: self.path.entries.len() + 1,
            boundaries,
        })
    }
}

/// Whether the newest messages are a user's, and how many times that was so. A user's text beside results goes on with
/// the work that these belong to.
fn user_messages(transcript: &Transcript) -> (bool, usize) {
    let (mut count, mut new) = (0, false);
    for between in transcript
        .entries
        .split(|entry| entry.role == Role::Assistant)
    {
        let has = |role| between.iter().any(|entry| entry.role == role);
        new = has(Role::User) && !has(Role::Tool);
        count += usize::from(new);
    }
    (new, count)
}
