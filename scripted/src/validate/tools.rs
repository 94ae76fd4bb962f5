//! The rules of `tools`, `tool_choice` and of the calls inside an assistant message.

use std::collections::HashSet;

use serde_json::Value;

use super::{Refusal, present};

/// The longest description that providers take, in characters.
const DESCRIPTION_MAX: usize = 1_024;
/// The most tools that a request may offer.
const TOOLS_MAX: usize = 128;
const NAME_MAX: usize = 64;

/// Checks `tools`, and what may only be there beside them.
pub(super) fn check(value: &Value) -> Result<(), Refusal> {
    let names = match present(value, "tools") {
        None => None,
        Some(Value::Array(tools)) if tools.is_empty() => return Err(Refusal::empty_array("tools")),
        Some(Value::Array(tools)) => Some(definitions(tools)?),
        Some(other) => return Err(Refusal::wrong_type("tools", "an array of objects", other)),
    };
    for field in ["tool_choice", "parallel_tool_calls"] {
        if names.is_none() && present(value, field).is_some() {
            let text = format!(
                "Invalid value for '{field}': '{field}' is only allowed when 'tools' are specified."
            );
            return Err(Refusal::new(text, field, "").without_code());
        }
    }
    match (present(value, "tool_choice"), names) {
        (Some(choice), Some(names)) => check_choice(choice, &names),
        _ => Ok(()),
    }
}

fn definitions(tools: &[Value]) -> Result<HashSet<&str>, Refusal> {
    if tools.len() > TOOLS_MAX {
        let text = format!(
            "Invalid 'tools': array too long. Expected an array with maximum length {TOOLS_MAX}, \
             but got an array with length {} instead.",
            tools.len()
        );
        return Err(Refusal::new(text, "tools", "array_above_max_length"));
    }
    let mut names = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let name = definition(tool, &format!("tools[{index}]"))?;
        if !names.insert(name) {
            let text = format!("Tool names must be unique: '{name}' is defined more than once.");
            return Err(Refusal::new(
                text,
                format!("tools[{index}].function.name"),
                "invalid_value",
            ));
        }
    }
    Ok(names)
}

fn definition<'a>(tool: &'a Value, at: &str) -> Result<&'a str, Refusal> {
    if !tool.is_object() {
        return Err(Refusal::wrong_type(at, "an object", tool));
    }
    let kind = string(tool, "type", at)?;
    if !matches!(kind, "function" | "custom") {
        let text =
            format!("Invalid value: '{kind}'. Supported values are: 'function' and 'custom'.");
        return Err(Refusal::new(text, format!("{at}.type"), "invalid_value"));
    }
    let at = format!("{at}.{kind}");
    let function = object(tool, kind, &at)?;
    let name = name(function, &at)?;
    match present(function, "description") {
        None => {}
        Some(Value::String(text)) if text.chars().count() <= DESCRIPTION_MAX => {}
        Some(Value::String(text)) => {
            let text = format!(
                "Invalid '{at}.description': string too long. Expected a string with maximum \
                 length {DESCRIPTION_MAX}, but got a string with length {} instead.",
                text.chars().count()
            );
            let param = format!("{at}.description");
            return Err(Refusal::new(text, param, "string_above_max_length"));
        }
        Some(other) => {
            let param = format!("{at}.description");
            return Err(Refusal::wrong_type(param, "a string", other));
        }
    }
    match present(function, "parameters") {
        None => Ok(name),
        Some(schema) if schema.get("type").and_then(Value::as_str) == Some("object") => Ok(name),
        Some(Value::Object(_)) => Err(Refusal::new(
            format!(
                "Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \
                 \"object\"', got 'type: \"None\"'."
            ),
            format!("{at}.parameters"),
            "invalid_function_parameters",
        )),
        Some(other) => {
            let param = format!("{at}.parameters");
            Err(Refusal::wrong_type(param, "an object", other))
        }
    }
}

fn check_choice(choice: &Value, names: &HashSet<&str>) -> Result<(), Refusal> {
    match choice {
        Value::String(word) if matches!(word.as_str(), "none" | "auto" | "required") => Ok(()),
        Value::String(word) => Err(Refusal::new(
            format!(
                "Invalid value: '{word}'. Supported values are: 'none', 'auto', and 'required'."
            ),
            "tool_choice",
            "invalid_value",
        )),
        Value::Object(_) => {
            let kind = string(choice, "type", "tool_choice")?;
            let named = object(choice, kind, &format!("tool_choice.{kind}"))?;
            let name = string(named, "name", &format!("tool_choice.{kind}"))?;
            if names.contains(name) {
                return Ok(());
            }
            let text = format!("Tool choice '{name}' not found in 'tools' parameter.");
            Err(Refusal::new(text, "tool_choice", "").without_code())
        }
        other => Err(Refusal::wrong_type(
            "tool_choice",
            "one of a string or an object",
            other,
        )),
    }
}

/// Checks the calls of an assistant message.
pub(super) fn calls(value: &Value, at: &str) -> Result<(), Refusal> {
    let Some(calls) = value.as_array() else {
        return Err(Refusal::wrong_type(at, "an array of objects", value));
    };
    if calls.is_empty() {
        return Err(Refusal::empty_array(at));
    }
    let mut ids = HashSet::new();
    for (index, call) in calls.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if !call.is_object() {
            return Err(Refusal::wrong_type(at, "an object", call));
        }
        let id = string(call, "id", &at)?;
        if id.is_empty() {
            let text = format!(
                "Invalid '{at}.id': empty string. Expected a string with minimum \
                 length 1, but got an empty string instead."
            );
            return Err(Refusal::new(text, format!("{at}.id"), "empty_string"));
        }
        if !ids.insert(id) {
            let text = format!("Duplicate value for '{at}.id': '{id}' occurs more than once.");
            return Err(Refusal::new(text, format!("{at}.id"), "invalid_value"));
        }
        let kind = string(call, "type", &at)?;
        if kind != "function" {
            let text = format!("Invalid value: '{kind}'. Supported values are: 'function'.");
            return Err(Refusal::new(text, format!("{at}.type"), "invalid_value"));
        }
        let at = format!("{at}.function");
        let function = object(call, "function", &at)?;
        name(function, &at)?;
        string(function, "arguments", &at)?;
    }
    Ok(())
}

fn name<'a>(function: &'a Value, at: &str) -> Result<&'a str, Refusal> {
    let name = string(function, "name", at)?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(fits) {
        return Ok(name);
    }
    let text = format!(
        "Invalid '{at}.name': string does not match pattern. Expected a string that matches the \
         pattern '^[a-zA-Z0-9_-]+$' of at most {NAME_MAX} characters."
    );
    Err(Refusal::new(text, format!("{at}.name"), "invalid_value"))
}

fn string<'a>(value: &'a Value, field: &str, at: &str) -> Result<&'a str, Refusal> {
    let param = format!("{at}.{field}");
    match value.get(field) {
        None => Err(Refusal::missing(param)),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(Refusal::wrong_type(param, "a string", other)),
    }
}

/// The object in a field; `param` is the field's own path.
fn object<'a>(value: &'a Value, field: &str, param: &str) -> Result<&'a Value, Refusal> {
    match value.get(field) {
        None => Err(Refusal::missing(param)),
        Some(found @ Value::Object(_)) => Ok(found),
        Some(other) => Err(Refusal::wrong_type(param, "an object", other)),
    }
}
