//! Puts the pieces of one hop's chunks together. It takes chunks and gives an [`Answer`]; it never
//! decides what the client sees of them.

use bytes::Bytes;
use plimsoll_model::{Usage, raw};

use super::beside_text;
use super::call_table::{CallTable, Visibility};
use super::wire::{Chunk, Origin, ReasoningPart};
use crate::answer::{Answer, Reasoning, is_cut};
use crate::chat::content_parts::Thinking;
use crate::json;
use crate::machine::KeptBytes;
use crate::shape::Sink;

/// What one hop has said so far. Strings are kept as on the wire, with their escapes, and decoded
/// once, at the end.
#[derive(Debug, Clone, Default)]
pub struct AnswerBuilder {
    text: Vec<u8>,
    refusal: Vec<u8>,
    reasoning: Vec<(String, ReasoningPieces)>,
    /// The reasoning that stands in parts of the content.
    thinking: Option<Thinking>,
    audio: Option<Bytes>,
    tokens: [Option<Bytes>; 2],
    beside: [Vec<Bytes>; 2],
    pub calls: CallTable,
    /// The index of the choice that is read.
    pub choice: Option<u64>,
    pub origin: Origin,
    pub usage: Option<Usage>,
    finish: Option<String>,
    done: bool,
    error: Option<Bytes>,
}

#[derive(Debug, Clone)]
enum ReasoningPieces {
    Text(Vec<u8>),
    Items(Vec<u8>),
}

impl AnswerBuilder {
    pub fn new(calls: CallTable) -> Self {
        Self {
            calls,
            ..Self::default()
        }
    }

    /// Takes in a chunk and returns the slots of the calls that its pieces belong to.
    pub fn absorb(&mut self, chunk: &Chunk<'_>) -> Vec<usize> {
        self.origin.learn(chunk);
        self.choice = self.choice.or(chunk.index());
        for span in chunk.texts() {
            self.text.extend_from_slice(chunk.bytes(&span));
        }
        for part in chunk.thinking() {
            self.thinking.get_or_insert_default().absorb(&part);
        }
        if let Some(span) = chunk.refusal() {
            self.refusal.extend_from_slice(chunk.bytes(&span));
        }
        for (field, part) in chunk.reasoning() {
            self.reason(field, &part, chunk);
        }
        if self.audio.is_none() {
            self.audio = chunk.audio();
        }
        let slots = chunk
            .calls
            .iter()
            .map(|part| self.calls.absorb(chunk, part))
            .collect();
        self.usage = chunk.usage().or(self.usage);
        if let Some(reason) = chunk.finish() {
            self.finish = Some(reason.into_owned());
            self.settle();
        }
        slots
    }

    /// Takes in the `logprobs` of a whole body, once its calls are decided.
    pub fn take_tokens(&mut self, chunk: &Chunk<'_>) {
        let lists = chunk.lists_of_tokens(self.calls.hides());
        self.tokens = lists.map(|list| Some(Bytes::copy_from_slice(chunk.bytes(&list?))));
    }

    /// Takes in what stands beside the text of a whole body.
    pub fn take_beside(&mut self, chunk: &Chunk<'_>, body: &Bytes) {
        let message = chunk.delta.as_ref();
        let lists = message.map(|message| beside_text::lists(&message.object, body));
        self.beside = lists.unwrap_or_default();
    }

    /// Takes in a string from a frame that fits a shape.
    pub fn sink(&mut self, sink: Sink, inner: &[u8]) {
        match sink {
            Sink::Text => self.text.extend_from_slice(inner),
            Sink::Refusal => self.refusal.extend_from_slice(inner),
            Sink::Reasoning(place) => {
                if let Some((_, ReasoningPieces::Text(text))) = self.reasoning.get_mut(place) {
                    text.extend_from_slice(inner);
                }
            }
            Sink::Arguments(slot) => self.calls.extend(slot, inner),
        }
    }

    /// Where the string at this place of a chunk went, and whether the client sees it; `None` if
    /// that may change with the next chunk.
    pub fn sink_of(&self, chunk: &Chunk<'_>, hole: usize, slots: &[usize]) -> Option<(Sink, bool)> {
        if let [slot] = slots {
            return match self.calls.visibility(*slot) {
                Visibility::Visible => Some((Sink::Arguments(*slot), true)),
                Visibility::Hidden => Some((Sink::Arguments(*slot), false)),
                Visibility::Open | Visibility::Withheld => None,
            };
        }
        let is_hole = |span: &raw::Span| span.start == hole;
        if chunk.text().as_ref().is_some_and(is_hole) {
            return Some((Sink::Text, true));
        }
        if chunk.refusal().as_ref().is_some_and(is_hole) {
            return Some((Sink::Refusal, true));
        }
        let parts = chunk.reasoning();
        let (field, _) = parts.iter().find(|(_, part)| match part {
            ReasoningPart::Text(span) => is_hole(span),
            ReasoningPart::Items(_) => false,
        })?;
        let place = self.reasoning.iter().position(|(known, pieces)| {
            known == field && matches!(pieces, ReasoningPieces::Text(_))
        })?;
        Some((Sink::Reasoning(place), true))
    }

