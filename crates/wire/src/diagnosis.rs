//! What a provider itself says of a cache that missed: how a request asks for it, where an answer has it, and
//! how what the client did not ask for leaves the answer. Never decides whether to ask.
//!
//! Anthropic compares two requests that both ask, and names the first part that differs
//! (<https://platform.claude.com/docs/en/build-with-claude/cache-diagnostics>, 2026-11). OpenAI compares a request
//! with an earlier response of the same organisation, in Responses alone
//! (<https://developers.openai.com/api/docs/guides/prompt-caching/diagnostics>, 2026-11).

use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;
use plimsoll_model::raw::{self, Edit, Object};

use super::json::Node;
use super::sse::Frame;
use crate::Dialect;

/// The longest word of a provider that is kept, and the longest id that is sent.
const LONGEST_WORD: usize = 64;
const LONGEST_ID: usize = 256;

/// The member of a Messages request that asks, and of its answer that tells.
const DIAGNOSTICS: &str = "diagnostics";
/// The member of a Responses request that holds the next, and of its answer, which repeats it.
const OPTIONS: &str = "prompt_cache_options";
/// The member of those that asks.
const COMPARED: &str = "comparison_response_id";
/// The member of an answer of Responses that tells.
const TOLD: &str = "prompt_cache_diagnostics";

static MESSAGES_TELLS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"diagnostics\""));
static RESPONSES_TELLS: LazyLock<[Finder<'static>; 2]> = LazyLock::new(|| {
    [
        Finder::new("\"prompt_cache_diagnostics\""),
        Finder::new("\"comparison_response_id\""),
    ]
});

/// Who asked the provider, if anybody did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhoAsked {
    /// Nobody.
    #[default]
    Nobody,
    /// The client. Its answer keeps what the provider says.
    Client,
    /// The proxy. The client's answer has none of it.
    Proxy,
}

/// The request or the response that a request is to be compared with. `None` only makes the request one that later
/// ones are compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared(pub Option<String>);

impl Compared {
    /// The comparison with an answer of this id, if a provider can have made the id.
    #[must_use]
    pub fn with(id: &str) -> Option<Self> {
        let made = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let can = !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(made);
        can.then(|| Self(Some(id.to_owned())))
    }
}

/// What the provider of a format can be asked.
impl Dialect {
    /// Whether a provider can be asked in the format.
    #[must_use]
    pub const fn is_diagnosed(self) -> bool {
        match self {
            Self::Chat => false,
            Self::Responses | Self::Messages => true,
        }
    }

    /// Whether only requests are compared that asked themselves. Such a request keeps a fingerprint at the provider.
    #[must_use]
    pub const fn opts_in(self) -> bool {
        matches!(self, Self::Messages)
    }
}

/// Whether a client asks by itself.
pub fn asks(dialect: Dialect, object: &Object<'_>) -> bool {
    match dialect {
        Dialect::Chat => false,
        Dialect::Messages => object.get(DIAGNOSTICS).is_some(),
        Dialect::Responses => {
            let options = object.child(OPTIONS);
            options.is_some_and(|options| options.get(COMPARED).is_some())
        }
    }
}

/// The edit of a request with which it asks.
pub fn ask(dialect: Dialect, object: &Object<'_>, compared: &Compared) -> Edit {
    let id = compared
        .0
        .as_deref()
        .map_or_else(|| "null".to_owned(), raw::quote);
    match dialect {
        Dialect::Responses => object.set_within(OPTIONS, COMPARED, id.as_bytes()),
        Dialect::Chat | Dialect::Messages => {
            let asking = format!(r#"{{"previous_message_id":{id}}}"#);
            object.set(DIAGNOSTICS, asking.as_bytes())
        }
    }
}

/// Reads what a provider says in one answer.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    dialect: Dialect,
    asked: WhoAsked,
    said: Option<String>,
}

impl Diagnosis {
    /// A reader of an answer that is not read yet.
    #[must_use]
    pub fn new(dialect: Dialect, asked: WhoAsked) -> Self {
        Self {
            dialect,
            asked,
            said: None,
        }
    }

    /// What the provider has said so far.
    #[must_use]
    pub fn said(&self) -> Option<String> {
        self.said.clone()
    }

    /// A frame of a stream as the client gets it.
    pub fn frame(&mut self, frame: Frame) -> Frame {
        if self.asked == WhoAsked::Nobody || !may_tell(self.dialect, frame.raw()) {
            return frame;
        }
        let Some(data) = frame.data() else {
            return frame;
        };
        let holder = match self.dialect {
            Dialect::Chat | Dialect::Messages => "message",
            Dialect::Responses => "response",
        };
        let answer = Node::root(&data).and_then(|event| event.child(holder));
        match answer.and_then(|answer| self.read(&answer, &data)) {
            Some(without) => Frame::of(frame.with_data(&without)),
            None => frame,
        }
    }

    /// A whole body as the client gets it.
    pub fn body(&mut self, body: &Bytes) -> Bytes {
        if self.asked == WhoAsked::Nobody || !may_tell(self.dialect, body) {
            return body.clone();
        }
        let without = Node::root(body).and_then(|answer| self.read(&answer, body));
        without.unwrap_or_else(|| body.clone())
    }

    /// Reads what an answer in a text says. Returns the text without it, if it is not the client's.
    fn read(&mut self, answer: &Node<'_>, text: &[u8]) -> Option<Bytes> {
        let (told, reason) = match self.dialect {
            Dialect::Chat | Dialect::Messages => (DIAGNOSTICS, "cache_miss_reason"),
            Dialect::Responses => (TOLD, "reason"),
        };
        if let Some(found) = answer.child(told) {
            self.said = word(&found, reason).or_else(|| self.said.take());
        }
        if self.asked == WhoAsked::Client {
            return None;
        }
        let options = answer
            .child(OPTIONS)
            .filter(|_| self.dialect == Dialect::Responses);
        let repeated = options.and_then(|options| removed(&options, COMPARED));
        let edits = removed(answer, told).into_iter().chain(repeated);
        let mut edits: Vec<Edit> = edits.collect();
        edits.sort_by_key(|(span, _)| span.start);
        (!edits.is_empty()).then(|| raw::splice(text, &edits))
    }
}

/// Whether bytes may hold what this module reads.
fn may_tell(dialect: Dialect, bytes: &[u8]) -> bool {
    match dialect {
        Dialect::Chat => false,
        Dialect::Messages => MESSAGES_TELLS.find(bytes).is_some(),
        Dialect::Responses => RESPONSES_TELLS
            .iter()
            .any(|finder| finder.find(bytes).is_some()),
    }
}

/// The word for what differs; else the word for how the comparison ended.
fn word(told: &Node<'_>, reason: &str) -> Option<String> {
    let named = told
        .child(reason)
        .and_then(|reason| reason.object.text("type"));
    let plain = || told.object.text(reason);
    let word = named.or_else(plain).or_else(|| told.object.text("type"))?;
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let can = !word.is_empty() && word.len() <= LONGEST_WORD && word.bytes().all(is_word);
    can.then(|| word.into_owned())
}

/// The edit that removes a member.
fn removed(node: &Node<'_>, key: &str) -> Option<Edit> {
    let place = node.object.position(key)?;
    let span = node.object.remove_span(place)?;
    Some(node.shifted((span, Bytes::new())))
}

#[cfg(test)]
mod tests;
