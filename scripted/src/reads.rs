//! What a model reads of a request, in any wire format: the messages with the thoughts in them, and which thoughts
//! its provider drops before that.
//!
//! Owns how a list becomes messages again, and what a provider knows of its own answers when parts of them come
//! back. It counts nothing: `size` does.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::rules::Form;
use crate::script::Reply;

/// Which thoughts that come back a model reads. Its provider drops the others, and nobody pays for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reads {
    /// All.
    #[default]
    All,
    /// Those behind the newest message of the user.
    /// <https://platform.claude.com/docs/en/build-with-claude/extended-thinking#how-context-window-is-calculated-with-extended-thinking>
    Turn,
    /// Those of turns with calls, where a turn goes from one message of the user to the next.
    /// <https://api-docs.deepseek.com/guides/thinking_mode#tool-calls>
    Calls,
}

/// A message as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// What is said, as Chat Completions would have it, without what was thought.
    pub said: Value,
    /// What was thought before it was said.
    pub thoughts: Vec<Thought>,
    /// The answer that it is of, where the provider knows it.
    answer: Option<usize>,
    /// How far the answer got, so that what can't follow begins another.
    part: Part,
}

/// A thought as it comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thought {
    /// Its words; empty where they are sealed.
    pub text: String,
    /// What only its provider can read: a signature, or the words themselves.
    pub seal: String,
}

/// The parts of an answer, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Thought,
    Text,
    Call,
    /// Nothing of a model's comes behind it in the same message.
    Other,
}

/// What a provider knows of its answers when parts of them come back.
#[derive(Debug, Default)]
pub struct Answers {
    /// The number of an answer by its calls' ids, its text and its items' ids. A text of several answers tells none.
    numbers: HashMap<String, Option<usize>>,
    /// How many bytes were thought, by what seals them.
    lengths: HashMap<String, usize>,
}

impl Answers {
    /// Notes an answer, and what seals its thought.
    pub fn note(&mut self, number: usize, reply: &Reply, seal: &str) {
        let ids = reply.calls.iter().map(|call| call.id.clone());
        let items = [format!("rs_{number}"), format!("msg_{number}")];
        let text = self.numbers.entry(reply.text.clone());
        text.and_modify(|known| *known = None)
            .or_insert(Some(number));
        self.numbers
            .extend(ids.chain(items).map(|key| (key, Some(number))));
        self.lengths.insert(seal.to_owned(), reply.reasoning.len());
    }

    /// The answer that a part is of.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<usize> {
        self.numbers.get(key).copied().flatten()
    }

    /// How many bytes were thought, by what seals them.
    #[must_use]
    pub fn length(&self, seal: &str) -> usize {
        self.lengths.get(seal).copied().unwrap_or_default()
    }
}

/// The messages of a request. What stands side by side may be of several answers, because what stood between them is
/// gone: `answer` tells by an id or a text which one a part is of.
#[must_use]
pub fn messages(form: Form, body: &Value, answer: &dyn Fn(&str) -> Option<usize>) -> Vec<Message> {
    let mut list = List {
        messages: Vec::new(),
        answer,
    };
    for field in ["instructions", "system"] {
        if let Some(content) = body.get(field).filter(|content| !content.is_null()) {
            list.whole(json!({"role": "system", "content": content}));
        }
    }
    let field = if form == Form::Responses {
        "input"
    } else {
        "messages"
    };
    match body.get(field) {
        Some(Value::String(text)) => list.whole(json!({"role": "user", "content": text})),
        Some(Value::Array(elements)) => {
            for element in elements {
                match form {
                    Form::Chat => list.chat(element),
                    Form::Messages => list.blocks(element),
                    Form::Responses => list.item(element),
                }
            }
        }
        Some(_) | None => {}
    }
    list.messages
}

impl Reads {
    /// For each message whether its thoughts are read.
    #[must_use]
    pub fn reads(self, messages: &[Message]) -> Vec<bool> {
        let is_user = |message: &Message| text(&message.said, "role") == "user";
        let calls = |message: &Message| {
            let calls = message.said.get("tool_calls").and_then(Value::as_array);
            calls.is_some_and(|calls| !calls.is_empty())
        };
        let read = |at: usize| {
            let (before, behind) = messages.split_at(at);
            match self {
                Self::All => true,
                Self::Turn => !behind.iter().any(is_user),
                Self::Calls => {
                    let mut turn = before.iter().rev().take_while(|one| !is_user(one));
                    let rest = behind.iter().take_while(|one| !is_user(one));
                    turn.any(calls) || rest.into_iter().any(calls)
                }
            }
        };
        (0..messages.len()).map(read).collect()
    }
}

struct List<'a> {
    messages: Vec<Message>,
    answer: &'a dyn Fn(&str) -> Option<usize>,
}

