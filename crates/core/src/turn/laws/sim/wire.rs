//! The sessions of a simulation in the other two dialects: what the model says as blocks, what the
//! client resends as messages, and what the upstream gets read back as chat messages, so that the
//! same laws judge all three. Shares no code with the dialects but the form of an answer.

use bytes::Bytes;
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::{Answer, Block, BlockKind, Reasoning};
use serde_json::{Value, json};

use crate::turn::laws::say::raw_messages;

/// What stands between two answers of which something between them is gone.
const SEPARATOR: &str = "[results evicted]";

/// The client's tools.
const NAMES: [&str; 5] = ["grep", "read", "bash", "edit", "odd"];

/// Makes the blocks of an answer, as the dialect's stream would have read them.
pub fn fill(dialect: Dialect, answer: &mut Answer, sealed: bool) {
    if dialect == Dialect::Chat {
        return;
    }
    let block = |kind, raw: Value| Block {
        kind,
        raw: Bytes::from(raw.to_string()),
    };
    for (_, reasoning) in &answer.reasoning {
        let Reasoning::Text(text) = reasoning else {
            continue;
        };
        let raw = match dialect {
            Dialect::Responses => {
                json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": text}]})
            }
            _ if sealed => json!({"type": "thinking", "thinking": "", "signature": text}),
            _ => json!({"type": "thinking", "thinking": text, "signature": "s"}),
        };
        answer.blocks.push(block(BlockKind::Reasoning, raw));
    }
    if sealed && dialect == Dialect::Messages {
        answer.reasoning.clear();
    }
    if !answer.text.is_empty() {
        let text = &answer.text;
        let raw = match dialect {
            Dialect::Responses => {
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
            }
            _ => json!({"type": "text", "text": text}),
        };
        answer.blocks.push(block(BlockKind::Text, raw));
    }
    for (at, call) in answer.calls.iter_mut().enumerate() {
        let raw = match dialect {
            Dialect::Responses => {
                call.kind = "function_call".to_owned();
                json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments})
            }
            _ => {
                call.kind = "tool_use".to_owned();
                let input: Value = serde_json::from_str(&call.arguments).unwrap();
                let input = if input.is_object() { input } else { json!({}) };
                call.arguments = input.to_string();
                json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
            }
        };
        answer.blocks.push(block(BlockKind::Call(at), raw));
    }
}

/// The messages that a client adds for the results of its calls.
pub fn results(dialect: Dialect, results: &[(String, String)]) -> Vec<String> {
    let each = |(id, text): &(String, String)| match dialect {
        Dialect::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
        Dialect::Responses => {
            json!({"type": "function_call_output", "call_id": id, "output": text})
        }
        Dialect::Messages => json!({"type": "tool_result", "tool_use_id": id, "content": text}),
    };
    let all: Vec<Value> = results.iter().map(each).collect();
    match dialect {
        Dialect::Messages if all.is_empty() => Vec::new(),
        Dialect::Messages => vec![json!({"role": "user", "content": all}).to_string()],
        Dialect::Chat | Dialect::Responses => all.iter().map(Value::to_string).collect(),
    }
}

