//! The sessions that agents keep on disk, read as recordings. Owns what is common to their forms:
//! how one is recognised, and how it becomes chat messages. Never writes to an agent's files, and
//! never fails over a line that it can't read: such lines are counted.

mod claude;
mod codex;
mod opencode;
mod pi;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub(super) use opencode::read as read_database;
pub use opencode::{OpencodeError, is_database, sessions};

use super::trace::{self, Trace};

/// How many lines may come before one that tells which agent wrote a file.
const LINES_THAT_TELL: usize = 20;

/// An agent that keeps its sessions as JSON, one object a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Claude Code.
    Claude,
    /// codex.
    Codex,
    /// pi.
    Pi,
}

impl Form {
    /// The agent that wrote a file. `None` for a recording in our own form, or for something else.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let lines = text.lines().take(LINES_THAT_TELL);
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .find_map(|line: Value| {
                let kind = line.get("type").and_then(Value::as_str)?;
                let has = |field: &str| line.get(field).is_some();
                match kind {
                    "session_meta" | "response_item" | "event_msg" if has("payload") => {
                        Some(Self::Codex)
                    }
                    "session" if has("version") && has("cwd") => Some(Self::Pi),
                    _ if has("sessionId") || has("parentUuid") && has("uuid") => Some(Self::Claude),
                    _ => None,
                }
            })
    }

    /// The conversations of a file, in their order: an agent that summarises its history goes on
    /// with another conversation, and so do its sub-agents. Those without an answer are left out.
    #[must_use]
    pub fn read(self, name: &str, text: &str) -> Vec<Trace> {
        let mut bad = Vec::new();
        let lines: Vec<Value> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .filter_map(|(at, line)| match serde_json::from_str::<Value>(line) {
                Ok(line) if line.is_object() => Some(line),
                Ok(_) | Err(_) => {
                    bad.push(at + 1);
                    None
                }
            })
            .collect();
        let read = match self {
            Self::Claude => claude::read(&lines),
            Self::Codex => codex::read(&lines),
            Self::Pi => pi::read(&lines),
        };
        let mut traces = traces(name, read);
        // The lines of a file are told once.
        if let Some(first) = traces.first_mut() {
            first.skipped = bad;
        }
        traces
    }
}

/// The tokens that providers reported for a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedUsage {
    /// Input, with what came from the cache.
    pub input: u64,
    /// Input that came from the cache.
    pub cached: u64,
    /// Input that was written to the cache to be kept for an hour.
    pub hour_write: u64,
    /// Output.
    pub output: u64,
}

impl RecordedUsage {
    fn add(&mut self, input: u64, cached: u64, output: u64) {
        self.input += input;
        self.cached += cached;
        self.output += output;
    }

    /// The sum of two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            cached: self.cached + other.cached,
            hour_write: self.hour_write + other.hour_write,
            output: self.output + other.output,
        }
    }
}

/// One conversation of an agent's.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    /// The model that answered last.
    model: Option<String>,
    /// The tools as they were declared, in the form of Chat.
    tools: Vec<Value>,
    /// Chat messages.
    messages: Vec<Value>,
    /// How many of the messages the conversation before had, or summarised.
    history: usize,
    usage: RecordedUsage,
}

impl Conversation {
    /// Another one that begins with the same system text, tools and model.
    fn next(&self) -> Self {
        let system = self
            .messages
            .iter()
            .take_while(|message| text(message, "role") == "system");
        Self {
            model: self.model.clone(),
            tools: self.tools.clone(),
            messages: system.cloned().collect(),
            history: 0,
            usage: RecordedUsage::default(),
        }
    }

    /// Takes all that was read so far as what a summary left: it was asked and paid for in the conversation
    /// before.
    fn begin_here(&mut self) {
        self.history = self.messages.len();
        self.usage = RecordedUsage::default();
    }

    /// Adds what is neither an answer nor a result, if it says something.
    fn say(&mut self, role: &str, content: &str, time: &Value) {
        if !content.is_empty() {
            self.messages
                .push(json!({"role": role, "content": content, "timestamp": time}));
        }
    }

    /// Adds a result.
    fn result(&mut self, call: &str, content: &str, time: &Value) {
        let message =
            json!({"role": "tool", "tool_call_id": call, "content": content, "timestamp": time});
        self.messages.push(message);
    }

