//! The stream machine: one client stream made of one or more upstream streams. It owns the order
//! of what the client gets, what is held back and what is left out; it passes a frame on at once
//! and unchanged wherever nothing forces it not to.
//!
//! Three things are kept from the client for a while: a frame with a call that is not known to be
//! visible, with all that follows it, until that is known (`queue`); the frame with the finish
//! reason, with all that follows it, until the turn is recorded (`held`); and nothing else.

use std::collections::VecDeque;

use bytes::Bytes;

use super::answer::{Answer, Verdict, missing_newlines, seam};
use super::calls::{Fate, Table};
use super::hop::Hop;
use super::owed::Owed;
use super::shape::Shape;
use super::wire::{self, Body, CallFate, Chunk, Finish, Origin, Plan, Seam, Told};
use super::{Config, Spec, StreamError, UsageWish, told};
use crate::dialect::guard::Guard;
use crate::dialect::sse::{Frame, Splitter};
use crate::model::{Usage, raw};

/// Reads a turn's upstream streams and writes the client's.
///
/// Its calls, in order: per hop any number of [`push`](Self::push), then
/// [`end_hop`](Self::end_hop); after it [`release`](Self::release), [`next_hop`](Self::next_hop),
/// [`close`](Self::close) or [`fail`](Self::fail). After `fail`, which may come at any time, after
/// `release` and after `close` the client's stream is over.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    wish: UsageWish,
    guard: Guard,
    /// Whether the guard stopped something: nothing is said from there on.
    withheld: bool,
    splitter: Splitter,
    hop: Hop,
    /// Usage of the hops before this one.
    counted: Vec<Usage>,
    /// Text that the hops before this one handed out, seams included.
    earlier: String,
    /// Text of the hop that has ended and is not yet part of `earlier`, if another one follows.
    ended_text: String,
    /// Who speaks in frames after the first hop; `None` in the first hop.
    origin: Option<Origin>,
    /// Newlines that this hop's text opened with, while it has said nothing else.
    opening: Option<usize>,
    /// Whether a call was kept from the client in this turn.
    hid: bool,
    /// What the client is owed of those.
    owed: Owed,
    role_said: bool,
    spoken: bool,
    /// Whether usage was taken out of a frame of this hop that has gone to the client.
    usage_taken: bool,
    shape: Option<Shape>,
    queue: VecDeque<Routed>,
    held: Vec<Routed>,
    /// What was held, as the client may see it: known once the hop has ended.
    ending: Vec<Frame>,
}

/// A frame with the slots of the calls that its pieces belong to.
type Routed = (Frame, Vec<usize>);

impl Machine {
    /// A machine at the start of a turn's first hop.
    #[must_use]
    pub fn new(config: Config, spec: &Spec) -> Self {
        Self {
            splitter: Splitter::new(config.event_cap),
            config,
            wish: spec.usage_wish,
            guard: Guard::new(spec),
            withheld: false,
            hop: Hop::new(Table::new(&spec.hidden)),
            counted: Vec::new(),
            earlier: String::new(),
            ended_text: String::new(),
            origin: None,
            opening: None,
            hid: false,
            owed: Owed::default(),
            role_said: false,
            spoken: false,
            usage_taken: false,
            shape: None,
            queue: VecDeque::new(),
            held: Vec::new(),
            ending: Vec::new(),
        }
    }

