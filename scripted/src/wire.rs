//! Replies as bytes: streamed chunks, unstreamed bodies, and the faults inside them.
//!
//! Owns the shapes of the wire. Pure: it returns what is to be sent, waited for or broken, and
//! never sends, waits or breaks anything itself.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value, json};

use crate::script::{Call, Fault, IndexStyle, Reply, Style, UsagePlace};

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

impl Envelope {
    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        })
    }

    fn chunk(&self, choices: Value) -> Map<String, Value> {
        let mut chunk = Map::new();
        chunk.insert("id".into(), self.id.clone().into());
        chunk.insert("object".into(), "chat.completion.chunk".into());
        chunk.insert("created".into(), self.created.into());
        chunk.insert("model".into(), self.model.clone().into());
        chunk.insert("system_fingerprint".into(), "fp_scripted".into());
        chunk.insert("choices".into(), choices);
        chunk
    }
}

/// An answer as one JSON body.
#[must_use]
pub fn body(reply: &Reply, envelope: &Envelope) -> Bytes {
    let mut calls: Vec<Value> = reply.calls.iter().map(whole_call).collect();
    if let Some(Value::Object(first)) = calls.first_mut() {
        first.extend(reply.extra.first_call.clone());
    }
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let parts = reply.extra.parts && !reply.reasoning.is_empty();
    let content = match (parts, reply.text.is_empty()) {
        (true, true) => json!([thinking_part(&reply.reasoning)]),
        (true, false) => {
            json!([thinking_part(&reply.reasoning), {"type": "text", "text": reply.text}])
        }
        (false, true) => Value::Null,
        (false, false) => reply.text.clone().into(),
    };
    message.insert("content".into(), content);
    message.insert("refusal".into(), Value::Null);
    if !reply.extra.parts && (reply.extra.reasoning || !reply.reasoning.is_empty()) {
        message.insert("reasoning_content".into(), reply.reasoning.clone().into());
    }
    message.extend(reply.extra.message.clone());
    if !calls.is_empty() {
        message.insert("tool_calls".into(), calls.into());
    }
    let body = json!({
        "id": envelope.id,
        "object": "chat.completion",
        "created": envelope.created,
        "model": envelope.model,
        "system_fingerprint": "fp_scripted",
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": reply.finish_reason(),
        }],
        "usage": envelope.usage(),
    });
    written(&body, reply.style.spaced).into()
}

/// What was thought as a part of the content, as Mistral puts it.
fn thinking_part(text: &str) -> Value {
    json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]})
}

fn whole_call(call: &Call) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    })
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
    let events = events(reply, envelope);
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
        let data = framed(&format!("data: {event}"), style.crlf);
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

/// The JSON texts of a stream's events, `[DONE]` included, and which one tells the finish reason.
struct Events {
    texts: Vec<String>,
    finish: usize,
}

fn events(reply: &Reply, envelope: &Envelope) -> Events {
    let style = &reply.style;
    let mut chunks = Vec::new();
    if style.prompt_filter {
        let mut chunk = envelope.chunk(json!([]));
        chunk.insert(
            "prompt_filter_results".into(),
            json!([{"prompt_index": 0, "content_filter_results": {}}]),
        );
        chunks.push(chunk);
    }
    for delta in deltas(reply) {
        chunks.push(envelope.chunk(json!([{
            "index": 0, "delta": delta, "logprobs": null, "finish_reason": null,
        }])));
    }
    let finish = chunks.len();
    chunks.push(envelope.chunk(json!([{
        "index": 0, "delta": {}, "logprobs": null, "finish_reason": reply.finish_reason(),
    }])));
    add_usage(&mut chunks, finish, style.usage, envelope);
    let mut texts: Vec<String> = chunks
        .into_iter()
        .map(|chunk| written(&Value::Object(chunk), style.spaced))
        .collect();
    texts.push("[DONE]".to_owned());
    Events { texts, finish }
}

fn add_usage(
    chunks: &mut Vec<Map<String, Value>>,
    finish: usize,
    place: UsagePlace,
    envelope: &Envelope,
) {
    match place {
        UsagePlace::Never => {}
        UsagePlace::Extra if envelope.include_usage => {
            for chunk in chunks.iter_mut() {
                chunk.insert("usage".into(), Value::Null);
            }
            let mut extra = envelope.chunk(json!([]));
            extra.insert("usage".into(), envelope.usage());
            chunks.push(extra);
        }
        UsagePlace::Extra => {}
        UsagePlace::OnFinish => {
            if let Some(chunk) = chunks.get_mut(finish) {
                chunk.insert("usage".into(), envelope.usage());
            }
        }
        UsagePlace::OnEach => {
            for chunk in chunks {
                chunk.insert("usage".into(), envelope.usage());
            }
        }
    }
}

/// The deltas of an answer, in order, without the one that goes with the finish reason.
fn deltas(reply: &Reply) -> Vec<Value> {
    let style = &reply.style;
    let mut deltas = Vec::new();
    if style.role_frame {
        deltas.push(json!({"role": "assistant", "content": "", "refusal": null}));
    }
    let extra = &reply.extra;
    if extra.reasoning && reply.reasoning.is_empty() {
        deltas.push(json!({"reasoning_content": ""}));
    }
    for piece in pieces(&reply.reasoning, style.text) {
        deltas.push(match extra.parts {
            true => json!({"content": [thinking_part(piece)]}),
            false => json!({"reasoning_content": piece}),
        });
    }
    if !extra.message.is_empty() {
        deltas.push(Value::Object(extra.message.clone()));
    }
    for piece in pieces(&reply.text, style.text) {
        deltas.push(json!({"content": piece}));
    }
    for (place, call) in reply.calls.iter().enumerate() {
        for (number, part) in call_parts(call, style).into_iter().enumerate() {
            let mut entry = part;
            if (place, number) == (0, 0) {
                entry.extend(extra.first_call.clone());
            }
            match style.index {
                IndexStyle::Present => entry.insert("index".into(), place.into()),
                IndexStyle::Omitted => None,
                IndexStyle::Zero => entry.insert("index".into(), 0.into()),
            };
            let mut delta = json!({"tool_calls": [entry]});
            if let (true, Some(fields)) = (style.content_null, delta.as_object_mut()) {
                fields.insert("content".into(), Value::Null);
            }
            deltas.push(delta);
        }
    }
    if let (false, Some(Value::Object(first))) = (style.role_frame, deltas.first_mut()) {
        first.insert("role".into(), "assistant".into());
    }
    deltas
}

/// The pieces that a call is streamed in, without their index.
fn call_parts(call: &Call, style: &Style) -> Vec<Map<String, Value>> {
    let names = style
        .name
        .map_or_else(|| vec![call.name.as_str()], |size| pieces(&call.name, size));
    let (at_once, arguments) = match style.arguments {
        None => (call.arguments.as_str(), Vec::new()),
        Some(size) => ("", pieces(&call.arguments, size)),
    };
    let mut functions = Vec::new();
    let last = names.len().saturating_sub(1);
    for (number, name) in names.iter().enumerate() {
        let arguments = if number == last { at_once } else { "" };
        functions.push(json!({"name": name, "arguments": arguments}));
    }
    functions.extend(arguments.iter().map(|piece| json!({"arguments": piece})));
    functions
        .into_iter()
        .enumerate()
        .map(|(number, function)| {
            let mut part = Map::new();
            if number == 0 || style.id_on_each {
                part.insert("id".into(), call.id.clone().into());
            }
            if number == 0 {
                part.insert("type".into(), "function".into());
            }
            part.insert("function".into(), function);
            part
        })
        .collect()
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
