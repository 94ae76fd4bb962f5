//! Thoughts that are bound to what stood before them: finds those of a view that lost their place, and takes
//! them out for good where their provider refuses them. Never decides what else is evicted.

use std::sync::Arc;

use plimsoll_model::{Digest, EditKind, Edits, ItemKind, Mark, ReasoningBack, ThoughtRules};
use plimsoll_tokens::Family;
use plimsoll_wire::message::canonical_tools;

use super::{HopContext, TurnState};
use crate::policy::{self, Plan};
use crate::render::prefix::{self, Bonds, Front};
use crate::render::tools;
use crate::session::index::{EntryIndex, ItemIndex};
use crate::session::marked::Marked;
use crate::session::transcript::{Item, Transcript};
use crate::session::view::View;
use crate::turn::originals::OwnTexts;
use crate::turn::settings::Thoughts;

/// Thoughts that lost their place.
const THOUGHTS: EditKind = EditKind::Thoughts;

impl TurnState {
    /// What the provider makes of the thoughts of this conversation.
    pub(super) fn thought_rules(&self, family: &Family) -> ThoughtRules {
        let back = family.reasoning_back;
        ThoughtRules {
            // A call that must keep its thought keeps it beside whatever else goes.
            whole: self.request.dialect.binds_reasoning() && back != ReasoningBack::Calls,
            back,
            read: family.reasoning_read,
        }
    }

    /// Whether the model's thoughts are bound to what stands before them: by the table, or because the upstream
    /// refused some for that.
    pub(super) fn binds(&self, family: &Family) -> bool {
        family.reasoning_back == ReasoningBack::Bound || self.terms.without.has(THOUGHTS)
    }

    /// Whether the proxy is new to a conversation whose thoughts are bound to what stands before them. Hidden
    /// tools would end all of these thoughts, so they wait for a pass, which ends thoughts anyway. A single
    /// thought is what agents keep when they sum up a conversation, and that one has lost its place.
    pub(super) fn begins_behind_thoughts(&self, family: &Family) -> bool {
        let thoughtful = self.shapes.iter().filter(|shape| shape.reasoning > 0);
        self.path.guide.is_none() && self.binds(family) && thoughtful.count() > 1
    }

    /// Leaves out thoughts that lost their place before any is refused, if the operator asks for that, or if
    /// the client has its provider check them: then one of them may cost all thoughts behind it.
    pub fn strip_if_asked(&mut self, family: &Family) {
        // Where a call can't come back without its thought, the thought stays until it is refused.
        let may = !self.request.dialect.keeps_reasoning();
        let asked = self.terms.thoughts == Thoughts::Strip || self.request.checks_thoughts;
        if may && asked && self.binds(family) {
            self.terms.go_without(Edits::from_iter([THOUGHTS]));
        }
    }

    /// Whether a view leaves out thoughts that lost their place.
    fn strips(&self) -> bool {
        self.terms.without.has(THOUGHTS)
    }

    /// What the thoughts of a view are bound to. `None` if the model doesn't bind its thoughts.
    pub(super) fn bonds(&self, tools: &HopContext<'_>, view: &View) -> Option<Bonds> {
        if !self.binds(tools.family) {
            return None;
        }
        let reader = tools.reader;
        let canonical = |bytes: &[u8]| Some(reader.shape(bytes).ok()?.canonical);
        let system = match &self.guidance {
            Some((None, own)) => Some(canonical(own)?),
            Some((Some(_), _)) | None => None,
        };
        let front = Front {
            tools: self.tools_digest(),
            system,
            ours: self.tools.is_some() || self.guidance.is_some(),
        };
        prefix::bonds(&self.render_input(view, None), &front, &canonical)
    }

    /// The digest of the tools as they are sent.
    fn tools_digest(&self) -> Digest {
        let own = self.request.tools_bytes().unwrap_or_default();
        let sent = self.tools.as_ref().and_then(|_| {
            let (dialect, waits) = (self.request.dialect, self.guide.waited);
            tools::with_hidden(dialect, own, &self.injected, waits)
        });
        let taking = canonical_tools(sent.as_deref().unwrap_or(own));
        // Tools in the conversation are among its messages.
        let others = self.request.tools_beside();
        let others = others.filter(|array| *array != own).map(canonical_tools);
        let all: Vec<Digest> = std::iter::once(taking).chain(others).collect();
        let all: Vec<&[u8]> = all.iter().map(|one| one.as_bytes().as_slice()).collect();
        Digest::of(&all)
    }

