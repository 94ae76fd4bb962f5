//! An agent that keeps all that it was given with an answer, reasoning and signatures included, and
//! sends it back as it came. Asserts nothing.

use std::net::SocketAddr;

use http::HeaderMap;
use plimsoll_scripted::Form;
use plimsoll_scripted::rules::CONTROLS;
use serde_json::{Value, json};

use crate::support::{client, soon};

/// The agent.
#[derive(Clone)]
pub struct Agent {
    pub form: Form,
    pub stream: bool,
    pub model: String,
    pub history: Vec<Value>,
    /// What is to become of thoughts whose prefix is another: `prefix_mismatch_behavior` of Messages.
    pub binding: Option<&'static str>,
    /// What the proxy is to do, where that is said.
    pub mode: Option<&'static str>,
    pub session: &'static str,
    url: String,
    ceiling: u32,
    client: reqwest::Client,
}

/// A call as an agent reads it: id, name and arguments.
pub type Called = (String, String, String);

/// An answer.
#[derive(Debug)]
pub struct Heard {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: String,
    pub text: String,
    pub calls: Vec<Called>,
    /// What of it goes into the history.
    said: Vec<Value>,
}

impl Heard {
    /// Whether it says something, and to its end.
    pub fn is_whole(&self) -> bool {
        self.status == 200 && !(self.text.is_empty() && self.calls.is_empty())
    }

    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }
}

impl Agent {
    pub fn new(form: Form, stream: bool, model: &str, ceiling: u32) -> Self {
        Self {
            form,
            stream,
            model: model.to_owned(),
            history: Vec::new(),
            binding: None,
            mode: None,
            session: "long",
            url: String::new(),
            ceiling,
            client: client(),
        }
    }

    /// From now on by this address.
    pub fn at(&mut self, addr: SocketAddr) {
        let path = match self.form {
            Form::Chat => "chat/completions",
            Form::Responses => "responses",
            Form::Messages => "messages",
        };
        self.url = format!("http://{addr}/v1/{path}");
    }

    pub fn user(&mut self, text: &str) {
        self.history.push(match self.form {
            Form::Messages => json!({"role": "user", "content": [{"type": "text", "text": text}]}),
            Form::Chat | Form::Responses => json!({"role": "user", "content": text}),
        });
    }

    pub fn result(&mut self, id: &str, text: &str) {
        self.history.push(match self.form {
            Form::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
            Form::Responses => json!({"type": "function_call_output", "call_id": id,
                "output": text}),
            Form::Messages => json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": text}]}),
        });
    }

    /// Goes on with another model, which is told nothing of what the one before it thought.
    pub fn switch(&mut self, model: &str) {
        self.model = model.to_owned();
        let thinks = |kind: &Value| kind == "thinking" || kind == "reasoning";
        self.history.retain(|message| !thinks(&message["type"]));
        for message in &mut self.history {
            let fields = message.as_object_mut().unwrap();
            for field in [
                "reasoning_content",
                "reasoning_details",
                "thinking_blocks",
                "id",
            ] {
                fields.remove(field);
            }
            for list in ["content", "tool_calls"] {
                let list = fields.get_mut(list).and_then(Value::as_array_mut);
                let Some(list) = list else { continue };
                list.retain(|part| !thinks(&part["type"]));
                for part in list {
                    part.as_object_mut().unwrap().remove("extra_content");
                }
            }
        }
    }

    fn body(&self) -> Value {
        let schema = json!({"type": "object"});
        let history = self.history.clone();
        let mut body = match self.form {
            Form::Chat => {
                let tool = json!({"name": "bash", "parameters": schema});
                json!({"messages": history, "tools": [{"type": "function", "function": tool}]})
            }
            Form::Responses => json!({"input": history, "store": false,
                "include": ["reasoning.encrypted_content"], "tools": [{"type": "function",
                "name": "bash", "parameters": schema, "strict": false}]}),
            Form::Messages => json!({"messages": history, "max_tokens": 4000,
                "thinking": {"type": "enabled", "budget_tokens": 2000},
                "tools": [{"name": "bash", "input_schema": schema}]}),
        };
        if let Some(binding) = self.binding {
            body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": binding});
        }
        body["model"] = self.model.clone().into();
        body["stream"] = self.stream.into();
        body
    }

    pub async fn ask(&self) -> Heard {
        self.try_ask().await.unwrap()
    }

    /// Asks somebody who may not be there, or may leave before all of the answer is.
    pub async fn try_ask(&self) -> reqwest::Result<Heard> {
        let request = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .header("authorization", "Bearer k")
            .header("x-plimsoll-session", self.session)
            .header("x-plimsoll-budget", self.ceiling.to_string());
        let request = match self.binding {
            Some(_) => request.header("anthropic-beta", CONTROLS),
            None => request,
        };
        let request = match self.mode {
            Some(mode) => request.header("x-plimsoll-mode", mode),
            None => request,
        };
        let response = soon(request.body(self.body().to_string()).send()).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = soon(response.bytes()).await.unwrap_or_default();
        let bytes = String::from_utf8_lossy(&bytes).into_owned();
        let mut said = Vec::new();
        if status == 200 {
            said = match self.stream {
                true => streamed(self.form, &bytes),
                false => whole(self.form, &serde_json::from_str(&bytes).unwrap_or_default()),
            };
        }
        let (text, calls) = heard(&said);
        Ok(Heard {
            status,
            headers,
            bytes,
            text,
            calls,
            said,
        })
    }

