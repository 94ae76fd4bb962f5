//! A request's body and where things lie in it that decide how it is served, whatever its wire
//! format. Keeps the client's bytes; never reads a format itself, and never judges what only the
//! upstream can judge.

use std::ops::Range;

use bytes::Bytes;

use super::messages::request::Hosts;
use super::splice::Splice;
use super::stream::{Echo, UsageWish};
use crate::model::raw::{Edit, Object, RawError};
use crate::model::{Dialect, Rope, label_set};

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
    /// What of a request keeps it from being managed as it stands.
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
    }
);

/// The token limit of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The member that holds it.
    pub field: &'static str,
    /// What the client allows.
    pub tokens: u64,
    /// What the provider takes at least.
    pub least: u64,
}

/// A request: its bytes and where things lie in them. Its conversation is a list of units, each of
/// them contiguous bytes; what a unit is its dialect says.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its wire format.
    pub dialect: Dialect,
    /// The client's bytes.
    pub body: Bytes,
    /// The model that is asked; empty where the field is missing.
    pub model: String,
    /// Where each unit lies.
    pub messages: Vec<Range<usize>>,
    /// Where the list of messages lies, brackets included.
    pub messages_span: Range<usize>,
    /// Where the array of tools lies, if there is one with at least one tool.
    pub tools: Option<Range<usize>>,
    /// The names of the client's tools.
    pub tool_names: Vec<String>,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// What the client wants to hear of usage.
    pub usage_wish: UsageWish,
    /// The token limit of the answer.
    pub limit: Option<Limit>,
    /// The client's own name for the conversation, such as a `prompt_cache_key`.
    pub hint: Option<String>,
    /// Why it can't be managed as it stands, where it can't.
    pub unmanaged: Option<Unmanaged>,
    /// What would have to stand in it to manage it, where that is all that is missing.
    pub refers: Refers,
    /// Whether the answer must be JSON, so that a text of several hops would be none.
    pub structured: bool,
    /// Whether the answer may hold one call at most.
    pub one_call: bool,
    /// Whether the client asks that the response can be referred to later.
    pub stored: bool,
    /// How the units make up the list.
    pub layout: Layout,
    /// What a response to it repeats.
    pub echo: Echo,
}

/// The `format` inside a member, if both are there.
#[must_use]
pub fn format_in<'a>(object: &Object<'a>, holder: &str) -> Option<&'a [u8]> {
    Object::parse(object.present(holder)?)
        .ok()?
        .present("format")
}

/// Whether a member that says how an answer is to be written asks for JSON.
#[must_use]
pub fn asks_for_json(format: Option<&[u8]>) -> bool {
    let format = format.and_then(|format| Object::parse(format).ok());
    format.is_some_and(|format| format.text("type").is_some_and(|kind| kind != "text"))
}

/// What a request leaves out because it was said before: a response that it goes on from, and items
/// that it only names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refers {
    /// The id of the response.
    pub response: Option<String>,
    /// Where a reference stands in the place of an item, and the item's id, in order.
    pub items: Vec<(Range<usize>, String)>,
}

impl Refers {
    /// Whether nothing is left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.response.is_none() && self.items.is_empty()
    }
}

/// What a request refers to, found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The units of the conversation up to the response that it goes on from, that one included.
    pub before: Vec<Bytes>,
    /// The items that it names, in its order.
    pub items: Vec<Bytes>,
}

/// What of it can't be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The response that it goes on from.
    Response,
    /// An item that it names.
    Item,
}

impl Lost {
    /// The word that says why such a request is not managed.
    #[must_use]
    pub const fn word(self) -> Unmanaged {
        match self {
            Self::Response => Unmanaged::PreviousResponseId,
            Self::Item => Unmanaged::ItemReference,
        }
    }
}

/// How units make up the list of messages.
#[derive(Clone, Debug, Default)]
pub enum Layout {
    /// They are its elements.
    #[default]
    Flat,
    /// They are parts of its elements.
    Hosts(Hosts),
}

impl Request {
    /// The bytes of one unit.
    #[must_use]
    pub fn message(&self, index: usize) -> &[u8] {
        self.messages
            .get(index)
            .and_then(|span| self.body.get(span.clone()))
            .unwrap_or_default()
    }

    /// The bytes of the tools array.
    #[must_use]
    pub fn tools_bytes(&self) -> Option<&[u8]> {
        self.tools.clone().and_then(|span| self.body.get(span))
    }

    /// The list of messages in the making.
    #[must_use]
    pub fn splice(&self) -> Splice<'_> {
        Splice::new(self)
    }

    /// The limit that is left where so many tokens are used up.
    #[must_use]
    pub fn limit_left(&self, used: u64) -> Option<u64> {
        let limit = self.limit?;
        Some(limit.tokens.saturating_sub(used).max(limit.least))
    }

    /// The body with another view, other tools and what the upstream must be told besides.
    /// Everything else keeps its bytes, and is shared with the client's body.
    #[must_use]
    pub fn with(&self, parts: Rewrite<'_>) -> Rope {
        let mut edits: Vec<Edit> = parts.view.edits;
        if let (Some(span), Some(tools)) = (self.tools.clone(), parts.tools) {
            edits.push((span, Bytes::copy_from_slice(tools)));
        }
        // The walk was made once already; only requests that need more edits pay for another.
        if (parts.ask_usage || parts.limit.is_some())
            && let Ok(object) = Object::parse(&self.body)
        {
            if parts.ask_usage {
                edits.extend(self.dialect.ask_usage(&object));
            }
            if let (Some(limit), Some(left)) = (self.limit, parts.limit) {
                edits.push(object.set(limit.field, left.to_string().as_bytes()));
            }
        }
        edits.sort_by_key(|(span, _)| span.start);
        let span = &self.messages_span;
        let (before, after): (Vec<Edit>, Vec<Edit>) = edits
            .into_iter()
            .partition(|(edit, _)| edit.end <= span.start);
        let mut rope = Rope::default();
        self.share(&mut rope, 0..span.start, before);
        rope.append(parts.view.messages);
        self.share(&mut rope, span.end..self.body.len(), after);
        rope
    }

    /// Appends a part of the body with edits in order.
    fn share(&self, rope: &mut Rope, part: Range<usize>, edits: Vec<Edit>) {
        let mut done = part.start;
        for (span, new) in edits {
            rope.share(self.body.slice(done.min(span.start)..span.start));
            rope.share(new);
            done = span.end;
        }
        rope.share(self.body.slice(done.min(part.end)..part.end));
    }
}

/// The conversation as the upstream gets it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What stands in place of the list of messages, brackets included.
    pub messages: Rope,
    /// What changes outside it, by places in the client's body.
    pub edits: Vec<Edit>,
}

/// What replaces parts of a body.
#[derive(Debug)]
pub struct Rewrite<'a> {
    /// The conversation.
    pub view: View,
    /// The tools array, where it differs from the client's.
    pub tools: Option<&'a [u8]>,
    /// Whether to ask for the usage chunk of a stream.
    pub ask_usage: bool,
    /// A new token limit of the answer.
    pub limit: Option<u64>,
}
