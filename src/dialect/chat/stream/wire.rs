//! The shapes of Chat Completions: where in a chunk (or an unstreamed body) the text, the calls,
//! the usage and the end stand, and how a chunk is written anew without some of them. Everything
//! here is one chunk at a time; it keeps nothing between chunks and decides nothing about them.
//!
//! All spans are byte ranges into the data that was read.

use std::borrow::Cow;

use bytes::Bytes;

use super::owed::Signs;
use crate::dialect::chat::signature::{DETAILS, Detailed};
use crate::model::Usage;
use crate::model::raw::{self, Edit, Object, Span};

mod counts;
mod events;
mod logprobs;
mod parts;
mod said;

pub(super) use events::{
    Origin, details_event, error_event, finish_event, text_event, usage_event,
};
pub(super) use parts::{Arguments, CallPart};

use parts::{choice_of, index_of, said_of};

/// An object somewhere in the data, with where it begins.
struct Node<'a> {
    at: usize,
    object: Object<'a>,
}

impl<'a> Node<'a> {
    fn at(data: &'a [u8], span: &Span) -> Option<Self> {
        let object = Object::parse(data.get(span.clone())?).ok()?;
        Some(Self {
            at: span.start,
            object,
        })
    }

    fn span(&self, key: &str) -> Option<Span> {
        self.object.get(key).map(|span| raw::shift(&span, self.at))
    }

    fn child(&self, data: &'a [u8], key: &str) -> Option<Self> {
        Self::at(data, &self.span(key)?)
    }

    /// Where the elements of a member lie, where that is an array. Most are strings, and saying why
    /// one is no array would cost another walk over it.
    fn elements(&self, key: &str) -> Option<Vec<Span>> {
        let span = self.object.get(key)?;
        let value = self.object.bytes().get(span.clone())?;
        let inner = raw::array(value.starts_with(b"[").then_some(value)?).ok()?;
        Some(
            inner
                .iter()
                .map(|element| raw::shift(element, self.at + span.start))
                .collect(),
        )
    }

    /// Whether a key is not in lower case, which some clients do not mind.
    fn is_cased(&self) -> bool {
        let cased = |key: &str| key.bytes().any(|byte| byte.is_ascii_uppercase());
        self.object
            .members()
            .iter()
            .any(|member| cased(&member.key))
    }

    fn shifted(&self, edit: Edit) -> Edit {
        (raw::shift(&edit.0, self.at), edit.1)
    }
}

/// Under which key a choice says what it says. Where it says nothing there, the other is read.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// A stream's chunk.
    Delta,
    /// An unstreamed body.
    Message,
}

/// One chunk, or one unstreamed body, taken apart. Only one choice is looked at, that with index 0
/// (or without an index) where there is one: conversations with hidden tools have no other.
pub(super) struct Chunk<'a> {
    data: &'a [u8],
    top: Node<'a>,
    choices: usize,
    choice: Option<Node<'a>>,
    /// Whether something that may be a call stands where none is looked for.
    odd: bool,
    said: Option<Node<'a>>,
    body: Body,
    call_spans: Vec<Span>,
    /// The calls, or pieces of calls, in the order of the array.
    pub(super) calls: Vec<CallPart<'a>>,
}

/// Reasoning that one chunk brings under one field.
pub(super) enum ReasoningPart {
    /// What stands between the quotes of a string.
    Text(Span),
    /// What stands between the brackets of an array.
    Items(Span),
}

