//! One chunk of a Chat Completions stream, or one unstreamed body, taken apart: where the choice,
//! the calls, the reasoning and the usage stand. It looks at one chunk at a time, keeps nothing
//! between chunks, and decides nothing about them.
//!
//! All spans are byte ranges into the data that was read.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::Usage;
use plimsoll_model::raw::{self, Span};

use super::call_part::{Arguments, Body, CallPart, choice_of, delta_of, index_of, is_cased};
use super::usage::COUNTS;
use crate::json::Node;

/// The field of reasoning that is kept even where it came as an empty string.
const KEPT_EMPTY: &str = "reasoning_content";
/// The data that ends a stream.
pub const DONE: &[u8] = b"[DONE]";

/// One chunk, or one unstreamed body, taken apart. Only one choice is read, the one with index 0
/// (or without an index) if there is one: conversations with hidden tools have no other choice.
pub struct Chunk<'a> {
    pub data: &'a [u8],
    pub top: Node<'a>,
    /// How many choices there are.
    pub choices: usize,
    pub choice: Option<Node<'a>>,
    /// The object that holds what the choice says: its `delta`, or the `message` of a body.
    pub delta: Option<Node<'a>>,
    body: Body,
    /// Whether something that may be a call stands where no reader looks for one.
    odd: bool,
    /// The spans of the elements of `tool_calls`.
    pub call_spans: Vec<Span>,
    /// The calls, or the pieces of calls, in the order of the array.
    pub calls: Vec<CallPart<'a>>,
}

/// Reasoning that one chunk brings under one field.
pub enum ReasoningPart {
    /// The span between the quotes of a string.
    Text(Span),
    /// The span between the brackets of an array.
    Items(Span),
}

impl<'a> Chunk<'a> {
    /// Takes a chunk apart; `None` if the data is no JSON object. `known` is the index of the
    /// choice that was read before.
    pub fn read(data: &'a [u8], body: Body, known: Option<u64>) -> Option<Self> {
        let top = Node::root(data)?;
        let elements = top.elements("choices");
        // A lenient client may read more than is read here. Whatever this reader passes over makes
        // the chunk odd, and the guard searches odd chunks.
        let mut odd =
            elements.is_none() && (top.object.present("choices").is_some() || is_cased(&top));
        let spans = elements.unwrap_or_default();
        let choice = choice_of(data, &spans, known);
        odd |= spans.len() > usize::from(choice.is_some());
        let (delta, other) = match &choice {
            Some(choice) => delta_of(choice, body),
            None => (None, false),
        };
        odd |= other || [&choice, &delta].into_iter().flatten().any(is_cased);
        let elements = delta
            .as_ref()
            .and_then(|delta| delta.elements("tool_calls"));
        let has = |key| {
            let delta = delta.as_ref();
            delta.is_some_and(|delta| delta.object.present(key).is_some())
        };
        odd |= (elements.is_none() && has("tool_calls")) || has("function_call");
        let call_spans = elements.unwrap_or_default();
        let calls: Vec<CallPart<'a>> = (0..)
            .zip(&call_spans)
            .filter_map(|(place, span)| CallPart::read(data, place, span))
            .collect();
        odd |= calls.len() < call_spans.len() || calls.iter().any(|part| part.odd);
        Some(Self {
            data,
            top,
            choices: spans.len(),
            choice,
            delta,
            body,
            odd,
            call_spans,
            calls,
        })
    }

    /// The index of the choice that is read.
    pub fn index(&self) -> Option<u64> {
        self.choice.as_ref().map(index_of)
    }

    /// Whether something that may be a call, or a piece of one, stands where no reader looks for
    /// it.
    pub fn is_odd(&self) -> bool {
        self.odd
    }

    /// The places where the names of its calls begin.
    pub fn names_at(&self) -> Vec<usize> {
        self.calls.iter().filter_map(|part| part.name_at).collect()
    }

