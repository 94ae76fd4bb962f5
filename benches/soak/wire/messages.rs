//! Anthropic's Messages.

use serde_json::{Value, json};

use super::{Heard, list, named, pieces, text};
use crate::talk::{Asked, Call, Entry, Reply, TOOL};

fn blocks(reply: &Reply) -> Vec<Value> {
    let said = (!reply.text.is_empty()).then(|| json!({"type": "text", "text": reply.text}));
    let calls = reply.calls.iter().map(|call| {
        let input = serde_json::from_str::<Value>(&call.arguments).unwrap_or_default();
        json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
    });
    said.into_iter().chain(calls).collect()
}

fn read(blocks: &[Value]) -> Reply {
    let mut reply = Reply::default();
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_use") => reply.calls.push(Call {
                id: text(block, "id"),
                name: text(block, "name"),
                arguments: block["input"].to_string(),
            }),
            _ => reply.text += &text(block, "text"),
        }
    }
    reply
}

pub fn request(entries: &[Entry], stream: bool) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    for entry in entries {
        match entry {
            Entry::User(text) => messages.push(json!({"role": "user", "content": text})),
            Entry::Said(reply) => {
                messages.push(json!({"role": "assistant", "content": blocks(reply)}));
            }
            Entry::Result { id, text } => {
                let result = json!({"type": "tool_result", "tool_use_id": id, "content": text});
                let open = messages.last_mut().filter(|last| last["role"] == "user");
                match open.and_then(|last| last["content"].as_array_mut()) {
                    Some(results) => results.push(result),
                    None => messages.push(json!({"role": "user", "content": [result]})),
                }
            }
        }
    }
    let schema = json!({"type": "object"});
    json!({
        "model": "claude-sonnet-4-5", "max_tokens": 4096, "stream": stream, "system": "Work on.",
        "messages": messages, "tools": [{"name": TOOL, "input_schema": schema}],
    })
}

pub fn asked(body: &Value) -> Option<Asked> {
    let mut asked = Asked::default();
    for message in body.get("messages")?.as_array()? {
        let whole = [json!({"type": "text", "text": message["content"]})];
        let blocks = match &message["content"] {
            Value::Array(blocks) => blocks.as_slice(),
            _ => &whole,
        };
        if blocks.is_empty() {
            return None;
        }
        if message["role"] == "assistant" {
            asked.entries.push(Entry::Said(read(blocks)));
            continue;
        }
        for block in blocks {
            asked.entries.push(match block["type"].as_str()? {
                "tool_result" => Entry::Result {
                    id: text(block, "tool_use_id"),
                    text: text(block, "content"),
                },
                _ => Entry::User(text(block, "text")),
            });
        }
    }
    asked.tools = list(body, "tools")
        .iter()
        .map(|tool| text(tool, "name"))
        .collect();
    Some(asked)
}

fn stop(reply: &Reply) -> &'static str {
    if reply.calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    }
}

pub fn body(id: &str, reply: &Reply) -> Value {
    json!({
        "id": format!("msg_{id}"), "type": "message", "role": "assistant",
        "model": "claude-sonnet-4-5", "content": blocks(reply), "stop_reason": stop(reply),
        "stop_sequence": null, "usage": {"input_tokens": 900, "output_tokens": 20},
    })
}

pub fn said(body: &Value) -> Option<Reply> {
    body["stop_reason"].as_str()?;
    Some(read(list(body, "content")))
}

pub fn frames(id: &str, reply: &Reply) -> Vec<String> {
    let mut begun = body(id, reply);
    begun["content"] = json!([]);
    begun["stop_reason"] = Value::Null;
    let mut frames = vec![
        named("message_start", json!({"message": begun})),
        named("ping", json!({})),
    ];
    for (index, block) in blocks(reply).iter().enumerate() {
        let is_call = block["type"] == "tool_use";
        let mut opened = block.clone();
        let (field, whole) = if is_call {
            opened["input"] = json!({});
            ("partial_json", block["input"].to_string())
        } else {
            opened["text"] = "".into();
            ("text", text(block, "text"))
        };
        let kind = if is_call {
            "input_json_delta"
        } else {
            "text_delta"
        };
        let start = json!({"index": index, "content_block": opened});
        frames.push(named("content_block_start", start));
        frames.extend(pieces(&whole).map(|piece| {
            let delta = json!({"type": kind, field: piece});
            named(
                "content_block_delta",
                json!({"index": index, "delta": delta}),
            )
        }));
        frames.push(named("content_block_stop", json!({"index": index})));
    }
    let delta = json!({"stop_reason": stop(reply), "stop_sequence": null});
    let end = json!({"delta": delta, "usage": {"output_tokens": 20}});
    frames.push(named("message_delta", end));
    frames.push(named("message_stop", json!({})));
    frames
}

pub fn listen<'a>(events: impl Iterator<Item = &'a str>) -> Heard {
    let (mut heard, mut blocks) = (Heard::default(), Vec::new());
    let mut inputs: Vec<String> = Vec::new();
    for event in events {
        let event = serde_json::from_str::<Value>(event).unwrap_or_default();
        match event["type"].as_str() {
            Some("content_block_start") => {
                blocks.push(event["content_block"].clone());
                inputs.push(String::new());
            }
            Some("content_block_delta") => {
                let delta = &event["delta"];
                if let (Some(block), Some(input)) = (blocks.last_mut(), inputs.last_mut()) {
                    input.push_str(&text(delta, "partial_json"));
                    if block["type"] == "text" {
                        block["text"] = (text(block, "text") + &text(delta, "text")).into();
                    }
                }
            }
            Some("message_stop") => heard.whole = true,
            _ => {}
        }
    }
    for (block, input) in blocks
        .iter_mut()
        .zip(inputs)
        .filter(|(_, input)| !input.is_empty())
    {
        block["input"] = serde_json::from_str(&input).unwrap_or_default();
    }
    heard.reply = read(&blocks);
    heard
}
