//! A plausible tools array for a session that was recorded without one: one function a tool name,
//! with the parameters that its calls were seen to use. Owns nothing but that guess.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Turn;

/// The tools array as JSON text, by name; `None` if no tool is called.
pub(super) fn derived(turns: &[Turn]) -> Option<String> {
    let mut tools: BTreeMap<&str, Tool> = BTreeMap::new();
    for call in turns.iter().flat_map(|turn| &turn.answer.calls) {
        tools.entry(&call.name).or_default().see(&call.arguments);
    }
    if tools.is_empty() {
        return None;
    }
    let list: Vec<Value> = tools
        .into_iter()
        .map(|(name, tool)| tool.shown(name))
        .collect();
    Some(Value::Array(list).to_string())
}

#[derive(Default)]
struct Tool {
    calls: usize,
    /// Each parameter's schema type, and in how many calls it was given.
    parameters: BTreeMap<String, (&'static str, usize)>,
}

impl Tool {
    fn see(&mut self, arguments: &str) {
        self.calls += 1;
        let Ok(Value::Object(fields)) = serde_json::from_str(arguments) else {
            return;
        };
        for (name, value) in fields {
            let seen = self
                .parameters
                .entry(name)
                .or_insert((schema_type(&value), 0));
            seen.1 += 1;
        }
    }

    fn shown(&self, name: &str) -> Value {
        let properties: Map<String, Value> = self
            .parameters
            .iter()
            .map(|(parameter, (kind, _))| {
                let about = format!(
                    "The {} that {name} works with.",
                    parameter.replace('_', " ")
                );
                (
                    parameter.clone(),
                    json!({"type": kind, "description": about}),
                )
            })
            .collect();
        let required: Vec<&String> = self
            .parameters
            .iter()
            .filter(|(_, (_, seen))| *seen == self.calls)
            .map(|(parameter, _)| parameter)
            .collect();
        let about = format!(
            "Runs {name} in the working directory and returns what it printed or found. Its \
             output is cut if it is long. Fails with a message that says what was wrong."
        );
        json!({"type": "function", "function": {
            "name": name,
            "description": about,
            "parameters": {"type": "object", "properties": properties, "required": required},
        }})
    }
}

fn schema_type(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) | Value::Null => "string",
    }
}