    pub fn keep(&mut self, heard: &Heard) {
        self.history.extend(heard.said.iter().cloned());
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// What an unstreamed answer adds to the history.
fn whole(form: Form, body: &Value) -> Vec<Value> {
    match form {
        Form::Chat => {
            let mut message = body["choices"][0]["message"].clone();
            if let Some(fields) = message.as_object_mut() {
                fields.remove("refusal");
            }
            vec![message]
        }
        Form::Messages => vec![json!({"role": "assistant", "content": body["content"]})],
        Form::Responses => list(&body["output"]),
    }
}

/// What a stream adds to the history; nothing where it did not come to its end.
fn streamed(form: Form, bytes: &str) -> Vec<Value> {
    let data = bytes.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let events: Vec<Value> = events.collect();
    match form {
        Form::Chat if bytes.contains("[DONE]") => {
            let mut message = json!({"role": "assistant", "content": null});
            for event in &events {
                merge(&mut message, &event["choices"][0]["delta"]);
            }
            vec![message]
        }
        Form::Messages if bytes.contains("message_stop") => {
            let mut content = Vec::new();
            for event in &events {
                block(&mut content, event);
            }
            vec![json!({"role": "assistant", "content": content})]
        }
        Form::Responses => {
            let mut completed = events.iter().filter(|e| e["type"] == "response.completed");
            let response = completed.next().map(|event| &event["response"]);
            response.map_or(Vec::new(), |response| list(&response["output"]))
        }
        Form::Chat | Form::Messages => Vec::new(),
    }
}

/// Takes one delta of Chat Completions in.
fn merge(message: &mut Value, delta: &Value) {
    if let Some(text) = delta["reasoning_content"].as_str() {
        append(&mut message["reasoning_content"], text);
    }
    for field in ["reasoning_details", "thinking_blocks"] {
        if let Some(details) = delta[field].as_array() {
            let mut known = list(&message[field]);
            known.extend(details.iter().cloned());
            message[field] = known.into();
        }
    }
    match &delta["content"] {
        Value::String(text) if text.is_empty() => {}
        Value::String(text) => match message["content"].as_array_mut() {
            None => append(&mut message["content"], text),
            Some(parts) => match parts.last_mut().filter(|part| part["type"] == "text") {
                Some(part) => append(&mut part["text"], text),
                None => parts.push(json!({"type": "text", "text": text})),
            },
        },
        Value::Array(parts) => {
            let mut known = match &message["content"] {
                Value::String(text) => vec![json!({"type": "text", "text": text})],
                other => list(other),
            };
            known.extend(parts.iter().cloned());
            message["content"] = known.into();
        }
        _ => {}
    }
    for piece in list(&delta["tool_calls"]) {
        let mut calls = list(&message["tool_calls"]);
        let index = piece["index"].as_u64().unwrap_or_default() as usize;
        while calls.len() <= index {
            calls.push(json!({"type": "function", "function": {"name": "", "arguments": ""}}));
        }
        let call = &mut calls[index];
        for field in ["id", "extra_content"] {
            if !piece[field].is_null() {
                call[field] = piece[field].clone();
            }
        }
        for field in ["name", "arguments"] {
            let text = piece["function"][field].as_str().unwrap_or_default();
            append(&mut call["function"][field], text);
        }
        message["tool_calls"] = calls.into();
    }
}

fn append(value: &mut Value, text: &str) {
    let known = value.as_str().unwrap_or_default();
    *value = format!("{known}{text}").into();
}

/// Takes one event of Messages in.
fn block(content: &mut Vec<Value>, event: &Value) {
    let delta = &event["delta"];
    match event["type"].as_str().unwrap_or_default() {
        "content_block_start" => content.push(event["content_block"].clone()),
        "content_block_delta" => {
            let Some(block) = content.last_mut() else {
                return;
            };
            for field in ["text", "thinking", "signature"] {
                if let Some(text) = delta[field].as_str() {
                    append(&mut block[field], text);
                }
            }
            if let Some(text) = delta["partial_json"].as_str() {
                append(&mut block["json"], text);
            }
        }
        "content_block_stop" => {
            let Some(block) = content.last_mut().and_then(Value::as_object_mut) else {
                return;
            };
            if let Some(Value::String(json)) = block.remove("json") {
                let input = serde_json::from_str(&json).unwrap_or_default();
                block.insert("input".to_owned(), input);
            }
        }
        _ => {}
    }
}

/// The text and the calls of what was said.
fn heard(said: &[Value]) -> (String, Vec<Called>) {
    let (mut said_text, mut calls) = (String::new(), Vec::new());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for element in said {
        said_text.push_str(&text(&element["content"]));
        for part in list(&element["content"]) {
            said_text.push_str(&text(&part["text"]));
            if part["type"] == "tool_use" {
                let input = part["input"].to_string();
                calls.push((text(&part["id"]), text(&part["name"]), input));
            }
        }
        for call in list(&element["tool_calls"]) {
            let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
            calls.push((text(&call["id"]), text(name), text(arguments)));
        }
        if element["type"] == "function_call" {
            let (id, name) = (text(&element["call_id"]), text(&element["name"]));
            calls.push((id, name, text(&element["arguments"])));
        }
    }
    (said_text, calls)
}
