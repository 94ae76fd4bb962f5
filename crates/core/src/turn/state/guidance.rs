//! Decides when the guidance comes into a conversation: with its first pass, above a share of the
//! ceiling, or when a request asks for it; and where. In front it rewrites the cached prefix, so it
//! happens once, and a pass goes with it if one is possible. Where thoughts are bound to what stands in
//! front, it is a system message at the end instead, if the model takes one there, and stays at that
//! place. Never writes the texts.

use plimsoll_model::{
    Digest, EditKind, Guide, GuideReason, ItemNo, Marks, Role, Shape, TurnRecord,
};
use plimsoll_tokens::Family;
use plimsoll_tokens::ledger::RequestSizes;
use plimsoll_wire::Dialect;

use super::{HopContext, MiddleError, Planned, TurnState};
use crate::commit::Trigger;
use crate::render::tools::Injected;
use crate::turn::settings;
use bytes::Bytes;
use std::sync::Arc;

/// The guidance as a system message among the others.
#[derive(Clone, Debug)]
pub(in crate::turn) struct Among {
    /// The step of the path before whose answer it stands; the length of the path for the turn in hand.
    pub step: usize,
    /// Its bytes.
    pub message: Bytes,
    /// Its size in tokens.
    pub tokens: u32,
}

/// The state of a turn before the guidance is tried.
pub(super) struct BeforeGuidance {
    /// Whether the guidance would be a system message at the end.
    among: bool,
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
    pub(super) fn before_guidance(&self, family: &Family) -> Option<BeforeGuidance> {
        let may = self.guide.is_waiting()
            && self.request.takes_tools()
            && !self.refuses_tools()
            // Text beside a hidden call is joined to the text after it, and two pieces of JSON are
            // not one.
            && !self.request.structured;
        may.then(|| BeforeGuidance {
            among: self.goes_among(family),
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
    pub(super) fn guide_reason(
        &self,
        before: &BeforeGuidance,
        Planned(prepared): &Planned,
    ) -> Option<GuideReason> {
        // In front it ends all thoughts that are bound to the system text.
        let bound = prepared.bound_to.as_ref();
        let costs = !before.among && bound.is_some_and(|bound| bound.thought.is_some());
        if self.terms.guide_now && !costs {
            return Some(GuideReason::Asked);
        }
        match prepared.pass.as_ref().map(|(trigger, _)| trigger) {
            Some(Trigger::Ceiling | Trigger::Emergency) => return Some(GuideReason::Pass),
            Some(
                Trigger::Cold
                | Trigger::Guidance
                | Trigger::Asked
                | Trigger::Boundary
                | Trigger::Forecast,
            )
            | None => {}
        }
        let mark = self.terms.guide_above(prepared.ceiling);
        mark.filter(|mark| prepared.estimate > *mark && !costs)
            .map(|_| GuideReason::Mark)
    }

    /// How much of a view that brings the guidance in the upstream was sent before: all that stands before it, if it
    /// stands at the end; else the tools, if they are the same. The system message after them has changed.
    pub(super) fn guided_asked(
        &self,
        before: &BeforeGuidance,
        planned: RequestSizes,
        guided: RequestSizes,
    ) -> RequestSizes {
        if before.among {
            return guided;
        }
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
        (self.guide.given, self.guide.among) = (given, before.among);
        self.add(tools)?;
        Ok(true)
    }

    /// Whether guidance that comes now is a system message at the end. Tools that come with it change the front
    /// anyway, before the first answer nothing is lost by that, and a later hop can't be sent without the end of the
    /// hop before it.
    fn goes_among(&self, family: &Family) -> bool {
        let answered = || self.shapes.iter().any(|one| one.role == Role::Assistant);
        let first = self.pending.is_empty();
        first && self.tools.is_some() && self.takes_among(family) && answered() && self.may_follow()
    }

    /// Whether the model takes guidance among the messages, and has anything from that. In Chat Completions servers
    /// move system messages to the front, which is what must not change.
    fn takes_among(&self, family: &Family) -> bool {
        let placed = match self.request.dialect {
            Dialect::Messages | Dialect::Responses => family.system_among,
            Dialect::Chat => false,
        };
        let refused = self.terms.without.has(EditKind::GuidanceAmong);
        placed && !refused && self.binds(family)
    }

    /// Whether a system message may stand behind the client's messages. None stands behind an answer.
    fn may_follow(&self) -> bool {
        let last = self.shapes.last();
        last.is_some_and(|last| last.role != Role::Assistant)
    }

    /// The step of the path before whose answer the guidance stands among the messages: the first whose record says
    /// so. If the client has dropped all of these, it comes in with this turn once more.
    fn among_step(&self) -> usize {
        let entries = &self.path.entries;
        let has = |record: &TurnRecord| record.tooled && record.guide.among;
        let first = entries.iter().position(|entry| has(&entry.record));
        first.unwrap_or(entries.len())
    }

    /// What a conversation is told now that was told this. Guidance among the messages does not stand for every
    /// model: for another it stands in front, or waits for a pass if that would end thoughts.
    pub(super) fn told(&self, guide: Guide, family: &Family) -> Guide {
        if !guide.among {
            return guide;
        }
        let placed = self.among_step() < self.path.entries.len() || self.may_follow();
        match (self.takes_among(family) && placed, self.binds(family)) {
            (true, _) => guide,
            (false, true) => Guide::WAITING,
            (false, false) => Guide {
                among: false,
                ..guide
            },
        }
    }

    /// Makes the guidance a system message among the others.
    ///
    /// # Errors
    /// [`MiddleError::Message`] where it can't be counted.
    pub(super) fn stand_among(
        &mut self,
        block: &str,
        tools: &HopContext<'_>,
    ) -> Result<(), MiddleError> {
        let message = self.request.dialect.system_among(block);
        self.among = Some(Among {
            step: self.among_step(),
            tokens: tools.reader.shape(&message)?.tokens(),
            message,
        });
        Ok(())
    }

    /// Goes back to the state before the guidance.
    pub(super) fn go_back(&mut self, before: BeforeGuidance, marks: Arc<Marks>) {
        self.guide = before.guide;
        self.marks = marks;
        self.shapes = before.shapes;
        self.injected = before.injected;
        self.tools = before.tools;
        (self.guidance, self.among) = (None, None);
        self.fixed = before.fixed;
        self.prologue = before.prologue;
    }

    /// Whether this turn's first hop brings the guidance in front, so that its prefix is new either way.
    pub(super) fn is_newly_guided(&self) -> bool {
        let waited = self.path.guide.is_none_or(Guide::is_waiting) && !self.guide.among;
        waited && self.guide.waited && !self.guide.is_waiting() && self.pending.is_empty()
    }

    /// Whether the guidance was in the conversation's first request, so that everything before the
    /// first `start` is prologue (paper 000 §4.3).
    pub(super) fn was_guided_from_the_start(&self) -> bool {
        self.guidance.is_some() && !self.guide.waited
    }

    /// The number of the first item after the guidance came in. Nobody asked the model to mark what
    /// is older.
    pub fn guided_from(&self, first_item: ItemNo) -> Option<ItemNo> {
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