    /// What the thoughts are worth that a pass would end, in plain tokens.
    pub(super) fn stake(&self, family: &Family, transcript: &Transcript) -> f64 {
        if !self.strips() {
            return 0.0;
        }
        let seen = Marked::new(transcript, &self.marks);
        let cut = policy::next_cut(seen).unwrap_or(EntryIndex(0));
        let thoughts = thoughts_from(seen, cut).into_iter();
        let items = thoughts.filter_map(|at| transcript.items.get(at));
        let tokens: u32 = items.map(|item| item.tokens).sum();
        f64::from(tokens) * family.prices.output * self.terms.thought_value
    }

    /// A view without the thoughts that lost their place, and what its thoughts are bound to. A thought that
    /// has left never returns, because its mark is recorded like any other.
    pub(super) fn in_place(
        &self,
        tools: &HopContext<'_>,
        written: &OwnTexts<'_>,
        view: View,
    ) -> (View, Option<Bonds>) {
        match self.bonds(tools, &view) {
            Some(bonds) if self.strips() && !bonds.broken.is_empty() => {
                let view = written.without_thoughts(&view, &bonds.broken);
                let bonds = self.bonds(tools, &view);
                (view, bonds)
            }
            // No provider of this format has been seen to refuse one: those that check drop it without a word.
            Some(bonds) if self.request.dialect.keeps_reasoning() => {
                (view.dropping(&bonds.broken), Some(bonds))
            }
            bonds => (view, bonds),
        }
    }

    /// Ends all thoughts that a view shows, for good.
    pub fn end_thoughts(&mut self, view: &View) {
        let marks = Arc::make_mut(&mut self.marks);
        for thought in thoughts_from(view.marked(), EntryIndex(0)) {
            if let Some(item) = view.transcript().items.get(thought) {
                marks.raise(item.no, Mark::Removed);
            }
        }
    }

    /// The view that a pass begins with: without the thoughts that it ends, which are those behind its first
    /// cut. None if there are none, or if they stay.
    pub(super) fn before_pass(
        &self,
        tools: &HopContext<'_>,
        written: &OwnTexts<'_>,
        view: &View,
    ) -> Option<View> {
        if !self.strips() || !self.binds(tools.family) {
            return None;
        }
        let cut = policy::next_cut(view.marked())?;
        let ended = thoughts_from(view.marked(), cut);
        (!ended.is_empty()).then(|| written.without_thoughts(view, &ended))
    }

    /// The view that a pass leaves, and what its thoughts are bound to. `begun` is the view that the pass began
    /// with, if that is another. The thoughts before the first change stay, unless the view would be over its
    /// ceiling with them.
    pub(super) fn after_pass(
        &self,
        tools: &HopContext<'_>,
        written: &OwnTexts<'_>,
        view: &View,
        begun: Option<View>,
        plan: &Plan,
        ceiling: u64,
    ) -> (View, Option<Bonds>) {
        let Some(begun) = begun else {
            return self.in_place(tools, written, written.after(view, plan));
        };
        // Without a move nothing changes, and thoughts alone meet the floor.
        if !plan.is_empty() {
            let with = self.in_place(tools, written, written.after(view, plan));
            if with.0.size() + self.fixed <= ceiling {
                return with;
            }
        }
        self.in_place(tools, written, written.after(&begun, plan))
    }
}

/// The thoughts that are shown from a message on.
fn thoughts_from(seen: Marked<'_>, first: EntryIndex) -> Vec<ItemIndex> {
    let thought = |item: &Item| {
        item.kind == ItemKind::Reasoning
            && item.entry >= first
            && seen.marks.get(item.no) != Mark::Removed
    };
    let items = seen.transcript.items.indexed();
    let thoughts = items.filter(|(_, item)| thought(item));
    thoughts.map(|(at, _)| at).collect()
}
