//! Calls and results of Responses and Messages: each of the one has one of the other.

use serde_json::Value;

use super::Refusal;
use crate::rules::Form;

/// Checks that calls have results and results have calls.
///
/// # Errors
/// The first that has none.
pub(super) fn check(form: Form, body: &Value) -> Result<(), Refusal> {
    let mut open: Vec<&str> = Vec::new();
    for block in flat(form, body) {
        let id = |field: &str| block.get(field).and_then(Value::as_str).unwrap_or_default();
        let answers = match block
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "tool_use" => {
                open.push(id("id"));
                continue;
            }
            "function_call" => {
                open.push(id("call_id"));
                continue;
            }
            "tool_result" => id("tool_use_id"),
            "function_call_output" => id("call_id"),
            _ => continue,
        };
        match open.iter().position(|call| *call == answers) {
            Some(at) => drop(open.remove(at)),
            None => return Err(refusal(format!("No tool call found for output {answers}."))),
        }
    }
    match open.first() {
        Some(call) => Err(refusal(format!("No tool output found for {call}."))),
        None => Ok(()),
    }
}

fn flat(form: Form, body: &Value) -> Vec<&Value> {
    match form {
        Form::Chat => Vec::new(),
        Form::Responses => list(body, "input").collect(),
        Form::Messages => {
            let messages = list(body, "messages");
            messages
                .flat_map(|message| list(message, "content"))
                .collect()
        }
    }
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter().flatten()
}

fn refusal(message: String) -> Refusal {
    Refusal {
        status: 400,
        message,
        param: None,
        code: None,
        raw: None,
    }
}