impl List<'_> {
    /// A message that nothing is added to.
    fn whole(&mut self, said: Value) {
        self.put(said, Vec::new(), Part::Other);
    }

    fn put(&mut self, said: Value, thoughts: Vec<Thought>, part: Part) {
        self.messages.push(Message {
            said,
            thoughts,
            answer: None,
            part,
        });
    }

    fn chat(&mut self, message: &Value) {
        let mut said = message.clone();
        let thoughts = thoughts_of(&mut said);
        self.put(said, thoughts, Part::Other);
    }

    /// A message of Messages. Each result in it is a message, and so is what stands between them.
    fn blocks(&mut self, message: &Value) {
        let Some(blocks) = message["content"].as_array() else {
            return self.whole(message.clone());
        };
        // Two messages are two, whoever speaks.
        self.seal();
        let assistant = message["role"] == "assistant";
        for block in blocks {
            match text(block, "type").as_str() {
                "tool_result" => {
                    self.whole(json!({"role": "tool", "content": block["content"]}));
                }
                _ if assistant => self.part(block),
                _ => match self.messages.last_mut() {
                    Some(last) if last.part == Part::Text => push(&mut last.said, block),
                    _ => {
                        let said = json!({"role": message["role"], "content": [shown(block)]});
                        self.put(said, Vec::new(), Part::Text);
                    }
                },
            }
        }
        self.seal();
    }

    /// An item of Responses.
    fn item(&mut self, item: &Value) {
        let role = text(item, "role");
        match text(item, "type").as_str() {
            "function_call_output" => {
                self.whole(json!({"role": "tool", "content": item["output"]}));
            }
            "reasoning" | "function_call" => self.part(item),
            _ if role == "assistant" => self.part(item),
            _ => self.whole(json!({"role": role, "content": item["content"]})),
        }
    }

    /// Nothing is added to the last message.
    fn seal(&mut self) {
        if let Some(last) = self.messages.last_mut() {
            last.part = Part::Other;
        }
    }

    /// A block or an item of an answer.
    fn part(&mut self, raw: &Value) {
        let kind = text(raw, "type");
        let part = match kind.as_str() {
            "thinking" | "redacted_thinking" | "reasoning" => Part::Thought,
            "tool_use" | "function_call" => Part::Call,
            _ => Part::Text,
        };
        let said = raw["content"].as_array().and_then(|parts| parts.first());
        let said = said.map_or_else(|| text(raw, "content"), |part| text(part, "text"));
        let keys = ["call_id", "id", "text"].map(|key| text(raw, key));
        let mut keys = keys.iter().chain([&said]);
        let answer = keys.find_map(|key| (self.answer)(key).filter(|_| !key.is_empty()));
        let open = self.messages.last().filter(|last| last.part != Part::Other);
        let follows = open.is_some_and(|last| match (last.answer, answer) {
            (Some(last), Some(own)) => last == own,
            // An answer has one text at most, and it comes before its calls.
            _ => last.part < part || part != Part::Text && last.part == part,
        });
        if !follows {
            let said = json!({"role": "assistant", "content": [], "tool_calls": []});
            self.put(said, Vec::new(), part);
        }
        let Some(last) = self.messages.last_mut() else {
            return;
        };
        last.answer = last.answer.or(answer);
        last.part = part;
        match part {
            Part::Thought => last.thoughts.push(thought(raw)),
            Part::Call => {
                let arguments = match raw.get("input") {
                    Some(input) => input.to_string(),
                    None => text(raw, "arguments"),
                };
                let call = json!({"function": {"name": raw["name"], "arguments": arguments}});
                let calls = last
                    .said
                    .get_mut("tool_calls")
                    .and_then(Value::as_array_mut);
                calls.into_iter().for_each(|calls| calls.push(call.clone()));
            }
            Part::Text | Part::Other => match raw["content"].as_array() {
                Some(parts) => parts.iter().for_each(|part| push(&mut last.said, part)),
                None if raw["content"].is_string() => {
                    push(&mut last.said, &json!({"text": raw["content"]}))
                }
                None => push(&mut last.said, raw),
            },
        }
    }
}

