//! What a provider that thinks says in Messages and Responses, whole and as a stream. Asserts
//! nothing.

use plimsoll_scripted::Reply;
use plimsoll_scripted::rules::signed;
use serde_json::{Value, json};

use crate::support::frames;

/// An answer of Messages.
pub fn message(number: usize, model: &str, reply: &Reply) -> Value {
    let mut content = Vec::new();
    if !reply.reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": reply.reasoning,
            "signature": signed(model, &reply.reasoning)}));
    }
    if !reply.text.is_empty() {
        content.push(json!({"type": "text", "text": reply.text}));
    }
    content.extend(reply.calls.iter().map(|call| {
        // What is no JSON stands as the string that it is.
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or(json!(call.arguments));
        json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
    }));
    let stop = if reply.calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": model,
        "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": 9, "output_tokens": 2}})
}

/// The same as events.
pub fn message_events(message: &Value) -> String {
    let mut begun = message.clone();
    begun["content"] = json!([]);
    begun["stop_reason"] = Value::Null;
    let mut events = vec![json!({"type": "message_start", "message": begun})];
    for (index, block) in message["content"].as_array().unwrap().iter().enumerate() {
        let mut start = block.clone();
        let deltas = match block["type"].as_str().unwrap() {
            "thinking" => {
                (start["thinking"], start["signature"]) = ("".into(), "".into());
                vec![
                    json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                    json!({"type": "signature_delta", "signature": block["signature"]}),
                ]
            }
            "text" => {
                start["text"] = "".into();
                vec![json!({"type": "text_delta", "text": block["text"]})]
            }
            _ => {
                start["input"] = json!({});
                let input = &block["input"];
                let input = input.as_str().map_or(input.to_string(), str::to_owned);
                let (a, b) = input.split_at(input.len() / 2);
                let piece = |text| json!({"type": "input_json_delta", "partial_json": text});
                vec![piece(a), piece(b)]
            }
        };
        let start = json!({"type": "content_block_start", "index": index, "content_block": start});
        events.push(start);
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let stop = json!({"stop_reason": message["stop_reason"], "stop_sequence": null});
    let usage = json!({"output_tokens": 2});
    events.push(json!({"type": "message_delta", "usage": usage, "delta": stop}));
    events.push(json!({"type": "message_stop"}));
    frames(&events)
}

/// An answer of Responses. Ids tell which answer an item is of.
pub fn response(number: usize, model: &str, reply: &Reply) -> Value {
    let mut output = Vec::new();
    if !reply.reasoning.is_empty() {
        let id = format!("rs_{number}");
        output.push(json!({"type": "reasoning", "id": id, "summary": [],
            "encrypted_content": signed(model, &id)}));
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
    json!({"id": format!("resp_{number}"), "object": "response", "created_at": 1,
        "status": "completed", "error": null, "model": model, "output": output,
        "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}})
}
