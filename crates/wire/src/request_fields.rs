//! The parts of a request's body that every wire format has: where its units and its tools lie, and
//! the few values that decide how it is served. Keeps the client's bytes; never judges what only
//! the upstream can judge.

use std::ops::Range;

use bytes::Bytes;
use plimsoll_model::raw::{Elements, Object, RawError, Span};
use plimsoll_model::{Digest, label_set};

use super::cached_for::CachedFor;
use super::hop_fields::HopFields;
use super::json;
use super::usage::UsageWish;
use super::{diagnosis, explicit};
use crate::Dialect;

/// Why a body could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RequestError {
    /// The body is no JSON object.
    #[error("the request body could not be read: {0}")]
    Body(#[from] RawError),
    /// The conversation is not where it belongs.
    #[error("send `{field}` as {form}")]
    Missing {
        /// The member that should hold it.
        field: &'static str,
        /// What that should be.
        form: &'static str,
    },
    /// A key twice: parsers disagree on which one counts, so nothing may be edited.
    #[error("each key may stand once in a request")]
    DuplicateKey,
}

label_set!(
    /// Why a request can't be managed as it stands.
    Unmanaged {
        /// It asks for several answers.
        N => "n",
        /// It holds no message.
        Empty => "empty",
        /// It is answered later, and elsewhere.
        Background => "background",
        /// Its history is a conversation that the provider keeps.
        Conversation => "conversation",
        /// Its input is a prompt that the provider keeps.
        Prompt => "prompt",
        /// It asks the provider to shorten the history.
        CompactionTrigger => "compaction_trigger",
        /// It goes on from a response that is not known here.
        PreviousResponseId => "previous_response_id",
        /// It names an item that is not known here.
        ItemReference => "item_reference",
        /// It has more messages than there may ever be memory for.
        Messages => "messages",
        /// It asks for a summary of its history, which is to be whole.
        Compaction => "compaction",
    }
);

/// The token limit of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The member that holds it.
    pub field: &'static str,
    /// What the client allows.
    pub tokens: u64,
    /// The least limit that the provider takes.
    pub least: u64,
}

impl Limit {
    /// The limit under a member of a request.
    pub(super) fn of(object: &Object<'_>, field: &'static str, hops: &HopFields) -> Option<Self> {
        let tokens = object.number(field)?;
        let least = hops.least(object, tokens);
        Some(Self {
            field,
            tokens,
            least,
        })
    }
}

/// The tools that a request declares, wherever they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// The span of the array that takes the hidden tools; none if no array can.
    pub place: Option<Range<usize>>,
    /// The spans of all arrays that hold at least one tool, beside the conversation and in its units.
    pub arrays: Vec<Range<usize>>,
    /// The names of all tools, and of those that are only referred to.
    pub names: Vec<String>,
}

/// The parts of a request that every wire format has. The conversation is a list of units, each of
/// them contiguous bytes; the format says what a unit is.
#[derive(Clone, Debug)]
pub struct RequestFields {
    /// The wire format.
    pub dialect: Dialect,
    /// The client's bytes.
    pub body: Bytes,
    /// How long it asks the provider to keep what it caches.
    pub cached_for: CachedFor,
    /// A mark of how much the model is to think and which tool it has to call; 0 if the request says neither.
    pub effort: u32,
    /// The model that is asked; empty if the field is missing.
    pub model: String,
    /// The span of each unit.
    pub messages: Vec<Range<usize>>,
    /// How many JSON objects stand in the list of messages: what is made of them takes memory for each.
    pub objects: usize,
    /// The span of the list of messages, brackets included.
    pub messages_span: Range<usize>,
    /// The client's tools.
    pub tools: Tools,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether the client wants to hear of usage.
    pub usage_wish: UsageWish,
    /// The token limit of the answer.
    pub limit: Option<Limit>,
    /// The client's own name for the conversation, such as a `prompt_cache_key`.
    pub hint: Option<String>,
    /// Why it can't be managed as it stands; `None` if it can.
    pub unmanaged: Option<Unmanaged>,
    /// Whether the answer must be JSON. The joined texts of several hops would be none.
    pub structured: bool,
    /// Whether the answer may hold one call at most.
    pub one_call: bool,
    /// Whether the client says what its provider is to do with thoughts that lost their place. Then the provider
    /// checks them, whatever the account.
    pub checks_thoughts: bool,
    /// Whether the client decides alone what its provider caches.
    pub caches_alone: bool,
    /// Whether the client asks its provider why the cache missed.
    pub diagnosed: bool,
    /// Whether the client asks that the response can be referred to later.
    pub stored: bool,
}

/// The members that say how much a model is to think or which tool it has to call. Providers that match a cached prefix
/// match these too (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>, "What invalidates the
/// cache", 2026-11).
const EFFORT: [&str; 5] = [
    "thinking",
    "output_config",
    "tool_choice",
    "reasoning",
    "reasoning_effort",
];

fn effort(object: &Object<'_>) -> u32 {
    let said = EFFORT.map(|member| object.present(member));
    match said.iter().any(Option::is_some) {
        true => Digest::of(&said.map(Option::unwrap_or_default)).mark(),
        false => 0,
    }
}