impl<'a> Chunk<'a> {
    /// Takes a chunk apart; `None` if the data is no JSON object. `known` is the index of the
    /// choice that was looked at before.
    pub(super) fn read(data: &'a [u8], body: Body, known: Option<u64>) -> Option<Self> {
        let top = Node {
            at: 0,
            object: Object::parse(data).ok()?,
        };
        let elements = top.elements("choices");
        let mut odd =
            elements.is_none() && (top.object.present("choices").is_some() || top.is_cased());
        let spans = elements.unwrap_or_default();
        let choice = choice_of(data, &spans, known);
        odd |= spans.len() > usize::from(choice.is_some());
        let (said, other) = match &choice {
            Some(choice) => said_of(data, choice, body),
            None => (None, false),
        };
        odd |= other || [&choice, &said].into_iter().flatten().any(Node::is_cased);
        let elements = said.as_ref().and_then(|said| said.elements("tool_calls"));
        let has = |key| {
            let said = said.as_ref();
            said.is_some_and(|said| said.object.present(key).is_some())
        };
        odd |= (elements.is_none() && has("tool_calls")) || has("function_call");
        let call_spans = elements.unwrap_or_default();
        let calls: Vec<CallPart<'a>> = call_spans
            .iter()
            .enumerate()
            .filter_map(|(place, span)| CallPart::read(data, place, span))
            .collect();
        odd |= calls.len() < call_spans.len() || calls.iter().any(|part| part.odd);
        Some(Self {
            data,
            top,
            choices: spans.len(),
            choice,
            odd,
            said,
            body,
            call_spans,
            calls,
        })
    }

    /// The index of the choice that is looked at.
    pub(super) fn index(&self) -> Option<u64> {
        self.choice.as_ref().map(index_of)
    }

    /// Whether something that may be a call, or a piece of one, stands where none is looked for.
    pub(super) fn is_odd(&self) -> bool {
        self.odd
    }

    /// Where the names of its calls begin.
    pub(super) fn names_at(&self) -> Vec<usize> {
        self.calls.iter().filter_map(|part| part.name_at).collect()
    }

