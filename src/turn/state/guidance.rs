//! Decides when the guidance comes into a conversation: with its first pass, above a share of the
//! ceiling, or when a request asks for it. This rewrites the cached prefix from the front, so it
//! happens once, and a pass goes with it if one is possible. Never writes the texts.

use super::{HopContext, MiddleError, Planned, TurnState};
use crate::commit::Trigger;
use crate::model::{Digest, Guide, GuideReason, ItemNo, Marks, Shape};
use crate::render::tools::Injected;
use crate::tokens::ledger::RequestSizes;
use crate::turn::settings;
use bytes::Bytes;
use std::sync::Arc;

/// The state of a turn before the guidance is tried.
pub(super) struct BeforeGuidance {
    guide: Guide,
    marks: Arc<Marks>,
    shapes: Vec<Arc<Shape>>,
    injected: Injected,
    tools: Option<Bytes>,
    fixed: u64,
    prologue: Digest,
}

impl TurnState {
    /// The state before a view is made, if that may bring the guidance in.
    pub(super) fn before_guidance(&self) -> Option<BeforeGuidance> {
        let may = self.guide.is_waiting()
            && self.request.takes_tools()
            && !self.refuses_tools()
            // Text beside a hidden call is joined to the text after it, and two pieces of JSON are
            // not one.
            && !self.request.structured;
        may.then(|| BeforeGuidance {
            guide: self.guide,
            marks: self.marks.clone(),
            shapes: self.shapes.clone(),
            injected: self.injected.clone(),
            tools: self.tools.clone(),
            fixed: self.fixed,
            prologue: self.prologue,
        })
    }

    /// Why a view brings the guidance in, if it does. A cold cache alone is no reason: most
    /// sessions that pause never reach their ceiling.
    pub(super) fn guide_reason(&self, Planned(prepared): &Planned) -> Option<GuideReason> {
        // It ends all thoughts that are bound to the system text.
        let costs = prepared
            .bound_to
            .as_ref()
            .is_some_and(|bound| bound.thought.is_some());
        if self.terms.guide_now && !costs {
            return Some(GuideReason::Asked);
        }
        match prepared.pass.as_ref().map(|(trigger, _)| trigger) {
            Some(Trigger::Ceiling | Trigger::Emergency) => return Some(GuideReason::Pass),
            Some(Trigger::Cold | Trigger::Guidance | Trigger::Asked) | None => {}
        }
        let mark = self.terms.guide_above(prepared.ceiling);
        mark.filter(|mark| prepared.estimate > *mark && !costs)
            .map(|_| GuideReason::Mark)
    }

    /// How much of a view that brings the guidance in the upstream was sent before: the tools, if
    /// they are the same. The system message after them has changed.
    pub(super) fn guided_asked(
        &self,
        before: &BeforeGuidance,
        planned: RequestSizes,
        guided: RequestSizes,
    ) -> RequestSizes {
        let same = before.tools == self.tools;
        let held = if same {
            planned.held.min(before.fixed)
        } else {
            0
        };
        RequestSizes { held, ..guided }
    }

    /// Goes back to the state before the view and brings the guidance in. `false` if there is no
    /// guidance to give.
    ///
    /// # Errors
    /// As [`TurnState::inject`].
    pub(super) fn bring_guidance(
        &mut self,
        before: &BeforeGuidance,
        tools: &HopContext<'_>,
    ) -> Result<bool, MiddleError> {
        let injected = if self.injected.any() {
            self.injected.clone()
        } else {
            self.choose()
        };
        let given = settings::given(self.request.one_call);
        if self.terms.guidance(&injected, given).is_none() {
            return Ok(false);
        }
        self.marks = before.marks.clone();
        self.injected = injected;
        self.guide.given = given;
        self.add(tools)?;
        Ok(true)
    }

    /// Goes back to the state before the guidance.
    pub(super) fn go_back(&mut self, before: BeforeGuidance, marks: Arc<Marks>) {
        self.guide = before.guide;
        self.marks = marks;
        self.shapes = before.shapes;
        self.injected = before.injected;
        self.tools = before.tools;
        self.guidance = None;
        self.fixed = before.fixed;
        self.prologue = before.prologue;
    }

    /// Whether this turn's first hop brings the guidance in, so that its prefix is new either way.
    pub(super) fn is_newly_guided(&self) -> bool {
        let waited = self.path.guide.is_none_or(Guide::is_waiting);
        waited && self.guide.waited && !self.guide.is_waiting() && self.pending.is_empty()
    }

    /// Whether the guidance was in the conversation's first request, so that everything before the
    /// first `start` is prologue (paper 000 §4.3).
    pub(super) fn was_guided_from_the_start(&self) -> bool {
        self.guidance.is_some() && !self.guide.waited
    }

    /// The number of the first item after the guidance came in. Nobody asked the model to mark what
    /// is older.
    pub(crate) fn guided_from(&self, first_item: ItemNo) -> Option<ItemNo> {
        if self.guide.is_waiting() {
            return None;
        }
        let before = self.path.entries.iter().rev().map(|entry| &entry.record);
        let mut guided = before
            .filter(|record| record.tooled)
            .take_while(|record| !record.guide.is_waiting());
        let waited = self.guide.waited;
        let first = guided.by_ref().last().map(|record| record.first_item);
        // If the guidance was there from the start, everything counts.
        Some(if waited {
            first.unwrap_or(first_item)
        } else {
            ItemNo(0)
        })
    }
}