    /// The answer that is being read: the newest message if it is one, else a new one.
    fn answer(&mut self, time: &Value) -> Answer<'_> {
        let own = self.messages.get(self.history..).unwrap_or_default();
        let newest = own.last().map(|last| text(last, "role"));
        if newest != Some("assistant") {
            self.begin_answer(time);
        }
        let last = self.messages.last_mut().and_then(Value::as_object_mut);
        Answer(last)
    }

    fn begin_answer(&mut self, time: &Value) {
        self.messages
            .push(json!({"role": "assistant", "content": "", "timestamp": time}));
    }

    /// A tool that was declared with its name, what it is for, and the schema of its arguments.
    fn tool(&mut self, name: &str, description: &Value, parameters: &Value) {
        let function = json!({"name": name, "description": description, "parameters": parameters});
        self.tools
            .push(json!({"type": "function", "function": function}));
    }

    fn is_answered(&self) -> bool {
        let mut own = self.messages.iter().skip(self.history);
        own.any(|message| text(message, "role") == "assistant")
    }
}

/// An answer under construction.
struct Answer<'a>(Option<&'a mut Map<String, Value>>);

impl Answer<'_> {
    /// Puts a text behind what a field holds.
    fn extend(&mut self, field: &str, more: &str) {
        let Some(message) = self.0.as_deref_mut() else {
            return;
        };
        let said = message
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default();
        let joined = match (said.is_empty(), more.is_empty()) {
            (true, _) => more.to_owned(),
            (_, true) => said.to_owned(),
            (false, false) => format!("{said}\n{more}"),
        };
        message.insert(field.to_owned(), joined.into());
    }

    fn text(&mut self, more: &str) {
        self.extend("content", more);
    }

    fn reasoning(&mut self, more: &str) {
        if !more.is_empty() {
            self.extend("reasoning_content", more);
        }
    }

    /// The blocks of a message in the form of Messages, and in pi's, which is like it.
    fn blocks(&mut self, message: &Value) {
        for block in items(message, "content") {
            let (id, name) = (text(block, "id"), text(block, "name"));
            match text(block, "type") {
                "text" => self.text(text(block, "text")),
                "thinking" => self.reasoning(text(block, "thinking")),
                "tool_use" => self.call(id, name, field(block, "input")),
                "toolCall" => self.call(id, name, field(block, "arguments")),
                _ => {}
            }
        }
    }

    /// A call. Its arguments are JSON, or a text that some tools take as it is.
    fn call(&mut self, id: &str, name: &str, arguments: &Value) {
        let Some(message) = self.0.as_deref_mut() else {
            return;
        };
        let arguments = match arguments {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"id": id, "type": "function", "function": function});
        let calls = message.entry("tool_calls").or_insert_with(|| json!([]));
        if let Some(calls) = calls.as_array_mut() {
            calls.push(call);
        }
    }
}

/// Conversations as recordings. All but the first of a file carry their number in their name.
pub(super) fn traces(name: &str, read: Vec<Conversation>) -> Vec<Trace> {
    let answered = read.into_iter().filter(Conversation::is_answered);
    let traces = answered.enumerate().filter_map(|(at, conversation)| {
        let name = match at {
            0 => name.to_owned(),
            later => format!("{name}#{}", later + 1),
        };
        let model = conversation.model.as_deref().unwrap_or("recorded");
        let meta = json!({"_meta": {"id": name, "model": model, "tools": conversation.tools}});
        let lines = std::iter::once(&meta).chain(&conversation.messages);
        let lines: Vec<String> = lines.map(Value::to_string).collect();
        // What we wrote ourselves can be read; if not, the conversation is left out.
        let trace = trace::parse(&name, &lines.join("\n")).ok()?;
        // The messages begin in the second line.
        let unread = trace.skipped.iter();
        let unread = unread.filter(|line| **line <= conversation.history + 1);
        Some(Trace {
            history: conversation.history - unread.count(),
            usage: (conversation.usage != RecordedUsage::default()).then_some(conversation.usage),
            ..trace
        })
    });
    traces.collect()
}

/// A text of an object; empty if there is none.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A number of an object; 0 if there is none.
fn number(value: &Value, field: &str) -> u64 {
    value.get(field).and_then(Value::as_u64).unwrap_or_default()
}

fn field<'a>(value: &'a Value, field: &str) -> &'a Value {
    value.get(field).unwrap_or(&Value::Null)
}

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// A content as text: a text, or the texts of its parts. Of an image, only that it was there.
fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let said = parts.iter().map(|part| match text(part, "type") {
                "image" | "input_image" => "[image]",
                _ => text(part, "text"),
            });
            said.filter(|said| !said.is_empty())
                .collect::<Vec<_>>()
                .join("\n")
        }
        _ => String::new(),
    }
}
