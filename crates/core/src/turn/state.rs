//! The request half of one hop: transcript, size, pass, bytes. [`TurnState`] has everything that a
//! turn keeps between its hops. Pure. Never awaits, never reads a store or a clock.

mod body;
mod cached_prefix;
mod diagnosis;
mod guidance;
mod inject;
mod later_hops;
mod limits;
mod look;
mod moment;
mod moved_marks;
mod pass;
mod thoughts;
mod trigger;

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_model::{
    BoundTo, Digest, EditKind, Edits, Guide, GuideReason, Head, HiddenTool, Marks, PinMove, Pins,
    Role, Rope, Shape, StoredHop, TurnRecord,
};
use plimsoll_tokens::Family;
use plimsoll_tokens::ledger::RequestSizes;
use plimsoll_wire::edit::AssistantEdit;
use plimsoll_wire::message::MessageError;
use plimsoll_wire::request::Request;

use super::asked::Asks;
use super::call_spans::CallSpans;
use super::classes::Classes;
use super::dropped::Dropped;
use super::memo::{Decoded, Reader};
use super::originals::OwnTexts;
use super::pins::{PinAsk, PinReport};
use super::renamed;
use super::settings::Terms;
use super::text_results::Fronts;
use crate::commit::Trigger;
use crate::policy::{self, Order, Pinned, Policy, Proposal, Repetition, Target};
use crate::render::prefix::Bonds;
use crate::render::tools::Injected;
use crate::render::{self, Breakpoints, RenderError};
use crate::session::index::EntryIndex;
use crate::session::path::Path;
use crate::session::transcript::{self, Transcript};
use crate::session::view::View;

use guidance::Among;
pub use later_hops::LaterHops;
pub use look::Look;
pub use moved_marks::MovedMarks;

/// What went wrong in the middle. The caller then forwards the client's bytes.
#[derive(Debug, thiserror::Error)]
pub enum MiddleError {
    /// A message that the dialect does not allow.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A view could not be turned into bytes.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The tools or the system message could not be extended.
    #[error("the system message or the tools could not be extended")]
    Inject,
}

/// What a turn keeps between its hops.
pub struct TurnState {
    /// The client's request.
    pub request: Request,
    /// The shapes of its messages as they are sent, guidance included.
    pub shapes: Vec<Arc<Shape>>,
    /// The heads of its prefixes.
    pub heads: Vec<Head>,
    /// Whether the store knows of another turn that has gone on from the same record. `None` if it was not asked.
    pub taken: Option<bool>,
    /// The records behind it.
    pub path: Arc<Path>,
    /// The terms under which it is served.
    pub terms: Terms,
    /// The hidden tools that are injected.
    pub injected: Injected,
    /// What the conversation was told of them, including in this turn's first hop.
    pub guide: Guide,
    /// The hidden tools that are sent in front of the client's, if they are.
    pub tools: Option<Bytes>,
    /// The system message with guidance, and the client's message that it replaces.
    pub guidance: Option<(Option<usize>, Bytes)>,
    /// The guidance, if it is a system message among the others.
    pub(super) among: Option<Among>,
    /// Tokens of the tools, and of the guidance if that is a message of its own.
    pub fixed: u64,
    /// Tokens of what the client sent, by the same formula.
    pub client_tokens: u64,
    /// All tokens of its messages, those that its provider drops included.
    client_spoken: u64,
    /// Tokens of that which the client's previous request had already.
    pub client_held: u64,
    /// Tokens of the client's tools.
    pub client_tools: u64,
    /// Marks of the client's system text, its tools, and how much the model is to think.
    pub front: (u32, u32, u32),
    /// Whether the client has changed its system text or its tools since the newest turn.
    pub prologue_changed: bool,
    /// The digest of system text and tools.
    pub prologue: Digest,
    /// The hops so far.
    pub pending: Vec<StoredHop>,
    /// What later hops are sent otherwise than the first.
    pub later: LaterHops,
    /// The id of the newest answer, which the next request may be compared with.
    pub answered: Option<String>,
    /// All marks, including those of this turn's passes.
    pub marks: Arc<Marks>,
    /// Edits that the upstream is known to refuse, for the record. The terms may exclude more of them, to find out.
    pub known: Edits,
    /// What this turn is asked to pin.
    pub pin_asks: Vec<PinAsk>,
    /// What an operator asked of the session, and what came of it so far. Boxed, as that is seldom.
    pub asks: Box<Asks>,
    /// What there is of the histories that the client has dropped, once a hidden call may need it.
    pub dropped: Arc<Dropped>,
    /// What is pinned, by this turn and before.
    pub pins: Pins,
    /// Pins that this turn set or lifted.
    pub pin_moves: Vec<PinMove>,
    /// What became of them.
    pub pin_report: PinReport,
    /// Whether the client's new messages were searched for pins.
    pub(super) pins_read: bool,
    /// How the client's results begin that came as text.
    fronts: Fronts,
    /// Where the calls of its messages lie.
    calls: CallSpans,
}

