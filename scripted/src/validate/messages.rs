//! The rules of the `messages` array: roles, contents, and that calls and results stand together.
//! Knows the request's other parts as little as a message does.

use std::collections::HashSet;

use serde_json::Value;

use super::{Refusal, tools};

const ROLES: &str = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'";
const STRING_OR_PARTS: &str = "one of a string or array of objects";

/// Checks the whole array. The model's own messages may hold parts of `thinking` where those are
/// known.
pub(super) fn check(messages: Option<&Value>, thinking: bool) -> Result<(), Refusal> {
    let messages = match messages {
        None => return Err(Refusal::missing("messages")),
        Some(Value::Array(messages)) => messages,
        Some(other) => {
            return Err(Refusal::wrong_type(
                "messages",
                "an array of objects",
                other,
            ));
        }
    };
    if messages.is_empty() {
        return Err(Refusal::empty_array("messages"));
    }
    let mut group = Group::default();
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        if !message.is_object() {
            return Err(Refusal::wrong_type(at, "an object", message));
        }
        let role = match message.get("role") {
            None => return Err(Refusal::missing(format!("{at}.role"))),
            Some(Value::String(role)) => role.as_str(),
            Some(other) => {
                return Err(Refusal::wrong_type(format!("{at}.role"), "a string", other));
            }
        };
        match role {
            "tool" => {
                content(message, &at, &["text"])?;
                group.result(message, index)?;
            }
            "system" | "developer" => content(message, &at, &["text"])?,
            "user" => content(message, &at, &["text", "image_url", "input_audio", "file"])?,
            "assistant" => assistant(message, &at, thinking)?,
            unknown => {
                let text = format!("Invalid value: '{unknown}'. Supported values are: {ROLES}.");
                return Err(Refusal::new(text, format!("{at}.role"), "invalid_value"));
            }
        }
        if role != "tool" {
            group.close(&format!("messages.[{index}].role"))?;
            group = Group::open(message);
        }
    }
    group.close(&format!("messages.[{}].role", messages.len()))
}

/// The calls of the newest assistant message, and which of them were answered.
#[derive(Default)]
struct Group {
    calls: Vec<String>,
    answered: HashSet<String>,
}

impl Group {
    fn open(message: &Value) -> Self {
        let calls = message
            .get("tool_calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|call| call.get("id").and_then(Value::as_str).map(str::to_owned))
            .collect();
        Self {
            calls,
            answered: HashSet::new(),
        }
    }

    fn result(&mut self, message: &Value, index: usize) -> Result<(), Refusal> {
        let param = format!("messages.[{index}].tool_call_id");
        let id = match message.get("tool_call_id") {
            None => return Err(Refusal::missing(param)),
            Some(Value::String(id)) => id,
            Some(other) => return Err(Refusal::wrong_type(param, "a string", other)),
        };
        if !self.calls.contains(id) {
            let text = "Invalid parameter: messages with role 'tool' must be a response to a \
                        preceeding message with 'tool_calls'.";
            return Err(Refusal::new(text, format!("messages.[{index}].role"), "").without_code());
        }
        if !self.answered.insert(id.clone()) {
            return Err(Refusal::new(
                format!("Duplicate value for 'tool_call_id' of '{id}' in message[{index}]"),
                param,
                "invalid_value",
            ));
        }
        Ok(())
    }

    /// The group ends here: every call must have been answered.
    fn close(&self, param: &str) -> Result<(), Refusal> {
        let open: Vec<&str> = self
            .calls
            .iter()
            .filter(|id| !self.answered.contains(*id))
            .map(String::as_str)
            .collect();
        if open.is_empty() {
            return Ok(());
        }
        let text = format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            open.join(", ")
        );
        Err(Refusal::new(text, param, "").without_code())
    }
}

/// Checks a content that must be there.
fn content(message: &Value, at: &str, parts: &[&str]) -> Result<(), Refusal> {
    let param = format!("{at}.content");
    match message.get("content") {
        None => Err(Refusal::missing(param)),
        Some(found) => texts_or_parts(found, &param, parts),
    }
}

fn texts_or_parts(found: &Value, param: &str, allowed: &[&str]) -> Result<(), Refusal> {
    match found {
        Value::String(_) => Ok(()),
        Value::Array(parts) if parts.is_empty() => Err(Refusal::empty_array(param)),
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .try_for_each(|(index, part)| check_part(part, &format!("{param}[{index}]"), allowed)),
        other => Err(Refusal::wrong_type(param, STRING_OR_PARTS, other)),
    }
}

fn check_part(part: &Value, at: &str, allowed: &[&str]) -> Result<(), Refusal> {
    if !part.is_object() {
        return Err(Refusal::wrong_type(at, "an object", part));
    }
    let kind = match part.get("type") {
        None => return Err(Refusal::missing(format!("{at}.type"))),
        Some(Value::String(kind)) => kind.as_str(),
        Some(other) => return Err(Refusal::wrong_type(format!("{at}.type"), "a string", other)),
    };
    if !allowed.contains(&kind) {
        let text = format!(
            "Invalid value: '{kind}'. Supported values are: '{}'.",
            allowed.join("', '")
        );
        return Err(Refusal::new(text, format!("{at}.type"), "invalid_value"));
    }
    let param = format!("{at}.{kind}");
    match part.get(kind) {
        None => Err(Refusal::missing(param)),
        Some(Value::String(_)) if matches!(kind, "text" | "refusal") => Ok(()),
        Some(Value::Array(_)) if kind == "thinking" => Ok(()),
        Some(Value::Object(_)) if !matches!(kind, "text" | "refusal") => Ok(()),
        Some(other) => Err(Refusal::wrong_type(param, "another type", other)),
    }
}

fn assistant(message: &Value, at: &str, thinking: bool) -> Result<(), Refusal> {
    let parts = ["text", "refusal", "thinking"];
    let parts = parts.get(..if thinking { 3 } else { 2 }).unwrap_or(&parts);
    let text = match message.get("content") {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(found) => {
            texts_or_parts(found, &format!("{at}.content"), parts)?;
            true
        }
    };
    let refusal = super::present(message, "refusal").is_some();
    match message.get("tool_calls") {
        Some(calls) => tools::calls(calls, &format!("{at}.tool_calls")),
        None if text || refusal => Ok(()),
        None => Err(Refusal::new(
            format!(
                "Invalid value for 'content': expected a string, got null. The assistant message \
                 at '{at}' must have either content or tool_calls, but not none."
            ),
            format!("{at}.content"),
            "",
        )
        .without_code()),
    }
}