/// The body of a request.
pub fn body(dialect: Dialect, messages: &[String], tools: bool) -> Bytes {
    let tool = |name: &&str| match dialect {
        Dialect::Chat => json!({"type": "function", "function": {"name": name}}),
        Dialect::Responses => json!({"type": "function", "name": name}),
        Dialect::Messages => json!({"name": name, "input_schema": {"type": "object"}}),
    };
    let all: Vec<Value> = NAMES.iter().map(tool).collect();
    let tools = match tools {
        true => format!(r#","tools":{}"#, Value::from(all)),
        false => String::new(),
    };
    let all = messages.join(",");
    Bytes::from(match dialect {
        Dialect::Chat => format!(r#"{{"model":"gpt-4o","messages":[{all}]{tools}}}"#),
        Dialect::Responses => {
            format!(r#"{{"model":"gpt-4o","store":false,"input":[{all}]{tools}}}"#)
        }
        Dialect::Messages => {
            let system: Value = serde_json::from_str(&messages[0]).unwrap();
            let (system, all) = (&system["content"], messages[1..].join(","));
            format!(
                r#"{{"model":"gpt-4o","max_tokens":9,"system":{system},"messages":[{all}]{tools}}}"#
            )
        }
    })
}

/// What a body shows, as chat messages; of chat itself the exact bytes.
pub fn shown(dialect: Dialect, body: &Bytes) -> Vec<String> {
    if dialect == Dialect::Chat {
        return raw_messages(body);
    }
    let body: Value = serde_json::from_slice(body).unwrap();
    let mut chat = Chat::default();
    match dialect {
        Dialect::Messages => {
            chat.put("system", &body["system"]);
            for message in body["messages"].as_array().unwrap() {
                chat.message(message);
            }
        }
        Dialect::Chat | Dialect::Responses => {
            for item in body["input"].as_array().unwrap() {
                chat.item(item);
            }
        }
    }
    chat.close();
    chat.messages.iter().map(Value::to_string).collect()
}

/// Elements of the list as they are sent: what may only grow between two passes.
pub fn elements(dialect: Dialect, body: &Bytes) -> Vec<String> {
    let member = match dialect {
        Dialect::Responses => "input",
        Dialect::Chat | Dialect::Messages => "messages",
    };
    let object = plimsoll_model::raw::Object::parse(body).unwrap();
    let list = object.raw(member).unwrap();
    let spans = plimsoll_model::raw::array(list).unwrap();
    let element = |span: std::ops::Range<usize>| String::from_utf8(list[span].to_vec()).unwrap();
    spans.into_iter().map(element).collect()
}

/// Chat messages in the making.
#[derive(Default)]
struct Chat {
    messages: Vec<Value>,
    /// The answer that is being put together.
    answer: Option<Value>,
}

impl Chat {
    fn close(&mut self) {
        self.messages.extend(self.answer.take());
    }

    fn put(&mut self, role: &str, content: &Value) {
        self.close();
        self.messages
            .push(json!({"role": role, "content": content}));
    }

    fn result(&mut self, id: &Value, content: &Value) {
        self.close();
        self.messages
            .push(json!({"role": "tool", "tool_call_id": id, "content": content}));
    }

    fn answer(&mut self) -> &mut Value {
        self.answer
            .get_or_insert_with(|| json!({"role": "assistant", "content": null}))
    }

    /// Reasoning, which is told from what stands before it.
    fn thought(&mut self, text: &Value) {
        let answer = self.answer();
        match answer["reasoning_content"].as_array_mut() {
            Some(all) => all.push(text.clone()),
            None => answer["reasoning_content"] = json!([text]),
        }
    }

    /// A text, which is told from one before it unless calls stand between them.
    fn text(&mut self, text: &Value) {
        let spoken =
            |answer: &Value| answer["content"].is_string() && answer["tool_calls"].is_null();
        if self.answer.as_ref().is_some_and(spoken) {
            self.close();
        }
        let answer = self.answer();
        let before = answer["content"].as_str().unwrap_or_default().to_owned();
        answer["content"] = (before + text.as_str().unwrap()).into();
    }

    fn call(&mut self, id: &Value, name: &Value, arguments: String) {
        let call = json!({"id": id, "type": "function",
            "function": {"name": name, "arguments": arguments}});
        let answer = self.answer();
        match answer["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => answer["tool_calls"] = json!([call]),
        }
    }

    /// An item of a Responses request.
    fn item(&mut self, item: &Value) {
        match item["type"].as_str() {
            Some("reasoning") => self.thought(&item["summary"][0]["text"]),
            Some("function_call") => {
                let arguments = item["arguments"].as_str().unwrap().to_owned();
                self.call(&item["call_id"], &item["name"], arguments);
            }
            Some("function_call_output") => self.result(&item["call_id"], &item["output"]),
            _ if item["role"] == "assistant" => {
                self.text(&item["content"][0]["text"]);
            }
            _ => self.put(item["role"].as_str().unwrap(), &item["content"]),
        }
    }

    /// A message of a Messages request.
    fn message(&mut self, message: &Value) {
        self.close();
        let content = &message["content"];
        let Some(blocks) = content.as_array() else {
            if content != SEPARATOR {
                self.put(message["role"].as_str().unwrap(), content);
            }
            return;
        };
        assert!(!blocks.is_empty(), "an empty message");
        for block in blocks {
            match (block["type"].as_str().unwrap(), message["role"] == "user") {
                ("thinking", _) => self.thought(&block["thinking"]),
                ("text", false) => self.text(&block["text"]),
                ("text", true) => self.put("user", &block["text"]),
                ("tool_use", _) => {
                    self.call(&block["id"], &block["name"], block["input"].to_string());
                }
                ("tool_result", _) => self.result(&block["tool_use_id"], &block["content"]),
                (other, _) => panic!("{other}"),
            }
        }
    }
}
