//! The stream machine of dialects whose messages are made of blocks: one client stream made of one
//! or more upstream streams. It owns the order of what the client gets, what is held back, what is
//! left out, and the numbers; it passes a frame on at once and unchanged wherever nothing forces
//! it not to. It knows no field name: what a frame is and how it is written is [`Events`]'.
//!
//! Three things are kept from the client for a while: a block that is not known to be visible,
//! with all that has its place behind it, until that is known (`queue`); the frame with the finish
//! reason, with all that follows it, until the turn is recorded (`held`); and nothing else.

use std::collections::VecDeque;

use bytes::Bytes;

use super::events::{Events, Fate, Numbers, Step, Told};
use crate::dialect::answer::{Answer, Verdict};
use crate::dialect::guard::Guard;
use crate::dialect::sse::{Frame, Splitter};
use crate::dialect::stream::{Config, Spec, StreamError};
use crate::dialect::told;
use crate::model::{Usage, raw};

/// Reads a turn's upstream streams and writes the client's; its calls are those of
/// [`crate::dialect::stream::Machine`].
#[derive(Debug)]
pub struct Machine {
    config: Config,
    guard: Guard,
    /// Whether the guard stopped something: nothing is said from there on.
    withheld: bool,
    splitter: Splitter,
    events: Events,
    /// The blocks of the hop, in the order in which they were begun.
    slots: Vec<Slot>,
    queue: VecDeque<Routed>,
    held: Vec<Routed>,
    /// Usage of the hops before this one.
    counted: Vec<Usage>,
    /// Usage of the hop that has ended.
    usage: Option<Usage>,
    count: Count,
    /// The blocks that the client was shown whole.
    shown: Vec<Bytes>,
    /// Whether the client was shown how the response begins.
    begun: bool,
    /// Whether hops stand before this one.
    later: bool,
    /// Whether the hop sent an error event.
    failed: bool,
    spoken: bool,
}

/// A block of the hop.
#[derive(Debug)]
struct Slot {
    /// The upstream's number of it.
    at: u64,
    /// The client's.
    shown_as: Option<u64>,
    fate: Fate,
    /// Whether its fate was not known when it began.
    late: bool,
    closed: bool,
}

/// A frame, and the slot of the block that it is about.
#[derive(Debug)]
struct Routed {
    frame: Frame,
    step: Step,
    slot: Option<usize>,
}

/// The numbers of what the client was shown.
#[derive(Debug, Default)]
struct Count {
    /// Whether they are no longer the upstream's, because something was left out.
    anew: bool,
    /// The next block's number.
    index: u64,
    /// The next event's number, where they count anew and events have one.
    sequence: Option<u64>,
    /// The last frame that was shown under its own number.
    last: Option<Frame>,
}

