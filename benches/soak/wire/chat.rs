//! Chat Completions.

use serde_json::{Value, json};

use super::{Heard, list, pieces, text};
use crate::talk::{Asked, Call, Entry, Reply, TOOL};

fn message(reply: &Reply) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text});
    if reply.text.is_empty() {
        message["content"] = Value::Null;
    }
    let calls: Vec<Value> = reply.calls.iter().map(call).collect();
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

fn call(call: &Call) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

fn read(message: &Value) -> Reply {
    let call = |call: &Value| Call {
        id: text(call, "id"),
        name: text(&call["function"], "name"),
        arguments: text(&call["function"], "arguments"),
    };
    Reply {
        text: text(message, "content"),
        calls: list(message, "tool_calls").iter().map(call).collect(),
    }
}

pub fn request(entries: &[Entry], stream: bool) -> Value {
    let mut messages = vec![json!({"role": "system", "content": "Work on."})];
    messages.extend(entries.iter().map(|entry| match entry {
        Entry::User(text) => json!({"role": "user", "content": text}),
        Entry::Said(reply) => message(reply),
        Entry::Result { id, text } => json!({"role": "tool", "tool_call_id": id, "content": text}),
    }));
    let schema = json!({"type": "object"});
    json!({
        "model": "gpt-5", "stream": stream, "messages": messages,
        "tools": [{"type": "function", "function": {"name": TOOL, "parameters": schema}}],
    })
}

pub fn asked(body: &Value) -> Option<Asked> {
    let mut asked = Asked::default();
    for message in body.get("messages")?.as_array()? {
        asked.entries.push(match message["role"].as_str()? {
            "system" | "developer" => continue,
            "user" => Entry::User(text(message, "content")),
            "assistant" => Entry::Said(read(message)),
            "tool" => Entry::Result {
                id: text(message, "tool_call_id"),
                text: text(message, "content"),
            },
            _ => return None,
        });
    }
    let tools = list(body, "tools").iter();
    asked.tools = tools.map(|tool| text(&tool["function"], "name")).collect();
    Some(asked)
}

fn finish(reply: &Reply) -> &'static str {
    if reply.calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    }
}

fn usage() -> Value {
    json!({"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920})
}

pub fn body(id: &str, reply: &Reply) -> Value {
    json!({
        "id": format!("chatcmpl-{id}"), "object": "chat.completion", "created": 1, "model": "gpt-5",
        "choices": [{"index": 0, "message": message(reply), "finish_reason": finish(reply)}],
        "usage": usage(),
    })
}

pub fn said(body: &Value) -> Option<Reply> {
    let choice = list(body, "choices").first()?;
    choice["finish_reason"].as_str()?;
    Some(read(&choice["message"]))
}

pub fn frames(id: &str, reply: &Reply) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": format!("chatcmpl-{id}"), "object": "chat.completion.chunk", "created": 1,
            "model": "gpt-5", "choices": choices, "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let delta = |delta: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        chunk(json!([choice]), Value::Null)
    };
    let mut frames = vec![delta(json!({"role": "assistant", "content": ""}))];
    frames.extend(pieces(&reply.text).map(|piece| delta(json!({"content": piece}))));
    for (index, call) in reply.calls.iter().enumerate() {
        let mut begun = self::call(call);
        begun["index"] = index.into();
        begun["function"]["arguments"] = "".into();
        frames.push(delta(json!({"tool_calls": [begun]})));
        frames.extend(pieces(&call.arguments).map(|piece| {
            delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
        }));
    }
    let end = json!([{"index": 0, "delta": {}, "finish_reason": finish(reply)}]);
    frames.push(chunk(end, Value::Null));
    frames.push(chunk(json!([]), usage()));
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

pub fn listen<'a>(events: impl Iterator<Item = &'a str>) -> Heard {
    let (mut heard, mut finished) = (Heard::default(), false);
    for event in events {
        if event == "[DONE]" {
            heard.whole = finished;
            continue;
        }
        let chunk = serde_json::from_str::<Value>(event).unwrap_or_default();
        for choice in list(&chunk, "choices") {
            finished |= choice["finish_reason"].is_string();
            let delta = &choice["delta"];
            heard.reply.text += &text(delta, "content");
            for piece in list(delta, "tool_calls") {
                if let Some(id) = piece["id"].as_str() {
                    heard.reply.calls.push(Call {
                        id: id.to_owned(),
                        name: text(&piece["function"], "name"),
                        arguments: String::new(),
                    });
                }
                if let Some(call) = heard.reply.calls.last_mut() {
                    call.arguments += &text(&piece["function"], "arguments");
                }
            }
        }
    }
    heard
}
