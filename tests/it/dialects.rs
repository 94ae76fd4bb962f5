//! One conversation in all three dialects: a provider made of a function that says texts and calls,
//! an agent that keeps its history as it got it, and readers of what went up. Asserts nothing but
//! that answers are whole.

mod wire;

use axum::response::Response;
use http::HeaderMap;
use serde_json::{Value, json};

use super::support::{Lenient, Proxy, answered, client, response_events, soon};
use wire::{anthropic, anthropic_events, chat, response};

/// The wire formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Chat,
    Responses,
    Messages,
}

pub const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Responses, Dialect::Messages];

/// A call: its id, its tool's name and its arguments as they stand on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

pub fn call(id: &str, name: &str, arguments: impl ToString) -> Call {
    Call {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_string(),
    }
}

/// What a provider answers.
#[derive(Clone, Debug)]
pub enum Reply {
    Says(String, Vec<Call>),
    /// The prompt is too long for a window of so many tokens.
    TooLong(usize),
    /// The request is wrong, in these words.
    Refuses(&'static str),
}

pub fn says(text: &str, calls: Vec<Call>) -> Reply {
    Reply::Says(text.to_owned(), calls)
}

/// What an answer says of its cost, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub input: usize,
    pub cached: usize,
    /// Those of the input that were written to the cache for an hour.
    pub written: usize,
    pub output: usize,
    /// Whether the request asks why the cache missed.
    pub asked: bool,
    /// What is said of that.
    pub said: Option<&'static str>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            input: 9,
            cached: 0,
            written: 0,
            output: 2,
            asked: false,
            said: None,
        }
    }
}

/// A request as it went up.
#[derive(Clone, Debug)]
pub struct Sent {
    pub body: Value,
    pub bytes: Vec<u8>,
}

impl Sent {
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            body: serde_json::from_slice(bytes).unwrap(),
            bytes: bytes.to_vec(),
        }
    }

    pub fn dialect(&self) -> Dialect {
        match (&self.body["input"], &self.body["max_tokens"]) {
            (Value::Null, Value::Null) => Dialect::Chat,
            (Value::Null, _) => Dialect::Messages,
            _ => Dialect::Responses,
        }
    }

    fn list(&self) -> &[Value] {
        let member = match self.dialect() {
            Dialect::Responses => "input",
            Dialect::Chat | Dialect::Messages => "messages",
        };
        self.body[member].as_array().map_or(&[], Vec::as_slice)
    }

    /// The elements of its list, as they stand.
    pub fn texts(&self) -> Vec<String> {
        self.list().iter().map(Value::to_string).collect()
    }

    /// The names of the tools that are offered.
    pub fn tools(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().cloned().unwrap_or_default();
        let name = |tool: &Value| {
            let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
            name.unwrap_or_default().to_owned()
        };
        tools.iter().map(name).collect()
    }

    /// All calls in it, in order.
    pub fn calls(&self) -> Vec<Call> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut calls = Vec::new();
        for message in self.list() {
            for one in message["tool_calls"].as_array().into_iter().flatten() {
                let (id, function) = (text(&one["id"]), &one["function"]);
                calls.push(call(
                    &id,
                    &text(&function["name"]),
                    text(&function["arguments"]),
                ));
            }
            if message["type"] == "function_call" {
                let (id, name) = (text(&message["call_id"]), text(&message["name"]));
                calls.push(call(&id, &name, text(&message["arguments"])));
            }
            for block in message["content"].as_array().into_iter().flatten() {
                if block["type"] == "tool_use" {
                    calls.push(call(
                        &text(&block["id"]),
                        &text(&block["name"]),
                        &block["input"],
                    ));
                }
            }
        }
        calls
    }

    /// The result of a call.
    pub fn result(&self, id: &str) -> Option<String> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.list().iter().find_map(|message| {
            if message["tool_call_id"] == id {
                return Some(text(&message["content"]));
            }
            if message["type"] == "function_call_output" && message["call_id"] == id {
                return Some(text(&message["output"]));
            }
            let mut blocks = message["content"].as_array().into_iter().flatten();
            let block = blocks.find(|block| block["tool_use_id"] == id)?;
            Some(text(&block["content"]))
        })
    }

    /// What the last thing in it is known by: the id that it answers, else its text.
    pub fn key(&self) -> String {
        let said = |message: &&Value| message["role"] != "system" && message["role"] != "developer";
        let last = self.list().iter().rfind(said).cloned().unwrap_or_default();
        let mut blocks = last["content"].as_array().into_iter().flatten();
        let block = blocks.next_back().cloned().unwrap_or_default();
        let of = |value: &Value| {
            let fields = ["tool_call_id", "call_id", "tool_use_id", "text", "content"];
            let mut fields = fields.iter().filter_map(|field| value[field].as_str());
            fields.next().map(str::to_owned)
        };
        of(&block).or_else(|| of(&last)).unwrap_or_default()
    }
}

