//! The size of a request, by the formula that tests hold the proxy to.
//!
//! Owns the formula (tokens of texts, names, arguments and of the tools' JSON as sent, +4 a
//! message, +8 a call) and a memo by bytes. It never tokenises by itself: the caller brings the
//! counter, so that this crate shares no code with what it judges.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::reads::{self, Answers, Message, Reads, Thought};
use crate::rules::Form;

/// Counts the tokens of a text.
pub type CountFn = Arc<dyn Fn(&str) -> usize + Send + Sync>;

/// Tokens that every message costs on top of its texts.
pub const MESSAGE_OVERHEAD: usize = 4;
/// Tokens that every tool call costs on top of its name and arguments.
pub const CALL_OVERHEAD: usize = 8;
/// Tokens of an image whose size can't be read; images are never counted as base64 text.
pub const IMAGE_TOKENS: usize = 1_105;
/// Twice the bytes of a token of what was thought in words that are not shown, as English has them.
const HIDDEN_BYTES: usize = 9;
/// Tokens of an image that is sent with `detail: "low"`.
pub const LOW_IMAGE_TOKENS: usize = 85;

/// A counter for callers that bring none: a quarter of the bytes, rounded up.
#[must_use]
pub fn quarter_of_bytes() -> CountFn {
    Arc::new(|text: &str| text.len().div_ceil(4))
}

/// The parts of a request body that are counted and compared, as the exact text that was sent.
#[derive(Debug, Clone, Default)]
pub struct Outline<'a> {
    /// The elements of `messages`, in order; empty if there is no such array.
    pub messages: Vec<&'a str>,
    /// The value of `tools`, if there is one and it is not null.
    pub tools: Option<&'a str>,
}

impl<'a> Outline<'a> {
    /// Reads the outline of a body. A body that is no JSON object has an empty one: whether it
    /// is valid is the validator's business.
    #[must_use]
    pub fn read(body: &'a [u8]) -> Self {
        let Ok(fields) = serde_json::from_slice::<HashMap<String, &'a RawValue>>(body) else {
            return Self::default();
        };
        let messages = fields
            .get("messages")
            .and_then(|raw| serde_json::from_str::<Vec<&'a RawValue>>(raw.get()).ok())
            .unwrap_or_default();
        Self {
            messages: messages.into_iter().map(RawValue::get).collect(),
            tools: fields
                .get("tools")
                .map(|raw| raw.get())
                .filter(|text| *text != "null"),
        }
    }
}

/// Sizes of requests and messages, remembered by their bytes.
pub struct Sizer {
    count: CountFn,
    memo: Mutex<HashMap<u64, usize>>,
}

impl std::fmt::Debug for Sizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sizer").finish_non_exhaustive()
    }
}

impl Sizer {
    /// A sizer on top of a counter.
    #[must_use]
    pub fn new(count: CountFn) -> Self {
        Self {
            count,
            memo: Mutex::default(),
        }
    }

    /// Tokens of a whole request body.
    #[must_use]
    pub fn request(&self, body: &[u8]) -> usize {
        let outline = Outline::read(body);
        let messages: usize = outline.messages.iter().map(|raw| self.message(raw)).sum();
        messages + outline.tools.map_or(0, |tools| self.text(tools))
    }

    /// Tokens of a whole request as its model reads it. `known` is what the provider knows of its own answers, and
    /// `unseen` tells of a seal whether its thought is dropped for what stands before it.
    #[must_use]
    pub fn read(
        &self,
        form: Form,
        body: &[u8],
        reads: Reads,
        known: &Answers,
        unseen: &dyn Fn(&str) -> bool,
    ) -> usize {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let messages = reads::messages(form, &value, &|key| known.number(key));
        let read = reads.reads(&messages);
        let thought = |thought: &Thought| match thought.text.as_str() {
            _ if unseen(&thought.seal) => 0,
            "" => known.length(&thought.seal) * 2 / HIDDEN_BYTES,
            text => self.text(text),
        };
        let message = |(message, read): (&Message, bool)| {
            let thoughts: usize = message.thoughts.iter().map(thought).sum();
            self.said(&message.said) + if read { thoughts } else { 0 }
        };
        let tools = Outline::read(body)
            .tools
            .map_or(0, |tools| self.text(tools));
        tools + messages.iter().zip(read).map(message).sum::<usize>()
    }

