//! Replies as bytes: streamed chunks, unstreamed bodies, and the faults inside them.
//!
//! Owns the shapes of the wire. Pure: it returns what is to be sent, waited for or broken, and
//! never sends, waits or breaks anything itself.

mod chat;
mod messages;
mod responses;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Value, json};

use crate::rules::{Form, sealed, signed};
use crate::script::{Call, Fault, Reply, Style};

/// One step of sending a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Bytes, in one write.
    Send(Bytes),
    /// A wait.
    Wait(Duration),
    /// The connection closes without an end of the body.
    Break,
    /// Nothing more happens, and the connection stays open.
    Stall,
}

/// What an answer says about itself and the tokens that it took.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// The wire format.
    pub form: Form,
    /// The completion's id.
    pub id: String,
    /// The time of creation, in seconds since the epoch.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the prompt that were cached.
    pub cached: usize,
    /// Tokens of the completion.
    pub completion: usize,
    /// Whether the client asked for the usage of a stream.
    pub include_usage: bool,
}

/// An answer as one JSON body.
#[must_use]
pub fn body(reply: &Reply, envelope: &Envelope) -> Bytes {
    let body = match envelope.form {
        Form::Chat => chat::body(reply, envelope),
        Form::Responses => responses::body(reply, envelope),
        Form::Messages => messages::body(reply, envelope),
    };
    written(&body, reply.style.spaced).into()
}

/// The steps of an unstreamed body, with the reply's fault.
#[must_use]
pub fn body_steps(reply: &Reply, envelope: &Envelope) -> VecDeque<Step> {
    let whole = body(reply, envelope);
    let half = whole.slice(..whole.len() / 2);
    let steps = match reply.fault {
        Some(Fault::CloseAfter { bytes }) => {
            vec![
                Step::Send(whole.slice(..bytes.min(whole.len()))),
                Step::Break,
            ]
        }
        Some(Fault::CloseAt { .. }) => vec![Step::Send(half), Step::Break],
        Some(Fault::StallAt { .. }) => vec![Step::Send(half), Step::Stall],
        Some(Fault::EndAt { .. }) => vec![Step::Send(half)],
        Some(Fault::GarbageAt { .. }) => {
            vec![Step::Send(Bytes::from_static(b"<html>\x00 bad gateway"))]
        }
        Some(Fault::HalfUtf8At { .. }) => {
            vec![Step::Send(Bytes::from_static(b"{\"id\":\"\xe2\x82"))]
        }
        Some(Fault::ErrorEventAt { .. }) => vec![Step::Send(Bytes::from(stream_error()))],
        Some(
            Fault::CloseBeforeHeaders
            | Fault::Status { .. }
            | Fault::ContextLength { .. }
            | Fault::NeverAnswer,
        )
        | None => vec![Step::Send(whole)],
    };
    paced(steps, &reply.style)
}

/// The steps of a streamed body, with the reply's fault.
#[must_use]
pub fn stream_steps(reply: &Reply, envelope: &Envelope) -> VecDeque<Step> {
    let events = match envelope.form {
        Form::Chat => chat::events(reply, envelope),
        Form::Responses => responses::events(reply, envelope),
        Form::Messages => messages::events(reply, envelope),
    };
    let style = &reply.style;
    let finish = events.finish;
    let mut steps = Vec::new();
    let mut sent = 0;
    for (number, event) in events.texts.iter().enumerate() {
        if number > 0 && !style.delay.is_zero() {
            steps.push(Step::Wait(style.delay));
        }
        if number == finish && !style.last_delay.is_zero() {
            steps.push(Step::Wait(style.last_delay));
        }
        if style.comments {
            steps.push(Step::Send(framed(": keep-alive", style.crlf)));
        }
        let data = framed(event, style.crlf);
        match struck(reply.fault, number, sent, &data, style.crlf) {
            Strike::No => {
                sent += data.len();
                steps.push(Step::Send(data));
            }
            Strike::Before(extra) => steps.extend([Step::Send(extra), Step::Send(data)]),
            Strike::End(last) => {
                steps.extend(last);
                break;
            }
        }
    }
    paced(steps, style)
}

enum Strike {
    No,
    Before(Bytes),
    End(Vec<Step>),
}

