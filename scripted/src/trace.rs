//! Recorded sessions, normalised so that a strict provider accepts what a client makes of them.
//!
//! Owns the reading of a recording (chat messages, one JSON object a line) and its turns. It never
//! changes a user's text or a result's; it renames call ids that occur twice, answers calls that
//! have no result, drops results that have no call, and gives empty answers a text. It never
//! decompresses: the caller hands in text.

mod tools;

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::script::Call;

/// Why a recording can't be played.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line is no JSON object.
    #[error("line {line} of the recording is no JSON object: hand in decompressed JSONL")]
    Line {
        /// The line's number, from 1.
        line: usize,
    },
    /// A message has a role that no recording has.
    #[error(
        "line {line} of the recording has the role {role:?}: use system, user, assistant, tool"
    )]
    Role {
        /// The line's number, from 1.
        line: usize,
        /// The role.
        role: String,
    },
    /// There is no assistant message.
    #[error("the recording has no assistant message: nothing can be played")]
    Empty,
}

/// A message of the client's own: a system, user or tool message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its role.
    pub role: String,
    /// The exact JSON that the client sends for it.
    pub raw: String,
}

impl Message {
    fn new(role: &str, content: &str) -> Self {
        Self {
            role: role.to_owned(),
            raw: json!({"role": role, "content": content}).to_string(),
        }
    }

    fn result(id: &str, content: &str) -> Self {
        Self {
            role: "tool".to_owned(),
            raw: json!({"role": "tool", "tool_call_id": id, "content": content}).to_string(),
        }
    }
}

/// What the assistant said in one turn, as its user sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The text; empty for none.
    pub text: String,
    /// The reasoning; empty for none.
    pub reasoning: String,
    /// The calls.
    pub calls: Vec<Call>,
}

/// One client request and what answers it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    /// The messages that the client adds since the answer before.
    pub before: Vec<Message>,
    /// The recorded answer.
    pub answer: Answer,
}

/// A recorded session, ready to be played.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The session's id.
    pub id: String,
    /// The tools array as the client sends it; `None` if the session uses no tool.
    pub tools: Option<String>,
    /// The turns, in order.
    pub turns: Vec<Turn>,
}

impl Recording {
    /// Reads a recording. Its first line may be `{"_meta": {"id": …}}`. What follows the last
    /// assistant message is left out, since nothing answers it.
    ///
    /// # Errors
    /// A line that is no message, or no assistant message at all.
    pub fn parse(jsonl: &str) -> Result<Self, TraceError> {
        let mut reader = Reader::default();
        let mut id = "session".to_owned();
        for (index, text) in jsonl.lines().enumerate() {
            let line = index + 1;
            if text.trim().is_empty() {
                continue;
            }
            let message: Value = serde_json::from_str(text)
                .ok()
                .filter(Value::is_object)
                .ok_or(TraceError::Line { line })?;
            if let Some(meta) = message.get("_meta") {
                id = text_of(meta, "id");
                continue;
            }
            reader.message(&message, line)?;
        }
        let turns = reader.turns;
        if turns.is_empty() {
            return Err(TraceError::Empty);
        }
        let tools = tools::derived(&turns);
        Ok(Self { id, tools, turns })
    }

    /// The same session as another conversation: its id and all call ids get a suffix, so that
    /// several instances can be played under one key.
    #[must_use]
    pub fn instance(&self, number: usize) -> Self {
        let rename = |id: &str| format!("{id}-i{number}");
        let mut copy = self.clone();
        copy.id = rename(&self.id);
        for turn in &mut copy.turns {
            for call in &mut turn.answer.calls {
                call.id = rename(&call.id);
            }
            for message in turn
                .before
                .iter_mut()
                .filter(|message| message.role == "tool")
            {
                let mut value: Value = serde_json::from_str(&message.raw).unwrap_or_default();
                let id = rename(&text_of(&value, "tool_call_id"));
                if let Some(fields) = value.as_object_mut() {
                    fields.insert("tool_call_id".into(), id.into());
                }
                message.raw = value.to_string();
            }
        }
        copy
    }

