//! Chat Completions: the body of an answer, and its chunks. Pure, as all of `wire`.

use serde_json::{Map, Value, json};

use super::{Envelope, Events, pieces, written};
use crate::script::{Call, IndexStyle, Reply, Style, UsagePlace};

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
pub(super) fn body(reply: &Reply, envelope: &Envelope) -> Value {
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
    json!({
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
    })
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

pub(super) fn events(reply: &Reply, envelope: &Envelope) -> Events {
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
        .map(|chunk| format!("data: {}", written(&Value::Object(chunk), style.spaced)))
        .collect();
    texts.push("data: [DONE]".to_owned());
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