fn struck(fault: Option<Fault>, number: usize, sent: usize, data: &Bytes, crlf: bool) -> Strike {
    match fault {
        Some(Fault::CloseAfter { bytes }) if sent + data.len() >= bytes => {
            let rest = data.slice(..bytes.saturating_sub(sent).min(data.len()));
            Strike::End(vec![Step::Send(rest), Step::Break])
        }
        Some(Fault::CloseAt { event }) if event == number => Strike::End(vec![Step::Break]),
        Some(Fault::StallAt { event }) if event == number => Strike::End(vec![Step::Stall]),
        Some(Fault::EndAt { event }) if event == number => Strike::End(Vec::new()),
        Some(Fault::ErrorEventAt { event }) if event == number => {
            let error = framed(&format!("data: {}", stream_error()), crlf);
            Strike::End(vec![Step::Send(error)])
        }
        Some(Fault::GarbageAt { event }) if event == number => {
            Strike::Before(framed("data: {\"id\": garbage \u{1}", crlf))
        }
        Some(Fault::HalfUtf8At { event }) if event == number => {
            let torn = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xe2\x82";
            Strike::End(vec![Step::Send(Bytes::from_static(torn)), Step::Break])
        }
        _ => Strike::No,
    }
}

fn stream_error() -> String {
    json!({"error": {
        "message": "The server had an error while processing your request. Sorry about that!",
        "type": "server_error",
        "param": null,
        "code": null,
    }})
    .to_string()
}

fn framed(text: &str, crlf: bool) -> Bytes {
    let end = if crlf { "\r\n\r\n" } else { "\n\n" };
    format!("{text}{end}").into()
}

/// The steps with the style's cuts. Bytes between two waits are joined and cut anew, so that a
/// cut falls at any byte, also between the two of a CR LF.
fn paced(steps: Vec<Step>, style: &Style) -> VecDeque<Step> {
    let Some(size) = style.cut.map(|size| size.max(1)) else {
        return steps.into();
    };
    let mut paced = VecDeque::new();
    let mut run = Vec::new();
    let flush = |run: &mut Vec<u8>, paced: &mut VecDeque<Step>| {
        paced.extend(
            run.chunks(size)
                .map(|piece| Step::Send(Bytes::copy_from_slice(piece))),
        );
        run.clear();
    };
    for step in steps {
        match step {
            Step::Send(bytes) => run.extend_from_slice(&bytes),
            other => {
                flush(&mut run, &mut paced);
                paced.push_back(other);
            }
        }
    }
    flush(&mut run, &mut paced);
    paced
}

/// The texts of a stream's events as they stand in it, and which one tells the finish reason.
struct Events {
    texts: Vec<String>,
    finish: usize,
}

/// Events that each tell their own kind, of which one tells the finish reason.
fn typed(events: &[Value], finish: &str, style: &Style) -> Events {
    let end = if style.crlf { "\r\n" } else { "\n" };
    let kind = |event: &Value| {
        let kind = event.get("type").and_then(Value::as_str);
        kind.unwrap_or_default().to_owned()
    };
    let text = |event: &Value| {
        let written = written(event, style.spaced);
        format!("event: {}{end}data: {written}", kind(event))
    };
    let last = events.iter().position(|event| kind(event) == finish);
    Events {
        texts: events.iter().map(text).collect(),
        finish: last.unwrap_or_default(),
    }
}

/// What signs the reasoning of an answer: what it is bound by, else what only its provider can make
/// of it. Responses never show what was thought, so there it holds that.
pub(crate) fn signature(reply: &Reply, envelope: &Envelope) -> String {
    let (model, thought) = (&envelope.model, &reply.reasoning);
    match (&reply.extra.signature, envelope.form) {
        (Some(bound), _) => bound.clone(),
        (None, Form::Responses) => sealed(model, &envelope.id, thought),
        (None, Form::Chat | Form::Messages) if reply.extra.hidden => {
            sealed(model, thought, thought)
        }
        (None, Form::Chat | Form::Messages) => signed(model, thought),
    }
}

/// The arguments of a call as the JSON that they are; what is none stands as the string that it is.
fn input(call: &Call) -> Value {
    serde_json::from_str(&call.arguments).unwrap_or_else(|_| call.arguments.clone().into())
}

/// A text in pieces of about `size` bytes, cut between characters.
fn pieces(text: &str, size: usize) -> Vec<&str> {
    let size = size.max(1);
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = size.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// JSON text, compact or as Python's default writer spaces it.
fn written(value: &Value, spaced: bool) -> String {
    if !spaced {
        return value.to_string();
    }
    let mut text = Vec::new();
    let mut writer = Serializer::with_formatter(&mut text, Spaced);
    match value.serialize(&mut writer) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(_) => value.to_string(),
    }
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests;
