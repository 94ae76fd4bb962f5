//! Builds a transcript: goes through the client's messages, puts the hidden hops of each recorded
//! turn back in before its visible response, and numbers the items. Never judges what a hidden call
//! did: its record says so.

mod calls;
mod text_results;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use plimsoll_model::{
    CALL_TOKENS, Edits, Handed, HiddenCall, ItemKind, ItemNo, MESSAGE_TOKENS, Role, Shape,
    StoredHop, ThoughtRules, ToolClass, TurnRecord,
};

use super::{Item, Source, Transcript, TranscriptEntry};
use crate::session::index::{EntryIndex, EpisodeIndex, ItemIndex, indices};
use crate::session::path::{ASSISTANT_ITEMS, Path};

/// What a transcript is built from.
pub struct TranscriptInput<'a> {
    /// The shapes of the client's messages.
    pub shapes: &'a [Arc<Shape>],
    /// The records behind them.
    pub path: &'a Path,
    /// The hops of the turn in hand.
    pub pending: &'a [StoredHop],
    /// How a client's message relates to the text that earlier hops handed out.
    pub handed: &'a dyn Fn(usize, &TurnRecord) -> Handed,
    /// The tokens of the thoughts in a client's message that are its last hop's own, where it holds lists of those of
    /// earlier hops too.
    pub own_thoughts: &'a dyn Fn(usize, &TurnRecord) -> Option<u32>,
    /// How the client's message at an index begins if it is a result that came as text.
    pub front: &'a dyn Fn(usize) -> Option<Arc<str>>,
    /// The class of a tool by its name.
    pub class: &'a dyn Fn(&str) -> ToolClass,
    /// Raw tokens after which an implicit episode is cut.
    pub implicit_tokens: u32,
    /// Edits that its views do without.
    pub without: Edits,
    /// What its provider makes of thoughts that are sent back.
    pub thoughts: ThoughtRules,
    /// The tokens of a message that keeps two answers apart; 0 where the format needs none.
    pub apart: u32,
    /// Whether another model made a turn than the one that is asked now. Only that one can read the thoughts of
    /// its hidden hops.
    pub foreign: &'a dyn Fn(&TurnRecord) -> bool,
    /// The tokens of a hidden call of a turn as it is sent: a tool of the client's may have taken its name since.
    pub hidden: &'a dyn Fn(usize, &HiddenCall) -> u32,
    /// Guidance that stands among the messages: the step of the path before whose answer, which for the turn in hand is
    /// the length of the path, and its tokens.
    pub guidance: Option<(usize, u32)>,
}

/// Builds the transcript of a request.
#[must_use]
pub fn build(input: &TranscriptInput<'_>) -> Transcript {
    let mut builder = Builder::new(input);
    let mut steps = input.path.entries.iter().enumerate().peekable();
    let mut number = steps
        .peek()
        .map_or(input.path.next, |(_, entry)| entry.base);
    for (message, shape) in input.shapes.iter().enumerate() {
        match steps.next_if(|(_, entry)| entry.position as usize == message) {
            // This message is the visible response of a recorded turn.
            Some((step, entry)) => {
                builder.guidance(step);
                builder.turn(step, &entry.record, message, shape);
                // The messages up to the next record's response are numbered as that record saw
                // them.
                number = steps
                    .peek()
                    .map_or(input.path.next, |(_, entry)| entry.base);
            }
            // No record covers this message.
            None => number = builder.client(message, shape, number),
        }
    }
    // What no record covers is numbered from the end of the path.
    builder.transcript.base = input.path.next;
    builder.transcript.first_item = number.max(input.path.next);
    builder.guidance(input.path.entries.len());
    builder.pending(input.path.entries.len(), input.pending);
    builder.transcript
}