    /// Tokens of one message of Chat Completions.
    #[must_use]
    pub fn said(&self, message: &Value) -> usize {
        self.message(&message.to_string())
    }

    /// Tokens of one message, given as JSON.
    #[must_use]
    pub fn message(&self, raw: &str) -> usize {
        self.remembered(("message", raw), || {
            serde_json::from_str::<Value>(raw)
                .map_or(MESSAGE_OVERHEAD, |message| self.message_value(&message))
        })
    }

    /// Tokens of a text as it stands.
    #[must_use]
    pub fn text(&self, text: &str) -> usize {
        self.remembered(("text", text), || (self.count)(text))
    }

    fn remembered(&self, key: (&str, &str), compute: impl FnOnce() -> usize) -> usize {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let digest = hasher.finish();
        let known = {
            let memo = self.memo.lock().unwrap_or_else(PoisonError::into_inner);
            memo.get(&digest).copied()
        };
        if let Some(size) = known {
            return size;
        }
        let size = compute();
        let mut memo = self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        memo.insert(digest, size);
        size
    }

    fn message_value(&self, message: &Value) -> usize {
        let texts: usize = ["content", "refusal", "reasoning_content", "reasoning"]
            .iter()
            .filter_map(|field| message.get(field))
            .map(|value| self.content(value))
            .sum();
        let calls: usize = message
            .get("tool_calls")
            .and_then(Value::as_array)
            .map_or(0, |calls| calls.iter().map(|call| self.call(call)).sum());
        MESSAGE_OVERHEAD + texts + calls
    }

    fn content(&self, value: &Value) -> usize {
        match value {
            Value::String(text) => (self.count)(text),
            Value::Array(parts) => parts.iter().map(|part| self.part(part)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => 0,
        }
    }

    fn part(&self, part: &Value) -> usize {
        if let Some(image) = part.get("image_url") {
            let low = image.get("detail").and_then(Value::as_str) == Some("low");
            return if low { LOW_IMAGE_TOKENS } else { IMAGE_TOKENS };
        }
        ["text", "refusal"]
            .iter()
            .filter_map(|field| part.get(field).and_then(Value::as_str))
            .map(|text| (self.count)(text))
            .sum()
    }

    fn call(&self, call: &Value) -> usize {
        let function = call.get("function").unwrap_or(&Value::Null);
        let texts: usize = ["name", "arguments"]
            .iter()
            .filter_map(|field| function.get(field).and_then(Value::as_str))
            .map(|text| (self.count)(text))
            .sum();
        CALL_OVERHEAD + texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_formula() {
        let sizer = Sizer::new(Arc::new(str::len));
        let table = [
            (r#"{"messages":[]}"#, 0),
            (r#"{"messages":[{"role":"user","content":"abc"}]}"#, 4 + 3),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"abc"},{"type":"text","text":"d"}]}]}"#,
                4 + 4,
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}"#,
                4 + 1_105,
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x","detail":"low"}}]}]}"#,
                4 + 85,
            ),
            (
                r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"idid","type":"function","function":{"name":"ls","arguments":"{}"}}]}]}"#,
                4 + 8 + 2 + 2,
            ),
            (
                r#"{"messages":[{"role":"assistant","content":"ab","reasoning_content":"cde"}]}"#,
                4 + 5,
            ),
            (
                r#"{"messages":[{"role":"tool","tool_call_id":"long-id","content":"xy"}]}"#,
                4 + 2,
            ),
            (
                r#"{"tools":[ 1 ],"messages":[{"role":"user","content":""}]}"#,
                5 + 4,
            ),
            (
                r#"{"tools":null,"messages":[{"role":"user","content":"\u00e9"}]}"#,
                4 + 2,
            ),
            ("no json", 0),
        ];
        for (body, want) in table {
            assert_eq!(sizer.request(body.as_bytes()), want, "{body}");
            assert_eq!(sizer.request(body.as_bytes()), want, "remembered: {body}");
        }
    }
}
