//! The stream machine of formats whose messages are made of blocks: one client stream made of one
//! or more upstream streams. It owns the order of what the client gets, what is held back, what is
//! left out, and the numbers; it passes a frame on at once and unchanged unless something forces it
//! not to. It knows no field name: [`Events`] says what a frame is and how it is written.
//!
//! Three things are kept from the client for a while: a block that is not known to be visible,
//! with all that has its place behind it, until that is known (`queue`); the frame with the finish
//! reason, with all that follows it, until the turn is recorded (`held`); and nothing else.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use plimsoll_model::Usage;
use plimsoll_model::raw::{self, Object};

use super::events::{BlocksEnding, Events, FrameKind, Numbers, Visibility};
use crate::answer::{Answer, Verdict};
use crate::guard::Guard;
use crate::machine::{Client, FormatMachine, KeptBytes};
use crate::sse::Frame;
use crate::usage::{UsageMode, combined};

/// How many frames of a hop may tell of its end. Messages allows more than one, and no provider sends more than a few.
const MOST_ENDS: usize = 64;

/// The stream machine of a format whose messages are made of blocks.
#[derive(Debug)]
pub struct BlockMachine<E> {
    usage_mode: UsageMode,
    guard: Guard,
    events: E,
    /// The blocks of the hop, in the order in which they were begun.
    slots: Vec<Slot>,
    /// The last slot of each of the upstream's numbers.
    by_number: HashMap<u64, usize>,
    /// The slots that follow others and are not decided.
    following: Vec<usize>,
    /// How many frames told of the hop's end.
    told_ends: usize,
    queue: VecDeque<Routed>,
    held: Vec<Routed>,
    /// How the hop before this one ended, for a turn that goes no further.
    before: Vec<Frame>,
    /// Usage of the hops before this one.
    counted: Vec<Usage>,
    /// Usage of the hop that has ended.
    usage: Option<Usage>,
    numbering: Numbering,
    /// The blocks that the client was shown whole.
    shown: Vec<Bytes>,
    /// Whether the client was shown how the response begins.
    begun: bool,
    /// Whether hops stand before this one.
    later: bool,
    /// Whether the hop sent an error event.
    failed: bool,
}

/// A block of the hop.
#[derive(Debug)]
struct Slot {
    /// The upstream's number of the block.
    at: u64,
    /// The client's number of it.
    shown_as: Option<u64>,
    visibility: Visibility,
    /// Whether its visibility was not known when it began.
    late: bool,
    closed: bool,
}

/// A frame, and the slot of the block that it is about.
#[derive(Debug)]
struct Routed {
    frame: Frame,
    kind: FrameKind,
    slot: Option<usize>,
}

/// The numbers of what the client was shown.
#[derive(Debug, Default)]
struct Numbering {
    /// Whether the machine numbers by itself, because something was left out.
    own: bool,
    /// The next block's number.
    index: u64,
    /// The next event's number, if the machine numbers by itself and events have numbers.
    sequence: Option<u64>,
    /// The last frame that was shown under its own number.
    last: Option<Frame>,
}

impl<E: Events> FormatMachine for BlockMachine<E> {
    fn take(&mut self, frame: Frame, client: &mut Client<'_>) {
        let kind = self.events.take(&frame);
        let ends = matches!(kind, FrameKind::Finish | FrameKind::End | FrameKind::Error);
        self.told_ends += usize::from(ends);
        // With each of them all that was said is looked at.
        if self.told_ends > MOST_ENDS {
            client.withhold();
            return;
        }
        self.failed |= kind == FrameKind::Error;
        if ends {
            self.settle(client);
        }
        let slot = self.route(kind);
        let visibility = slot.map_or(Visibility::Shown, |place| self.visibility(place));
        if visibility == Visibility::Hidden {
            self.note(kind, &frame);
        } else if visibility != Visibility::Open && self.stops(kind, &frame) {
            client.withhold();
            return;
        }
        if kind == FrameKind::Unreadable && self.guard.names(&frame) {
            return;
        }
        let routed = Routed { frame, kind, slot };
        if self.finish_seen() {
            self.held.push(routed);
            return;
        }
        match kind {
            FrameKind::Finish | FrameKind::End if self.failed => {}
            FrameKind::Finish | FrameKind::End => self.held.push(routed),
            FrameKind::Error => self.end(&routed.frame, client),
            FrameKind::Aside | FrameKind::Unreadable => client.say(routed.frame.into_raw()),
            FrameKind::Begin
            | FrameKind::Open { .. }
            | FrameKind::Within { .. }
            | FrameKind::Close { .. }
            | FrameKind::Other => {
                self.drain(client);
                if self.queue.is_empty() && self.is_decided(slot) {
                    self.pass(routed, client);
                } else {
                    self.queue.push_back(routed);
                }
            }
        }
    }