/// A provider that takes anything.
pub struct Provider {
    pub addr: std::net::SocketAddr,
    kept: Lenient,
}

impl Provider {
    /// Answers each request with what the function makes of it and of its number, from 0.
    pub async fn start<F>(reply: F) -> Self
    where
        F: Fn(usize, &Sent) -> Reply + Clone + Send + Sync + 'static,
    {
        let kept = Lenient::start(move |number, bytes| {
            let sent = Sent::of(bytes);
            respond(number, &sent, &reply(number, &sent), Told::default())
        })
        .await;
        Self {
            addr: kept.addr,
            kept,
        }
    }

    /// The same with what each answer says of its cost.
    pub async fn telling<F>(reply: F) -> Self
    where
        F: Fn(usize, &Sent) -> (Reply, Told) + Clone + Send + Sync + 'static,
    {
        let kept = Lenient::start(move |number, bytes| {
            let sent = Sent::of(bytes);
            let (reply, told) = reply(number, &sent);
            respond(number, &sent, &reply, told)
        })
        .await;
        Self {
            addr: kept.addr,
            kept,
        }
    }

    pub fn sent(&self) -> Vec<Sent> {
        let bodies = self.kept.bodies();
        bodies.iter().map(|bytes| Sent::of(bytes)).collect()
    }

    pub fn newest(&self) -> Sent {
        self.sent().last().unwrap().clone()
    }
}

fn respond(number: usize, sent: &Sent, reply: &Reply, told: Told) -> Response {
    let (text, calls) = match reply {
        Reply::Says(text, calls) => (text, calls),
        Reply::TooLong(window) => {
            let message = format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted in more."
            );
            let error = json!({"type": "error", "error": {"message": message,
                "type": "invalid_request_error", "code": "context_length_exceeded"}});
            return answered(400, error);
        }
        Reply::Refuses(message) => {
            let error = json!({"message": message, "type": "invalid_request_error"});
            return answered(400, json!({"type": "error", "error": error}));
        }
    };
    let streamed = sent.body["stream"] == true;
    let body = match (sent.dialect(), streamed) {
        (Dialect::Chat, _) => chat(number, text, calls, streamed, told),
        (Dialect::Responses, false) => response(number, text, calls, told).to_string(),
        (Dialect::Responses, true) => response_events(&response(number, text, calls, told)),
        (Dialect::Messages, false) => anthropic(number, text, calls, told).to_string(),
        (Dialect::Messages, true) => anthropic_events(number, text, calls, told),
    };
    answered(200, body)
}

/// A file of some 700 tokens. No two are alike.
pub fn file(number: usize) -> String {
    let line = |at: usize| format!("let value_{number}_{at} = {};\n", at * 7919 + number);
    (0..80).map(line).collect()
}

