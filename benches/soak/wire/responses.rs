//! OpenAI's Responses.

use serde_json::{Value, json};

use super::{Heard, list, named, pieces, text};
use crate::talk::{Asked, Call, Entry, Reply, TOOL};

fn said_item(id: &str, said: &str) -> Value {
    let part = json!({"type": "output_text", "text": said, "annotations": []});
    json!({
        "type": "message", "id": format!("msg_{id}"), "status": "completed", "role": "assistant",
        "content": [part],
    })
}

fn call_item(call: &Call) -> Value {
    json!({
        "type": "function_call", "id": format!("fc_{}", call.id), "status": "completed",
        "call_id": call.id, "name": call.name, "arguments": call.arguments,
    })
}

fn items(id: &str, reply: &Reply) -> Vec<Value> {
    let said = (!reply.text.is_empty()).then(|| said_item(id, &reply.text));
    said.into_iter()
        .chain(reply.calls.iter().map(call_item))
        .collect()
}

fn call(item: &Value) -> Call {
    Call {
        id: text(item, "call_id"),
        name: text(item, "name"),
        arguments: text(item, "arguments"),
    }
}

/// The text of a message, be its content a string or a list of parts.
fn content(item: &Value) -> String {
    match &item["content"] {
        Value::String(text) => text.clone(),
        parts => {
            let parts = parts.as_array().map_or(&[][..], Vec::as_slice);
            parts.iter().map(|part| text(part, "text")).collect()
        }
    }
}

pub fn request(entries: &[Entry], stream: bool) -> Value {
    let mut input = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        match entry {
            Entry::User(text) => input.push(json!({"role": "user", "content": text})),
            Entry::Said(reply) => input.extend(items(&place.to_string(), reply)),
            Entry::Result { id, text } => {
                input.push(json!({"type": "function_call_output", "call_id": id, "output": text}));
            }
        }
    }
    let schema = json!({"type": "object"});
    json!({
        "model": "gpt-5", "stream": stream, "store": false, "instructions": "Work on.",
        "input": input, "tools": [{"type": "function", "name": TOOL, "parameters": schema}],
    })
}

pub fn asked(body: &Value) -> Option<Asked> {
    let mut asked = Asked::default();
    for item in body.get("input")?.as_array()? {
        match (item["type"].as_str(), item["role"].as_str()) {
            (Some("function_call"), _) => match asked.entries.last_mut() {
                Some(Entry::Said(reply)) => reply.calls.push(call(item)),
                _ => asked.entries.push(Entry::Said(Reply {
                    text: String::new(),
                    calls: vec![call(item)],
                })),
            },
            (Some("function_call_output"), _) => asked.entries.push(Entry::Result {
                id: text(item, "call_id"),
                text: text(item, "output"),
            }),
            (_, Some("assistant")) => asked.entries.push(Entry::Said(Reply {
                text: content(item),
                calls: Vec::new(),
            })),
            (_, Some("user")) => asked.entries.push(Entry::User(content(item))),
            (_, Some("system" | "developer")) => {}
            _ => return None,
        }
    }
    asked.tools = list(body, "tools")
        .iter()
        .map(|tool| text(tool, "name"))
        .collect();
    Some(asked)
}

pub fn body(id: &str, request: &Value, reply: &Reply) -> Value {
    json!({
        "id": format!("resp_{id}"), "object": "response", "created_at": 1, "status": "completed",
        "error": null, "model": "gpt-5", "output": items(id, reply), "store": false,
        "instructions": request["instructions"], "tools": request["tools"],
        "usage": {"input_tokens": 900, "output_tokens": 20, "total_tokens": 920},
    })
}

pub fn said(body: &Value) -> Option<Reply> {
    if body["status"] != "completed" {
        return None;
    }
    let mut reply = Reply::default();
    for item in list(body, "output") {
        match item["type"].as_str() {
            Some("function_call") => reply.calls.push(call(item)),
            _ => reply.text += &content(item),
        }
    }
    Some(reply)
}

pub fn frames(id: &str, request: &Value, reply: &Reply) -> Vec<String> {
    let whole = body(id, request, reply);
    let mut begun = whole.clone();
    begun["status"] = "in_progress".into();
    begun["output"] = json!([]);
    begun["usage"] = Value::Null;
    let mut frames = vec![named("response.created", json!({"response": begun}))];
    for (index, item) in list(&whole, "output").iter().enumerate() {
        let at = |mut more: Value| {
            more["item_id"] = item["id"].clone();
            more["output_index"] = index.into();
            more
        };
        let mut opened = item.clone();
        opened["status"] = "in_progress".into();
        let is_call = item["type"] == "function_call";
        opened[if is_call { "arguments" } else { "content" }] =
            if is_call { "".into() } else { json!([]) };
        let added = json!({"output_index": index, "item": opened});
        frames.push(named("response.output_item.added", added));
        if is_call {
            let arguments = text(item, "arguments");
            frames.extend(pieces(&arguments).map(|piece| {
                let kind = "response.function_call_arguments.delta";
                named(kind, at(json!({"delta": piece})))
            }));
            let done = at(json!({"arguments": arguments}));
            frames.push(named("response.function_call_arguments.done", done));
        } else {
            let part = |text: &str| {
                let part = json!({"type": "output_text", "text": text, "annotations": []});
                at(json!({"content_index": 0, "part": part}))
            };
            let said = content(item);
            frames.push(named("response.content_part.added", part("")));
            frames.extend(pieces(&said).map(|piece| {
                let kind = "response.output_text.delta";
                named(kind, at(json!({"content_index": 0, "delta": piece})))
            }));
            let done = at(json!({"content_index": 0, "text": said}));
            frames.push(named("response.output_text.done", done));
            frames.push(named("response.content_part.done", part(&said)));
        }
        let done = json!({"output_index": index, "item": item});
        frames.push(named("response.output_item.done", done));
    }
    frames.push(named("response.completed", json!({"response": whole})));
    frames
}

/// Reads the items as they are done, and the end.
pub fn listen<'a>(events: impl Iterator<Item = &'a str>) -> Heard {
    let mut heard = Heard::default();
    for event in events {
        let event = serde_json::from_str::<Value>(event).unwrap_or_default();
        match event["type"].as_str() {
            Some("response.output_item.done") => match event["item"]["type"].as_str() {
                Some("function_call") => heard.reply.calls.push(call(&event["item"])),
                _ => heard.reply.text += &content(&event["item"]),
            },
            Some("response.completed") => heard.whole = true,
            _ => {}
        }
    }
    heard
}