    /// All of its bytes.
    pub(super) fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The bytes at a span.
    pub(super) fn bytes(&self, span: &Span) -> &'a [u8] {
        self.data.get(span.clone()).unwrap_or_default()
    }

    /// Whether each of its calls is whole, and not a piece of one.
    pub(super) fn has_whole_calls(&self) -> bool {
        matches!(self.body, Body::Message)
    }

    /// Whether it is an error event: an `error` that is not null.
    pub(super) fn is_error(&self) -> bool {
        self.top.object.present("error").is_some()
    }

    /// Whether it says something in the choice that is looked at, be it nothing.
    pub(super) fn has_body(&self) -> bool {
        self.said.is_some()
    }

    pub(super) fn has_role(&self) -> bool {
        self.said
            .as_ref()
            .is_some_and(|said| said.object.present("role").is_some())
    }

    /// The finish reason, unless null or empty.
    pub(super) fn finish(&self) -> Option<Cow<'a, str>> {
        let reason = self.choice.as_ref()?.object.text("finish_reason")?;
        (!reason.is_empty()).then_some(reason)
    }

    /// What stands between the quotes of the refusal, if there is any.
    pub(super) fn refusal(&self) -> Option<Span> {
        self.hole("refusal")
    }

    /// Reasoning by field, in order.
    pub(super) fn reasoning(&self) -> Vec<(&str, ReasoningPart)> {
        let Some(said) = &self.said else {
            return Vec::new();
        };
        let fields = said
            .object
            .members()
            .iter()
            .filter(|member| is_reasoning(&member.key));
        fields
            .filter_map(|member| {
                let value = raw::shift(&member.value, said.at);
                let inner = value.start + 1..value.end.saturating_sub(1);
                let part = match self.bytes(&value) {
                    [b'"', _, .., b'"'] => ReasoningPart::Text(inner),
                    [b'[', _, .., b']'] => ReasoningPart::Items(inner),
                    // A provider that sends the field empty may demand it back.
                    b"\"\"" if member.key == EMPTY => ReasoningPart::Text(inner),
                    _ => return None,
                };
                Some((member.key.as_ref(), part))
            })
            .collect()
    }

    /// What is spoken, where it says its id: whole in a body, in a stream without the sound.
    pub(super) fn audio(&self) -> Option<Bytes> {
        let audio = self.said.as_ref()?.child(self.data, "audio")?;
        let id = audio.object.text("id")?;
        Some(match self.body {
            Body::Delta => Bytes::from(format!(r#"{{"id":{}}}"#, raw::quote(&id))),
            Body::Message => Bytes::copy_from_slice(audio.object.bytes()),
        })
    }

    fn hole(&self, key: &str) -> Option<Span> {
        let span = self.said.as_ref()?.span(key)?;
        matches!(self.bytes(&span), [b'"', _, .., b'"']).then(|| span.start + 1..span.end - 1)
    }

    /// A top-level string that changes with every chunk and means nothing.
    pub(super) fn padding(&self) -> Option<Span> {
        let span = self.top.span("obfuscation")?;
        matches!(self.bytes(&span), [b'"', .., b'"'] if span.len() > 1)
            .then(|| span.start + 1..span.end - 1)
    }

    /// The one string that changes in a chunk that does nothing but go on with one thing: its
    /// delta has this one value, apart from a role, and the chunk neither ends nor counts.
    pub(super) fn only_hole(&self) -> Option<Span> {
        let said = self.said.as_ref()?;
        if self.choices != 1 || self.finish().is_some() || !self.usage_spans().is_empty() {
            return None;
        }
        let mut full = said.object.members().iter().filter(|member| {
            member.key != "role" && !is_nothing(self.bytes(&raw::shift(&member.value, said.at)))
        });
        let (member, None) = (full.next()?, full.next()) else {
            return None;
        };
        if member.key == "tool_calls" {
            let [call] = self.calls.as_slice() else {
                return None;
            };
            let goes_on = call.name.is_empty() && call.extra.is_empty();
            return match &call.arguments {
                Arguments::Text(span) if goes_on && self.call_spans.len() == 1 => {
                    Some(span.clone())
                }
                Arguments::Text(_) | Arguments::Nothing | Arguments::Value(_) => None,
            };
        }
        self.hole(&member.key)
    }

    /// All the usage objects: the standard one, Kimi's in the choice, Groq's under its own key.
    fn usage_spans(&self) -> Vec<Span> {
        let groq = self
            .top
            .child(self.data, "x_groq")
            .and_then(|node| node.span("usage"));
        let choice = self.choice.as_ref().and_then(|choice| choice.span("usage"));
        let all = [self.top.span("usage"), choice, groq];
        all.into_iter()
            .flatten()
            .filter(|span| self.bytes(span).starts_with(b"{"))
            .collect()
    }

    /// Whether any usage is reported.
    pub(super) fn has_usage(&self) -> bool {
        !self.usage_spans().is_empty()
    }

    /// The usage reported, if any.
    pub(super) fn usage(&self) -> Option<Usage> {
        let span = self.usage_spans().into_iter().next()?;
        Node::at(self.data, &span).map(|node| counts::read(self.data, &node))
    }

    /// Whether it is the extra chunk that only reports usage.
    pub(super) fn is_usage_only(&self) -> bool {
        self.choices == 0 && self.has_usage()
    }

    /// Writes the chunk anew by the plan; `None` if nothing is left that says anything.
    pub(super) fn rewrite(&self, plan: &Plan<'_>) -> Option<Bytes> {
        if self.says_nothing(plan) {
            return None;
        }
        let mut edits = self.said_edits(plan);
        edits.extend(self.token_edit(plan));
        if let Some(origin) = plan.origin {
            edits.extend(self.origin_edits(origin));
        }
        edits.extend(self.usage_edits(plan.usage));
        if let (Finish::Null, Some(choice), Some(_)) = (plan.finish, &self.choice, self.finish()) {
            let span = choice.span("finish_reason").unwrap_or_default();
            edits.push((span, Bytes::from_static(b"null")));
        }
        if let Some(seam) = &plan.seam {
            let at = seam.at;
            edits.push((at..at, Bytes::from(r"\n".repeat(seam.newlines))));
        }
        Some(splice(self.data, edits))
    }

    /// The edits that take hidden calls and a second role out of what is said, and give the
    /// visible calls their numbers.
    pub(super) fn said_edits(&self, plan: &Plan<'_>) -> Vec<Edit> {
        let Some(said) = &self.said else {
            return Vec::new();
        };
        let gone = |place: usize| plan.hides(&self.calls, place);
        let all_gone = !self.call_spans.is_empty() && (0..self.call_spans.len()).all(gone);
        let members = said.object.members();
        let goes = |place: usize| {
            members
                .get(place)
                .is_some_and(|member| match member.key.as_ref() {
                    "role" => plan.drop_role,
                    "tool_calls" => all_gone,
                    DETAILS => plan.loses_details(),
                    _ => false,
                })
        };
        if let Some(alone) = self.details_alone(plan, goes) {
            return vec![alone];
        }
        let cuts = said.object.remove_spans(goes);
        let mut edits: Vec<Edit> = cuts
            .into_iter()
            .map(|cut| said.shifted((cut, Bytes::new())))
            .collect();
        edits.extend(self.sign_edits(plan));
        if !all_gone {
            let cuts = raw::remove_spans(&self.call_spans, gone);
            edits.extend(cuts.into_iter().map(|cut| (cut, Bytes::new())));
        }
        for (part, fate) in self.calls.iter().zip(plan.calls) {
            if let (CallFate::Number(number), Some(span)) = (fate, &part.index_span) {
                edits.push((span.clone(), Bytes::from(number.to_string())));
            }
        }
        edits
    }

    /// The edit that takes out tokens that the client must not read.
    pub(super) fn token_edit(&self, plan: &Plan<'_>) -> Option<Edit> {
        let stray = plan.hides.then(|| self.stray_tokens()).flatten()?;
        Some((stray, Bytes::from_static(b"null")))
    }

    /// The edits that make the response the first hop's.
    pub(super) fn origin_edits(&self, origin: &Origin) -> Vec<Edit> {
        [("id", &origin.id), ("created", &origin.created)]
            .into_iter()
            .filter_map(|(key, value)| Some((self.top.span(key)?, value.clone()?)))
            .collect()
    }

    /// The edits that take the usage away or put other numbers in the place of its own.
    pub(super) fn usage_edits(&self, told: Told<'_>) -> Vec<Edit> {
        let spans = self.usage_spans();
        match told {
            Told::AsIs => Vec::new(),
            Told::Nothing => spans
                .into_iter()
                .map(|span| (span, Bytes::from_static(b"null")))
                .collect(),
            Told::These(usage) => spans
                .iter()
                .filter_map(|span| Node::at(self.data, span))
                .flat_map(|node| counts::write(self.data, &node, usage))
                .collect(),
        }
    }

    /// The edit that has it speak, where it does not.
    pub(super) fn audio_edit(&self, audio: &[u8]) -> Option<Edit> {
        let said = self.said.as_ref()?;
        let mute = said.object.present("audio").is_none();
        mute.then(|| said.shifted(said.object.set("audio", audio)))
    }

    /// The edit that gives the finish reason this value.
    pub(super) fn finish_edit(&self, reason: &str) -> Option<Edit> {
        let choice = self.choice.as_ref()?;
        Some(
            choice.shifted(
                choice
                    .object
                    .set("finish_reason", raw::quote(reason).as_bytes()),
            ),
        )
    }

    fn says_nothing(&self, plan: &Plan<'_>) -> bool {
        let counts = self.has_usage() && !matches!(plan.usage, Told::Nothing);
        let ends = self.finish().is_some() && matches!(plan.finish, Finish::Keep);
        // A token that is half a character says nothing else.
        let tells = self.tokens().is_some() && self.token_edit(plan).is_none();
        let signs = plan.signs.and_then(|signs| signs.details.as_ref());
        let gains = matches!(signs, Some(Detailed::These(_)));
        if counts || ends || tells || gains || self.choices > 1 {
            return false;
        }
        match (&self.choice, &self.said) {
            // A chunk of usage only, and the usage goes.
            (None, _) => self.is_usage_only(),
            // No delta: filter results and the like, which are not ours to judge.
            (Some(_), None) => false,
            (Some(_), Some(said)) => said.object.members().iter().all(|member| {
                let nothing = is_nothing(self.bytes(&raw::shift(&member.value, said.at)));
                nothing
                    || match member.key.as_ref() {
                        "role" => plan.drop_role,
                        DETAILS => plan.loses_details(),
                        "tool_calls" => {
                            (0..self.call_spans.len()).all(|at| plan.hides(&self.calls, at))
                        }
                        _ => false,
                    }
            }),
        }
    }
}

/// How a chunk is written anew.
pub(super) struct Plan<'a> {
    /// The first hop, if the chunk is of a later one.
    pub(super) origin: Option<&'a Origin>,
    /// Whether the client has been told the role already.
    pub(super) drop_role: bool,
    /// What becomes of each of [`Chunk::calls`].
    pub(super) calls: &'a [CallFate],
    /// What it gets of calls that the client does not see.
    pub(super) signs: Option<&'a Signs>,
    /// Whether the hop has a call that the client must not see, of whose tokens it may tell.
    pub(super) hides: bool,
    /// Newlines to put into the text.
    pub(super) seam: Option<Seam>,
    /// What becomes of the usage.
    pub(super) usage: Told<'a>,
    /// What becomes of the finish reason.
    pub(super) finish: Finish,
}