fn text(value: &Value, field: &str) -> String {
    let text = value.get(field).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Adds a part to the content of a message.
fn push(said: &mut Value, part: &Value) {
    if let Some(content) = said["content"].as_array_mut() {
        content.push(shown(part));
    }
}

/// A part of a content as Chat Completions would have it.
fn shown(part: &Value) -> Value {
    match text(part, "type").as_str() {
        "image" | "input_image" => json!({"image_url": {"detail": part["detail"]}}),
        _ => part.clone(),
    }
}

/// A block of thinking or an item of reasoning.
fn thought(raw: &Value) -> Thought {
    let words = |value: &Value| -> String {
        let parts = value.as_array().into_iter().flatten();
        parts.map(|part| text(part, "text")).collect()
    };
    let shown = match raw.get("thinking") {
        Some(Value::Array(_)) => words(&raw["thinking"]),
        Some(_) => text(raw, "thinking"),
        None => words(&raw["content"]) + &text(raw, "text"),
    };
    let seals = ["signature", "data", "encrypted_content"];
    let seal = seals
        .iter()
        .map(|field| text(raw, field))
        .find(|seal| !seal.is_empty());
    Thought {
        seal: seal.unwrap_or_default(),
        text: shown,
    }
}

/// Takes what was thought out of a message of Chat Completions. It may stand there several times, for clients that know
/// one field or another: the model reads it once.
fn thoughts_of(said: &mut Value) -> Vec<Thought> {
    let Some(fields) = said.as_object_mut() else {
        return Vec::new();
    };
    let lists = ["thinking_blocks", "reasoning_details"];
    let lists = lists.map(|field| fields.remove(field).unwrap_or_default());
    let plain = ["reasoning_content", "reasoning"];
    let plain = plain.map(|field| fields.remove(field).unwrap_or_default());
    let content = fields.get_mut("content").and_then(Value::as_array_mut);
    let parts = content.map_or(Vec::new(), |parts| {
        let is_thought = |part: &mut Value| part["type"] == "thinking";
        parts.extract_if(.., is_thought).collect()
    });
    let whole = lists
        .iter()
        .filter_map(Value::as_array)
        .find(|list| !list.is_empty());
    if let Some(list) = whole {
        return list.iter().map(thought).collect();
    }
    let plain = plain
        .iter()
        .find_map(Value::as_str)
        .filter(|text| !text.is_empty());
    let plain = plain.map(|text| Thought {
        text: text.to_owned(),
        seal: String::new(),
    });
    plain.into_iter().chain(parts.iter().map(thought)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: Form, body: &Value) -> Vec<Message> {
        let number = |key: &str| key.strip_prefix('b').and_then(|rest| rest.parse().ok());
        messages(form, body, &number)
    }

    #[test]
    fn blocks_of_several_answers_are_several_messages() {
        let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
        let item = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
        let thought = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
        let said = json!({"type": "text", "text": "so"});
        let result = json!({"type": "tool_result", "tool_use_id": "b1", "content": "out"});
        let blocks = json!({"system": "be", "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [thought, said, call("b1"), call("b1"), call("b2"), said]},
            {"role": "user", "content": [result, result, said, said]},
        ]});
        let items = json!({"instructions": "be", "input": [
            {"role": "user", "content": "go"},
            {"type": "reasoning", "id": "rs", "encrypted_content": "s"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            item("b1"), item("b1"), item("b2"),
            {"role": "assistant", "content": "so"},
            {"type": "function_call_output", "call_id": "b1", "output": "out"},
        ]});
        let calls = |one: &Message| one.said["tool_calls"].as_array().map_or(0, Vec::len);
        let of = |form, body| -> Vec<(String, usize, usize)> {
            let all = read(form, body);
            let one = |one: &Message| (text(&one.said, "role"), one.thoughts.len(), calls(one));
            all.iter().map(one).collect()
        };
        let same = [
            ("system", 0, 0),
            ("user", 0, 0),
            ("assistant", 1, 2),
            ("assistant", 0, 1),
            ("assistant", 0, 0),
            ("tool", 0, 0),
        ];
        let mut same: Vec<(String, usize, usize)> =
            same.map(|(role, a, b)| (role.to_owned(), a, b)).to_vec();
        assert_eq!(of(Form::Responses, &items), same);
        same.extend([("tool".to_owned(), 0, 0), ("user".to_owned(), 0, 0)]);
        assert_eq!(of(Form::Messages, &blocks), same);
    }

    #[test]
    fn what_stands_twice_in_a_message_is_thought_once() {
        let body = json!({"messages": [{"role": "assistant", "content": [{"type": "text", "text": "so"}],
            "reasoning_content": "hm", "reasoning": "hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}]}]});
        let thought = Thought {
            text: "hm".to_owned(),
            seal: "s".to_owned(),
        };
        assert_eq!(read(Form::Chat, &body)[0].thoughts, [thought]);
    }

    #[test]
    fn thoughts_are_dropped_turn_by_turn() {
        let call = json!([{"id": "b1", "function": {"name": "f", "arguments": "{}"}}]);
        let body = json!({"messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": call},
            {"role": "tool", "content": "out"},
            {"role": "assistant", "content": "so"},
            {"role": "user", "content": "on"},
            {"role": "assistant", "content": "so"},
            {"role": "user", "content": "on"},
            {"role": "assistant", "content": "so"},
        ]});
        let messages = read(Form::Chat, &body);
        let answers = [1, 3, 5, 7];
        let of = |reads: Reads| answers.map(|at| reads.reads(&messages)[at]);
        assert_eq!(of(Reads::All), [true; 4]);
        assert_eq!(of(Reads::Turn), [false, false, false, true]);
        assert_eq!(of(Reads::Calls), [true, true, false, false]);
    }
}
