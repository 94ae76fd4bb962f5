//! Wire formats, one module each, and what they share. Nothing outside may know one: all else asks
//! [`Dialect`], which passes on to the module of its format.

pub mod answer;
mod blocks;
pub mod chat;
pub(crate) mod edit;
mod guard;
pub mod message;
pub(crate) mod messages;
pub mod names;
pub mod request;
pub(crate) mod responses;
mod shape;
pub(crate) mod splice;
pub mod sse;
pub mod stream;
mod usage;

use std::borrow::Cow;

use bytes::Bytes;

use crate::model::raw::{self, Edit, Object};
use crate::model::{Dialect, Digest, Handed, TurnRecord};
use answer::{Answer, Call};
use edit::{AssistantEdit, CallEdit};
use message::{MessageError, Parsed, ParsedCall};
use request::{Found, Request, RequestError};

pub use usage::told;

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

    /// The dialect of a path that is posted to, and what is asked; none where requests to it are
    /// passed through.
    ///
    /// `…/chat/completions`, `…/responses`, `…/v1/messages` and `…/v1/messages/count_tokens`,
    /// whatever stands before it (`/v1`, `/openai/deployments/NAME`, …); compared on the path as it
    /// was sent, so `chat%2Fcompletions` or a slash at the end is another. `…/messages` of other
    /// APIs is not meant.
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

    /// Reads a body.
    ///
    /// # Errors
    /// [`RequestError`] where it is no request of the dialect.
    pub fn decode(self, body: Bytes) -> Result<Request, RequestError> {
        match self {
            Self::Chat => chat::request::decode(body),
            Self::Responses => responses::request::decode(body),
            Self::Messages => messages::request::decode(body),
        }
    }

    /// The request with all that it refers to in place, as if it had stood there from the start.
    /// `None` where a part of that can't be read.
    #[must_use]
    pub fn expand(self, request: &Request, found: &Found) -> Option<Request> {
        match self {
            Self::Responses => responses::refer::expand(request, found),
            Self::Chat | Self::Messages => None,
        }
    }

    /// The ids by which parts of a unit may be referred to later.
    #[must_use]
    pub fn ids(self, unit: &[u8]) -> Vec<String> {
        match self {
            Self::Responses => responses::refer::ids(unit),
            Self::Chat | Self::Messages => Vec::new(),
        }
    }

    /// The part of a unit that has this id.
    #[must_use]
    pub fn item(self, unit: &[u8], id: &str) -> Option<Bytes> {
        match self {
            Self::Responses => responses::refer::item(unit, id),
            Self::Chat | Self::Messages => None,
        }
    }

    /// Takes a unit apart.
    ///
    /// # Errors
    /// [`MessageError`] where it is not what the dialect allows.
    pub fn parse(self, unit: &[u8]) -> Result<Parsed<'_>, MessageError> {
        match self {
            Self::Chat => chat::message::parse(unit),
            Self::Responses => responses::message::parse(unit),
            Self::Messages => messages::message::parse(unit),
        }
    }

    /// The canonical digest of a message that the proxy handed out: text and visible calls as
    /// (id, name, arguments).
    #[must_use]
    pub fn canonical_of_answer(self, text: &str, calls: &[ParsedCall<'_>]) -> Digest {
        match self {
            Self::Chat => chat::message::canonical_of_answer(text, calls),
            Self::Responses => responses::message::canonical_of_answer(text, calls),
            Self::Messages => messages::message::canonical_of_answer(text, calls),
        }
    }

    /// The texts of a turn's hops as the client gets them, and where the last one's own text
    /// begins in it: all before is what earlier hops handed out, a seam included.
    #[must_use]
    pub fn join<'a>(self, texts: impl IntoIterator<Item = &'a str>) -> (String, usize) {
        match self {
            Self::Chat => answer::join(texts),
            Self::Responses | Self::Messages => answer::concat(texts),
        }
    }

    /// The visible response of a turn as one unit, in the form that a client would resend.
    #[must_use]
    pub fn said(self, answers: &[Answer], line: Option<&str>) -> Bytes {
        match self {
            Self::Chat => chat::form::said(answers, line),
            Self::Responses => responses::form::said(answers, line),
            Self::Messages => messages::form::said(answers, line),
        }
    }

    /// The text of an assistant's unit, where it is text alone.
    #[must_use]
    pub fn assistant_text(self, unit: &[u8]) -> Option<String> {
        match self {
            Self::Chat => chat::original::assistant_text(unit),
            Self::Responses => responses::original::assistant_text(unit),
            Self::Messages => messages::original::assistant_text(unit),
        }
    }

    /// How the client's unit of a turn relates to what the turn's earlier hops handed out.
    #[must_use]
    pub fn handed(self, unit: &[u8], record: &TurnRecord) -> Handed {
        match self {
            Self::Chat => chat::edit::handed(unit, &record.handed),
            Self::Responses => responses::edit::handed(unit, record),
            Self::Messages => messages::edit::handed(unit, record),
        }
    }

    /// The text of a unit; `None` where there is none, or where a part is something else.
    #[must_use]
    pub fn text(self, unit: &[u8]) -> Option<Cow<'_, str>> {
        match self {
            Self::Chat => chat::original::text(unit),
            Self::Responses => responses::original::text(unit),
            Self::Messages => messages::original::text(unit),
        }
    }

    /// The parts of a unit one after the other. What is no text is named where it stood.
    #[must_use]
    pub fn parts(self, unit: &[u8]) -> Option<String> {
        Some(self.parse(unit).ok()?.named())
    }

    /// The reasoning of a unit.
    #[must_use]
    pub fn reasoning(self, unit: &[u8]) -> Option<String> {
        Some(self.parse(unit).ok()?.reasoning.concat())
    }

    /// The name and the arguments of a unit's call at this index, whatever their form.
    #[must_use]
    pub fn call(self, unit: &[u8], place: usize) -> Option<String> {
        self.parse(unit).ok()?.written(place)
    }

    /// The arguments of a unit's call at this index, where they may be replaced.
    #[must_use]
    pub fn arguments(self, unit: &[u8], place: usize) -> Option<Cow<'_, str>> {
        match self {
            Self::Chat => chat::original::arguments(unit, place),
            Self::Responses => responses::original::arguments(unit, place),
            Self::Messages => messages::original::arguments(unit, place),
        }
    }

    /// An assistant's unit with the edit applied. `None` if its bytes can't be read, which those of
    /// a unit that was parsed before always can.
    #[must_use]
    pub fn assistant(self, unit: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
        match self {
            Self::Chat => chat::edit::assistant(unit, edit),
            Self::Responses => responses::edit::assistant(unit, edit),
            Self::Messages => messages::edit::assistant(unit, edit),
        }
    }

    /// A result with other content.
    #[must_use]
    pub fn result(self, unit: &[u8], text: &str) -> Option<Bytes> {
        match self {
            Self::Chat => chat::edit::result(unit, text),
            Self::Responses => responses::edit::result(unit, text),
            Self::Messages => messages::edit::result(unit, text),
        }
    }

    /// The result of a hidden call as a unit.
    #[must_use]
    pub fn hidden_result(self, id: &str, text: &str) -> Bytes {
        match self {
            Self::Chat => chat::edit::hidden_result(id, text),
            Self::Responses => responses::edit::hidden_result(id, text),
            Self::Messages => messages::edit::hidden_result(id, text),
        }
    }

    /// A system unit with a block of text appended.
    #[must_use]
    pub fn append_text(self, unit: &[u8], block: &str) -> Option<Bytes> {
        match self {
            Self::Chat => chat::edit::append_text(unit, block),
            Self::Responses => responses::edit::append_text(unit, block),
            Self::Messages => messages::edit::append_text(unit, block),
        }
    }

    /// A system unit of the proxy's own.
    #[must_use]
    pub fn system(self, block: &str) -> Bytes {
        match self {
            Self::Chat => chat::edit::system(block),
            Self::Responses => responses::edit::system(block),
            Self::Messages => messages::edit::system(block),
        }
    }

    /// A tool as one element of the tools array; `parameters` are the members of a JSON schema.
    #[must_use]
    pub fn tool(self, name: &str, description: &str, parameters: &str) -> String {
        match self {
            Self::Chat => chat::form::tool(name, description, parameters),
            Self::Responses => responses::form::tool(name, description, parameters),
            Self::Messages => messages::form::tool(name, description, parameters),
        }
    }

    /// Whether reasoning must stay with what follows it, whatever the model.
    #[must_use]
    pub const fn keeps_reasoning(self) -> bool {
        match self {
            Self::Chat | Self::Messages => false,
            Self::Responses => true,
        }
    }

    /// Whether reasoning goes with whatever goes of its message, unless the upstream refuses that.
    #[must_use]
    pub const fn binds_reasoning(self) -> bool {
        matches!(self, Self::Messages)
    }

    /// The message of a hop in the one form in which it is stored and sent back.
    #[must_use]
    pub fn message_of(self, answer: &Answer) -> Bytes {
        match self {
            Self::Chat => chat::form::message(answer),
            Self::Responses => responses::form::message(answer),
            Self::Messages => messages::form::message(answer),
        }
    }

    /// A hidden call in the form in which it goes back into its message.
    #[must_use]
    pub fn call_of(self, call: &Call) -> String {
        match self {
            Self::Chat => chat::form::call(call),
            Self::Responses => responses::form::call(call),
            Self::Messages => messages::form::call(call),
        }
    }

    /// Whether reasoning of an answer signs the call of this id, so that the two belong together.
    #[must_use]
    pub fn signs(self, answer: &Answer, id: &str) -> bool {
        match self {
            Self::Chat => chat::form::signs(answer, id),
            Self::Responses | Self::Messages => false,
        }
    }

    /// A hidden call in its stored form with another name or other arguments; `None` if its bytes
    /// can't be read.
    #[must_use]
    pub fn edit_call(self, call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
        match self {
            Self::Chat => chat::edit::call(call, edit),
            Self::Responses => responses::edit::call(call, edit),
            Self::Messages => messages::edit::call(call, edit),
        }
    }

    /// The edit that asks for usage at the end of a stream, where that must be asked for.
    #[must_use]
    pub fn ask_usage(self, object: &Object<'_>) -> Option<Edit> {
        match self {
            Self::Chat => Some(chat::request::ask_usage(object)),
            Self::Responses | Self::Messages => None,
        }
    }

    /// An error in the dialect's shape, as a body or as the data of a stream's error event.
    #[must_use]
    pub fn error(self, error: &ErrorText<'_>) -> Bytes {
        match self {
            Self::Chat => chat::form::error(error),
            Self::Responses => responses::form::error(error),
            Self::Messages => messages::form::error(error),
        }
    }
}

