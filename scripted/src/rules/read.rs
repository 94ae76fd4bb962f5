//! What the rules look at, read of a request in any wire format. Never says what is wrong with it.

use serde_json::Value;

use super::Form;

/// A call as it came back.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub id: String,
    pub name: String,
    /// The arguments as text; an object is written as one.
    pub arguments: String,
    /// Its thought signature.
    pub signature: Option<String>,
}

/// A message of the model's, or a run of items that it said at once.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Where it begins in the list.
    pub place: usize,
    /// No text of the user's stands behind it.
    pub current: bool,
    pub calls: Vec<Call>,
    /// `reasoning_content`, where it is there.
    pub reasoning: Option<String>,
    pub details: Option<Value>,
    /// Blocks of thinking and reasoning items, as they stand.
    pub thoughts: Vec<Value>,
    /// The kind of its first part.
    pub first: String,
    /// It is made of thinking, and nothing else.
    pub bare: bool,
    /// Ids of the items.
    pub ids: Vec<String>,
}

/// A request.
#[derive(Debug, Default)]
pub(super) struct History {
    pub said: Vec<Said>,
    /// Results by the ids of their calls.
    pub results: Vec<(String, String)>,
    /// The names of the tools that are offered.
    pub offered: Vec<String>,
    /// Something is marked with `cache_control`.
    pub marked: bool,
    /// A system message stands among the others, in Messages.
    pub system: bool,
    /// The first such message that stands where none may: it follows the user, and an answer or nothing follows it.
    pub misplaced: Option<usize>,
}

impl History {
    pub(super) fn read(form: Form, body: &Value) -> Self {
        let mut history = Self {
            offered: array(body, "tools").map(tool).collect(),
            marked: marked(body),
            ..Self::default()
        };
        match form {
            Form::Chat => history.chat(body),
            Form::Messages => history.messages(body),
            Form::Responses => history.responses(body),
        }
        history
    }

    /// The user has said something: what was said before is of an earlier turn.
    fn turn(&mut self) {
        for said in &mut self.said {
            said.current = false;
        }
    }

    fn chat(&mut self, body: &Value) {
        for (place, message) in array(body, "messages").enumerate() {
            match text(message, "role").as_str() {
                "user" => self.turn(),
                "tool" => {
                    let result = (text(message, "tool_call_id"), plain(message.get("content")));
                    self.results.push(result);
                }
                "assistant" => self.said.push(assistant(place, message)),
                _ => {}
            }
        }
    }

    fn messages(&mut self, body: &Value) {
        let roles: Vec<String> = array(body, "messages")
            .map(|message| text(message, "role"))
            .collect();
        for (place, message) in array(body, "messages").enumerate() {
            if text(message, "role") == "system" {
                let before = place.checked_sub(1).and_then(|before| roles.get(before));
                let next = roles.get(place + 1);
                let stands = before.is_some_and(|role| role == "user")
                    && next.is_none_or(|role| role == "assistant");
                self.system = true;
                self.misplaced = self.misplaced.or((!stands).then_some(place));
                continue;
            }
            if text(message, "role") == "assistant" {
                let mut said = Said {
                    place,
                    current: true,
                    ..Said::default()
                };
                for block in array(message, "content") {
                    if said.first.is_empty() {
                        said.first = text(block, "type");
                    }
                    said.block(block);
                }
                said.bare = !said.thoughts.is_empty() && said.thoughts.len() == parts(message);
                self.said.push(said);
                continue;
            }
            let mut results = Vec::new();
            for block in array(message, "content") {
                if text(block, "type") == "tool_result" {
                    results.push((text(block, "tool_use_id"), plain(block.get("content"))));
                }
            }
            if results.is_empty() {
                self.turn();
            }
            self.results.extend(results);
        }
    }

    fn responses(&mut self, body: &Value) {
        let mut open = false;
        for (place, item) in array(body, "input").enumerate() {
            let kind = text(item, "type");
            let own = matches!(kind.as_str(), "reasoning" | "function_call")
                || text(item, "role") == "assistant";
            if !own {
                open = false;
                if kind == "function_call_output" {
                    let result = (text(item, "call_id"), plain(item.get("output")));
                    self.results.push(result);
                } else if text(item, "role") == "user" {
                    self.turn();
                }
                continue;
            }
            if !open {
                self.said.push(Said {
                    place,
                    current: true,
                    first: kind.clone(),
                    bare: true,
                    ..Said::default()
                });
                open = true;
            }
            if let Some(said) = self.said.last_mut() {
                said.block(item);
                said.bare &= kind == "reasoning";
                said.ids.push(text(item, "id"));
            }
        }
    }
}

impl Said {
    /// One block of a message, or one item of a run.
    fn block(&mut self, block: &Value) {
        match text(block, "type").as_str() {
            "thinking" | "redacted_thinking" | "reasoning" => self.thoughts.push(block.clone()),
            "tool_use" => self.calls.push(Call {
                id: text(block, "id"),
                name: text(block, "name"),
                arguments: block.get("input").map(Value::to_string).unwrap_or_default(),
                signature: None,
            }),
            "function_call" => self.calls.push(Call {
                id: text(block, "call_id"),
                name: text(block, "name"),
                arguments: text(block, "arguments"),
                signature: None,
            }),
            _ => {}
        }
    }
}

fn assistant(place: usize, message: &Value) -> Said {
    let calls = array(message, "tool_calls").map(|call| Call {
        id: text(call, "id"),
        name: at(call, "/function/name"),
        arguments: at(call, "/function/arguments"),
        signature: call
            .pointer("/extra_content/google/thought_signature")
            .and_then(Value::as_str)
            .map(str::to_owned),
    });
    let calls: Vec<Call> = calls.collect();
    let thoughts = array(message, "content").filter(|part| text(part, "type") == "thinking");
    let thoughts: Vec<Value> = thoughts.cloned().collect();
    let bare = !thoughts.is_empty() && thoughts.len() == parts(message) && calls.is_empty();
    Said {
        place,
        current: true,
        reasoning: message
            .get("reasoning_content")
            .and_then(Value::as_str)
            .map(str::to_owned),
        details: message.get("reasoning_details").cloned(),
        calls,
        thoughts,
        bare,
        ..Said::default()
    }
}

fn parts(message: &Value) -> usize {
    array(message, "content").count()
}

pub(super) fn array<'a>(
    value: &'a Value,
    field: &str,
) -> impl Iterator<Item = &'a Value> + use<'a> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter().flatten()
}

pub(super) fn text(value: &Value, field: &str) -> String {
    let text = value.get(field).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn at(value: &Value, path: &str) -> String {
    let text = value.pointer(path).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// A content as text: a string, or the texts of its parts.
fn plain(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().map(|part| text(part, "text")).collect(),
        Some(_) | None => String::new(),
    }
}

fn tool(tool: &Value) -> String {
    let name = at(tool, "/function/name");
    if name.is_empty() {
        text(tool, "name")
    } else {
        name
    }
}

fn marked(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.contains_key("cache_control") || fields.values().any(marked)
        }
        Value::Array(elements) => elements.iter().any(marked),
        _ => false,
    }
}
