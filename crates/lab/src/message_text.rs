//! The texts of a message, as the measures of the lab read them. Never looks
//! at a view, and never counts anything.

use plimsoll_model::LINE;
use plimsoll_wire::Dialect;
use plimsoll_wire::message;
use serde_json::Value;

/// The part of a message that a text stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPart {
    /// Its text.
    Text,
    /// Its reasoning.
    Reasoning,
    /// The arguments of a call, by its place.
    Call(usize),
}

/// Hands on all texts of a message, unescaped: of arguments their values. False where it
/// can't be read.
pub fn texts(bytes: &[u8], each: &mut dyn FnMut(TextPart, &str)) -> bool {
    let Ok(parsed) = Dialect::Chat.parse(bytes) else {
        return false;
    };
    for part in &parsed.parts {
        match part {
            message::Part::Text(text) | message::Part::Quoted(text) => each(TextPart::Text, text),
            message::Part::Image { .. } | message::Part::Picture(_) => {}
            message::Part::Other(raw) => each(TextPart::Text, &String::from_utf8_lossy(raw)),
        }
    }
    for text in &parsed.reasoning {
        each(TextPart::Reasoning, text);
    }
    for (at, call) in parsed.calls.iter().enumerate() {
        values(&call.arguments, &mut |text| each(TextPart::Call(at), text));
    }
    true
}

/// A line without the number that reading tools put before it: the text behind it is what an edit
/// repeats.
pub fn unnumbered(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == line.len() {
        return None;
    }
    let rest = rest.strip_prefix(['→', '\t', '|', ':']).map(str::trim)?;
    (rest.chars().take(LINE).count() == LINE).then_some(rest)
}

/// The values of a call's arguments as texts; the arguments themselves where they are no JSON.
pub fn values(arguments: &str, each: &mut dyn FnMut(&str)) {
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) => walk(&value, each),
        Err(_) => each(arguments),
    }
}

fn walk(value: &Value, each: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Number(number) => each(&number.to_string()),
        Value::Array(elements) => elements.iter().for_each(|value| walk(value, each)),
        Value::Object(fields) => fields.values().for_each(|value| walk(value, each)),
        Value::Null | Value::Bool(_) => {}
    }
}
