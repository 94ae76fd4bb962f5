//! The stream machine of Chat Completions: one client stream made of one or more upstream streams.
//! It owns the order of what the client gets, what is held back and what is left out; it passes a
//! frame on at once and unchanged unless something forces it not to.
//!
//! Three things are kept from the client for a while: a frame with a call that is not known to be
//! visible, with all that follows it, until that is known (`queue`); the frame with the finish
//! reason, with all that follows it, until the turn is recorded (`held`); and nothing else.

use std::collections::VecDeque;

use plimsoll_model::{Usage, raw};

use super::answer_builder::AnswerBuilder;
use super::call_table::{CallTable, Visibility};
use super::signature_debts::SignatureDebts;
use super::wire::{self, Body, CallPart, CallPlan, Chunk, Origin, RewritePlan, Seam, UsagePlan};
use crate::answer::{Answer, Verdict, missing_newlines, seam};
use crate::guard::Guard;
use crate::json;
use crate::machine::{Client, FormatMachine, KeptBytes};
use crate::names::Names;
use crate::shape::FrameShape;
use crate::sse::{self, Frame};
use crate::usage::{UsageMode, UsageWish, combined};

/// The stream machine of Chat Completions.
#[derive(Debug)]
pub struct ChatMachine {
    usage_mode: UsageMode,
    wish: UsageWish,
    guard: Guard,
    hop: AnswerBuilder,
    /// Usage of the hops before this one.
    counted: Vec<Usage>,
    /// Text that the hops before this one handed out, seams included.
    earlier: String,
    /// Text of the hop that has ended; it joins `earlier` if another hop follows.
    ended_text: String,
    /// The first hop's id, time and model for all later frames; `None` in the first hop.
    origin: Option<Origin>,
    /// How many characters the client has before this hop's own text.
    before: usize,
    /// How many newlines this hop's text opened with, while it has said nothing else.
    opening: Option<usize>,
    /// Whether a call was kept from the client in this turn.
    hid: bool,
    /// What the client is owed of the calls that were kept from it.
    debts: SignatureDebts,
    role_said: bool,
    /// Whether usage was taken out of a frame of this hop that has gone to the client.
    usage_taken: bool,
    shape: Option<FrameShape>,
    queue: VecDeque<Routed>,
    held: Vec<Routed>,
    /// The held frames as the client may see them: known once the hop has ended.
    ending: Vec<Frame>,
}

/// A frame with the slots of the calls that its pieces belong to.
type Routed = (Frame, Vec<usize>);

impl FormatMachine for ChatMachine {
    fn take(&mut self, frame: Frame, client: &mut Client<'_>) {
        if let Some(shape) = &self.shape {
            if let Some(string) = shape.read(frame.raw()) {
                let passes = shape.passes;
                self.hop.sink(shape.sink, string);
                if passes {
                    client.say(frame.into_raw());
                }
                return;
            }
            self.shape = None;
        }
        match frame.data() {
            None => self.take_unknown(frame, client),
            Some(data) if data == wire::DONE => self.take_done(frame, client),
            Some(data) => match Chunk::read(&data, Body::Delta, self.hop.choice) {
                Some(chunk) if self.stops(&frame, &chunk) => client.withhold(),
                Some(chunk) if chunk.is_error() || frame.event() == b"error" => {
                    // An error is handed on unread, and a piece of a hidden name may not be.
                    if self.hop.calls.may_hide() && !chunk.calls.is_empty() {
                        client.withhold();
                        return;
                    }
                    self.hop.fail(data.clone());
                    self.drain(client);
                    self.hold_or_say(frame, client);
                }
                Some(chunk) => self.take_chunk(frame, &chunk, client),
                None => self.take_unknown(frame, client),
            },
        }
    }

    fn is_whole(&self, data: &[u8]) -> bool {
        data == wire::DONE || raw::is_json(data)
    }

    fn finish_seen(&self) -> bool {
        !self.held.is_empty() || !self.ending.is_empty()
    }

    fn is_told(&self) -> bool {
        self.finish_seen() && self.hop.is_told()
    }

    fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    fn kept(&self) -> KeptBytes {
        let frames = |frames: &mut dyn Iterator<Item = &Frame>| -> usize {
            let bytes = |frame: &Frame| frame.raw().len() + size_of::<Routed>();
            frames.map(bytes).sum()
        };
        let mut waiting = self.queue.iter().chain(&self.held).map(|(frame, _)| frame);
        let kept = self.hop.kept();
        KeptBytes {
            waits: kept.waits + frames(&mut waiting) + self.earlier.len() + self.debts.bytes(),
            ..kept
        }
    }

    fn forget(&mut self) {
        self.hop.forget();
    }