/// One hop ready to be sent.
pub struct Prepared {
    /// The body.
    pub body: Rope,
    /// The view that it was rendered from.
    pub view: View,
    /// Its size in tokens, before calibration.
    pub estimate: u64,
    /// How much of this view the upstream was sent before, at its front.
    pub asked: RequestSizes,
    /// The size that its view would have without the pass, and how much at the front that left as it
    /// was. None without a pass.
    pub unpassed: Option<(u64, u64)>,
    /// The size of the transcript with nothing evicted.
    pub whole: u64,
    /// The ratio of reported tokens to counted tokens.
    pub ratio: f64,
    /// The floor that a pass would go down to, before calibration.
    pub floor: u64,
    /// The ceiling, before calibration.
    pub ceiling: u64,
    /// The settings of the eviction order.
    pub eviction: policy::EvictionSettings,
    /// The kinds of edits in its view.
    pub edits: Edits,
    /// What was made of new results.
    pub entered: Option<Box<Proposal>>,
    /// The pass that was committed.
    pub pass: Option<(Trigger, Box<Proposal>)>,
    /// What started a pass that was not committed, because it would free too little for the cached
    /// prefix that it breaks. A pass at a new user message that would pay stands here, too, if no policy runs there.
    pub declined: Option<Trigger>,
    /// What can't be evicted, if the budget can't be met.
    pub pinned: Option<Pinned>,
    /// How many results could not be kept although the settings ask for it, because all of them
    /// would have been too much.
    pub loosened: u32,
    /// How many times running the newest new call has brought the same result; 0 if no result is
    /// new.
    pub repetition: Repetition,
    /// Why the guidance came in with this view, if it did.
    pub guided: Option<GuideReason>,
    /// Breakpoints of the provider's cache, if any are to be set.
    pub breakpoints: Option<Breakpoints>,
    /// What the thoughts of its answer are bound to. None if the model doesn't bind them.
    pub bound_to: Option<Box<BoundTo>>,
}

/// A hop whose view is decided but whose bytes are not made yet.
pub struct Planned(Prepared);

impl Prepared {
    /// Converts a count to the provider's tokens.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "token counts are far below 2^52 and the ratio is positive"
    )]
    pub fn calibrated(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.ratio).round() as u64
    }
}

/// What preparing a hop needs beside the turn's state.
pub struct HopContext<'a> {
    /// Shapes and sizes.
    pub reader: Reader<'a>,
    /// Classes of tools.
    pub classes: &'a Classes,
    /// What is known of the model.
    pub family: &'a Family,
    /// Now, in milliseconds since 1970.
    pub now: u64,
}

impl TurnState {
    /// A turn before its first hop.
    #[must_use]
    pub fn new(
        request: Request,
        shapes: Vec<Arc<Shape>>,
        heads: Vec<Head>,
        path: Arc<Path>,
        terms: Terms,
        reader: &Reader<'_>,
    ) -> Self {
        let marks = Arc::new(path.marks.clone());
        let newest = path.newest();
        let answered = newest.and_then(|newest| newest.facts.cache.answer.clone());
        let (pin_asks, pins) = (terms.pins.clone(), path.pins.clone());
        let fronts = terms.fronts(reader, &request, &shapes);
        let path = renamed::path(request.dialect, &path, &shapes).map_or(path, Arc::new);
        Self {
            request,
            shapes,
            heads,
            taken: None,
            path,
            terms,
            injected: Injected::default(),
            guide: Guide::default(),
            tools: None,
            guidance: None,
            among: None,
            fixed: 0,
            client_tokens: 0,
            client_spoken: 0,
            client_tools: 0,
            front: (0, 0, 0),
            prologue_changed: false,
            client_held: 0,
            prologue: Digest([0; 32]),
            pending: Vec::new(),
            later: LaterHops::default(),
            answered,
            marks,
            known: Edits::default(),
            pin_asks,
            asks: Box::default(),
            dropped: Arc::default(),
            pins,
            pin_moves: Vec::new(),
            pin_report: PinReport::default(),
            pins_read: false,
            fronts,
            calls: CallSpans::default(),
        }
    }

