//! What the events of a Messages stream say, and how they are written for the client. It looks at
//! one event at a time; it never decides what is shown, when and under which numbers.

use bytes::Bytes;
use plimsoll_model::Usage;
use plimsoll_model::raw::{self, Edit, Object, Span};

use super::answer_builder::AnswerBuilder;
use super::usage;
use crate::answer::Answer;
use crate::blocks::events::{BlocksEnding, Events, FrameKind, Numbers, Visibility, event};
use crate::json;
use crate::machine::KeptBytes;
use crate::names::Names;
use crate::shape::{FrameShape, Sink};
use crate::sse::Frame;

/// The events of a turn.
#[derive(Debug)]
pub struct MessagesEvents {
    hidden: Names,
    hop: AnswerBuilder,
    fast: Option<Fast>,
    /// Whether the last frame differed from the one before it in one string only.
    plain: bool,
}

/// The delta that was read last, for a next one that differs from it in one string only.
#[derive(Debug)]
struct Fast {
    shape: FrameShape,
    /// The block's number.
    at: u64,
    /// Where the string goes in the hop: the block's place and the member's.
    to: (usize, usize),
}

const DONE: &[u8] = b"[DONE]";

impl Events for MessagesEvents {
    const BLOCK: &'static str = "content_block";

    fn is_plain(&self) -> bool {
        self.plain
    }

    fn take(&mut self, frame: &Frame) -> FrameKind {
        self.plain = false;
        if let Some(fast) = &self.fast {
            if let Some(string) = fast.shape.read(frame.raw()) {
                self.hop.sink(fast.to, string);
                self.plain = true;
                return FrameKind::Within { at: fast.at };
            }
            self.fast = None;
        }
        let Some(data) = frame.data() else {
            return FrameKind::Aside;
        };
        if data == DONE {
            self.hop.stop();
            return FrameKind::End;
        }
        match Object::parse(&data) {
            Ok(object) => self.absorb(frame, &data, &object),
            Err(_) => FrameKind::Unreadable,
        }
    }

    fn answer(&self) -> Answer {
        self.hop.answer()
    }

    fn kept(&self) -> KeptBytes {
        self.hop.kept()
    }

    fn forget(&mut self) {
        self.hop.forget();
    }

    fn next_hop(&mut self) {
        self.hop = AnswerBuilder::default();
        self.fast = None;
    }

    fn show(&self, frame: &Frame, numbers: Numbers) -> Bytes {
        let renumbered = numbers.index.and_then(|index| {
            let data = frame.data()?;
            let object = Object::parse(&data).ok()?;
            object.number("index").filter(|own| *own != index)?;
            let data = json::with(&object, "index", index.to_string().as_bytes());
            Some(frame.with_data(&data))
        });
        renumbered.unwrap_or_else(|| frame.raw().clone())
    }

    fn end(&self, frame: &Frame, ending: &BlocksEnding<'_>) -> Bytes {
        let (Some(usage), Some(data)) = (ending.usage, frame.data()) else {
            return frame.raw().clone();
        };
        match Object::parse(&data) {
            Ok(object) if object.text("type").as_deref() != Some("error") => {
                frame.with_data(&json::splice(&data, vec![usage::tell(&object, usage)]))
            }
            Ok(_) | Err(_) => frame.raw().clone(),
        }
    }