    fn said(&self) -> Answer {
        let mut hop = self.hop.clone();
        hop.settle();
        hop.take_answer()
    }

    fn end_hop(&mut self, client: &mut Client<'_>) -> Answer {
        self.hop.settle();
        self.drain(client);
        for (frame, slots) in std::mem::take(&mut self.held) {
            let shown = self.shown_later(frame, &slots, true, client);
            self.ending.extend(shown);
        }
        self.say_rest(client);
        let answer = self.hop.take_answer();
        if answer.verdict() == Verdict::HiddenOnly {
            self.ended_text.clone_from(&answer.text);
        }
        answer
    }

    /// What the held frames say besides the end is handed out; the end is dropped.
    fn next_hop(&mut self, client: &mut Client<'_>) {
        for frame in std::mem::take(&mut self.ending) {
            let Some(data) = frame.data() else { continue };
            let Some(chunk) = Chunk::read(&data, Body::Delta, self.hop.choice) else {
                continue;
            };
            let plan = RewritePlan {
                usage: UsagePlan::Remove,
                goes_on: true,
                ..RewritePlan::default()
            };
            let said = chunk.has_delta().then(|| chunk.rewrite(&plan)).flatten();
            if let Some(data) = said {
                client.say(frame.with_data(&data));
            }
        }
        self.begin_hop();
    }

    fn count(&mut self, usage: &[Usage]) {
        self.counted.extend(usage);
    }

    fn release(&mut self, client: &mut Client<'_>) {
        let combined = self.combined_usage();
        // Usage that was taken out of a frame is still owed. It is told before `[DONE]` at the
        // latest, unless a held frame tells usage anyway.
        let mut owed = self.usage_taken && self.wish == UsageWish::Asked;
        let several = self.origin.is_some() || !self.counted.is_empty();
        for frame in std::mem::take(&mut self.ending) {
            let data = frame.data().unwrap_or_default();
            let chunk = Chunk::read(&data, Body::Delta, self.hop.choice);
            let counts = chunk.as_ref().is_some_and(Chunk::has_usage);
            let ends = data == wire::DONE;
            if ends && owed {
                self.tell_usage(client);
            }
            owed = owed && !counts && !ends;
            match (chunk, &combined) {
                (Some(chunk), Some(usage)) if counts && several => {
                    let edits = chunk.usage_edits(UsagePlan::Replace(usage));
                    client.say(frame.with_data(&json::splice(&data, edits)));
                }
                _ => client.say(frame.into_raw()),
            }
        }
        if owed {
            self.tell_usage(client);
        }
    }

    /// What the held frames say besides the end, this text if given, finish reason `stop`, usage if
    /// the client asked for it, `[DONE]`.
    fn close(&mut self, text: Option<&str>, client: &mut Client<'_>) {
        self.next_hop(client);
        let origin = self.origin.clone().unwrap_or_default();
        let mut role = !std::mem::replace(&mut self.role_said, true);
        if let Some(text) = text {
            let joined = format!("{}{text}", seam(&self.earlier, text));
            let role = std::mem::take(&mut role);
            client.say(wire::text_event(&origin, role, &joined));
            self.earlier.push_str(&joined);
        }
        client.say(wire::finish_event(&origin, role, "stop"));
        if self.wish == UsageWish::Asked {
            self.tell_usage(client);
        }
        client.say(sse::event(wire::DONE));
    }

    /// The error event comes without `[DONE]`.
    fn fail(&mut self, error: &[u8], client: &mut Client<'_>) {
        self.queue.clear();
        self.held.clear();
        self.ending.clear();
        client.say(wire::error_event(error));
    }
}

impl ChatMachine {
    /// A machine at the start of a turn's first hop.
    pub fn new(usage_mode: UsageMode, wish: UsageWish, guard: Guard, hidden: &Names) -> Self {
        Self {
            usage_mode,
            wish,
            guard,
            hop: AnswerBuilder::new(CallTable::new(hidden)),
            counted: Vec::new(),
            earlier: String::new(),
            ended_text: String::new(),
            origin: None,
            before: 0,
            opening: None,
            hid: false,
            debts: SignatureDebts::default(),
            role_said: false,
            usage_taken: false,
            shape: None,
            queue: VecDeque::new(),
            held: Vec::new(),
            ending: Vec::new(),
        }
    }

    /// Hands out the `reasoning_details` that waited for a call which never came.
    fn say_rest(&mut self, client: &mut Client<'_>) {
        let rest = self.debts.rest(&self.hop.calls);
        let Some(rest) = rest.filter(|_| !self.hop.failed()) else {
            return;
        };
        let role = !std::mem::replace(&mut self.role_said, true);
        let origin = self.origin.as_ref().unwrap_or(&self.hop.origin);
        client.say(wire::details_event(origin, role, &rest));
    }