/// An agent.
#[derive(Clone)]
pub struct Agent {
    pub dialect: Dialect,
    pub stream: bool,
    /// None if it is empty.
    pub session: String,
    pub history: Vec<Value>,
    pub tools: Vec<&'static str>,
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    /// Further fields of the body.
    pub fields: Vec<(&'static str, Value)>,
}

/// What an agent got.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: String,
    pub text: String,
    pub calls: Vec<Call>,
    /// Whether it came to its end.
    pub whole: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

impl Agent {
    pub fn new(proxy: &Proxy, dialect: Dialect, stream: bool, session: &str) -> Self {
        let mut agent = Self {
            dialect,
            stream,
            session: session.to_owned(),
            history: Vec::new(),
            tools: vec!["bash"],
            url: String::new(),
            headers: Vec::new(),
            fields: Vec::new(),
        };
        agent.at(proxy);
        agent
    }

    /// From now on by this proxy.
    pub fn at(&mut self, proxy: &Proxy) {
        self.url = proxy.url(match self.dialect {
            Dialect::Chat => "/v1/chat/completions",
            Dialect::Responses => "/v1/responses",
            Dialect::Messages => "/v1/messages",
        });
    }

    pub fn user(&mut self, text: &str) {
        self.history.push(json!({"role": "user", "content": text}));
    }

    pub fn result(&mut self, id: &str, text: &str) {
        self.history.push(match self.dialect {
            Dialect::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
            Dialect::Responses => {
                json!({"type": "function_call_output", "call_id": id, "output": text})
            }
            Dialect::Messages => json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": text}]}),
        });
    }

    pub fn body(&self) -> String {
        let schema = json!({"type": "object"});
        let tools = self.tools.iter().map(|name| match self.dialect {
            Dialect::Chat => {
                json!({"type": "function", "function": {"name": name, "parameters": schema}})
            }
            Dialect::Responses => {
                json!({"type": "function", "name": name, "parameters": schema, "strict": false})
            }
            Dialect::Messages => json!({"name": name, "input_schema": schema}),
        });
        let tools: Vec<Value> = tools.collect();
        let mut body = json!({"model": "gpt-4o", "stream": self.stream});
        if !tools.is_empty() {
            body["tools"] = tools.into();
        }
        match self.dialect {
            Dialect::Chat => body["messages"] = self.history.clone().into(),
            Dialect::Responses => {
                body["input"] = self.history.clone().into();
                body["store"] = false.into();
            }
            Dialect::Messages => {
                body["messages"] = self.history.clone().into();
                body["max_tokens"] = 900.into();
            }
        }
        for (name, value) in &self.fields {
            body[*name] = value.clone();
        }
        body.to_string()
    }

