//! What a provider says in each dialect, whole and as a stream. Asserts nothing.

use serde_json::{Value, json};

use super::{Call, Told};
use crate::support::frames;

pub(super) fn chat(
    number: usize,
    text: &str,
    calls: &[Call],
    streamed: bool,
    told: Told,
) -> String {
    let finish = if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, call)| {
            json!({"index": index, "id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": call.arguments}})
        })
        .collect();
    let mut said = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        said["tool_calls"] = calls.into();
    }
    let mut usage = json!({"prompt_tokens": told.input, "completion_tokens": told.output,
        "total_tokens": told.input + told.output,
        "prompt_tokens_details": {"cached_tokens": told.cached}});
    if told.written > 0 {
        usage["prompt_tokens_details"]["cache_write_tokens"] = told.written.into();
    }
    let whole = |choice: Value| {
        json!({"id": format!("chatcmpl-{number}"), "created": 1, "model": "m", "usage": usage,
            "choices": [choice]})
    };
    if !streamed {
        return whole(json!({"index": 0, "message": said, "finish_reason": finish})).to_string();
    }
    let begin = whole(json!({"index": 0, "delta": said, "finish_reason": null}));
    let end = whole(json!({"index": 0, "delta": {}, "finish_reason": finish}));
    format!("data: {begin}\n\ndata: {end}\n\ndata: [DONE]\n\n")
}

pub(super) fn response(number: usize, text: &str, calls: &[Call], told: Told) -> Value {
    let mut output = Vec::new();
    if !text.is_empty() {
        output.push(json!({"type": "message", "id": format!("msg_{number}"),
            "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "annotations": [], "text": text}]}));
    }
    output.extend(calls.iter().map(|call| {
        json!({"type": "function_call", "id": format!("fc_{}", call.id), "call_id": call.id,
            "name": call.name, "arguments": call.arguments, "status": "completed"})
    }));
    let mut response = json!({"id": format!("resp_{number}"), "object": "response", "created_at": 1,
        "status": "completed", "error": null, "model": "m", "output": output,
        "usage": {"input_tokens": told.input, "output_tokens": told.output,
            "total_tokens": told.input + told.output,
            "input_tokens_details": {"cached_tokens": told.cached}}});
    if told.asked {
        response["prompt_cache_options"] =
            json!({"ttl": "30m", "mode": "implicit", "comparison_response_id": "resp_0"});
        response["prompt_cache_diagnostics"] = match told.said {
            Some(said) => {
                json!({"type": "cache_miss", "cache_missed_tokens": 9, "reason": {"type": said}})
            }
            None => json!({"type": "cache_hit"}),
        };
    }
    response
}

pub(super) fn anthropic(number: usize, text: &str, calls: &[Call], told: Told) -> Value {
    let mut content = Vec::new();
    if !text.is_empty() {
        content.push(json!({"type": "text", "text": text}));
    }
    content.extend(calls.iter().map(|call| {
        // White space goes with the value where it is read as one.
        let input: Box<serde_json::value::RawValue> =
            serde_json::from_str(&call.arguments).unwrap();
        json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
    }));
    let stop = if calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    let mut usage = json!({"input_tokens": told.input - told.cached - told.written,
        "cache_read_input_tokens": told.cached, "output_tokens": told.output});
    if told.written > 0 {
        usage["cache_creation_input_tokens"] = told.written.into();
        usage["cache_creation"] =
            json!({"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": told.written});
    }
    let mut answer = json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant",
        "model": "m", "content": content, "stop_reason": stop, "stop_sequence": null, "usage": usage});
    if told.asked {
        answer["diagnostics"] = told.said.map_or(
            Value::Null,
            |said| json!({"cache_miss_reason": {"type": said, "cache_missed_input_tokens": 9}}),
        );
    }
    answer
}

pub(super) fn anthropic_events(number: usize, text: &str, calls: &[Call], told: Told) -> String {
    let mut begun = anthropic(number, "", &[], told);
    begun["stop_reason"] = Value::Null;
    let mut events = vec![json!({"type": "message_start", "message": begun})];
    let mut block = |start: Value, delta: Value| {
        let index = events.len() / 3;
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    };
    if !text.is_empty() {
        block(
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": text}),
        );
    }
    for call in calls {
        block(
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": call.arguments}),
        );
    }
    let stop = if calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    events.push(
        json!({"type": "message_delta", "usage": {"output_tokens": told.output},
        "delta": {"stop_reason": stop, "stop_sequence": null}}),
    );
    events.push(json!({"type": "message_stop"}));
    frames(&events)
}