impl RequestFields {
    /// A request of which only the model is known, whether it is streamed, and how long what is in it and in the
    /// messages at these spans asks to be cached.
    pub(super) fn new<'a>(
        dialect: Dialect,
        body: &Bytes,
        object: &Object<'_>,
        messages: impl Iterator<Item = &'a Span>,
    ) -> Self {
        let messages = messages.filter_map(|span| body.get(span.clone()));
        Self {
            dialect,
            body: body.clone(),
            cached_for: CachedFor::of(object, messages),
            effort: effort(object),
            model: object.text("model").unwrap_or_default().into_owned(),
            messages: Vec::new(),
            objects: 0,
            messages_span: Range::default(),
            tools: Tools::default(),
            stream: object.raw("stream") == Some(b"true"),
            usage_wish: UsageWish::Refused,
            limit: None,
            hint: None,
            unmanaged: None,
            structured: false,
            one_call: false,
            checks_thoughts: false,
            caches_alone: explicit::is_alone(object),
            diagnosed: diagnosis::asks(dialect, object),
            stored: false,
        }
    }

    /// The bytes of one unit.
    #[must_use]
    pub fn message(&self, index: usize) -> &[u8] {
        self.messages
            .get(index)
            .and_then(|span| self.body.get(span.clone()))
            .unwrap_or_default()
    }

    /// Whether the client sets breakpoints of the provider's cache itself.
    #[must_use]
    pub fn sets_breakpoints(&self) -> bool {
        match self.dialect {
            Dialect::Messages => self.cached_for.longest.is_some(),
            Dialect::Chat | Dialect::Responses => self.explicit_breakpoints() > 0,
        }
    }

    /// How many explicit breakpoints of OpenAI's cache the client sets in its messages.
    pub(super) fn explicit_breakpoints(&self) -> usize {
        let messages = self.body.get(self.messages_span.clone());
        explicit::count(messages.unwrap_or_default())
    }

    /// Whether hidden tools can be put beside the client's.
    #[must_use]
    pub fn takes_tools(&self) -> bool {
        self.tools.place.is_some()
    }

    /// The bytes of the array that takes the hidden tools.
    #[must_use]
    pub fn tools_bytes(&self) -> Option<&[u8]> {
        self.body.get(self.tools.place.clone()?)
    }

    /// The arrays of tools that stand beside the conversation. Those in it are counted with the units
    /// that declare them.
    pub fn tools_beside(&self) -> impl Iterator<Item = &[u8]> {
        let beside = self
            .tools
            .arrays
            .iter()
            .filter(|span| !self.is_inside(span));
        beside.filter_map(|span| self.body.get(span.clone()))
    }

    /// The units that declare tools.
    pub fn declaring(&self) -> impl Iterator<Item = usize> {
        let inside = self.tools.arrays.iter().filter(|span| self.is_inside(span));
        inside.filter_map(|span| self.unit_around(span))
    }

    /// The unit that holds the array that takes the hidden tools, and the place in its bytes behind the
    /// bracket that opens the array. None if the array stands beside the conversation.
    #[must_use]
    pub fn tools_inside(&self) -> Option<(usize, usize)> {
        let span = self
            .tools
            .place
            .as_ref()
            .filter(|span| self.is_inside(span))?;
        let unit = self.unit_around(span)?;
        let begin = self.messages.get(unit)?.start;
        Some((unit, span.start + 1 - begin))
    }

    fn is_inside(&self, span: &Range<usize>) -> bool {
        let all = &self.messages_span;
        all.start <= span.start && span.end <= all.end
    }

    /// The unit that holds a span. The first unit may stand anywhere; the others stand in order.
    fn unit_around(&self, span: &Range<usize>) -> Option<usize> {
        let holds = |at: &usize| {
            let unit = self.messages.get(*at);
            unit.is_some_and(|unit| unit.start <= span.start && span.end <= unit.end)
        };
        let others = self.messages.get(1..).unwrap_or_default();
        let before = others.partition_point(|unit| unit.start <= span.start);
        [0, before].into_iter().find(holds)
    }

    /// The limit that is left once this many tokens are used up.
    #[must_use]
    pub fn limit_left(&self, used: u64) -> Option<u64> {
        let limit = self.limit?;
        Some(limit.tokens.saturating_sub(used).max(limit.least))
    }
}

/// Splits a body whose conversation is the array `messages`: its members, the messages, and the span
/// of the array.
///
/// # Errors
/// [`RequestError`] if the body is no object with such an array, or has a key twice.
pub fn with_messages(body: &[u8]) -> Result<(Object<'_>, Elements, Span), RequestError> {
    let (object, messages) = Object::parse_with_array(body, "messages")?;
    let span = object.get("messages");
    let (Some(messages), Some(span)) = (messages, span) else {
        return Err(RequestError::Missing {
            field: "messages",
            form: "an array of message objects",
        });
    };
    if object.has_duplicates() {
        return Err(RequestError::DuplicateKey);
    }
    Ok((object, messages, span))
}

/// The tools of the array under a key. `name` reads the name of one tool.
pub fn tools(object: &Object<'_>, key: &str, name: impl Fn(Object<'_>) -> String) -> Tools {
    let tools = json::elements(object.present(key).unwrap_or_default());
    let names: Vec<String> = tools
        .map(|tool| Object::parse(tool).map(&name).unwrap_or_default())
        .collect();
    let place = object.get(key).filter(|_| !names.is_empty());
    Tools {
        arrays: place.iter().cloned().collect(),
        place,
        names,
    }
}

/// The `format` inside a member, if both are there.
pub fn format_in<'a>(object: &Object<'a>, holder: &str) -> Option<&'a [u8]> {
    object.child(holder)?.present("format")
}

/// Whether a member that says how an answer is to be written asks for JSON.
pub fn asks_for_json(format: Option<&[u8]>) -> bool {
    let format = format.and_then(|format| Object::parse(format).ok());
    format.is_some_and(|format| format.text("type").is_some_and(|kind| kind != "text"))
}
