//! When the guidance comes into a conversation: with its first pass, past a mark below the ceiling,
//! or where a request asks for it. That rewrites what the provider has cached from the front on, so
//! that it happens once, and whatever a pass may take goes with it. Never makes the texts.

use super::{MiddleError, Planned, State, Tools};
use crate::commit::Trigger;
use crate::model::{Digest, Guide, GuideReason, Marks, Shape};
use crate::render::tools::Injected;
use crate::tokens::ledger::RequestSizes;
use crate::turn::settings;
use bytes::Bytes;
use std::sync::Arc;

/// What a turn had before the guidance was tried.
pub(super) struct Before {
    guide: Guide,
    marks: Arc<Marks>,
    shapes: Vec<Arc<Shape>>,
    injected: Injected,
    tools: Option<Bytes>,
    fixed: u64,
    prologue: Digest,
}

impl State {
    /// What there is before a view is looked for, where that may bring the guidance in.
    pub(super) fn before_guidance(&self) -> Option<Before> {
        let may = self.guide.is_waiting()
            && self.request.tools.is_some()
            && !self.refuses_tools()
            // What is said beside a hidden call joins what is said behind it, and two pieces of JSON
            // are none.
            && !self.request.structured;
        may.then(|| Before {
            guide: self.guide,
            marks: self.marks.clone(),
            shapes: self.shapes.clone(),
            injected: self.injected.clone(),
            tools: self.tools.clone(),
            fixed: self.fixed,
            prologue: self.prologue,
        })
    }

    /// Why a view that was found brings the guidance in, where it does. A cold cache alone is no
    /// reason: most sessions that pause never reach their ceiling.
    pub(super) fn guide_reason(&self, Planned(prepared): &Planned) -> Option<GuideReason> {
        if self.terms.guide_now {
            return Some(GuideReason::Asked);
        }
        match prepared.pass.as_ref().map(|(trigger, _)| trigger) {
            Some(Trigger::Ceiling | Trigger::Emergency) => return Some(GuideReason::Pass),
            Some(Trigger::Cold | Trigger::Guidance) | None => {}
        }
        let mark = self.terms.guide_above(prepared.ceiling);
        mark.filter(|mark| prepared.estimate > *mark)
            .map(|_| GuideReason::Mark)
    }

    /// What of a view that brings the guidance in stood in the request before: the tools alone, where
    /// they are the same. What follows them has changed, in a system message of the client's or by one
    /// of our own before all others.
    pub(super) fn guided_asked(
        &self,
        before: &Before,
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

    /// Goes back to before a view was looked for and brings the guidance in. `false` where there is
    /// nothing that could be asked for.
    ///
    /// # Errors
    /// As [`State::inject`].
    pub(super) fn bring_guidance(
        &mut self,
        before: &Before,
        tools: &Tools<'_>,
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

    /// Takes the guidance out again.
    pub(super) fn go_back(&mut self, before: Before, marks: Arc<Marks>) {
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

    /// Whether the guidance stood in the conversation's first request, so that what came before the
    /// first `start` is its prologue (paper 000 §4.3).
    pub(super) fn was_guided_from_the_start(&self) -> bool {
        self.guidance.is_some() && !self.guide.waited
    }

    /// The number of the first item that was said with the guidance in view: what came before it
    /// nobody was asked to mark.
    pub(crate) fn guided_from(&self, first_item: u32) -> Option<u32> {
        if self.guide.is_waiting() {
            return None;
        }
        let before = self.path.entries.iter().rev().map(|entry| &entry.record);
        let mut guided = before
            .filter(|record| record.tooled)
            .take_while(|record| !record.guide.is_waiting());
        let waited = self.guide.waited;
        let first = guided.by_ref().last().map(|record| record.first_item);
        // Where nothing was ever waited for, all of it counts.
        Some(if waited {
            first.unwrap_or(first_item)
        } else {
            0
        })
    }
}
