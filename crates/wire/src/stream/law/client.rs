//! A client that reads as loosely as any known one does: it takes bytes that are no UTF-8 for what
//! they may be, reads past marks, `NaN` and trailing bytes, knows keys in any case, looks at every
//! choice and into every field that ever held a call. Shares no code with the proxy's readers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::Dialect;

/// A call as it reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) id: String,
    pub(super) name: String,
}

/// Calls by what they are put together by.
type Calls = BTreeMap<String, Called>;

/// The calls that stand in an answer, a stream or not.
pub(super) fn calls(dialect: Dialect, bytes: &[u8]) -> Vec<Called> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Calls::new();
    if let Some(value) = json(&text) {
        read(dialect, &value, &mut found);
    }
    for data in events(&text) {
        if let Some(value) = json(&data) {
            read(dialect, &value, &mut found);
        }
    }
    found.into_values().collect()
}

/// What stands as an id in an answer, wherever that is.
pub(super) fn ids(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    for data in events(&text)
        .iter()
        .map(String::as_str)
        .chain([text.as_ref()])
    {
        if let Some(value) = json(data) {
            note_ids(&value, &mut found);
        }
    }
    found
}

fn note_ids(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(id) if key.ends_with("id") => found.push(id.clone()),
                    other => note_ids(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| note_ids(item, found)),
        _ => {}
    }
}

fn events(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut data) = (Vec::new(), Vec::new());
    for line in text.split('\n') {
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        if line.is_empty() {
            events.push(std::mem::take(&mut data).join("\n"));
        } else if let Some(value) = line.strip_prefix("data:") {
            data.push(value.strip_prefix(' ').unwrap_or(value).to_owned());
        }
    }
    events.push(data.join("\n"));
    events
}

fn json(text: &str) -> Option<Value> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let first = |text: &str| {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        values.next()?.ok()
    };
    let value = first(text).or_else(|| first(&text.replace("NaN", "null")))?;
    Some(lower(value))
}

/// A value with all its keys in lower case.
fn lower(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter();
            let lower = members.map(|(key, value)| (key.to_lowercase(), lower(value)));
            Value::Object(lower.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(lower).collect()),
        other => other,
    }
}

fn read(dialect: Dialect, value: &Value, found: &mut Calls) {
    match dialect {
        Dialect::Chat => chat(value, found),
        Dialect::Responses => responses(value, found),
        Dialect::Messages => messages(value, found),
    }
}

fn items(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(_) => vec![value],
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn chat(value: &Value, found: &mut Calls) {
    for choice in items(&value["choices"]) {
        let index = choice["index"].as_u64().unwrap_or(0);
        for (key, said) in [("d", &choice["delta"]), ("m", &choice["message"])] {
            let old = &said["function_call"];
            let mut calls: Vec<(String, &Value, &Value)> = vec![("old".to_owned(), said, old)];
            for call in items(&said["tool_calls"]) {
                let place = call["index"].as_u64();
                // Without an index a call is known by its id, or is the only one.
                let place = place.map_or_else(|| text(&call["id"]).to_owned(), |at| at.to_string());
                for kind in ["function", "custom"] {
                    calls.push((place.clone(), call, &call[kind]));
                }
            }
            for (place, call, function) in calls {
                if !function.is_object() {
                    continue;
                }
                let entry = found.entry(format!("{key} {index} {place}")).or_default();
                let id = text(&call["id"]);
                if !id.is_empty() && place != "old" {
                    entry.id = id.to_owned();
                }
                entry.name.push_str(text(&function["name"]));
            }
        }
    }
}

fn responses(value: &Value, found: &mut Calls) {
    let output = value["output"].as_array().into_iter().flatten();
    let ended = value["response"]["output"].as_array().into_iter().flatten();
    for item in [&value["item"]].into_iter().chain(output).chain(ended) {
        let kind = text(&item["type"]);
        if !matches!(kind, "function_call" | "custom_tool_call") || item["namespace"].is_string() {
            continue;
        }
        let (id, name) = (text(&item["call_id"]), text(&item["name"]));
        let key = format!("{id} {name}");
        let (id, name) = (id.to_owned(), name.to_owned());
        found.insert(key, Called { id, name });
    }
    if text(&value["type"]) == "response.function_call_arguments.done" {
        let name = text(&value["name"]).to_owned();
        found.insert(
            name.clone(),
            Called {
                id: String::new(),
                name,
            },
        );
    }
}

fn messages(value: &Value, found: &mut Calls) {
    let whole = items(&value["content"]);
    let begun = items(&value["message"]["content"]);
    for block in [&value["content_block"]]
        .into_iter()
        .chain(whole)
        .chain(begun)
    {
        if text(&block["type"]) == "tool_use" {
            let (id, name) = (
                text(&block["id"]).to_owned(),
                text(&block["name"]).to_owned(),
            );
            found.insert(format!("{id} {name}"), Called { id, name });
        }
    }
}