    /// How many bytes are kept of what was said, and of how calls are told apart.
    pub fn kept(&self) -> KeptBytes {
        let reasoning = self.reasoning.iter().map(|(_, pieces)| match pieces {
            ReasoningPieces::Text(bytes) | ReasoningPieces::Items(bytes) => bytes.len(),
        });
        let thinking = self.thinking.as_ref().map_or(0, Thinking::bytes);
        let [arguments, calls] = self.calls.bytes();
        KeptBytes {
            said: self.text.len()
                + self.refusal.len()
                + reasoning.sum::<usize>()
                + thinking
                + arguments,
            waits: calls,
            parts: self.calls.len(),
        }
    }

    /// Forgets what was said, but for how its calls are told apart.
    pub fn forget(&mut self) {
        self.text = Vec::new();
        self.refusal = Vec::new();
        for (_, pieces) in &mut self.reasoning {
            match pieces {
                ReasoningPieces::Text(bytes) | ReasoningPieces::Items(bytes) => *bytes = Vec::new(),
            }
        }
        self.thinking = None;
        self.calls.forget();
    }

    /// The upstream said `[DONE]`.
    pub fn mark_done(&mut self) {
        self.done = true;
        self.settle();
    }

    /// The upstream sent an error event. Only the first is kept.
    pub fn fail(&mut self, data: Bytes) {
        self.error.get_or_insert(data);
        self.settle();
    }

    /// Decides the calls that are open, because the hop has ended.
    pub fn settle(&mut self) {
        self.calls.settle(!self.ended());
    }

    pub fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// Whether the model came to its own end.
    fn ended(&self) -> bool {
        self.complete() && !self.finish.as_deref().is_some_and(is_cut)
    }

    /// Whether nothing more of what it says is to come: usage may follow the finish reason, and nothing follows the
    /// mark of the end.
    pub fn is_told(&self) -> bool {
        self.done || self.usage.is_some()
    }

    fn complete(&self) -> bool {
        self.error.is_none() && (self.done || self.finish.is_some())
    }

    /// What the hop said, now that it has ended. Text and calls are taken out; the origin, the
    /// usage and how it ended stay known.
    pub fn take_answer(&mut self) -> Answer {
        let next = self.calls.next_hop();
        let calls = std::mem::replace(&mut self.calls, next);
        let thinking = self.thinking.take().map(|own| Reasoning::Part(own.part()));
        let thinking = thinking.map(|part| ("content".to_owned(), part));
        let reasoning = std::mem::take(&mut self.reasoning).into_iter();
        Answer {
            text: raw::unescape(&std::mem::take(&mut self.text)),
            refusal: raw::unescape(&std::mem::take(&mut self.refusal)),
            reasoning: thinking
                .into_iter()
                .chain(reasoning.map(ReasoningPieces::finished))
                .collect(),
            audio: self.audio.take(),
            tokens: std::mem::take(&mut self.tokens),
            beside: std::mem::take(&mut self.beside),
            calls: calls.into_calls(self.ended()),
            finish: self.finish.clone(),
            usage: self.usage,
            complete: self.complete(),
            error: self.error.clone(),
            id: self.origin.id(),
            created: self.origin.created(),
            model: self.origin.model(),
            blocks: Vec::new(),
            handle: None,
            diagnosis: None,
            forgotten: false,
        }
    }

    fn reason(&mut self, field: &str, part: &ReasoningPart, chunk: &Chunk<'_>) {
        let slot = match self.reasoning.iter().position(|(known, _)| known == field) {
            Some(slot) => slot,
            None => {
                let empty = match part {
                    ReasoningPart::Text(_) => ReasoningPieces::Text(Vec::new()),
                    ReasoningPart::Items(_) => ReasoningPieces::Items(Vec::new()),
                };
                self.reasoning.push((field.to_owned(), empty));
                self.reasoning.len() - 1
            }
        };
        match (self.reasoning.get_mut(slot), part) {
            (Some((_, ReasoningPieces::Text(text))), ReasoningPart::Text(span)) => {
                text.extend_from_slice(chunk.bytes(span));
            }
            (Some((_, ReasoningPieces::Items(items))), ReasoningPart::Items(span)) => {
                if !items.is_empty() {
                    items.push(b',');
                }
                items.extend_from_slice(chunk.bytes(span));
            }
            // A field that changes its type half-way keeps the type that it began with.
            (Some((_, ReasoningPieces::Text(_))), ReasoningPart::Items(_))
            | (Some((_, ReasoningPieces::Items(_))), ReasoningPart::Text(_))
            | (None, _) => {}
        }
    }
}

impl ReasoningPieces {
    fn finished((field, pieces): (String, Self)) -> (String, Reasoning) {
        let reasoning = match pieces {
            Self::Text(text) => Reasoning::Text(raw::unescape(&text)),
            Self::Items(items) => Reasoning::Items(json::list(&[items])),
        };
        (field, reasoning)
    }
}