    fn close(&self, held: &[Frame], line: Option<&str>, ending: &BlocksEnding<'_>) -> Vec<Bytes> {
        let mut events = Vec::new();
        if let Some(line) = line {
            events.extend(text_block(ending.index, line));
        }
        let (mut delta, mut stop) = (None, None);
        for frame in held {
            match ended_delta(frame, ending) {
                Some(ended) => delta = Some(ended),
                None => stop = Some(frame.raw().clone()),
            }
        }
        // A stream that was cut behind its finish, or that has none, gets the events that it lacks.
        events.push(delta.unwrap_or_else(|| {
            let usage = ending.usage.copied().or(self.answer().usage);
            own_delta(usage.unwrap_or_default())
        }));
        events.push(stop.unwrap_or_else(|| event("message_stop", br#"{"type":"message_stop"}"#)));
        events
    }

    fn error(&self, error: &[u8], _sequence: Option<u64>) -> Bytes {
        event("error", &error_data(error))
    }
}

impl MessagesEvents {
    /// The events of a turn's first hop.
    pub fn new(hidden: &Names) -> Self {
        Self {
            hidden: hidden.clone(),
            hop: AnswerBuilder::default(),
            fast: None,
            plain: false,
        }
    }

    fn absorb(&mut self, frame: &Frame, data: &Bytes, object: &Object<'_>) -> FrameKind {
        let named = String::from_utf8_lossy(frame.event());
        let kind = object.text("type");
        match kind.as_deref().unwrap_or(&named) {
            "message_start" => {
                if let Some(message) = object.child("message") {
                    self.hop.begin(&message);
                }
                FrameKind::Begin
            }
            "content_block_start" => self.open(object),
            "content_block_delta" => self.extend(frame, object),
            "content_block_stop" => {
                let at = index(object);
                self.hop.close(at);
                let visibility = Visibility::Shown;
                FrameKind::Close { at, visibility }
            }
            "message_delta" => {
                self.hop.count(object);
                let delta = object.child("delta");
                if let Some(delta) = &delta {
                    self.hop.keep(delta);
                }
                match delta.and_then(|delta| delta.text("stop_reason")) {
                    Some(reason) => {
                        self.hop.finish(reason.into_owned());
                        FrameKind::Finish
                    }
                    None => FrameKind::Other,
                }
            }
            "message_stop" => {
                self.hop.stop();
                FrameKind::End
            }
            "error" => self.fail(data),
            // Some servers send an error without a type.
            _ if kind.is_none() && object.present("error").is_some() => self.fail(data),
            _ => match object.number("index") {
                Some(at) => FrameKind::Within { at },
                None => FrameKind::Aside,
            },
        }
    }

    fn fail(&mut self, data: &Bytes) -> FrameKind {
        self.hop.fail(data.clone());
        FrameKind::Error
    }

    fn open(&mut self, object: &Object<'_>) -> FrameKind {
        let at = index(object);
        let block = object.child("content_block");
        let hidden = block.is_some_and(|block| self.hop.open(at, &block, &self.hidden));
        let visibility = if hidden {
            Visibility::Hidden
        } else {
            Visibility::Shown
        };
        FrameKind::Open { at, visibility }
    }

    fn extend(&mut self, frame: &Frame, object: &Object<'_>) -> FrameKind {
        let at = index(object);
        if let (Some(span), Some(delta)) = (object.get("delta"), object.child("delta"))
            && let Some(to) = self.hop.extend(at, &delta)
            && let (Some(data), Some(hole)) = (frame.data_span(), only_string(&delta))
        {
            let hole = raw::shift(&hole, data.start + span.start);
            // The shape's own sink is of no use here, because it knows no blocks.
            let shape = FrameShape::of(frame.raw(), hole, None, Sink::Text, true);
            self.fast = Some(Fast { shape, at, to });
        }
        FrameKind::Within { at }
    }
}

/// The delta or the message with its end rewritten, as if the model had ended it.
pub fn ended(object: &Object<'_>) -> Bytes {
    let mut edits = vec![object.set("stop_reason", br#""end_turn""#)];
    if object.present("stop_sequence").is_some() {
        edits.push(object.set("stop_sequence", b"null"));
    }
    json::splice(object.bytes(), edits)
}

/// A held `message_delta` with its end rewritten, as if the model had ended it; `None` for another
/// frame.
fn ended_delta(frame: &Frame, ending: &BlocksEnding<'_>) -> Option<Bytes> {
    let data = frame.data()?;
    let object = Object::parse(&data).ok()?;
    let delta = object.child("delta")?;
    let mut edits: Vec<Edit> = vec![object.set("delta", &ended(&delta))];
    edits.extend(ending.usage.map(|usage| usage::tell(&object, usage)));
    Some(frame.with_data(&json::splice(&data, edits)))
}

/// A `message_delta` of the proxy's own.
fn own_delta(usage: Usage) -> Bytes {
    let data =
        br#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null}}"#;
    let edit = Object::parse(data).map(|object| usage::tell(&object, &usage));
    let edits = edit.into_iter().collect();
    event("message_delta", &json::splice(data, edits))
}

/// The three events of a block of text of the proxy's own.
fn text_block(index: u64, text: &str) -> [Bytes; 3] {
    let text = raw::quote(text);
    let start = format!(
        r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"text","text":""}}}}"#
    );
    let delta = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"text_delta","text":{text}}}}}"#
    );
    let stop = format!(r#"{{"type":"content_block_stop","index":{index}}}"#);
    [
        event("content_block_start", start.as_bytes()),
        event("content_block_delta", delta.as_bytes()),
        event("content_block_stop", stop.as_bytes()),
    ]
}

/// The data of an error event: `{"type":"error","error":{"type","message"}}`.
fn error_data(error: &[u8]) -> Bytes {
    let Ok(object) = Object::parse(error) else {
        let message = raw::quote(&String::from_utf8_lossy(error));
        return wrapped(format!(r#"{{"type":"api_error","message":{message}}}"#).as_bytes());
    };
    let Some(inner) = object.present("error") else {
        return wrapped(&typed(&object));
    };
    if object.text("type").as_deref() == Some("error") {
        return Bytes::copy_from_slice(error);
    }
    match Object::parse(inner) {
        Ok(inner) => wrapped(&typed(&inner)),
        Err(_) => {
            let inner = String::from_utf8_lossy(inner);
            wrapped(format!(r#"{{"type":"api_error","message":{inner}}}"#).as_bytes())
        }
    }
}

/// The error with a type, because clients tell errors apart by it.
fn typed(error: &Object<'_>) -> Bytes {
    if error.text("type").is_some() {
        return Bytes::copy_from_slice(error.bytes());
    }
    json::with(error, "type", br#""api_error""#)
}

fn wrapped(error: &[u8]) -> Bytes {
    Bytes::from([br#"{"type":"error","error":"#, error, b"}"].concat())
}

fn index(object: &Object<'_>) -> u64 {
    object.number("index").unwrap_or(0)
}

/// The span between the quotes of a delta's string, if the delta has nothing else besides its type.
fn only_string(delta: &Object<'_>) -> Option<Span> {
    let mut others = delta.members().iter().filter(|member| member.key != "type");
    let (member, None) = (others.next()?, others.next()) else {
        return None;
    };
    let span = member.value.clone();
    matches!(delta.bytes().get(span.clone())?, [b'"', .., b'"'])
        .then(|| span.start + 1..span.end - 1)
}