/// A user message with another text for its content, in any dialect.
#[must_use]
pub fn said_result(unit: &[u8], text: &str) -> Option<Bytes> {
    let object = Object::parse(unit).ok()?;
    let edit = object.set("content", raw::quote(text).as_bytes());
    Some(raw::splice(unit, &[edit]))
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The next message.
    Answer,
    /// How many tokens the conversation has, as the model would read it.
    Count,
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorSide {
    /// The caller's.
    Caller,
    /// The upstream's, in the middle of an answer.
    Upstream,
    /// The server's, the proxy's or the upstream's.
    Server,
}

/// An error of the proxy's own.
#[derive(Clone, Copy, Debug)]
pub struct ErrorText<'a> {
    /// The HTTP status that it goes with.
    pub status: u16,
    /// Whose fault it is.
    pub side: ErrorSide,
    /// What went wrong and what to do about it.
    pub message: &'a str,
    /// The part of the request that it is about.
    pub param: Option<&'a str>,
    /// A word for programs.
    pub code: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart_as_they_were_sent() {
        let table = [
            ("/v1/chat/completions", Some(Dialect::Chat)),
            ("/chat/completions", Some(Dialect::Chat)),
            (
                "/openai/deployments/gpt/chat/completions",
                Some(Dialect::Chat),
            ),
            ("/v1/chat/completions/", None),
            ("/v1/chat/completions/chatcmpl-1", None),
            ("/v1/chat%2Fcompletions", None),
            ("/v1/xchat/completions", None),
            ("/v1/completions", None),
            ("/v1/responses", Some(Dialect::Responses)),
            ("/v1/responses/resp_1", None),
            ("/v1/responses/compact", None),
            ("/v1/messages", Some(Dialect::Messages)),
            ("/messages", Some(Dialect::Messages)),
            ("/v1/messages/count_tokens", Some(Dialect::Messages)),
            ("/v1/messages/batches", None),
            ("/v1/threads/t/messages", None),
            ("/v1/models", None),
        ];
        for (path, wanted) in table {
            let found = Dialect::of_path(path).map(|(dialect, _)| dialect);
            assert_eq!(found, wanted, "{path}");
        }
    }
}
