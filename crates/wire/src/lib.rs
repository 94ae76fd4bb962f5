//! The wire formats, one module each, and what they share. Nothing outside knows a format: all
//! other code asks [`Dialect`], [`request::Request`] and [`stream::Machine`], which pass on to the
//! module of the format.
//!
//! The modules stand in three layers, and each imports the layers below only:
//!
//! | layer | modules |
//! |---|---|
//! | what other code uses, whatever the format | this one, [`opening`], [`request`], [`stream`] |
//! | the formats | [`chat`], `responses`, `messages`; `blocks` is the stream machine and the editor of the last two |
//! | what the formats share | [`answer`], [`cached_for`], [`diagnosis`], `edit`, `errors`, `explicit`, `guard`, [`hop_fields`], `json`, `list`, `machine`, [`message`], [`names`], `request_fields`, `shape`, [`sse`], `unary`, `usage` |

pub mod answer;
mod blocks;
pub mod cached_for;
pub mod chat;
pub mod diagnosis;
pub mod edit;
mod errors;
mod explicit;
mod guard;
pub mod hop_fields;
mod json;
mod list;
mod machine;
pub mod message;
pub(crate) mod messages;
pub mod names;
pub mod one_text;
pub mod opening;
pub mod request;
mod request_fields;
pub(crate) mod responses;
mod shape;
pub mod sse;
pub mod stream;
mod unary;
mod usage;
mod whole_request;

use std::borrow::Cow;

use bytes::Bytes;

use answer::{Answer, Call};
use edit::{AssistantEdit, CallEdit};
use hop_fields::HopFields;
use message::{MessageError, Parsed, ParsedCall};
use plimsoll_model::{Digest, Handed, TurnRecord};
use request::{Request, RequestError};

pub use edit::user_message_saying;
pub use errors::{ErrorSide, ErrorText};

/// Calls a function of a format's module. This is the one place where a format's module is chosen:
/// the modules have the same functions at the same paths, and a format that lacks one does not
/// compile.
macro_rules! in_format {
    ($dialect:expr, $($call:tt)*) => {
        match $dialect {
            Dialect::Chat => chat::$($call)*,
            Dialect::Responses => responses::$($call)*,
            Dialect::Messages => messages::$($call)*,
        }
    };
}

/// The wire format of a conversation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// Chat Completions.
    #[default]
    Chat,
    /// Responses.
    Responses,
    /// Messages.
    Messages,
}

/// What is known of a format.
impl Dialect {
    /// Its name in records and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// The format that is posted to a path, and what such a request asks for; `None` if requests to
    /// the path are passed through.
    ///
    /// These are `…/chat/completions`, `…/responses`, `…/v1/messages` and
    /// `…/v1/messages/count_tokens`, behind any prefix (`/v1`, `/openai/deployments/NAME`, …). The
    /// path is compared as it was sent, so `chat%2Fcompletions` or a slash at the end makes another
    /// path. `…/messages` behind another prefix belongs to other APIs.
    #[must_use]
    pub fn of_path(path: &str) -> Option<(Self, Purpose)> {
        let ends = |end: &str| path.ends_with(end) || end.strip_prefix("/v1") == Some(path);
        if path.ends_with("/chat/completions") {
            Some((Self::Chat, Purpose::Answer))
        } else if path.ends_with("/responses") {
            Some((Self::Responses, Purpose::Answer))
        } else if ends("/v1/messages") {
            Some((Self::Messages, Purpose::Answer))
        } else if ends("/v1/messages/count_tokens") {
            Some((Self::Messages, Purpose::Count))
        } else {
            None
        }
    }

    /// The member of a request that holds its conversation.
    #[must_use]
    pub const fn conversation(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Responses => "input",
        }
    }

    /// Whether reasoning must stay with what follows it, whatever the model.
    #[must_use]
    pub const fn keeps_reasoning(self) -> bool {
        matches!(self, Self::Responses)
    }

    /// The message that keeps two answers apart once what stood between them is gone.
    #[must_use]
    pub const fn separator(self) -> Option<&'static [u8]> {
        match self {
            Self::Messages => Some(messages::message_list::SEPARATOR),
            Self::Chat | Self::Responses => None,
        }
    }

    /// Whether breakpoints of the proxy's stand only behind what the user or the system says.
    #[must_use]
    pub const fn marks_users_alone(self) -> bool {
        match self {
            Self::Chat | Self::Responses => true,
            Self::Messages => false,
        }
    }

    /// Whether reasoning is removed with any part of its message, unless the upstream refuses that.
    #[must_use]
    pub const fn binds_reasoning(self) -> bool {
        matches!(self, Self::Messages)
    }
}