    /// The bytes at a span.
    pub fn bytes(&self, span: &Span) -> &'a [u8] {
        self.data.get(span.clone()).unwrap_or_default()
    }

    /// Whether each of its calls is whole, and not a piece of one.
    pub fn has_whole_calls(&self) -> bool {
        matches!(self.body, Body::Message)
    }

    /// Whether it is an error event: it has an `error` that is not null.
    pub fn is_error(&self) -> bool {
        self.top.object.present("error").is_some()
    }

    /// Whether the choice has a `delta` (or a `message`), even an empty one.
    pub fn has_delta(&self) -> bool {
        self.delta.is_some()
    }

    pub fn has_role(&self) -> bool {
        self.delta_member("role").is_some()
    }

    /// A member of the delta as raw JSON, unless it is absent or null.
    pub fn delta_member(&self, key: &str) -> Option<&'a [u8]> {
        self.delta.as_ref()?.object.present(key)
    }

    /// The finish reason, unless it is null or empty.
    pub fn finish(&self) -> Option<Cow<'a, str>> {
        let reason = self.choice.as_ref()?.object.text("finish_reason")?;
        (!reason.is_empty()).then_some(reason)
    }

    /// The span between the quotes of the refusal, if there is any.
    pub fn refusal(&self) -> Option<Span> {
        self.hole("refusal")
    }

    /// Reasoning by field, in order.
    pub fn reasoning(&self) -> Vec<(&str, ReasoningPart)> {
        let Some(delta) = &self.delta else {
            return Vec::new();
        };
        let part = |(key, value): (&str, Span)| {
            let inner = value.start + 1..value.end.saturating_sub(1);
            match self.bytes(&value) {
                [b'"', _, .., b'"'] => Some(ReasoningPart::Text(inner)),
                [b'[', _, .., b']'] => Some(ReasoningPart::Items(inner)),
                // A provider that sends the field empty may demand it back.
                b"\"\"" if key == KEPT_EMPTY => Some(ReasoningPart::Text(inner)),
                _ => None,
            }
        };
        let members = delta.object.members().iter();
        members
            .map(|member| (member.key.as_ref(), raw::shift(&member.value, delta.at)))
            .filter(|(key, _)| key.starts_with("reasoning") || key.starts_with("thinking"))
            .filter_map(|(key, value)| Some((key, part((key, value))?)))
            .collect()
    }

    /// The speech, if it has an id: all of it in a body, the id alone in a stream.
    pub fn audio(&self) -> Option<Bytes> {
        let audio = self.delta.as_ref()?.child("audio")?;
        let id = audio.object.text("id")?;
        Some(match self.body {
            Body::Delta => Bytes::from(format!(r#"{{"id":{}}}"#, raw::quote(&id))),
            Body::Message => Bytes::copy_from_slice(audio.object.bytes()),
        })
    }

    /// The span between the quotes of a string in the delta, if the string says anything.
    pub fn hole(&self, key: &str) -> Option<Span> {
        let span = self.delta.as_ref()?.span(key)?;
        matches!(self.bytes(&span), [b'"', _, .., b'"']).then(|| span.start + 1..span.end - 1)
    }

    /// The span of a top-level string that changes with every chunk and means nothing.
    pub fn padding(&self) -> Option<Span> {
        let span = self.top.span("obfuscation")?;
        matches!(self.bytes(&span), [b'"', .., b'"'] if span.len() > 1)
            .then(|| span.start + 1..span.end - 1)
    }

    /// The one string that changes in a chunk that only continues one thing: its delta has this one
    /// value, apart from a role, and the chunk brings neither a finish reason nor usage.
    pub fn only_hole(&self) -> Option<Span> {
        let delta = self.delta.as_ref()?;
        if self.choices != 1 || self.finish().is_some() || self.has_usage() {
            return None;
        }
        let mut full = delta
            .object
            .members()
            .iter()
            .filter(|member| member.key != "role" && !is_nothing(delta.value(member)));
        let (member, None) = (full.next()?, full.next()) else {
            return None;
        };
        if member.key != "tool_calls" {
            return self.hole(&member.key);
        }
        let ([call], [_]) = (self.calls.as_slice(), self.call_spans.as_slice()) else {
            return None;
        };
        match &call.arguments {
            Arguments::Text(span) if call.name.is_empty() && call.extra.is_empty() => {
                Some(span.clone())
            }
            Arguments::Text(_) | Arguments::Nothing | Arguments::Value(_) => None,
        }
    }

    /// The spans of all usage objects: the standard one, Kimi's in the choice, Groq's under its own
    /// key.
    fn usage_spans(&self) -> impl Iterator<Item = Span> {
        let groq = self.top.child("x_groq");
        let groq = groq.and_then(|node| node.span("usage"));
        let choice = self.choice.as_ref().and_then(|choice| choice.span("usage"));
        let all = [self.top.span("usage"), choice, groq].into_iter().flatten();
        // Most chunks say `null` here.
        all.filter(|span| self.data.get(span.start) == Some(&b'{'))
    }

    /// All usage objects.
    pub fn usages(&self) -> impl Iterator<Item = Node<'a>> {
        self.usage_spans()
            .filter_map(|span| Node::at(self.data, &span))
    }

    /// Whether it reports any usage.
    pub fn has_usage(&self) -> bool {
        self.usage_spans().next().is_some()
    }

    /// The usage that it reports first.
    pub fn usage(&self) -> Option<Usage> {
        self.usages().next().map(|node| COUNTS.read(&node))
    }

    /// Whether it is the extra chunk that only reports usage.
    pub fn is_usage_only(&self) -> bool {
        self.choices == 0 && self.has_usage()
    }
}

/// Whether a value says nothing.
pub fn is_nothing(value: &[u8]) -> bool {
    matches!(value, b"null" | b"\"\"" | b"[]" | b"{}")
}