struct Builder<'a> {
    input: &'a TranscriptInput<'a>,
    transcript: Transcript,
    /// The calls of the newest assistant message that still lack results.
    waiting: HashMap<&'a str, VecDeque<ItemIndex>>,
    /// The newest assistant message if it has only text and nothing came after it: a result that
    /// comes as text answers it.
    spoken: Option<ItemIndex>,
    begun: bool,
    nameless: Arc<str>,
    delimiter: Arc<str>,
    recall: Arc<str>,
    /// Classes and shared names of the tools so far. A session has few tools and many calls.
    tools: HashMap<&'a str, (ToolClass, Arc<str>)>,
}

/// The parts of an assistant message, from a client's message or from a record.
struct Assistant<'a> {
    source: Source,
    handed: Handed,
    first: ItemNo,
    reasoning: u32,
    text: u32,
    /// Whether that is white space alone.
    blank: bool,
    opaque: bool,
    calls: Vec<Call<'a>>,
}

enum Call<'a> {
    Visible {
        id: &'a str,
        name: &'a str,
        tokens: u32,
        digest: u64,
    },
    /// With its tokens as it is sent.
    Hidden(&'a HiddenCall, u32),
}

impl<'a> Builder<'a> {
    fn new(input: &'a TranscriptInput<'a>) -> Self {
        let mut transcript = Transcript {
            without: input.without,
            thoughts: input.thoughts,
            apart: input.apart,
            ..Transcript::default()
        };
        transcript
            .entries
            .reserve(input.shapes.len() + input.shapes.len() / 8 + 1);
        transcript.items.reserve(input.shapes.len() * 2);
        Self {
            input,
            transcript,
            waiting: HashMap::new(),
            spoken: None,
            begun: false,
            nameless: Arc::from(""),
            delimiter: Arc::from("delimiter"),
            recall: Arc::from("recall"),
            tools: HashMap::new(),
        }
    }

    /// Adds a client's message that no record covers, and returns the next item number.
    fn client(&mut self, message: usize, shape: &'a Shape, number: ItemNo) -> ItemNo {
        let source = Source::Client(message);
        match shape.role {
            Role::Assistant => {
                let calls = visible(shape);
                let taken = ASSISTANT_ITEMS + u32::try_from(calls.len()).unwrap_or(u32::MAX);
                self.assistant(&Assistant {
                    source,
                    handed: Handed::Nothing,
                    first: number,
                    reasoning: shape.reasoning,
                    text: shape.text,
                    blank: shape.blank,
                    opaque: shape.opaque,
                    calls,
                });
                number.plus(taken)
            }
            Role::Tool => {
                // A result that has thoughts or calls of its own is none that could be edited.
                let tokens = shape.tokens() - MESSAGE_TOKENS;
                self.result(
                    source,
                    shape.result_of.as_ref().map(|id| id.0.as_str()),
                    tokens,
                    shape.opaque,
                    shape.whole || tokens > shape.text,
                );
                number
            }
            Role::User | Role::System | Role::Other => {
                if let Some(front) = (self.input.front)(message)
                    && self.text_result(source, shape, &front)
                {
                    return number.plus(1);
                }
                let kind = match shape.role {
                    Role::User => ItemKind::User,
                    Role::System => ItemKind::System,
                    Role::Assistant | Role::Tool | Role::Other => ItemKind::Opaque,
                };
                // What the user says next begins another piece of work.
                if self.begun && shape.role == Role::User {
                    self.transcript.graph.end_implicit();
                }
                let tokens = shape.tokens() - MESSAGE_TOKENS;
                self.fixed(source, shape.role, kind, number, tokens);
                number.plus(1)
            }
        }
    }

    /// Adds the guidance, if it stands before the answer of a step. No mark is ever moved on it, so it has no number of
    /// its own.
    fn guidance(&mut self, step: usize) {
        let here = self.input.guidance.filter(|(place, _)| *place == step);
        if let Some((_, tokens)) = here {
            let tokens = tokens.saturating_sub(MESSAGE_TOKENS);
            let kind = ItemKind::System;
            self.fixed(Source::Guidance, Role::System, kind, ItemNo(0), tokens);
        }
    }