    /// The user messages that a request of a turn holds, in order.
    pub fn users(&self, turn: usize) -> impl Iterator<Item = &Message> {
        self.turns
            .iter()
            .take(turn + 1)
            .flat_map(|turn| &turn.before)
            .filter(|message| message.role == "user")
    }
}

#[derive(Default)]
struct Reader {
    turns: Vec<Turn>,
    before: Vec<Message>,
    /// Calls of the newest answer that have no result yet: the recorded id, and ours.
    open: Vec<(String, String)>,
    used: HashSet<String>,
}

impl Reader {
    fn message(&mut self, message: &Value, line: usize) -> Result<(), TraceError> {
        let role = text_of(message, "role");
        match role.as_str() {
            "tool" => self.result(message),
            "system" | "developer" | "user" => {
                self.settle();
                self.prologue(&role);
                self.before.push(Message::new(&role, &content_of(message)));
            }
            "assistant" => {
                self.settle();
                self.prologue("user");
                self.answer(message);
            }
            _ => return Err(TraceError::Role { line, role }),
        }
        Ok(())
    }

    /// A session that doesn't begin with a system message gets one, and one that begins with the
    /// assistant gets a user.
    fn prologue(&mut self, role: &str) {
        let first = self.turns.is_empty();
        if first && self.before.is_empty() && role == "user" {
            self.before.push(Message::new("system", SYSTEM));
        }
    }

    /// A result stands directly behind its call; one without a call is dropped.
    fn result(&mut self, message: &Value) {
        let id = text_of(message, "tool_call_id");
        let Some(place) = self.open.iter().position(|(recorded, _)| *recorded == id) else {
            return;
        };
        let (_, ours) = self.open.remove(place);
        self.before
            .push(Message::result(&ours, &content_of(message)));
    }

    /// Calls that nothing answered get a result before anything else is said.
    fn settle(&mut self) {
        for (_, id) in std::mem::take(&mut self.open) {
            self.before
                .push(Message::result(&id, "[no result recorded]"));
        }
    }

    fn answer(&mut self, message: &Value) {
        if self.turns.is_empty() && !self.before.iter().any(|said| said.role == "user") {
            self.before.push(Message::new("user", "Begin."));
        }
        let mut calls = Vec::new();
        let recorded = message.get("tool_calls").and_then(Value::as_array);
        for call in recorded.into_iter().flatten() {
            let function = call.get("function").unwrap_or(&Value::Null);
            let recorded = text_of(call, "id");
            let id = self.unique(&recorded);
            self.open.push((recorded, id.clone()));
            let arguments = match function.get("arguments") {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => "{}".to_owned(),
            };
            calls.push(Call::new(id, text_of(function, "name"), arguments));
        }
        let mut text = content_of(message);
        if text.is_empty() && calls.is_empty() {
            "(nothing was said)".clone_into(&mut text);
        }
        let reasoning = text_of(message, "reasoning_content");
        self.turns.push(Turn {
            before: std::mem::take(&mut self.before),
            answer: Answer {
                text,
                reasoning,
                calls,
            },
        });
    }

    fn unique(&mut self, recorded: &str) -> String {
        let base = if recorded.is_empty() {
            "call"
        } else {
            recorded
        };
        let mut id = base.to_owned();
        let mut number = 2;
        while !self.used.insert(id.clone()) {
            id = format!("{base}-r{number}");
            number += 1;
        }
        id
    }
}

/// A string content, or the texts of its parts.
fn content_of(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| text_of(part, "text"))
            .collect::<Vec<_>>()
            .join("\n"),
        Some(_) | None => String::new(),
    }
}

fn text_of(value: &Value, field: &str) -> String {
    value
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// The system message of sessions that were recorded without one: as long as a small agent's.
const SYSTEM: &str = include_str!("trace/system.txt");

#[cfg(test)]
mod tests;