    fn is_whole(&self, data: &[u8]) -> bool {
        raw::is_json(data)
    }

    fn finish_seen(&self) -> bool {
        !self.held.is_empty()
    }

    fn is_told(&self) -> bool {
        // The event that ends an answer, or the one before it, has the usage.
        self.finish_seen()
    }

    fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    fn kept(&self) -> KeptBytes {
        let kept = self.events.kept();
        let waiting = self.queue.iter().chain(&self.held);
        let waiting = waiting.map(|routed| routed.frame.raw().len() + size_of::<Routed>());
        let shown = self.shown.iter().map(Bytes::len);
        let slots = self.slots.len() * (size_of::<Slot>() + size_of::<(u64, usize)>());
        KeptBytes {
            waits: kept.waits + waiting.chain(shown).sum::<usize>() + slots,
            ..kept
        }
    }

    fn forget(&mut self) {
        self.events.forget();
    }

    fn said(&self) -> Answer {
        self.events.answer()
    }

    fn end_hop(&mut self, client: &mut Client<'_>) -> Answer {
        self.settle(client);
        let answer = self.events.answer();
        self.usage = answer.usage;
        answer
    }

    fn next_hop(&mut self, _client: &mut Client<'_>) {
        self.renumber(None);
        self.counted.extend(self.usage.take());
        self.events.next_hop();
        self.slots.clear();
        self.by_number.clear();
        self.following.clear();
        self.told_ends = 0;
        self.queue.clear();
        self.before = self.ends();
        self.later = true;
        self.failed = false;
    }

    fn count(&mut self, usage: &[Usage]) {
        self.counted.extend(usage);
    }

    fn release(&mut self, client: &mut Client<'_>) {
        for routed in std::mem::take(&mut self.held) {
            match routed.kind {
                // A stream that failed never ends as if it had not.
                FrameKind::Finish | FrameKind::End if self.failed => {}
                FrameKind::Finish | FrameKind::Error => self.end(&routed.frame, client),
                FrameKind::End | FrameKind::Aside | FrameKind::Unreadable => {
                    client.say(routed.frame.into_raw());
                }
                FrameKind::Begin
                | FrameKind::Open { .. }
                | FrameKind::Within { .. }
                | FrameKind::Close { .. }
                | FrameKind::Other => self.pass(routed, client),
            }
        }
    }

    fn close(&mut self, text: Option<&str>, client: &mut Client<'_>) {
        self.renumber(None);
        let held = match self.finish_seen() {
            true => self.ends(),
            false => std::mem::take(&mut self.before),
        };
        let usage = self.combined_usage();
        let events = self.events.close(&held, text, &self.ending(usage.as_ref()));
        for event in events {
            client.say(event);
        }
    }

    fn fail(&mut self, error: &[u8], client: &mut Client<'_>) {
        self.queue.clear();
        self.held.clear();
        self.renumber(None);
        let event = self.events.error(error, self.numbering.sequence);
        client.say(event);
    }
}

impl<E: Events> BlockMachine<E> {
    /// A machine at the start of a turn's first hop.
    pub fn new(usage_mode: UsageMode, guard: Guard, events: E) -> Self {
        Self {
            usage_mode,
            guard,
            events,
            slots: Vec::new(),
            by_number: HashMap::new(),
            following: Vec::new(),
            told_ends: 0,
            queue: VecDeque::new(),
            held: Vec::new(),
            before: Vec::new(),
            counted: Vec::new(),
            usage: None,
            numbering: Numbering::default(),
            shown: Vec::new(),
            begun: false,
            later: false,
            failed: false,
        }
    }

    /// Takes the frames that are held. Returns those with which the hop ends.
    fn ends(&mut self) -> Vec<Frame> {
        let held = std::mem::take(&mut self.held).into_iter();
        held.filter(|routed| matches!(routed.kind, FrameKind::Finish | FrameKind::End))
            .map(|routed| routed.frame)
            .collect()
    }