    /// The turn of a request that was sent before, to be looked at.
    ///
    /// # Errors
    /// [`MessageError`] if a message of it is not what the format allows.
    pub fn again(
        request: Request,
        path: Arc<Path>,
        terms: Terms,
        reader: &Reader<'_>,
    ) -> Result<Self, MessageError> {
        let shapes = (0..request.messages.len()).map(|at| reader.shape(request.message(at)));
        let shapes = shapes.collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(request, shapes, Vec::new(), path, terms, reader))
    }

    /// Adds the edits that the upstream is known to refuse, and those that the session's records
    /// name: records know them after a restart and at another replica.
    pub fn know(&mut self, learned: Edits) {
        let records = self.path.entries.iter().rev().map(|entry| &entry.record);
        let mut same = records.filter(|record| record.model == self.request.model);
        let before = same.next().map(|record| record.without);
        self.known = self.known.or(learned).or(before.unwrap_or_default());
        self.terms.go_without(self.known);
    }

    /// Whether views do without other edits than those of the turn before, which breaks the prefix
    /// that the provider has cached. Breakpoints don't count.
    #[must_use]
    pub fn shows_otherwise(&self) -> bool {
        let now = self.terms.without.shown();
        let newest = self.path.newest();
        newest.is_some_and(|record| {
            let left = record.guide.among && !self.guide.among;
            record.model == self.request.model && (left || record.without.shown() != now)
        })
    }

    /// Prepares the next hop: [`TurnState::plan`], then [`TurnState::render`].
    ///
    /// # Errors
    /// As those two.
    pub fn prepare(
        &mut self,
        tools: &HopContext<'_>,
        refused: Option<u64>,
    ) -> Result<Prepared, MiddleError> {
        let planned = self.plan(tools, refused)?;
        self.render(planned)
    }

    /// Decides what the next hop shows, and whether the guidance comes in with it. `refused` is the
    /// size in tokens that the upstream refused as too long, if it did: then a pass evicts down to
    /// four fifths of that.
    ///
    /// # Errors
    /// [`MiddleError`] where the middle fails; the client's bytes are forwarded then.
    pub fn plan(
        &mut self,
        tools: &HopContext<'_>,
        refused: Option<u64>,
    ) -> Result<Planned, MiddleError> {
        self.pin(tools);
        let before = self.before_guidance(tools.family);
        // First without the guidance: most views need none.
        let planned = self.look(tools, refused)?;
        let Some(before) = before else {
            return Ok(planned);
        };
        let Some(reason) = self.guide_reason(&before, &planned) else {
            return Ok(planned);
        };
        // Try again with the guidance. The marks go back to where they were,
        // so that the pass is made anew for the larger view.
        let marks = self.marks.clone();
        if !self.bring_guidance(&before, tools)? {
            return Ok(planned);
        }
        let Planned(guided) = self.look(tools, refused)?;
        // The guidance may take the room that the pass would free. Then it waits for the next pass.
        if reason == GuideReason::Pass && guided.pass.is_none() {
            self.go_back(before, marks);
            return Ok(planned);
        }
        Ok(Planned(Prepared {
            guided: Some(reason),
            asked: self.guided_asked(&before, planned.0.asked, guided.asked),
            ..guided
        }))
    }

    /// Makes the view of the next hop under the present guidance, and runs a pass if one is due.
    fn look(
        &mut self,
        tools: &HopContext<'_>,
        refused: Option<u64>,
    ) -> Result<Planned, MiddleError> {
        // The conversation so far, and how it is shown by the marks that there are.
        let transcript = Arc::new(self.transcript(tools));
        let ratio = self.ratio();
        let decoded = Decoded::default();
        let written = self.written(tools, &transcript, &decoded);
        let limits = self.limits(tools, &transcript, ratio, refused);
        let view = written.view(&transcript, &self.marks);
        // A client that changed what stood before a thought has lost it.
        let (mut view, mut bonds) = self.in_place(tools, &written, view);
        let whole = self.whole(&transcript, view.size() + self.fixed);
        let (mut pass, mut pinned) = (None, None);
        let (mut cut, mut unpassed) = (None, None);
        let mut config = self.eviction(tools);
        // Rungs for new results run before a pass: what they free may make it needless. Their marks
        // and those of a pass become the turn's only at the end, because the originals borrow the
        // turn until then.
        let (entered, repetition) = self.entered(&written, &view, &config, limits);
        if let Some(entered) = &entered {
            // What has just come in stands behind all thoughts.
            view = written.after(&view, &entered.plan);
            bonds = self.bonds(tools, &view);
        }
        let size = view.size();
        let mut estimate = size + self.fixed;
        // The provider has cached what comes before the message that this pass was expected to
        // edit.
        let most = self.sets_breakpoints(tools.family);
        let before = most.and_then(|_| policy::next_cut(view.marked()));
        // A pass, if one is due and worth what it breaks.
        let due = self.trigger(tools, &view, &limits, refused);
        let mut declined = due.filter(|due| self.is_only_counted(*due));
        let trigger = due.filter(|_| declined.is_none());
        let mut loosened = 0;
        if let Some(trigger) = trigger {
            (config.held, loosened) = self.held(tools, &written, &view, (&config, limits, trigger));
            let made = self.pass(tools, &written, &view, trigger, &config, limits);
            (pinned, declined) = (made.pinned, made.declined.then_some(trigger));
            if let Some(taken) = made.taken {
                (cut, unpassed) = (Some(taken.cut), Some((estimate, taken.cut)));
                (view, bonds) = (taken.view, taken.bonds);
                pass = Some((trigger, taken.proposal));
            }
        } else if self.reads_ahead(&config) && estimate * 2 > limits.ceiling {
            // No pass is due, but one is near: reading now spares it from reading everything at
            // once.
            written.originals.read_ahead(tools.reader, view.notes());
        }
        estimate = view.size() + self.fixed;
        pinned = pinned.or_else(|| self.unheld(estimate > limits.ceiling, size));
        let planned = Prepared {
            breakpoints: most.map(|max| Self::breakpoints(max, &view, before)),
            body: Rope::default(),
            edits: self.edits(&view, bonds.as_ref()),
            bound_to: bonds.map(|bonds| Box::new(bonds.answer)),
            asked: self.asked(estimate, cut),
            estimate,
            unpassed,
            whole,
            ratio,
            floor: limits.floor,
            ceiling: limits.ceiling,
            eviction: config,
            view,
            entered: entered.map(Box::new),
            pass,
            declined,
            pinned,
            loosened,
            repetition,
            guided: None,
        };
        self.asks.judged |= planned.pass.is_some() || trigger == Some(Trigger::Asked);
        self.take_over(tools, &planned.view);
        Ok(Planned(planned))
    }

    /// Makes the marks of a view those of the turn.
    fn take_over(&mut self, tools: &HopContext<'_>, view: &View) {
        debug_assert_eq!(self.miscounted(tools, view), None);
        self.marks = view.shared_marks();
        self.pin_report = self.pins_held(view);
    }

    /// What the rungs for new results make of them, and how many times running the newest of them
    /// has come. Only a turn's first hop brings any of the client's.
    fn entered(
        &self,
        written: &OwnTexts<'_>,
        view: &View,
        config: &policy::EvictionSettings,
        limits: Target,
    ) -> (Option<Proposal>, Repetition) {
        if !self.pending.is_empty() || !self.is_managed() {
            return (None, Repetition::default());
        }
        let repetition = written.repetition(view);
        // What an upstream refuses to see edited goes up as it came.
        if self.terms.without.has(EditKind::Results) {
            return (None, repetition);
        }
        let entered = written.enter(&self.terms, view, config, limits);
        (entered, repetition)
    }

    fn eviction(&self, tools: &HopContext<'_>) -> policy::EvictionSettings {
        let mut config = self.terms.eviction(tools.family, self.request.dialect);
        config.prologue_until_start |= self.was_guided_from_the_start();
        config
    }

    fn written<'a>(
        &'a self,
        tools: &HopContext<'a>,
        transcript: &'a Transcript,
        decoded: &'a Decoded<'a>,
    ) -> OwnTexts<'a> {
        let recall = self.injected.name(HiddenTool::Recall);
        OwnTexts {
            originals: self.originals(transcript, Some(decoded)),
            reader: tools.reader,
            ceiling: self.terms.ceiling,
            recall: recall.filter(|_| self.offers()),
        }
    }

    /// The kinds of edits in a view. Whether it gets breakpoints is known when its bytes are made.
    fn edits(&self, view: &View, bonds: Option<&Bonds>) -> Edits {
        let mut edits = view.edits();
        if bonds.is_some_and(|bonds| !bonds.broken.is_empty()) {
            edits.put(EditKind::Thoughts);
        }
        if self.offers() {
            edits.put(EditKind::Tools);
        }
        if self.guidance.is_some() {
            edits.put(EditKind::Guidance);
        }
        if self.among.is_some() {
            edits.put(EditKind::GuidanceAmong);
        }
        if self.compared().is_some() {
            edits.put(EditKind::Diagnosis);
        }
        edits
    }

    /// Reports all of a request as pinned that is over its ceiling and not managed.
    fn unheld(&self, over: bool, size: u64) -> Option<Pinned> {
        (over && !self.is_managed()).then(|| Pinned {
            fixed: self.fixed,
            rest: size,
            ..Pinned::default()
        })
    }

    /// Breakpoints for a view: one before the message that its pass was expected to edit first,
    /// because the provider has cached what comes before that, and one before the message that the
    /// next pass is expected to edit first.
    fn breakpoints(max: usize, view: &View, before: Option<EntryIndex>) -> Breakpoints {
        let next = policy::next_cut(view.marked());
        Breakpoints {
            max,
            cuts: [before, next],
        }
    }

    /// Whether a pass of this turn would read the strings of all texts.
    fn reads_ahead(&self, config: &policy::EvictionSettings) -> bool {
        self.is_managed() && self.terms.ladder.has(Policy::Cwl) && config.order == Order::Levels
    }

    pub(super) fn transcript(&self, tools: &HopContext<'_>) -> Transcript {
        let handed = |message: usize, record: &TurnRecord| {
            self.request
                .dialect
                .handed(self.request.message(message), record)
        };
        let own_thoughts = |message: usize, record: &TurnRecord| {
            let joined = render::joined_lists(record);
            let edit = (!joined.is_empty()).then(|| AssistantEdit {
                joined,
                ..AssistantEdit::default()
            })?;
            let bytes = self.request.message(message);
            let own = self.request.dialect.assistant(bytes, &edit)?;
            Some(tools.reader.shape(&own).ok()?.reasoning)
        };
        let apart = self.request.dialect.separator();
        let apart = apart.and_then(|message| tools.reader.shape(message).ok());
        transcript::build(&transcript::TranscriptInput {
            shapes: &self.shapes,
            path: &self.path,
            pending: &self.pending,
            handed: &handed,
            own_thoughts: &own_thoughts,
            front: &|message| self.fronts.get(message)?.clone(),
            class: &|name| tools.classes.of(name),
            implicit_tokens: self.terms.implicit_tokens,
            without: self.terms.without,
            thoughts: self.thought_rules(tools.family),
            apart: apart.map_or(0, |shape| shape.tokens()),
            foreign: &|record| render::is_of_another(record, &self.request.model),
            hidden: &|step, call| self.hidden_size(tools, step, call),
            guidance: self.among.as_ref().map(|among| (among.step, among.tokens)),
        })
    }

    /// Whether the request is managed. Without tools it must belong to a conversation that was
    /// answered before, or the client may continue its answer without sending it again. All others
    /// are asked once, as a title is, and leave nothing behind.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        let known = !self.request.tools.arrays.is_empty() || !self.path.entries.is_empty();
        let answered = || self.shapes.iter().any(|one| one.role == Role::Assistant);
        known || self.terms.keeps(self.request.stored).1 || answered()
    }

    /// The size of the transcript with nothing evicted. `shown` is the size of the view.
    fn whole(&self, transcript: &Arc<Transcript>, shown: u64) -> u64 {
        // Without marks the view is the whole transcript.
        if *self.marks == Marks::default() {
            return shown;
        }
        self.fixed + View::live(Arc::clone(transcript)).size()
    }
}