/// Reading.
impl Dialect {
    /// Which members of a request hold for which hops of its turn.
    #[must_use]
    pub const fn hop_fields(self) -> HopFields {
        in_format!(self, hops::HOPS)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`RequestError`] if it is no request of the format.
    pub fn decode(self, body: Bytes) -> Result<Request, RequestError> {
        Request::decode(self, body)
    }

    /// The body of a request of these units, byte for byte, for what was said before and is read again.
    #[must_use]
    pub fn whole_request(self, model: &str, units: &[Bytes], tools: Option<&Bytes>) -> Bytes {
        whole_request::body(self, model, units, tools)
    }

    /// Takes a unit apart.
    ///
    /// # Errors
    /// [`MessageError`] if it is not what the format allows.
    pub fn parse(self, unit: &[u8]) -> Result<Parsed<'_>, MessageError> {
        in_format!(self, message::parse(unit))
    }

    /// The parts of a unit that may be referred to later, each behind its id.
    #[must_use]
    pub fn items(self, unit: &[u8]) -> Vec<(String, &[u8])> {
        match self {
            Self::Responses => responses::references::items(unit),
            Self::Chat | Self::Messages => Vec::new(),
        }
    }

    /// The canonical digest of a message that the proxy handed out: its text, and its visible calls
    /// as (id, name, arguments).
    #[must_use]
    pub fn canonical_of_answer(self, text: &str, calls: &[ParsedCall<'_>]) -> Digest {
        in_format!(self, message::canonical_of_answer(text, calls))
    }

    /// The canonical digest of such a message with the ids of the calls left blank.
    #[must_use]
    pub fn nameless_of_answer(self, text: &str, calls: &[ParsedCall<'_>]) -> Digest {
        let blank = calls.iter().map(|call| ParsedCall {
            id: Cow::Borrowed(""),
            name: Cow::Borrowed(&call.name),
            arguments: Cow::Borrowed(&call.arguments),
        });
        self.canonical_of_answer(text, &blank.collect::<Vec<_>>())
    }

    /// The text of an assistant's unit.
    #[must_use]
    pub fn assistant_text(self, unit: &[u8]) -> Option<String> {
        in_format!(self, original::assistant_text(unit))
    }

    /// How the client's unit of a turn relates to what the turn's earlier hops handed out.
    #[must_use]
    pub fn handed(self, unit: &[u8], record: &TurnRecord) -> Handed {
        in_format!(self, edit::handed(unit, record))
    }

    /// The text of a unit; `None` if there is none, or if a part is something else.
    #[must_use]
    pub fn text(self, unit: &[u8]) -> Option<Cow<'_, str>> {
        in_format!(self, original::text(unit))
    }

    /// The parts of a unit one after the other, with a part that is no text named at its place.
    #[must_use]
    pub fn parts(self, unit: &[u8]) -> Option<String> {
        Some(self.parse(unit).ok()?.named())
    }

    /// The parts of a result that are no text, as JSON, as another result of the format may hold them. Breakpoints on them
    /// are left out.
    #[must_use]
    pub fn pictures(self, unit: &[u8]) -> Vec<String> {
        let parts = in_format!(self, original::pictures(unit));
        let written = parts.into_iter().map(json::without_breakpoint);
        written
            .filter_map(|part| String::from_utf8(part.to_vec()).ok())
            .collect()
    }

    /// The texts among the parts of a unit that whoever speaks said; none if it can't be read.
    #[must_use]
    pub fn texts(self, unit: &[u8]) -> Vec<String> {
        let parsed = self.parse(unit).ok();
        parsed.map(|parsed| parsed.texts()).unwrap_or_default()
    }

    /// The reasoning of a unit.
    #[must_use]
    pub fn reasoning(self, unit: &[u8]) -> Option<String> {
        Some(self.parse(unit).ok()?.reasoning.concat())
    }

    /// A unit's calls in order, each as it stands there; none if it can't be read.
    #[must_use]
    pub fn calls(self, unit: &[u8]) -> Vec<&[u8]> {
        in_format!(self, original::calls(unit))
    }

    /// The name and the arguments of a call, in any form, as the model wrote them.
    #[must_use]
    pub fn written(self, call: &[u8]) -> Option<String> {
        let call = in_format!(self, original::call(call))?;
        Some(format!("{} {}", call.name, call.arguments))
    }

    /// The arguments of a call, if they may be replaced.
    #[must_use]
    pub fn arguments(self, call: &[u8]) -> Option<Cow<'_, str>> {
        in_format!(self, original::arguments(call))
    }

    /// Whether reasoning of an answer signs the call of this id, so that the two belong together.
    #[must_use]
    pub fn signs(self, answer: &Answer, id: &str) -> bool {
        matches!(self, Self::Chat) && chat::form::signs(answer, id)
    }

    /// The texts of a turn's hops as the client gets them, and the place where the last hop's own
    /// text begins. Everything before that is what earlier hops handed out, a seam included.
    #[must_use]
    pub fn join<'a>(self, texts: impl IntoIterator<Item = &'a str>) -> (String, usize) {
        match self {
            Self::Chat => answer::join(texts),
            Self::Responses | Self::Messages => answer::concat(texts),
        }
    }
}