    /// Adds a recorded turn: its earlier hops, then the client's message as its last hop.
    fn turn(&mut self, step: usize, record: &'a TurnRecord, message: usize, shape: &'a Shape) {
        let handed = (self.input.handed)(message, record);
        // A turn that ended at the hop cap has no last hop of the client's: the client holds what
        // the hops and the proxy's own line said. Anything else means that it changed the text.
        let capped = record.hops.iter().all(|hop| hop.message.is_some());
        let handed = match handed {
            Handed::Front | Handed::Split if capped => Handed::Changed,
            Handed::Nothing | Handed::Front | Handed::Split | Handed::All | Handed::Changed => {
                handed
            }
        };
        // A client that joins or trims text does so when it first sends the message back, which
        // breaks the prefix once. Later changes of earlier turns can't be told from that.
        let newest = step + 1 == self.input.path.entries.len();
        self.transcript.changed |= newest && handed == Handed::Changed;
        // The record fixed the first number of its response; hops take theirs in order.
        let mut first = record.first_item;
        let foreign = (self.input.foreign)(record);
        for (index, hop) in record.hops.iter().enumerate() {
            if hop.message.is_some() {
                first = self.hop(step, (index, hop), handed, foreign, first);
                continue;
            }
            // How much of the client's message is the last hop's own.
            let thoughts = (self.input.own_thoughts)(message, record).unwrap_or(shape.reasoning);
            let (text, reasoning) = match handed {
                Handed::Nothing | Handed::Changed => (shape.text, thoughts),
                Handed::Front => (hop.text, thoughts),
                // The client may have left out thoughts.
                Handed::Split => (hop.text, hop.reasoning.min(shape.reasoning)),
                // Among the thoughts of all hops nothing of the last one's can be told apart.
                Handed::All if self.input.thoughts.whole => (0, 0),
                Handed::All => (0, thoughts),
            };
            // The client holds the visible calls; the record has the hidden ones with their places.
            let mut calls = visible(shape);
            for call in &hop.calls {
                let place = (call.place as usize).min(calls.len());
                calls.insert(place, Call::Hidden(call, (self.input.hidden)(step, call)));
            }
            // The message may consist of other content, such as speech. If text, calls and that all
            // belong to earlier hops, the last hop has nothing of its own, and no message is made
            // for it.
            let empty = text == 0 && calls.is_empty() && !shape.opaque && record.hops.len() > 1;
            if !empty {
                self.assistant(&Assistant {
                    source: Source::LastHop { message, step },
                    handed,
                    first,
                    reasoning,
                    text,
                    blank: shape.blank,
                    opaque: shape.opaque,
                    calls,
                });
                self.hidden_results(step, index, hop);
            }
        }
        // The client changed what the hops said, so its message stands beside them as one more.
        if capped && handed == Handed::Changed {
            self.client(message, shape, first);
        }
    }

    /// Adds the hops of the turn in hand.
    fn pending(&mut self, step: usize, hops: &'a [StoredHop]) {
        let mut first = self.transcript.first_item;
        for (index, hop) in hops.iter().enumerate() {
            first = self.hop(step, (index, hop), Handed::Nothing, false, first);
        }
    }

