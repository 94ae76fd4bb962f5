//! codex's sessions: `~/.codex/sessions/YEAR/MONTH/DAY/rollout-….jsonl`. Owns how items become
//! messages. Never reads another file.

use serde_json::{Value, json};

use super::{Conversation, content, field, items, number, text};

/// The conversations of a session, from one compaction to the next.
pub fn read(lines: &[Value]) -> Vec<Conversation> {
    let mut read = Vec::new();
    let mut now = Conversation::default();
    for line in lines {
        let (payload, time) = (field(line, "payload"), field(line, "timestamp"));
        match text(line, "type") {
            "session_meta" => {
                let base = field(payload, "base_instructions");
                let base = if base.is_null() {
                    field(payload, "instructions")
                } else {
                    field(base, "text")
                };
                if now.messages.is_empty() {
                    now.say("system", &content(base), time);
                }
                for tool in items(payload, "dynamic_tools") {
                    now.tool(
                        text(tool, "name"),
                        field(tool, "description"),
                        field(tool, "inputSchema"),
                    );
                }
            }
            "turn_context" => {
                let model = text(payload, "model");
                if !model.is_empty() {
                    now.model = Some(model.to_owned());
                }
            }
            "response_item" => item(&mut now, payload, time),
            "compacted" => {
                let next = compacted(&now, payload, time);
                read.push(std::mem::replace(&mut now, next));
            }
            "event_msg" if text(payload, "type") == "token_count" => {
                let usage = field(field(payload, "info"), "last_token_usage");
                let (input, cached) = (
                    number(usage, "input_tokens"),
                    number(usage, "cached_input_tokens"),
                );
                now.usage.add(input, cached, number(usage, "output_tokens"));
            }
            _ => {}
        }
    }
    read.push(now);
    read
}

/// What goes on behind a compaction: the history that replaces the old one, or the summary.
fn compacted(before: &Conversation, payload: &Value, time: &Value) -> Conversation {
    let mut next = before.next();
    let mut history = items(payload, "replacement_history").peekable();
    if history.peek().is_none() {
        next.say("user", text(payload, "message"), time);
    }
    for message in history {
        item(&mut next, message, time);
    }
    next.begin_here();
    next
}

/// An item of Responses. Reasoning, text and calls that follow each other are one answer.
fn item(now: &mut Conversation, item: &Value, time: &Value) {
    let id = || match text(item, "call_id") {
        "" => text(item, "id"),
        id => id,
    };
    match text(item, "type") {
        "message" => {
            let said = content(field(item, "content"));
            match text(item, "role") {
                "assistant" => now.answer(time).text(&said),
                "user" => now.say("user", &said, time),
                _ => now.say("system", &said, time),
            }
        }
        "reasoning" => {
            let thought = [
                content(field(item, "summary")),
                content(field(item, "content")),
            ];
            now.answer(time).reasoning(thought.join("\n").trim());
        }
        "function_call" => {
            now.answer(time)
                .call(id(), text(item, "name"), field(item, "arguments"));
        }
        "custom_tool_call" => {
            // Its input is a text of its own form; arguments are an object.
            let input = json!({"input": field(item, "input")});
            now.answer(time).call(id(), text(item, "name"), &input);
        }
        "local_shell_call" => {
            now.answer(time)
                .call(id(), "local_shell", field(item, "action"));
        }
        "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
            let output = field(item, "output");
            // Some versions wrap it in an object.
            let output = if output.is_object() {
                field(output, "content")
            } else {
                output
            };
            now.result(id(), &content(output), time);
        }
        // What a provider's own compaction left is sealed; it stands for text that is not kept.
        _ => {}
    }
}