/// Editing.
impl Dialect {
    /// An assistant's unit with the edit applied. `None` if its bytes can't be read; those of a
    /// unit that was parsed before always can.
    #[must_use]
    pub fn assistant(self, unit: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
        in_format!(self, edit::assistant(unit, edit))
    }

    /// A result with other content.
    #[must_use]
    pub fn result(self, unit: &[u8], text: &str) -> Option<Bytes> {
        in_format!(self, edit::result(unit, text))
    }

    /// A system unit with a block of text appended.
    #[must_use]
    pub fn append_text(self, unit: &[u8], block: &str) -> Option<Bytes> {
        in_format!(self, edit::append_text(unit, block))
    }

    /// A hidden call in its stored form with another name or other arguments; `None` if its bytes
    /// can't be read.
    #[must_use]
    pub fn edit_call(self, call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
        in_format!(self, edit::call(call, edit))
    }
}

/// Writing.
impl Dialect {
    /// The message of a hop in the one form in which it is stored and sent back.
    #[must_use]
    pub fn message_of(self, answer: &Answer) -> Bytes {
        in_format!(self, form::message(answer))
    }

    /// A hidden call in the form in which it goes back into its message.
    #[must_use]
    pub fn call_of(self, call: &Call) -> String {
        in_format!(self, form::call(call))
    }

    /// The visible response of a turn as one unit, in the form in which a client would resend it.
    #[must_use]
    pub fn said(self, answers: &[Answer], line: Option<&str>) -> Bytes {
        in_format!(self, form::visible(answers, line))
    }

    /// The result of a hidden call as a unit: a text, and behind it parts that are none.
    #[must_use]
    pub fn hidden_result(self, id: &str, text: &str, pictures: &[String]) -> Bytes {
        in_format!(self, form::hidden_result(id, text, pictures))
    }

    /// A system unit of the proxy's own.
    #[must_use]
    pub fn system(self, block: &str) -> Bytes {
        in_format!(self, form::system(block))
    }

    /// A system unit of the proxy's own that stands among the messages, by the name that the vendor has for it there.
    #[must_use]
    pub fn system_among(self, block: &str) -> Bytes {
        let role = match self {
            Self::Chat | Self::Messages => "system",
            Self::Responses => "developer",
        };
        edit::message_of(role, block)
    }

    /// A tool as one element of the tools array; `parameters` are the members of a JSON schema.
    #[must_use]
    pub fn tool(self, name: &str, description: &str, parameters: &str) -> String {
        in_format!(self, form::tool(name, description, parameters))
    }

    /// An error in the format's shape, as a body or as the data of a stream's error event.
    #[must_use]
    pub fn error(self, error: &ErrorText<'_>) -> Bytes {
        in_format!(self, form::error(error))
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The next message.
    Answer,
    /// How many tokens the conversation has, as the model would read it.
    Count,
}

#[cfg(test)]
mod tests;