impl Machine {
    /// A machine at the start of a turn's first hop.
    #[must_use]
    pub fn new(config: Config, spec: &Spec) -> Self {
        Self {
            splitter: Splitter::new(config.event_cap),
            config,
            guard: Guard::new(spec),
            withheld: false,
            events: Events::new(spec),
            slots: Vec::new(),
            queue: VecDeque::new(),
            held: Vec::new(),
            counted: Vec::new(),
            usage: None,
            count: Count::default(),
            shown: Vec::new(),
            begun: false,
            later: false,
            failed: false,
            spoken: false,
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

    /// Whether the frame with the finish reason was seen: it and all after it are held, and what
    /// the hop says is known but for the end of its body.
    #[must_use]
    pub fn finish_seen(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether frames wait for what comes behind them, so that the client hears nothing meanwhile.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.finish_seen() || !self.queue.is_empty()
    }

    /// What the hop says, once its finish reason was seen.
    #[must_use]
    pub fn said(&self) -> Option<Answer> {
        self.finish_seen().then(|| self.events.answer())
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
            if tail.data().is_some_and(|data| raw::is_json(&data)) {
                self.take(tail.completed(), out);
            }
        }
        self.settle(out);
        let answer = self.events.answer();
        self.usage = answer.usage;
        answer
    }

    /// The hop had hidden calls only: drops its end and goes on in the same client stream.
    pub fn next_hop(&mut self, _out: &mut Vec<Bytes>) {
        self.renumber(None);
        self.counted.extend(self.usage.take());
        self.events.next_hop();
        self.slots.clear();
        self.queue.clear();
        self.held.clear();
        self.later = true;
        self.failed = false;
    }

    /// Hands out the end of the response that was held, edited where something was left out or
    /// hops stand before it.
    pub fn release(&mut self, out: &mut Vec<Bytes>) {
        for routed in std::mem::take(&mut self.held) {
            match routed.step {
                // A stream that failed never ends as if it had not.
                Step::Finish | Step::End if self.failed => {}
                Step::Finish | Step::Error => self.end(&routed.frame, out),
                Step::End | Step::Aside | Step::Unreadable => {
                    self.say(routed.frame.into_raw(), out);
                }
                Step::Begin
                | Step::Open { .. }
                | Step::Within { .. }
                | Step::Close { .. }
                | Step::Other => self.pass(routed, out),
            }
        }
    }

    /// Ends the turn in place of the model, which would have gone on with hidden calls: this text
    /// if given, and the dialect's own end.
    pub fn close(&mut self, text: Option<&str>, out: &mut Vec<Bytes>) {
        self.renumber(None);
        let held = std::mem::take(&mut self.held).into_iter();
        let held: Vec<Frame> = held
            .filter(|routed| matches!(routed.step, Step::Finish | Step::End))
            .map(|routed| routed.frame)
            .collect();
        let usage = self.usage_told();
        let events = self.events.close(&held, text, &self.told(usage.as_ref()));
        for event in events {
            self.say(event, out);
        }
    }

    /// Ends the client's stream with an error event. What was held or undecided is dropped. The
    /// error is a JSON object; anything else becomes the message of one.
    pub fn fail(&mut self, error: &[u8], out: &mut Vec<Bytes>) {
        self.queue.clear();
        self.held.clear();
        self.renumber(None);
        let event = self.events.error(error, self.count.sequence);
        self.say(event, out);
    }

    fn take(&mut self, frame: Frame, out: &mut Vec<Bytes>) {
        let step = self.events.take(&frame);
        self.failed |= step == Step::Error;
        if matches!(step, Step::Finish | Step::End | Step::Error) {
            self.settle(out);
        }
        let slot = self.route(step);
        let fate = slot.map_or(Fate::Shown, |place| self.fate(place));
        if fate == Fate::Hidden {
            self.note(step, &frame);
        } else if fate != Fate::Open && self.stops(step, &frame) {
            self.withheld = true;
            return;
        }
        if step == Step::Unreadable && self.guard.names(&frame) {
            return;
        }
        let routed = Routed { frame, step, slot };
        if self.finish_seen() {
            self.held.push(routed);
            return;
        }
        match step {
            Step::Finish | Step::End if self.failed => {}
            Step::Finish | Step::End => self.held.push(routed),
            Step::Error => self.end(&routed.frame, out),
            Step::Aside | Step::Unreadable => self.say(routed.frame.into_raw(), out),
            Step::Begin
            | Step::Open { .. }
            | Step::Within { .. }
            | Step::Close { .. }
            | Step::Other => {
                self.drain(out);
                if self.queue.is_empty() && self.is_decided(slot) {
                    self.pass(routed, out);
                } else {
                    self.queue.push_back(routed);
                }
            }
        }
    }

    /// Whether a frame that the client would see holds a hidden call all the same.
    fn stops(&self, step: Step, frame: &Frame) -> bool {
        match step {
            Step::Unreadable => self.guard.stops_odd(frame),
            Step::Aside => match frame.data() {
                None => self.guard.stops_odd(frame),
                Some(data) => self.guard.stops(frame, &[]) || self.guard.has_id(&data),
            },
            // The end repeats what was said, and what is hidden is taken out of it.
            Step::Finish | Step::Error => {
                let usage = self.usage_told();
                let shown = self.events.end(frame, &self.told(usage.as_ref()));
                self.guard.stops(&Frame::of(shown), &[])
            }
            Step::Begin
            | Step::Open { .. }
            | Step::Within { .. }
            | Step::Close { .. }
            | Step::End
            | Step::Other => !self.events.is_plain() && self.guard.stops(frame, &[]),
        }
    }

    /// Notes whose call is left out.
    fn note(&mut self, step: Step, frame: &Frame) {
        if matches!(step, Step::Open { .. } | Step::Close { .. }) {
            let data = frame.data().unwrap_or_default();
            if let Some(call) = self.events.brought(&data) {
                self.guard.note(call);
            }
        }
    }

    /// The slot of the block that a frame is about. What it tells of the block's fate is noted.
    fn route(&mut self, step: Step) -> Option<usize> {
        let place = |slots: &[Slot], at| slots.iter().rposition(|slot| slot.at == at);
        match step {
            Step::Open { at, fate } => Some(self.begin(at, fate)),
            // A block that was never begun is the client's to judge.
            Step::Within { at } => Some(match place(&self.slots, at) {
                Some(place) => place,
                None => self.begin(at, Fate::Shown),
            }),
            Step::Close { at, fate } => {
                let Some(place) = place(&self.slots, at) else {
                    return Some(self.begin(at, fate));
                };
                if self.fate(place) == Fate::Open {
                    self.decide(place, fate);
                }
                Some(place)
            }
            Step::Begin
            | Step::Finish
            | Step::End
            | Step::Error
            | Step::Other
            | Step::Aside
            | Step::Unreadable => None,
        }
    }

    fn begin(&mut self, at: u64, fate: Fate) -> usize {
        self.slots.push(Slot {
            at,
            shown_as: None,
            fate: Fate::Open,
            late: fate == Fate::Open,
            closed: false,
        });
        let place = self.slots.len() - 1;
        self.decide(place, fate);
        place
    }

    /// Gives a block its fate, which may be that of blocks before it, too.
    fn decide(&mut self, place: usize, fate: Fate) {
        if fate == Fate::Shown {
            self.follow(Fate::Shown);
        }
        if let Some(slot) = self.slots.get_mut(place) {
            slot.fate = fate;
        }
    }

    fn fate(&self, place: usize) -> Fate {
        self.slots.get(place).map_or(Fate::Shown, |slot| slot.fate)
    }

    fn is_decided(&self, slot: Option<usize>) -> bool {
        slot.is_none_or(|place| matches!(self.fate(place), Fate::Shown | Fate::Hidden))
    }

    /// Decides the blocks that hang on others.
    fn follow(&mut self, fate: Fate) {
        for slot in &mut self.slots {
            if slot.fate == Fate::Follows {
                slot.fate = fate;
            }
        }
    }

    /// Decides what is open, for the hop has ended one way or other, and hands out what was queued.
    fn settle(&mut self, out: &mut Vec<Bytes>) {
        if self.slots.iter().any(|slot| slot.fate == Fate::Follows) {
            let fate = match self.events.answer().verdict() {
                Verdict::Done | Verdict::Mixed | Verdict::Cut => Fate::Shown,
                Verdict::HiddenOnly | Verdict::Broken => Fate::Hidden,
            };
            self.follow(fate);
        }
        for slot in &mut self.slots {
            if slot.fate == Fate::Open {
                slot.fate = Fate::Hidden;
            }
        }
        self.drain(out);
    }

    /// Hands out, in order, what was queued behind blocks that are decided by now.
    fn drain(&mut self, out: &mut Vec<Bytes>) {
        while let Some(front) = self.queue.front()
            && self.is_decided(front.slot)
            && let Some(routed) = self.queue.pop_front()
        {
            self.pass(routed, out);
        }
    }

    /// Shows the client a frame that is decided, or leaves it out.
    fn pass(&mut self, routed: Routed, out: &mut Vec<Bytes>) {
        let Routed { frame, step, slot } = routed;
        // What waited may have been judged by what came behind it alone.
        let opened = slot.and_then(|place| self.slots.get(place));
        if opened.is_some_and(|slot| slot.late && slot.fate == Fate::Shown)
            && self.guard.stops(&frame, &[])
        {
            self.withheld = true;
            return;
        }
        let again = step == Step::Begin && self.later && self.begun;
        let hidden = slot.is_some_and(|place| self.fate(place) != Fate::Shown);
        if again || hidden {
            self.renumber(Some(&frame));
            return;
        }
        self.begun |= step == Step::Begin;
        let index = slot.and_then(|place| self.number(place));
        if let (Step::Close { at, .. }, Some(slot)) =
            (step, slot.and_then(|place| self.slots.get_mut(place)))
            && !std::mem::replace(&mut slot.closed, true)
        {
            self.shown.extend(self.events.block(at));
        }
        let bytes = match (self.count.anew, step) {
            (true, _) => {
                let sequence = self.count.next_sequence();
                self.events.show(&frame, Numbers { index, sequence })
            }
            (false, Step::Begin | Step::Other) => self.events.show(&frame, Numbers::default()),
            (false, _) => frame.raw().clone(),
        };
        if !self.count.anew {
            self.count.last = Some(frame);
        }
        self.say(bytes, out);
    }

    /// The number under which the client sees a block: the upstream's own until something was left
    /// out, and dense from there on.
    fn number(&mut self, place: usize) -> Option<u64> {
        let slot = self.slots.get_mut(place)?;
        let fresh = if self.count.anew {
            self.count.index
        } else {
            slot.at
        };
        let shown = *slot.shown_as.get_or_insert(fresh);
        self.count.index = self.count.index.max(shown.saturating_add(1));
        Some(shown)
    }

    /// From here on numbers are the machine's: beginning with that of the frame that is left out,
    /// or behind the last one that was shown.
    fn renumber(&mut self, left_out: Option<&Frame>) {
        if self.count.anew {
            return;
        }
        self.count.anew = true;
        let last = self.count.last.take();
        self.count.sequence = match (left_out, last) {
            (Some(frame), _) => self.events.sequence(frame),
            (None, Some(last)) => self.events.sequence(&last).map(|last| last + 1),
            (None, None) => None,
        };
    }

    /// Shows how the response ended.
    fn end(&mut self, frame: &Frame, out: &mut Vec<Bytes>) {
        let usage = self.usage_told();
        let bytes = self.events.end(frame, &self.told(usage.as_ref()));
        self.count.next_sequence();
        self.say(bytes, out);
    }

    fn told<'a>(&'a self, usage: Option<&'a Usage>) -> Told<'a> {
        Told {
            edited: self.count.anew,
            blocks: &self.shown,
            usage,
            index: self.count.index,
            sequence: self.count.sequence,
        }
    }

    /// The usage to tell; none where the last hop is the only one, and tells its own.
    fn usage_told(&self) -> Option<Usage> {
        if !self.later {
            return None;
        }
        told(self.config.usage, self.counted.iter().chain(&self.usage))
    }

    fn say(&mut self, bytes: Bytes, out: &mut Vec<Bytes>) {
        if self.withheld {
            return;
        }
        self.spoken = true;
        out.push(bytes);
    }
}

impl Count {
    fn next_sequence(&mut self) -> Option<u64> {
        let next = self.sequence?;
        self.sequence = Some(next.saturating_add(1));
        Some(next)
    }
}