    fn take_done(&mut self, frame: Frame, client: &mut Client<'_>) {
        self.hop.mark_done();
        self.drain(client);
        // A stream that failed never ends as if it had not.
        if !self.hop.failed() {
            self.held.push((frame, Vec::new()));
        }
    }

    /// Whether a chunk holds a hidden call at a place where none is taken out.
    fn stops(&self, frame: &Frame, chunk: &Chunk<'_>) -> bool {
        let named = chunk.names_at();
        let goes_on = self.hop.calls.keeps();
        self.guard.stops(frame, &named)
            || (chunk.is_odd() && self.guard.stops_piece(chunk.data, &named, goes_on))
    }

    /// Takes a frame that is no JSON object. The client may judge it, unless it may hold a hidden
    /// call.
    fn take_unknown(&mut self, frame: Frame, client: &mut Client<'_>) {
        if self.guard.stops_odd(&frame) || self.hop.calls.has_hidden_id(frame.raw()) {
            client.withhold();
            return;
        }
        if frame.data().is_some() && self.guard.names(&frame) {
            return;
        }
        // Comments need not wait in order.
        if frame.data().is_none() || self.queue.is_empty() {
            self.hold_or_say(frame, client);
        } else {
            self.queue.push_back((frame, Vec::new()));
        }
    }

    fn take_chunk(&mut self, frame: Frame, chunk: &Chunk<'_>, client: &mut Client<'_>) {
        // This chunk may decide the calls that frames before it wait for.
        let slots = self.hop.absorb(chunk);
        self.drain(client);
        if chunk.finish().is_some() || self.finish_seen() {
            self.held.push((frame, slots));
            return;
        }
        if !self.queue.is_empty() || !self.decided(&slots) {
            self.queue.push_back((frame, slots));
            return;
        }
        let shown = self.shown(&frame, chunk, &slots, false, client);
        let untouched = shown.as_ref().is_some_and(|shown| {
            shown.raw().len() == frame.raw().len() && shown.raw() == frame.raw()
        });
        if let Some(shown) = shown {
            client.say(shown.into_raw());
        }
        self.learn(&frame, chunk, &slots, untouched);
    }

    /// Remembers the frame's shape if the next frame may differ from it in one string only.
    fn learn(&mut self, frame: &Frame, chunk: &Chunk<'_>, slots: &[usize], untouched: bool) {
        let (Some(data), Some(hole)) = (frame.data_span(), chunk.only_hole()) else {
            return;
        };
        let Some((sink, passes)) = self.hop.sink_of(chunk, hole.start, slots) else {
            return;
        };
        if passes && (!untouched || self.origin.is_some()) {
            return;
        }
        let padding = chunk.padding().map(|span| raw::shift(&span, data.start));
        let hole = raw::shift(&hole, data.start);
        self.shape = Some(FrameShape::of(frame.raw(), hole, padding, sink, passes));
    }

    /// Hands out, in order, the frames whose calls are decided by now.
    fn drain(&mut self, client: &mut Client<'_>) {
        while let Some((_, slots)) = self.queue.front()
            && self.decided(slots)
            && let Some((frame, slots)) = self.queue.pop_front()
        {
            if let Some(shown) = self.shown_later(frame, &slots, false, client) {
                client.say(shown.into_raw());
            }
        }
    }

    /// Like [`ChatMachine::shown`], for a frame that had to wait.
    fn shown_later(
        &mut self,
        frame: Frame,
        slots: &[usize],
        held: bool,
        client: &mut Client<'_>,
    ) -> Option<Frame> {
        let data = frame.data().unwrap_or_default();
        match Chunk::read(&data, Body::Delta, self.hop.choice) {
            Some(chunk) if !chunk.is_error() => self.shown(&frame, &chunk, slots, held, client),
            Some(_) | None => Some(frame),
        }
    }

    fn decided(&self, slots: &[usize]) -> bool {
        let calls = &self.hop.calls;
        let open = |slot: &usize| calls.visibility(*slot) == Visibility::Open;
        !slots.iter().any(open)
    }