    /// Takes one read of the upstream's body and appends what the client gets of it.
    ///
    /// # Errors
    /// [`StreamError`] if the stream can't be read on; call [`Machine::fail`] then.
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if self.withheld {
            return Err(StreamError::Withheld);
        }
        self.splitter.push(chunk);
        while let Some(frame) = self.splitter.next_frame()? {
            self.take(frame, out);
            if self.withheld {
                return Err(StreamError::Withheld);
            }
        }
        Ok(())
    }

    /// Whether it met what it must not hand on.
    #[must_use]
    pub fn withheld(&self) -> bool {
        self.withheld
    }

    /// Whether the frame with the finish reason (or `[DONE]`) was seen: it and all after it are
    /// held, and what the hop says is known but for the end of its body.
    #[must_use]
    pub fn finish_seen(&self) -> bool {
        !self.held.is_empty() || !self.ending.is_empty()
    }

    /// Whether frames wait for what comes behind them, so that the client hears nothing meanwhile.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.finish_seen() || !self.queue.is_empty()
    }

    /// What the hop says, once its finish reason was seen: all but usage that comes behind it. So
    /// a driver can begin to record a turn while the upstream is still sending its end.
    #[must_use]
    pub fn said(&self) -> Option<Answer> {
        if !self.finish_seen() {
            return None;
        }
        let mut hop = self.hop.clone();
        hop.settle();
        Some(hop.take_answer())
    }

    /// Whether the client was handed any byte yet, comments included.
    #[must_use]
    pub fn spoken(&self) -> bool {
        self.spoken
    }

    /// The upstream's body has ended: what the hop said. What was still undecided is decided, and
    /// what may be seen of it is appended.
    pub fn end_hop(&mut self, out: &mut Vec<Bytes>) -> Answer {
        if let Some(tail) = self.splitter.finish() {
            // Half an event is no event for any client, and would run into what follows it.
            let data = tail
                .data()
                .filter(|data| data == wire::DONE || raw::is_json(data));
            if data.is_some() {
                self.take(tail.completed(), out);
            }
        }
        self.hop.settle();
        self.drain(out);
        for (frame, slots) in std::mem::take(&mut self.held) {
            let shown = self.shown_later(frame, &slots, true);
            self.ending.extend(shown);
        }
        self.say_rest(out);
        let answer = self.hop.take_answer();
        if answer.verdict() == Verdict::HiddenOnly {
            self.ended_text.clone_from(&answer.text);
        }
        answer
    }

    /// Hands out what of `reasoning_details` waited for a call that never came.
    fn say_rest(&mut self, out: &mut Vec<Bytes>) {
        let rest = self.owed.rest(&self.hop.calls);
        let Some(rest) = rest.filter(|_| !self.hop.failed()) else {
            return;
        };
        let role = !std::mem::replace(&mut self.role_said, true);
        let origin = self.origin.as_ref().unwrap_or(&self.hop.origin);
        let event = wire::details_event(origin, role, &rest);
        self.say(event, out);
    }

    /// The hop had hidden calls only: drops its end and goes on in the same client stream. What
    /// the frames that were held say besides the end is appended.
    pub fn next_hop(&mut self, out: &mut Vec<Bytes>) {
        for frame in std::mem::take(&mut self.ending) {
            let Some(data) = frame.data() else { continue };
            let Some(chunk) = Chunk::read(&data, Body::Delta, self.hop.choice) else {
                continue;
            };
            let plan = Plan {
                usage: Told::Nothing,
                finish: Finish::Null,
                ..Plan::keep()
            };
            let said = chunk.has_body().then(|| chunk.rewrite(&plan)).flatten();
            if let Some(data) = said {
                self.say(frame.with_data(&data), out);
            }
        }
        self.begin_hop();
    }

    /// Hands out the end of the response that was held, edited where hops before it call for it.
    pub fn release(&mut self, out: &mut Vec<Bytes>) {
        let told = self.usage_told();
        let mut owed = self.usage_taken && self.wish == UsageWish::Asked;
        for frame in std::mem::take(&mut self.ending) {
            let data = frame.data().unwrap_or_default();
            let chunk = Chunk::read(&data, Body::Delta, self.hop.choice);
            let counts = chunk.as_ref().is_some_and(Chunk::has_usage);
            let ends = data == wire::DONE;
            if ends && owed {
                self.tell_usage(out);
            }
            owed = owed && !counts && !ends;
            match (chunk, &told) {
                (Some(chunk), Some(usage)) if counts && self.origin.is_some() => {
                    let edits = chunk.usage_edits(Told::These(usage));
                    self.say(frame.with_data(&wire::splice(&data, edits)), out);
                }
                _ => self.say(frame.into_raw(), out),
            }
        }
        if owed {
            self.tell_usage(out);
        }
    }

    /// Ends the turn in place of the model, which would have gone on with hidden calls: what the
    /// held frames say besides the end, this text if given, finish reason `stop`, usage if the
    /// client asked, `[DONE]`.
    pub fn close(&mut self, text: Option<&str>, out: &mut Vec<Bytes>) {
        self.next_hop(out);
        let origin = self.origin.clone().unwrap_or_default();
        let mut role = !std::mem::replace(&mut self.role_said, true);
        if let Some(text) = text {
            let joined = format!("{}{text}", seam(&self.earlier, text));
            self.say(
                wire::text_event(&origin, std::mem::take(&mut role), &joined),
                out,
            );
            self.earlier.push_str(&joined);
        }
        self.say(wire::finish_event(&origin, role, "stop"), out);
        if self.wish == UsageWish::Asked {
            self.tell_usage(out);
        }
        self.say(crate::dialect::sse::event(wire::DONE), out);
    }

    /// Ends the client's stream with an error event and without `[DONE]`. What was held or
    /// undecided is dropped. The error is a JSON object, with or without the `error` key around
    /// it; anything else becomes the message of one.
    pub fn fail(&mut self, error: &[u8], out: &mut Vec<Bytes>) {
        self.queue.clear();
        self.held.clear();
        self.ending.clear();
        self.say(wire::error_event(error), out);
    }

    fn take(&mut self, frame: Frame, out: &mut Vec<Bytes>) {
        if let Some(shape) = &self.shape {
            if let Some(string) = shape.read(frame.raw()) {
                let passes = shape.passes;
                self.hop.sink(shape.sink, string);
                if passes {
                    self.say(frame.into_raw(), out);
                }
                return;
            }
            self.shape = None;
        }
        match frame.data() {
            None => self.take_unknown(frame, out),
            Some(data) if data == wire::DONE => self.take_done(frame, out),
            Some(data) => match Chunk::read(&data, Body::Delta, self.hop.choice) {
                Some(chunk) if self.stops(&frame, &chunk) => self.withheld = true,
                Some(chunk) if chunk.is_error() || frame.event() == b"error" => {
                    self.hop.fail(data.clone());
                    self.drain(out);
                    self.hold_or_say(frame, out);
                }
                Some(chunk) => self.take_chunk(frame, &chunk, out),
                None => self.take_unknown(frame, out),
            },
        }
    }

    fn take_done(&mut self, frame: Frame, out: &mut Vec<Bytes>) {
        self.hop.mark_done();
        self.drain(out);
        // A stream that failed never ends as if it had not.
        if !self.hop.failed() {
            self.held.push((frame, Vec::new()));
        }
    }

    /// Whether a chunk holds a hidden call where none is taken out.
    fn stops(&self, frame: &Frame, chunk: &Chunk<'_>) -> bool {
        let named = chunk.names_at();
        let goes_on = self.hop.calls.keeps();
        self.guard.stops(frame, &named)
            || (chunk.is_odd() && self.guard.stops_piece(chunk.data(), &named, goes_on))
    }

    /// What is no JSON object is the client's to judge, unless it may hold a hidden call.
    fn take_unknown(&mut self, frame: Frame, out: &mut Vec<Bytes>) {
        if self.guard.stops_odd(&frame) || self.hop.calls.has_hidden_id(frame.raw()) {
            self.withheld = true;
            return;
        }
        if frame.data().is_some() && self.guard.names(&frame) {
            return;
        }
        if frame.data().is_none() || self.queue.is_empty() {
            self.hold_or_say(frame, out);
        } else {
            self.queue.push_back((frame, Vec::new()));
        }
    }

    fn take_chunk(&mut self, frame: Frame, chunk: &Chunk<'_>, out: &mut Vec<Bytes>) {
        let slots = self.hop.absorb(chunk);
        self.drain(out);
        if chunk.finish().is_some() || self.finish_seen() {
            self.held.push((frame, slots));
            return;
        }
        if !self.queue.is_empty() || !self.decided(&slots) {
            self.queue.push_back((frame, slots));
            return;
        }
        if let Some(shown) = self.shown(&frame, chunk, &slots, false) {
            let untouched = shown.raw().len() == frame.raw().len() && shown.raw() == frame.raw();
            self.say(shown.into_raw(), out);
            self.learn(&frame, chunk, &slots, untouched);
        } else {
            self.learn(&frame, chunk, &slots, false);
        }
    }

    /// Remembers the frame's shape if the next one may be like it but for one string.
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
        self.shape = Some(Shape::of(frame.raw(), hole, padding, sink, passes));
    }

    /// Hands out, in order, what was queued behind calls that are decided by now.
    fn drain(&mut self, out: &mut Vec<Bytes>) {
        while let Some((_, slots)) = self.queue.front() {
            if !self.decided(slots) {
                return;
            }
            let Some((frame, slots)) = self.queue.pop_front() else {
                return;
            };
            if let Some(shown) = self.shown_later(frame, &slots, false) {
                self.say(shown.into_raw(), out);
            }
        }
    }

    /// As [`Machine::shown`], for a frame that had to wait.
    fn shown_later(&mut self, frame: Frame, slots: &[usize], held: bool) -> Option<Frame> {
        let data = frame.data().unwrap_or_default();
        match Chunk::read(&data, Body::Delta, self.hop.choice) {
            Some(chunk) if !chunk.is_error() => self.shown(&frame, &chunk, slots, held),
            Some(_) | None => Some(frame),
        }
    }

    fn decided(&self, slots: &[usize]) -> bool {
        slots
            .iter()
            .all(|slot| self.hop.calls.fate(*slot) != Fate::Open)
    }

    /// The frame as the client sees it, if it sees anything of it.
    fn shown(
        &mut self,
        frame: &Frame,
        chunk: &Chunk<'_>,
        slots: &[usize],
        held: bool,
    ) -> Option<Frame> {
        let calls = self.call_fates(chunk, slots);
        if self.wish == UsageWish::Added && chunk.is_usage_only() {
            return None;
        }
        let hides = self.hop.calls.hides();
        let stray = hides && chunk.stray_tokens().is_some();
        let signs = self.owed.pay(&self.hop.calls, chunk, slots);
        let kept = calls.iter().all(|fate| *fate == CallFate::Keep);
        let touched = stray || !kept || !signs.is_empty();
        if self.origin.is_none() && !touched {
            self.role_said |= chunk.has_role();
            return Some(frame.clone());
        }
        let later = self.origin.is_some();
        let usage = if later && !held {
            Told::Nothing
        } else {
            Told::AsIs
        };
        self.usage_taken |= later && !held && chunk.has_usage();
        let plan = Plan {
            origin: self.origin.as_ref(),
            drop_role: later && self.role_said,
            seam: seam_in(&self.earlier, &mut self.opening, chunk),
            usage,
            calls: &calls,
            signs: Some(&signs),
            hides,
            finish: Finish::Keep,
        };
        let data = chunk.rewrite(&plan)?;
        self.role_said |= chunk.has_role();
        Some(Frame::of(frame.with_data(&data)))
    }

    fn call_fates(&mut self, chunk: &Chunk<'_>, slots: &[usize]) -> Vec<CallFate> {
        let calls = &mut self.hop.calls;
        let hides = |fate| matches!(fate, Fate::Hidden | Fate::Withheld);
        self.hid |= slots.iter().any(|slot| hides(calls.fate(*slot)));
        let renumber = self.hid || self.origin.is_some();
        let mut spells = false;
        let fate = |(part, slot): (&wire::CallPart<'_>, &usize)| {
            if hides(calls.fate(*slot)) {
                return CallFate::Hide;
            }
            let shown_as = calls.shown_as(*slot, part.index, renumber);
            spells |= calls.spells_hidden(shown_as, *slot, &part.name);
            match part.index {
                Some(own) if renumber && own != shown_as => CallFate::Number(shown_as),
                Some(_) | None => CallFate::Keep,
            }
        };
        let fates = chunk.calls.iter().zip(slots).map(fate).collect();
        self.withheld |= spells;
        fates
    }

    fn begin_hop(&mut self) {
        self.origin = Some(
            self.origin
                .take()
                .unwrap_or_else(|| self.hop.origin.clone()),
        );
        self.counted.extend(self.hop.usage);
        let text = std::mem::take(&mut self.ended_text);
        self.earlier.push_str(seam(&self.earlier, &text));
        self.earlier.push_str(&text);
        self.opening = (!self.earlier.is_empty()).then_some(0);
        self.hop = Hop::new(self.hop.calls.next_hop());
        self.owed = Owed::default();
        self.queue.clear();
        self.shape = None;
        self.usage_taken = false;
    }

    fn usage_told(&self) -> Option<Usage> {
        told(
            self.config.usage,
            self.counted.iter().chain(&self.hop.usage),
        )
    }

    fn tell_usage(&mut self, out: &mut Vec<Bytes>) {
        let origin = self.origin.clone().unwrap_or_default();
        if let Some(usage) = self.usage_told() {
            self.say(wire::usage_event(&origin, &usage), out);
        }
    }

    fn hold_or_say(&mut self, frame: Frame, out: &mut Vec<Bytes>) {
        if self.finish_seen() {
            self.held.push((frame, Vec::new()));
        } else {
            self.say(frame.into_raw(), out);
        }
    }

    fn say(&mut self, bytes: Bytes, out: &mut Vec<Bytes>) {
        if self.withheld {
            return;
        }
        self.spoken = true;
        out.push(bytes);
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
