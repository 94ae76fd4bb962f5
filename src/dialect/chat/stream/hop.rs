//! What one hop has said so far: the pieces of its chunks put together. It takes chunks and gives
//! an [`Answer`]; what the client sees of them is the machine's business.

use bytes::Bytes;

use super::answer::{Answer, Reasoning, is_cut};
use super::calls::{Fate, Table};
use super::shape::Sink;
use super::wire::{Chunk, Origin, ReasoningPart};
use crate::dialect::chat::content::Thinking;
use crate::model::{Usage, raw};

/// What one hop has said so far. Strings stand as on the wire, escapes and all, and are decoded
/// once, at the end.
#[derive(Debug, Clone)]
pub(super) struct Hop {
    text: Vec<u8>,
    refusal: Vec<u8>,
    reasoning: Vec<(String, Pieces)>,
    /// What parts of the content hold of reasoning.
    thinking: Option<Thinking>,
    audio: Option<Bytes>,
    tokens: Option<Bytes>,
    pub(super) calls: Table,
    /// The index of the choice that it is read from.
    pub(super) choice: Option<u64>,
    pub(super) origin: Origin,
    pub(super) usage: Option<Usage>,
    finish: Option<String>,
    done: bool,
    error: Option<Bytes>,
}

#[derive(Debug, Clone)]
enum Pieces {
    Text(Vec<u8>),
    Items(Vec<u8>),
}

impl Hop {
    pub(super) fn new(calls: Table) -> Self {
        Self {
            text: Vec::new(),
            refusal: Vec::new(),
            reasoning: Vec::new(),
            thinking: None,
            audio: None,
            tokens: None,
            calls,
            choice: None,
            origin: Origin::default(),
            usage: None,
            finish: None,
            done: false,
            error: None,
        }
    }

    /// Takes in a chunk and says to which call each of its pieces belongs.
    pub(super) fn absorb(&mut self, chunk: &Chunk<'_>) -> Vec<usize> {
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

    /// Takes in the tokens of a whole body, once its calls are decided.
    pub(super) fn take_tokens(&mut self, chunk: &Chunk<'_>) {
        let list = chunk.text_tokens(self.calls.hides());
        self.tokens = list.map(|list| Bytes::copy_from_slice(chunk.bytes(&list)));
    }

    /// Takes in a string that a shape found.
    pub(super) fn sink(&mut self, sink: Sink, inner: &[u8]) {
        match sink {
            Sink::Text => self.text.extend_from_slice(inner),
            Sink::Refusal => self.refusal.extend_from_slice(inner),
            Sink::Reasoning(place) => {
                if let Some((_, Pieces::Text(text))) = self.reasoning.get_mut(place) {
                    text.extend_from_slice(inner);
                }
            }
            Sink::Arguments(slot) => self.calls.extend(slot, inner),
        }
    }

    /// Where the string at this span of a chunk that was taken in has gone, and whether the
    /// client sees it; `None` if that may change with the next chunk.
    pub(super) fn sink_of(
        &self,
        chunk: &Chunk<'_>,
        hole: usize,
        slots: &[usize],
    ) -> Option<(Sink, bool)> {
        if let [slot] = slots {
            return match self.calls.fate(*slot) {
                Fate::Visible => Some((Sink::Arguments(*slot), true)),
                Fate::Hidden => Some((Sink::Arguments(*slot), false)),
                Fate::Open | Fate::Withheld => None,
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
        let place = self
            .reasoning
            .iter()
            .position(|(known, pieces)| known == field && matches!(pieces, Pieces::Text(_)))?;
        Some((Sink::Reasoning(place), true))
    }

    /// The upstream said `[DONE]`.
    pub(super) fn mark_done(&mut self) {
        self.done = true;
        self.settle();
    }

    /// The upstream sent an error event. Only the first one is kept.
    pub(super) fn fail(&mut self, data: Bytes) {
        self.error.get_or_insert(data);
        self.settle();
    }

    /// Decides what is open, for the hop has ended one way or other.
    pub(super) fn settle(&mut self) {
        self.calls.settle(!self.ended());
    }

    pub(super) fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// Whether the model came to its own end.
    fn ended(&self) -> bool {
        self.complete() && !self.finish.as_deref().is_some_and(is_cut)
    }

    fn complete(&self) -> bool {
        self.error.is_none() && (self.done || self.finish.is_some())
    }

    /// What the hop said, now that it has ended. Text and calls are taken; who spoke, the usage
    /// and how it ended stay known.
    pub(super) fn take_answer(&mut self) -> Answer {
        let next = self.calls.next_hop();
        let calls = std::mem::replace(&mut self.calls, next);
        let thinking = self.thinking.take().map(|own| Reasoning::Part(own.part()));
        let thinking = thinking.map(|part| ("content".to_owned(), part));
        let reasoning = std::mem::take(&mut self.reasoning).into_iter();
        Answer {
            blocks: Vec::new(),
            text: raw::unescape(&std::mem::take(&mut self.text)),
            refusal: raw::unescape(&std::mem::take(&mut self.refusal)),
            reasoning: thinking
                .into_iter()
                .chain(reasoning.map(Pieces::finished))
                .collect(),
            audio: self.audio.take(),
            tokens: self.tokens.take(),
            calls: calls.into_calls(self.ended()),
            finish: self.finish.clone(),
            usage: self.usage,
            complete: self.complete(),
            error: self.error.clone(),
            id: self.origin.id(),
            created: self.origin.created(),
            model: self.origin.model(),
        }
    }

    fn reason(&mut self, field: &str, part: &ReasoningPart, chunk: &Chunk<'_>) {
        let slot = match self.reasoning.iter().position(|(known, _)| known == field) {
            Some(slot) => slot,
            None => {
                let empty = match part {
                    ReasoningPart::Text(_) => Pieces::Text(Vec::new()),
                    ReasoningPart::Items(_) => Pieces::Items(Vec::new()),
                };
                self.reasoning.push((field.to_owned(), empty));
                self.reasoning.len() - 1
            }
        };
        match (self.reasoning.get_mut(slot), part) {
            (Some((_, Pieces::Text(text))), ReasoningPart::Text(span)) => {
                text.extend_from_slice(chunk.bytes(span));
            }
            (Some((_, Pieces::Items(items))), ReasoningPart::Items(span)) => {
                if !items.is_empty() {
                    items.push(b',');
                }
                items.extend_from_slice(chunk.bytes(span));
            }
            // A field that changes its kind half-way keeps the kind that it began with.
            (Some((_, Pieces::Text(_))), ReasoningPart::Items(_))
            | (Some((_, Pieces::Items(_))), ReasoningPart::Text(_))
            | (None, _) => {}
        }
    }
}

impl Pieces {
    fn finished((field, pieces): (String, Self)) -> (String, Reasoning) {
        let reasoning = match pieces {
            Self::Text(text) => Reasoning::Text(raw::unescape(&text)),
            Self::Items(items) => {
                let items = [b"[", items.as_slice(), b"]"].concat();
                Reasoning::Items(Bytes::from(items))
            }
        };
        (field, reasoning)
    }
}