    /// Whether a frame holds a hidden call although the client is to see it.
    fn stops(&self, kind: FrameKind, frame: &Frame) -> bool {
        match kind {
            FrameKind::Unreadable => self.guard.stops_odd(frame),
            FrameKind::Aside => match frame.data() {
                None => self.guard.stops_odd(frame),
                Some(data) => self.guard.stops(frame, &[]) || self.guard.has_id(&data),
            },
            // The end repeats what was said; what counts is the end with hidden calls taken out.
            FrameKind::Finish | FrameKind::Error => {
                let usage = self.combined_usage();
                let shown = self.events.end(frame, &self.ending(usage.as_ref()));
                self.guard.stops(&Frame::of(shown), &[])
            }
            FrameKind::Begin
            | FrameKind::Open { .. }
            | FrameKind::Within { .. }
            | FrameKind::Close { .. }
            | FrameKind::End
            | FrameKind::Other => !self.events.is_plain() && self.guard.stops(frame, &[]),
        }
    }

    /// Notes the ids of a call that is left out.
    fn note(&mut self, kind: FrameKind, frame: &Frame) {
        if matches!(kind, FrameKind::Open { .. } | FrameKind::Close { .. }) {
            let data = frame.data().unwrap_or_default();
            let event = Object::parse(&data).ok();
            if let Some(call) = event.and_then(|event| event.raw(E::BLOCK)) {
                self.guard.note(call);
            }
        }
    }

    /// Finds or begins the slot of the block that a frame is about, and notes what the frame tells
    /// of the block's visibility.
    fn route(&mut self, kind: FrameKind) -> Option<usize> {
        match kind {
            FrameKind::Open { at, visibility } => Some(self.begin(at, visibility)),
            // A block that was never begun is for the client to judge.
            FrameKind::Within { at } => Some(match self.by_number.get(&at) {
                Some(place) => *place,
                None => self.begin(at, Visibility::Shown),
            }),
            FrameKind::Close { at, visibility } => {
                let Some(place) = self.by_number.get(&at).copied() else {
                    return Some(self.begin(at, visibility));
                };
                if self.visibility(place) == Visibility::Open {
                    self.decide(place, visibility);
                }
                Some(place)
            }
            FrameKind::Begin
            | FrameKind::Finish
            | FrameKind::End
            | FrameKind::Error
            | FrameKind::Other
            | FrameKind::Aside
            | FrameKind::Unreadable => None,
        }
    }

    fn begin(&mut self, at: u64, visibility: Visibility) -> usize {
        self.slots.push(Slot {
            at,
            shown_as: None,
            visibility: Visibility::Open,
            late: visibility == Visibility::Open,
            closed: false,
        });
        let place = self.slots.len() - 1;
        self.by_number.insert(at, place);
        self.decide(place, visibility);
        place
    }

    /// Decides a block. A visible block decides the blocks before it that follow others.
    fn decide(&mut self, place: usize, visibility: Visibility) {
        if visibility == Visibility::Shown {
            self.follow(Visibility::Shown);
        }
        if let Some(slot) = self.slots.get_mut(place) {
            slot.visibility = visibility;
        }
        if visibility == Visibility::Follows {
            self.following.push(place);
        }
    }

    fn visibility(&self, place: usize) -> Visibility {
        self.slots
            .get(place)
            .map_or(Visibility::Shown, |slot| slot.visibility)
    }

    fn is_decided(&self, slot: Option<usize>) -> bool {
        slot.is_none_or(|place| {
            matches!(
                self.visibility(place),
                Visibility::Shown | Visibility::Hidden
            )
        })
    }

    /// Decides the blocks that follow others.
    fn follow(&mut self, visibility: Visibility) {
        for place in std::mem::take(&mut self.following) {
            if let Some(slot) = self.slots.get_mut(place) {
                slot.visibility = visibility;
            }
        }
    }