    pub async fn ask(&self) -> Answer {
        let mut request = client()
            .post(&self.url)
            .header("content-type", "application/json")
            .header("authorization", "Bearer k");
        if !self.session.is_empty() {
            request = request.header("x-plimsoll-session", &self.session);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let response = soon(request.body(self.body()).send()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = soon(response.bytes()).await.unwrap_or_default();
        let bytes = String::from_utf8_lossy(&bytes).into_owned();
        let (text, calls, whole) = match (self.dialect, self.stream) {
            _ if status != 200 => (String::new(), Vec::new(), false),
            (_, false) => read(self.dialect, &serde_json::from_str(&bytes).unwrap()),
            (dialect, true) => heard(dialect, &bytes),
        };
        Answer {
            status,
            headers,
            bytes,
            text,
            calls,
            whole,
        }
    }

    /// A turn whose answer has to be whole; its calls are answered where there are any.
    #[track_caller]
    pub fn turn(&mut self) -> impl Future<Output = Answer> {
        let at = std::panic::Location::caller();
        async move {
            let answer = self.ask().await;
            assert!(
                answer.status == 200 && answer.whole,
                "{at}: {} {}",
                answer.status,
                answer.bytes
            );
            self.keep(&answer);
            for call in &answer.calls {
                self.result(&call.id, "out");
            }
            answer
        }
    }

    /// Goes on until the model calls nothing more: each call is answered by what `results` puts into the history.
    pub async fn work(&mut self, mut results: impl FnMut(&mut Self, &Call)) {
        loop {
            let answer = self.ask().await;
            assert!(answer.whole, "{}", answer.bytes);
            self.keep(&answer);
            if answer.calls.is_empty() {
                return;
            }
            for call in &answer.calls {
                results(self, call);
            }
        }
    }

    pub fn keep(&mut self, answer: &Answer) {
        match self.dialect {
            Dialect::Chat => {
                let calls = answer.calls.iter().map(|call| {
                    json!({"id": call.id, "type": "function",
                        "function": {"name": call.name, "arguments": call.arguments}})
                });
                let calls: Vec<Value> = calls.collect();
                let mut message = json!({"role": "assistant", "content": answer.text});
                if !calls.is_empty() {
                    message["tool_calls"] = calls.into();
                }
                self.history.push(message);
            }
            Dialect::Responses => {
                let output = response(0, &answer.text, &answer.calls, Told::default());
                let output = output["output"].as_array().cloned();
                self.history.extend(output.unwrap_or_default());
            }
            Dialect::Messages => {
                let told = Told::default();
                let content = anthropic(0, &answer.text, &answer.calls, told)["content"].clone();
                self.history
                    .push(json!({"role": "assistant", "content": content}));
            }
        }
    }
}

/// An unstreamed answer: its text, its calls, and that it is whole.
fn read(dialect: Dialect, body: &Value) -> (String, Vec<Call>, bool) {
    let (mut said, mut calls) = (String::new(), Vec::new());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match dialect {
        Dialect::Chat => {
            let message = &body["choices"][0]["message"];
            said = text(&message["content"]);
            let history = json!({"messages": [message]});
            calls = Sent {
                body: history,
                bytes: Vec::new(),
            }
            .calls();
        }
        Dialect::Responses => {
            let output = body["output"].clone();
            for item in output.as_array().into_iter().flatten() {
                for part in item["content"].as_array().into_iter().flatten() {
                    said.push_str(&text(&part["text"]));
                }
            }
            calls = Sent {
                body: json!({"input": output}),
                bytes: Vec::new(),
            }
            .calls();
        }
        Dialect::Messages => {
            for block in body["content"].as_array().into_iter().flatten() {
                said.push_str(&text(&block["text"]));
                if block["type"] == "tool_use" {
                    calls.push(call(
                        &text(&block["id"]),
                        &text(&block["name"]),
                        &block["input"],
                    ));
                }
            }
        }
    }
    (said, calls, true)
}

/// A streamed answer: the same, and whether it came to its end.
fn heard(dialect: Dialect, bytes: &str) -> (String, Vec<Call>, bool) {
    let data = bytes.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (mut said, mut calls, mut whole): (String, Vec<Call>, bool) = Default::default();
    match dialect {
        Dialect::Chat => {
            whole = bytes.contains("[DONE]") && !bytes.contains("\"error\"");
            let deltas = events.iter().map(|event| &event["choices"][0]["delta"]);
            for delta in deltas {
                said.push_str(&text(&delta["content"]));
                let history = json!({"messages": [delta]});
                calls.extend(
                    Sent {
                        body: history,
                        bytes: Vec::new(),
                    }
                    .calls(),
                );
            }
        }
        Dialect::Responses => {
            for event in &events {
                if event["type"] == "response.completed" {
                    (said, calls, whole) = read(dialect, &event["response"]);
                }
            }
        }
        Dialect::Messages => {
            for event in &events {
                let (block, delta) = (&event["content_block"], &event["delta"]);
                if block["type"] == "tool_use" {
                    calls.push(call(&text(&block["id"]), &text(&block["name"]), ""));
                }
                said.push_str(&text(&delta["text"]));
                if let Some(last) = calls.last_mut() {
                    last.arguments.push_str(&text(&delta["partial_json"]));
                }
                whole |= event["type"] == "message_stop";
            }
        }
    }
    (said, calls, whole)
}