    fn hop(
        &mut self,
        step: usize,
        (index, hop): (usize, &'a StoredHop),
        handed: Handed,
        foreign: bool,
        first: ItemNo,
    ) -> ItemNo {
        // What the client was never shown it can't have changed, and what can't be edited stays whatever it did.
        let handed = match hop.unshown || hop.opaque {
            true => Handed::Nothing,
            false => handed,
        };
        let hidden = |call| Call::Hidden(call, (self.input.hidden)(step, call));
        let calls: Vec<_> = hop.calls.iter().map(hidden).collect();
        let taken = ASSISTANT_ITEMS + u32::try_from(calls.len()).unwrap_or(u32::MAX);
        self.assistant(&Assistant {
            source: Source::Hop { step, hop: index },
            handed,
            first,
            reasoning: if foreign { 0 } else { hop.reasoning },
            text: if handed == Handed::Changed {
                0
            } else {
                hop.text
            },
            blank: false,
            opaque: hop.opaque,
            calls,
        });
        self.hidden_results(step, index, hop);
        first.plus(taken)
    }

    fn hidden_results(&mut self, step: usize, hop_index: usize, hop: &'a StoredHop) {
        for (call, hidden) in hop.calls.iter().enumerate() {
            let source = Source::HiddenResult {
                step,
                hop: hop_index,
                call,
            };
            self.result(
                source,
                Some(hidden.id.0.as_str()),
                hidden.result_tokens,
                false,
                false,
            );
        }
    }

    fn assistant(&mut self, message: &Assistant<'a>) {
        self.begun = true;
        // A result answers the message before it. Calls that got no result by now never do.
        self.waiting.clear();
        self.transcript
            .graph
            .before_assistant(self.input.implicit_tokens);
        let entry = self.transcript.entries.end();
        let start = self.transcript.items.end();
        // A message that must never be edited has only opaque items beside its calls and its thought.
        let kind = |kind| {
            if message.opaque {
                ItemKind::Opaque
            } else {
                kind
            }
        };
        // A message that must never be edited may still lose its thought, if its provider refuses that. No
        // policy touches it, because it is in no episode.
        if message.reasoning > 0 {
            self.item(message.first, ItemKind::Reasoning, entry, message.reasoning);
        }
        if message.text > 0 {
            let number = message.first.plus(1);
            let text = self.item(number, kind(ItemKind::Text), entry, message.text);
            if let Some(item) = self.transcript.items.get_mut(text) {
                item.blank = message.blank && !message.opaque;
            }
        }
        let spoken = start..self.transcript.items.end();
        // Text and reasoning precede the calls, but may belong to an episode that one of the calls
        // opens, so they get their episode after the calls did.
        let before = self.transcript.graph.current();
        let mut opened = None;
        let (mut visible, mut hidden) = (0.., 0..);
        for (place, call) in (0..).zip(&message.calls) {
            let number = message.first.plus(ASSISTANT_ITEMS + place);
            let own = match call {
                Call::Visible { .. } => visible.next(),
                Call::Hidden(..) => hidden.next(),
            };
            let at = (number, own.unwrap_or_default());
            let call = self.call(call, entry, at, message.opaque);
            opened = call.or(opened.take());
        }
        // Only a message that is nothing but text can turn out to be a call that was written as
        // text.
        let alone = message.calls.is_empty() && message.text > 0 && !message.opaque;
        self.spoken = indices(spoken.clone()).next_back().filter(|_| alone);
        self.place_spoken(spoken, opened.or(before), message.opaque);
        self.transcript.entries.push(TranscriptEntry {
            source: message.source,
            role: Role::Assistant,
            items: start..self.transcript.items.end(),
            handed: message.handed,
        });
    }

    /// Text and reasoning belong to the episode that their message opens, else to the one that was
    /// open before.
    fn place_spoken(
        &mut self,
        spoken: Range<ItemIndex>,
        episode: Option<EpisodeIndex>,
        opaque: bool,
    ) {
        let (first, count) = (spoken.start, spoken.end.0 - spoken.start.0);
        if opaque || count == 0 {
            return;
        }
        let episode = episode.unwrap_or_else(|| self.transcript.graph.place());
        for index in indices(spoken) {
            self.join(index, episode);
        }
        // An episode lists its items by their place in the transcript. Text and reasoning come
        // before the calls of their message, which were listed already.
        if let Some(episode) = self.transcript.graph.episodes.get_mut(episode) {
            let behind = episode.items.partition_point(|item| *item < first);
            if let Some(tail) = episode.items.get_mut(behind..) {
                tail.rotate_right(count);
            }
        }
    }

    fn join(&mut self, index: ItemIndex, episode: EpisodeIndex) {
        let Some(item) = self.transcript.items.get_mut(index) else {
            return;
        };
        item.episode = Some(episode);
        // Reasoning doesn't count towards the length of an episode: clients drop it.
        let tokens = match item.kind {
            ItemKind::Reasoning => 0,
            ItemKind::System
            | ItemKind::User
            | ItemKind::Text
            | ItemKind::Call
            | ItemKind::Result
            | ItemKind::Opaque => item.tokens,
        };
        if let Some(episode) = self.transcript.graph.episodes.get_mut(episode) {
            episode.items.push(index);
            episode.tokens += tokens;
        }
    }

    /// Adds a result. It answers the first waiting call with its id. Without one it is the client's
    /// own, is passed on, and is never evicted.
    fn result(&mut self, source: Source, id: Option<&str>, tokens: u32, stays: bool, whole: bool) {
        let entry = self.transcript.entries.end();
        // Ids may be empty or repeated, so the first call that still waits is meant.
        let waiting = id.and_then(|id| self.waiting.get_mut(id));
        let Some(call) = waiting.and_then(VecDeque::pop_front) else {
            self.fixed(source, Role::Tool, ItemKind::Opaque, ItemNo(0), tokens);
            return;
        };
        let (no, episode, pinned, bound) = self
            .transcript
            .items
            .get(call)
            .map_or((ItemNo(0), None, false, false), |item| {
                (item.no, item.episode, item.pinned, item.bound)
            });
        let index = self.item(no, ItemKind::Result, entry, tokens);
        if let Some(item) = self.transcript.items.get_mut(index) {
            (item.pair, item.episode, item.pinned) = (Some(call), episode, pinned);
        }
        if let Some(item) = self.transcript.items.get_mut(call) {
            item.pair = Some(index);
            (item.stays, item.whole) = (stays, whole);
        }
        // Implicit episodes are cut by length. What can't be removed doesn't count.
        let free = episode.filter(|_| !bound);
        if let Some(episode) = free.and_then(|e| self.transcript.graph.episodes.get_mut(e)) {
            episode.tokens += tokens + MESSAGE_TOKENS;
        }
        self.transcript.entries.push(TranscriptEntry {
            source,
            role: Role::Tool,
            items: index..self.transcript.items.end(),
            handed: Handed::Nothing,
        });
    }

    /// Adds a message of one item that is never evicted.
    fn fixed(&mut self, source: Source, role: Role, kind: ItemKind, no: ItemNo, tokens: u32) {
        self.spoken = None;
        let entry = self.transcript.entries.end();
        let index = self.item(no, kind, entry, tokens);
        let items = index..self.transcript.items.end();
        self.transcript.entries.push(TranscriptEntry {
            source,
            role,
            items,
            handed: Handed::Nothing,
        });
    }

    fn item(&mut self, no: ItemNo, kind: ItemKind, entry: EntryIndex, tokens: u32) -> ItemIndex {
        self.transcript.items.push(Item {
            no,
            kind,
            entry,
            tokens,
            pair: None,
            episode: None,
            delimiter: None,
            class: ToolClass::Unknown,
            name: self.nameless.clone(),
            digest: 0,
            place: 0,
            hidden: false,
            bound: false,
            said: false,
            front: None,
            pinned: false,
            stays: false,
            whole: false,
            blank: false,
        })
    }
}

fn visible(shape: &Shape) -> Vec<Call<'_>> {
    let call = |call: &plimsoll_model::CallShape| call.tokens.max(CALL_TOKENS);
    shape
        .calls
        .iter()
        .map(|shape| Call::Visible {
            id: &shape.id.0,
            name: &shape.name,
            tokens: call(shape),
            digest: shape.digest,
        })
        .collect()
}