    /// Decides the blocks that are open, because the hop has ended, and hands out the queue.
    fn settle(&mut self, client: &mut Client<'_>) {
        if !self.following.is_empty() {
            let visibility = match self.events.answer().verdict() {
                Verdict::Done | Verdict::Mixed | Verdict::Cut => Visibility::Shown,
                Verdict::HiddenOnly | Verdict::Broken => Visibility::Hidden,
            };
            self.follow(visibility);
        }
        for slot in &mut self.slots {
            if slot.visibility == Visibility::Open {
                slot.visibility = Visibility::Hidden;
            }
        }
        self.drain(client);
    }

    /// Hands out, in order, the queued frames whose blocks are decided by now.
    fn drain(&mut self, client: &mut Client<'_>) {
        while let Some(front) = self.queue.front()
            && self.is_decided(front.slot)
            && let Some(routed) = self.queue.pop_front()
        {
            self.pass(routed, client);
        }
    }

    /// Shows the client a frame that is decided, or leaves it out.
    fn pass(&mut self, routed: Routed, client: &mut Client<'_>) {
        let Routed { frame, kind, slot } = routed;
        // The guard passed over this frame while its block was open.
        let opened = slot.and_then(|place| self.slots.get(place));
        if opened.is_some_and(|slot| slot.late && slot.visibility == Visibility::Shown)
            && self.guard.stops(&frame, &[])
        {
            client.withhold();
            return;
        }
        let again = kind == FrameKind::Begin && self.later && self.begun;
        let hidden = slot.is_some_and(|place| self.visibility(place) != Visibility::Shown);
        if again || hidden {
            self.renumber(Some(&frame));
            return;
        }
        self.begun |= kind == FrameKind::Begin;
        let index = slot.and_then(|place| self.number(place));
        if let (FrameKind::Close { at, .. }, Some(slot)) =
            (kind, slot.and_then(|place| self.slots.get_mut(place)))
            && !std::mem::replace(&mut slot.closed, true)
        {
            self.shown.extend(self.events.block(at));
        }
        let bytes = match (self.numbering.own, kind) {
            (true, _) => {
                let sequence = self.numbering.next_sequence();
                self.events.show(&frame, Numbers { index, sequence })
            }
            (false, FrameKind::Begin | FrameKind::Other) => {
                self.events.show(&frame, Numbers::default())
            }
            (false, _) => frame.raw().clone(),
        };
        if !self.numbering.own {
            self.numbering.last = Some(frame);
        }
        client.say(bytes);
    }

    /// The number under which the client sees a block: the upstream's own until something was left
    /// out, and the next free one from there on.
    fn number(&mut self, place: usize) -> Option<u64> {
        let slot = self.slots.get_mut(place)?;
        let fresh = if self.numbering.own {
            self.numbering.index
        } else {
            slot.at
        };
        let shown = *slot.shown_as.get_or_insert(fresh);
        self.numbering.index = self.numbering.index.max(shown.saturating_add(1));
        Some(shown)
    }

    /// Numbers by itself from here on, beginning with the number of the frame that is left out, or
    /// with the one behind the last frame that was shown.
    fn renumber(&mut self, left_out: Option<&Frame>) {
        if self.numbering.own {
            return;
        }
        self.numbering.own = true;
        let last = self.numbering.last.take();
        self.numbering.sequence = match (left_out, last) {
            (Some(frame), _) => self.events.sequence(frame),
            (None, Some(last)) => self.events.sequence(&last).map(|last| last + 1),
            (None, None) => None,
        };
    }

    /// Shows how the response ended.
    fn end(&mut self, frame: &Frame, client: &mut Client<'_>) {
        let usage = self.combined_usage();
        let bytes = self.events.end(frame, &self.ending(usage.as_ref()));
        self.numbering.next_sequence();
        client.say(bytes);
    }

    fn ending<'a>(&'a self, usage: Option<&'a Usage>) -> BlocksEnding<'a> {
        BlocksEnding {
            edited: self.numbering.own,
            blocks: &self.shown,
            usage,
            index: self.numbering.index,
            sequence: self.numbering.sequence,
        }
    }

    /// The usage to tell; none if the turn has one hop, which tells its own.
    fn combined_usage(&self) -> Option<Usage> {
        if !self.later && self.counted.is_empty() {
            return None;
        }
        combined(self.usage_mode, self.counted.iter().chain(&self.usage))
    }
}

impl Numbering {
    fn next_sequence(&mut self) -> Option<u64> {
        let next = self.sequence?;
        self.sequence = Some(next.saturating_add(1));
        Some(next)
    }
}