    /// The frame as the client sees it; `None` if it sees nothing of it. `held` says that the frame
    /// waits for the end of the turn, where usage is told.
    fn shown(
        &mut self,
        frame: &Frame,
        chunk: &Chunk<'_>,
        slots: &[usize],
        held: bool,
        client: &mut Client<'_>,
    ) -> Option<Frame> {
        let calls = self.plan_calls(chunk, slots, client);
        if self.wish == UsageWish::Added && chunk.is_usage_only() {
            return None;
        }
        let hides = self.hop.calls.hides();
        let stray = hides && chunk.stray_tokens().is_some();
        let signs = self.debts.pay(&self.hop.calls, chunk, slots);
        let kept = calls.iter().all(|plan| *plan == CallPlan::Keep);
        let later = self.origin.is_some();
        if !later && !stray && kept && signs.is_empty() {
            self.role_said |= chunk.has_role();
            return Some(frame.clone());
        }
        // Until the last hop has ended nobody knows what its usage adds up to.
        let usage = match later && !held {
            true => UsagePlan::Remove,
            false => UsagePlan::Keep,
        };
        self.usage_taken |= later && !held && chunk.has_usage();
        let seam = seam_in(&self.earlier, &mut self.opening, chunk);
        self.before += seam.map_or(0, |seam| seam.newlines);
        let plan = RewritePlan {
            origin: self.origin.as_ref(),
            drop_role: later && self.role_said,
            seam,
            before: self.before,
            usage,
            calls: &calls,
            signs: Some(&signs),
            hides,
            goes_on: false,
        };
        let data = chunk.rewrite(&plan)?;
        self.role_said |= chunk.has_role();
        Some(Frame::of(frame.with_data(&data)))
    }

    /// What becomes of the calls of a chunk.
    fn plan_calls(
        &mut self,
        chunk: &Chunk<'_>,
        slots: &[usize],
        client: &mut Client<'_>,
    ) -> Vec<CallPlan> {
        let calls = &mut self.hop.calls;
        let hidden = |slot, calls: &CallTable| {
            let visibility = calls.visibility(slot);
            matches!(visibility, Visibility::Hidden | Visibility::Withheld)
        };
        self.hid |= slots.iter().any(|slot| hidden(*slot, calls));
        let renumber = self.hid || self.origin.is_some();
        let mut spells = false;
        let plan = |(part, slot): (&CallPart<'_>, &usize)| {
            if hidden(*slot, calls) {
                return CallPlan::Hide;
            }
            let shown_as = calls.shown_as(*slot, part.index, renumber);
            spells |= calls.spells_hidden(shown_as, *slot, &part.name);
            match part.index {
                Some(own) if renumber && own != shown_as => CallPlan::Number(shown_as),
                Some(_) | None => CallPlan::Keep,
            }
        };
        let plans = chunk.calls.iter().zip(slots).map(plan).collect();
        if spells {
            client.withhold();
        }
        plans
    }

    /// Forgets the hop that has ended, but for what the client was told of it.
    fn begin_hop(&mut self) {
        let origin = self.origin.take();
        self.origin = Some(origin.unwrap_or_else(|| self.hop.origin.clone()));
        self.counted.extend(self.hop.usage);
        let text = std::mem::take(&mut self.ended_text);
        self.earlier.push_str(seam(&self.earlier, &text));
        self.earlier.push_str(&text);
        self.opening = (!self.earlier.is_empty()).then_some(0);
        self.before = self.earlier.chars().count();
        self.hop = AnswerBuilder::new(self.hop.calls.next_hop());
        self.debts = SignatureDebts::default();
        self.queue.clear();
        self.shape = None;
        self.usage_taken = false;
    }

    fn combined_usage(&self) -> Option<Usage> {
        let hops = self.counted.iter().chain(&self.hop.usage);
        combined(self.usage_mode, hops)
    }

    fn tell_usage(&self, client: &mut Client<'_>) {
        let origin = self.origin.clone().unwrap_or_default();
        if let Some(usage) = self.combined_usage() {
            client.say(wire::usage_event(&origin, &usage));
        }
    }

    fn hold_or_say(&mut self, frame: Frame, client: &mut Client<'_>) {
        if self.finish_seen() {
            self.held.push((frame, Vec::new()));
        } else {
            client.say(frame.into_raw());
        }
    }
}

/// The newlines that a later hop's chunk needs in its text, if they fall due in it.
fn seam_in(earlier: &str, opening: &mut Option<usize>, chunk: &Chunk<'_>) -> Option<Seam> {
    let before = (*opening)?;
    let text = chunk.text()?;
    let (leading, behind) = leading_newlines(chunk.bytes(&text));
    if behind == text.len() {
        *opening = Some(before + leading);
        return None;
    }
    *opening = None;
    let newlines = missing_newlines(earlier, before + leading);
    let at = text.start + behind;
    (newlines > 0).then_some(Seam { at, newlines })
}

/// How many newlines a raw string opens with, and how many bytes they take.
fn leading_newlines(inner: &[u8]) -> (usize, usize) {
    let (mut count, mut rest) = (0, inner);
    let forms: [&[u8]; 3] = [br"\n", br"\u000a", br"\u000A"];
    while let Some(after) = forms.iter().find_map(|form| rest.strip_prefix(*form)) {
        count += 1;
        rest = after;
    }
    (count, inner.len() - rest.len())
}
