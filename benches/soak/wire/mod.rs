//! The three dialects as a client writes and reads them and as a provider reads and writes them.
//! Never decides what is said.

mod chat;
mod messages;
mod responses;

use serde_json::{Value, json};

use super::talk::{Asked, Entry, Reply};

/// A dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Chat,
    Responses,
    Messages,
}

/// How a streamed or whole answer was heard.
#[derive(Debug, Default)]
pub struct Heard {
    pub reply: Reply,
    /// Whether it came to its end.
    pub whole: bool,
}

impl Wire {
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// The dialect of a path.
    pub fn of(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.path() == path)
    }

    /// A client's request.
    pub fn request(self, entries: &[Entry], stream: bool) -> Value {
        match self {
            Self::Chat => chat::request(entries, stream),
            Self::Responses => responses::request(entries, stream),
            Self::Messages => messages::request(entries, stream),
        }
    }

    /// What a request asks; `None` where it is not of the dialect.
    pub fn asked(self, body: &Value) -> Option<Asked> {
        match self {
            Self::Chat => chat::asked(body),
            Self::Responses => responses::asked(body),
            Self::Messages => messages::asked(body),
        }
    }

    /// An unstreamed answer to a request.
    pub fn body(self, id: &str, request: &Value, reply: &Reply) -> Value {
        match self {
            Self::Chat => chat::body(id, reply),
            Self::Responses => responses::body(id, request, reply),
            Self::Messages => messages::body(id, reply),
        }
    }

    /// The events of a streamed answer to a request.
    pub fn frames(self, id: &str, request: &Value, reply: &Reply) -> Vec<String> {
        match self {
            Self::Chat => chat::frames(id, reply),
            Self::Responses => responses::frames(id, request, reply),
            Self::Messages => messages::frames(id, reply),
        }
    }

    /// What a client makes of an answer.
    pub fn heard(self, bytes: &[u8], stream: bool) -> Heard {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Heard::default();
        };
        if !stream {
            let body = serde_json::from_str::<Value>(text).unwrap_or_default();
            let reply = match self {
                Self::Chat => chat::said(&body),
                Self::Responses => responses::said(&body),
                Self::Messages => messages::said(&body),
            };
            return Heard {
                whole: reply.is_some(),
                reply: reply.unwrap_or_default(),
            };
        }
        let events = text.split("\n\n").filter_map(|event| {
            let data = event.lines().find_map(|line| line.strip_prefix("data:"))?;
            Some(data.trim_start())
        });
        match self {
            Self::Chat => chat::listen(events),
            Self::Responses => responses::listen(events),
            Self::Messages => messages::listen(events),
        }
    }

    /// The body of an error.
    pub fn error(self, status: u16, message: &str, code: Option<&str>) -> Value {
        let kind = match status {
            429 => "rate_limit_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        match self {
            Self::Chat | Self::Responses => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
            }
            Self::Messages => {
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
        }
    }
}

fn text(value: &Value, field: &str) -> String {
    let text = value.get(field).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    let list = value.get(field).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// A text in pieces, as it is streamed.
fn pieces(text: &str) -> impl Iterator<Item = String> {
    let letters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = letters
        .chunks(9)
        .map(|piece| piece.iter().collect())
        .collect();
    pieces.into_iter()
}

/// An event with its name.
fn named(kind: &str, mut data: Value) -> String {
    if let Some(fields) = data.as_object_mut() {
        fields.insert("type".to_owned(), kind.into());
    }
    format!("event: {kind}\ndata: {data}\n\n")
}
