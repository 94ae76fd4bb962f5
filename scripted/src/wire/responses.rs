//! Responses: the body of an answer, and its events. Pure, as all of `wire`.

use serde_json::{Value, json};

use super::{Envelope, Events, signature, typed};
use crate::script::Reply;

/// The ids of the items tell which answer they are of.
pub(super) fn body(reply: &Reply, envelope: &Envelope) -> Value {
    let number = envelope.id.trim_start_matches("resp_");
    let mut output = Vec::new();
    if !reply.reasoning.is_empty() {
        let id = format!("rs_{number}");
        output.push(json!({"type": "reasoning", "id": id, "summary": [],
            "encrypted_content": signature(reply, envelope)}));
    }
    if !reply.text.is_empty() {
        output.push(json!({"type": "message", "id": format!("msg_{number}"),
            "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "annotations": [], "text": reply.text}]}));
    }
    output.extend(reply.calls.iter().enumerate().map(|(at, call)| {
        json!({"type": "function_call", "id": format!("fc_{number}_{at}"), "call_id": call.id,
            "name": call.name, "arguments": call.arguments, "status": "completed"})
    }));
    let total = envelope.prompt + envelope.completion;
    let mut response = json!({"id": envelope.id, "object": "response",
        "created_at": envelope.created, "status": "completed", "error": null,
        "model": envelope.model, "output": output,
        "usage": {"input_tokens": envelope.prompt,
            "input_tokens_details": {"cached_tokens": envelope.cached},
            "output_tokens": envelope.completion,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": total}});
    if let (Some(told), Some(fields)) = (&reply.extra.transformations, response.as_object_mut()) {
        fields.insert("input_transformations".to_owned(), told.clone());
    }
    response
}

pub(super) fn events(reply: &Reply, envelope: &Envelope) -> Events {
    let whole = body(reply, envelope);
    let mut begun = whole.clone();
    if let Some(fields) = begun.as_object_mut() {
        fields.insert("status".to_owned(), "in_progress".into());
        fields.insert("output".to_owned(), json!([]));
        fields.insert("usage".to_owned(), Value::Null);
    }
    let mut events = vec![json!({"type": "response.created", "response": begun})];
    let output = whole.get("output").and_then(Value::as_array);
    for (at, item) in output.into_iter().flatten().enumerate() {
        for kind in ["added", "done"] {
            let kind = format!("response.output_item.{kind}");
            events.push(json!({"type": kind, "output_index": at, "item": item}));
        }
    }
    events.push(json!({"type": "response.completed", "response": whole}));
    for (number, event) in events.iter_mut().enumerate() {
        if let Some(fields) = event.as_object_mut() {
            fields.insert("sequence_number".to_owned(), number.into());
        }
    }
    typed(&events, "response.completed", &reply.style)
}
