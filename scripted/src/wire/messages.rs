//! Messages: the body of an answer, and its events. Pure, as all of `wire`.

use serde_json::{Value, json};

use super::{Envelope, Events, input, pieces, signature, typed};
use crate::script::{Call, Reply, Style};

pub(super) fn body(reply: &Reply, envelope: &Envelope) -> Value {
    let mut content = Vec::new();
    if !reply.reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": shown(reply),
            "signature": signature(reply, envelope)}));
    }
    if !reply.text.is_empty() {
        content.push(json!({"type": "text", "text": reply.text}));
    }
    content.extend(reply.calls.iter().map(used));
    let mut message = json!({"id": envelope.id, "type": "message", "role": "assistant",
        "model": envelope.model, "content": content, "stop_reason": stop_reason(reply),
        "stop_sequence": null, "usage": usage(envelope)});
    if let (Some(told), Some(fields)) = (&reply.extra.transformations, message.as_object_mut()) {
        fields.insert("input_transformations".to_owned(), told.clone());
    }
    message
}

/// The words of what was thought, as far as they are shown.
fn shown(reply: &Reply) -> &str {
    if reply.extra.hidden {
        ""
    } else {
        &reply.reasoning
    }
}

fn used(call: &Call) -> Value {
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input(call)})
}

fn stop_reason(reply: &Reply) -> &str {
    match reply.finish_reason() {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        other => other,
    }
}

fn usage(envelope: &Envelope) -> Value {
    json!({"input_tokens": envelope.prompt.saturating_sub(envelope.cached),
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": envelope.cached,
        "output_tokens": envelope.completion})
}

pub(super) fn events(reply: &Reply, envelope: &Envelope) -> Events {
    let whole = body(reply, envelope);
    let mut begun = whole.clone();
    if let Some(fields) = begun.as_object_mut() {
        fields.insert("content".to_owned(), json!([]));
        fields.insert("stop_reason".to_owned(), Value::Null);
    }
    let mut events = vec![json!({"type": "message_start", "message": begun})];
    for (index, (start, deltas)) in streamed(reply, envelope).into_iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index,
            "content_block": start}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let stop = json!({"stop_reason": stop_reason(reply), "stop_sequence": null});
    let usage = json!({"output_tokens": envelope.completion});
    events.push(json!({"type": "message_delta", "delta": stop, "usage": usage}));
    events.push(json!({"type": "message_stop"}));
    typed(&events, "message_delta", &reply.style)
}

/// Each block as it begins, with what is told of it after that.
fn streamed(reply: &Reply, envelope: &Envelope) -> Vec<(Value, Vec<Value>)> {
    let style = &reply.style;
    let mut blocks = Vec::new();
    if !reply.reasoning.is_empty() {
        let start = json!({"type": "thinking", "thinking": "", "signature": ""});
        let pieces = pieces(shown(reply), style.text).into_iter();
        let mut deltas: Vec<Value> = pieces
            .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
            .collect();
        let signature = signature(reply, envelope);
        deltas.push(json!({"type": "signature_delta", "signature": signature}));
        blocks.push((start, deltas));
    }
    if !reply.text.is_empty() {
        let pieces = pieces(&reply.text, style.text).into_iter();
        let deltas = pieces.map(|piece| json!({"type": "text_delta", "text": piece}));
        blocks.push((json!({"type": "text", "text": ""}), deltas.collect()));
    }
    for call in &reply.calls {
        let start = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        blocks.push((start, inputs(call, style)));
    }
    blocks
}

fn inputs(call: &Call, style: &Style) -> Vec<Value> {
    let size = style.arguments.unwrap_or(usize::MAX);
    let pieces = pieces(&call.arguments, size).into_iter();
    pieces
        .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}))
        .collect()
}