impl Plan<'_> {
    /// The plan that changes nothing.
    pub(super) fn keep() -> Self {
        Self {
            origin: None,
            drop_role: false,
            calls: &[],
            signs: None,
            hides: false,
            seam: None,
            usage: Told::AsIs,
            finish: Finish::Keep,
        }
    }

    fn loses_details(&self) -> bool {
        let details = self.signs.and_then(|signs| signs.details.as_ref());
        details == Some(&Detailed::Gone)
    }

    fn hides(&self, calls: &[CallPart<'_>], place: usize) -> bool {
        let fates = calls.iter().zip(self.calls);
        fates
            .into_iter()
            .any(|(part, fate)| part.place == place && *fate == CallFate::Hide)
    }
}

/// What becomes of one call in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallFate {
    /// It stays as it is.
    Keep,
    /// It stays, under this index (if it has one at all).
    Number(u64),
    /// It goes.
    Hide,
}

/// Newlines that go into a chunk's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seam {
    /// Where in the data.
    pub(super) at: usize,
    /// How many.
    pub(super) newlines: usize,
}

/// Which usage is told.
#[derive(Clone, Copy)]
pub(super) enum Told<'a> {
    /// The chunk's own.
    AsIs,
    /// None.
    Nothing,
    /// This one.
    These(&'a Usage),
}

/// What becomes of the finish reason.
#[derive(Clone, Copy)]
pub(super) enum Finish {
    /// It stays.
    Keep,
    /// It becomes null: more follows.
    Null,
}

impl Body {
    fn key(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::Message => "message",
        }
    }

    fn other(self) -> &'static str {
        match self {
            Self::Delta => Self::Message.key(),
            Self::Message => Self::Delta.key(),
        }
    }
}

fn is_reasoning(key: &str) -> bool {
    key.starts_with("reasoning") || key.starts_with("thinking")
}

fn is_nothing(value: &[u8]) -> bool {
    matches!(value, b"null" | b"\"\"" | b"[]" | b"{}")
}

/// Puts edits in order and in place.
pub(super) fn splice(data: &[u8], mut edits: Vec<Edit>) -> Bytes {
    edits.sort_by_key(|(span, _)| span.start);
    raw::splice(data, &edits)
}

/// The field of reasoning that is kept where it came as an empty string.
const EMPTY: &str = "reasoning_content";
/// The data that ends a stream.
pub(super) const DONE: &[u8] = b"[DONE]";
