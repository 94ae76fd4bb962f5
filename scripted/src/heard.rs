//! What a client hears: a response body, streamed or not, put together as an agent would.
//!
//! Owns a reader of its own, which tolerates what agents tolerate (no `index`, a reused one, names
//! in pieces) and reports what they must never meet. It never corrects anything.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::script::Call;

/// A response put together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heard {
    /// The text.
    pub text: String,
    /// The reasoning text.
    pub reasoning: String,
    /// `reasoning_details`, as they came.
    pub details: Vec<Value>,
    /// The calls, in order of their first piece.
    pub calls: Vec<Call>,
    /// The finish reason, if one was told.
    pub finish: Option<String>,
    /// The newest usage, if any was told.
    pub usage: Option<Value>,
    /// The error that the body or an event told.
    pub error: Option<Value>,
    /// What is wrong with the response as a response.
    pub faults: Vec<String>,
}

impl Heard {
    /// Reads the body of a completion that was asked for unstreamed.
    #[must_use]
    pub fn body(bytes: &[u8]) -> Self {
        let mut heard = Self::default();
        let Ok(body) = serde_json::from_slice::<Value>(bytes) else {
            heard.faults.push("the body is no JSON".to_owned());
            return heard;
        };
        heard.error = body.get("error").cloned();
        heard.usage = body.get("usage").cloned();
        let Some(choice) = body.pointer("/choices/0") else {
            heard.faults.push("the body has no choice".to_owned());
            return heard;
        };
        heard.finish = text_of(choice, "finish_reason");
        let message = choice.get("message").unwrap_or(&Value::Null);
        heard.text = text_of(message, "content").unwrap_or_default();
        heard.reasoning = text_of(message, "reasoning_content").unwrap_or_default();
        heard.details = array_of(message, "reasoning_details").cloned().collect();
        for call in array_of(message, "tool_calls") {
            let function = call.get("function").unwrap_or(&Value::Null);
            heard.calls.push(Call {
                id: text_of(call, "id").unwrap_or_default(),
                name: text_of(function, "name").unwrap_or_default(),
                arguments: text_of(function, "arguments").unwrap_or_default(),
            });
        }
        heard
    }

    /// Reads a whole stream.
    #[must_use]
    pub fn stream(bytes: &[u8]) -> Self {
        let mut reader = Reader::default();
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                reader.fault("the stream is no UTF-8");
                String::from_utf8_lossy(bytes).into_owned()
            }
        };
        let text = text.replace("\r\n", "\n");
        for event in text.split("\n\n").filter(|event| !event.is_empty()) {
            let data: Vec<&str> = event
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .map(|line| line.strip_prefix(' ').unwrap_or(line))
                .collect();
            if !data.is_empty() {
                reader.event(&data.join("\n"));
            }
        }
        if !text.ends_with("\n\n") {
            reader.fault("the stream ends within an event");
        }
        reader.finished()
    }

    /// Reads a response of either kind.
    #[must_use]
    pub fn read(bytes: &[u8], streamed: bool) -> Self {
        if streamed {
            Self::stream(bytes)
        } else {
            Self::body(bytes)
        }
    }
}

#[derive(Default)]
struct Reader {
    heard: Heard,
    /// The streamed `index` of each call, where it had one.
    indexes: Vec<Option<u64>>,
    ids: BTreeSet<String>,
    created: BTreeSet<u64>,
    roles: usize,
    finishes: usize,
    done: usize,
}

impl Reader {
    fn fault(&mut self, text: impl Into<String>) {
        self.heard.faults.push(text.into());
    }

    fn event(&mut self, data: &str) {
        if self.done > 0 {
            self.fault("an event follows [DONE]");
        }
        if data == "[DONE]" {
            self.done += 1;
            return;
        }
        let Ok(chunk) = serde_json::from_str::<Value>(data) else {
            self.fault(format!("an event is no JSON: {data:.80}"));
            return;
        };
        if let Some(error) = chunk.get("error") {
            self.heard.error = Some(error.clone());
            return;
        }
        self.ids.extend(text_of(&chunk, "id"));
        self.created
            .extend(chunk.get("created").and_then(Value::as_u64));
        if let Some(usage) = chunk.get("usage").filter(|usage| !usage.is_null()) {
            self.heard.usage = Some(usage.clone());
        }
        for choice in array_of(&chunk, "choices") {
            self.choice(choice);
        }
    }

    fn choice(&mut self, choice: &Value) {
        if let Some(reason) = text_of(choice, "finish_reason") {
            self.finishes += 1;
            self.heard.finish = Some(reason);
        }
        let Some(delta) = choice.get("delta") else {
            return;
        };
        self.roles += usize::from(delta.get("role").is_some());
        let said = text_of(delta, "content").unwrap_or_default();
        let thought = text_of(delta, "reasoning_content").unwrap_or_default();
        if self.finishes > 0 && !(said.is_empty() && thought.is_empty()) {
            self.fault("text follows the finish reason");
        }
        self.heard.text.push_str(&said);
        self.heard.reasoning.push_str(&thought);
        let details = array_of(delta, "reasoning_details").cloned();
        self.heard.details.extend(details);
        for piece in array_of(delta, "tool_calls") {
            self.piece(piece);
        }
    }

    fn piece(&mut self, piece: &Value) {
        let id = text_of(piece, "id").filter(|id| !id.is_empty());
        let index = piece.get("index").and_then(Value::as_u64);
        let known = match (&id, index) {
            (Some(id), _) => self.heard.calls.iter().position(|call| call.id == *id),
            // The newest call of the index, since some providers give every call the same one.
            (None, Some(_)) => self.indexes.iter().rposition(|known| *known == index),
            (None, None) => self.heard.calls.len().checked_sub(1),
        };
        let place = known.unwrap_or_else(|| {
            self.heard
                .calls
                .push(Call::new(id.unwrap_or_default(), "", ""));
            self.indexes.push(index);
            self.heard.calls.len() - 1
        });
        let function = piece.get("function").unwrap_or(&Value::Null);
        if let Some(call) = self.heard.calls.get_mut(place) {
            call.name
                .push_str(&text_of(function, "name").unwrap_or_default());
            call.arguments
                .push_str(&text_of(function, "arguments").unwrap_or_default());
        }
    }

    fn finished(mut self) -> Heard {
        let whole = self.heard.error.is_none();
        if self.ids.len() > 1 {
            self.fault(format!("the chunks have several ids: {:?}", self.ids));
        }
        if self.created.len() > 1 {
            self.fault(format!("the chunks have several times: {:?}", self.created));
        }
        if whole && self.roles != 1 {
            self.fault(format!("{} deltas tell the role", self.roles));
        }
        if whole && self.finishes != 1 {
            self.fault(format!("{} chunks tell a finish reason", self.finishes));
        }
        if whole && self.done != 1 {
            self.fault(format!("[DONE] came {} times", self.done));
        }
        if !whole && self.done > 0 {
            self.fault("[DONE] follows an error");
        }
        let told: Vec<u64> = self.indexes.iter().copied().flatten().collect();
        let dense = (0_u64..).zip(&told).all(|(want, have)| want == *have);
        let reused = told.iter().all(|index| *index == 0);
        if !dense && !reused {
            self.fault(format!("the calls' indexes have gaps: {told:?}"));
        }
        self.heard
    }
}

fn text_of(value: &Value, field: &str) -> Option<String> {
    value.get(field).and_then(Value::as_str).map(str::to_owned)
}

fn array_of<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}
