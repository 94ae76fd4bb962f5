//! What the tests of managed turns share: an agent that keeps its history as it got it, the calls
//! and scripts of a strict provider, and an upstream that takes anything. Asserts only what every
//! whole answer must keep.

use std::collections::HashMap;
use std::sync::Mutex;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::HeaderMap;
use plimsoll_scripted::wire::{self, Envelope, Step};
use plimsoll_scripted::{Call, Form, Heard, Options, Provider, Received, Reply, Script, Verdict};
use serde_json::{Map, Value, json};

use super::support::{Lenient, Proxy, client, soon};

/// The only tool that the agent brings.
pub fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}])
}

/// A visible call.
pub fn bash(id: &str) -> Call {
    Call::new(id, "bash", format!(r#"{{"c":"run {id}"}}"#))
}

/// A hidden call.
pub fn delimiter(id: &str, arguments: &Value) -> Call {
    Call::new(id, "delimiter", arguments.to_string())
}

/// Opens an exploration.
pub fn explore(id: &str, name: &str) -> Call {
    delimiter(
        id,
        &json!({"action": "start", "name": name, "type": "expl"}),
    )
}

/// Ends one.
pub fn learned(id: &str, what: &str) -> Call {
    delimiter(id, &json!({"action": "end", "description": what}))
}

/// Opens an action.
pub fn act(id: &str, name: &str, on: &[&str]) -> Call {
    delimiter(
        id,
        &json!({"action": "start", "name": name, "type": "act", "dependencies": on}),
    )
}

/// An agent that keeps its history as it got it.
#[derive(Clone)]
pub struct Agent {
    pub history: Vec<Value>,
    pub stream: bool,
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    /// Fields of the body beside messages and stream; null leaves one out.
    pub fields: Map<String, Value>,
}

/// One answer as it arrived.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
    /// Whether the connection broke before the body's end.
    pub broken: bool,
    pub heard: Heard,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// The answer, which has to be a whole one that hides what it must.
    #[track_caller]
    pub fn whole(self) -> Self {
        let text = self.text();
        assert_eq!(self.status, 200, "{text}");
        assert!(!self.broken, "broken: {text}");
        assert_eq!(self.heard.error, None, "{text}");
        assert_eq!(self.heard.faults, Vec::<String>::new(), "{text}");
        self.hides()
    }

    /// The answer, which may be anything that shows nothing hidden.
    #[track_caller]
    pub fn hides(self) -> Self {
        let text = self.text();
        assert!(!text.contains("delimiter"), "leaked: {text}");
        assert!(!text.contains("\"recall\""), "leaked: {text}");
        self
    }

    /// (status, type, param, code) of an error in OpenAI's shape.
    #[track_caller]
    pub fn error(&self) -> (u16, String, String, String) {
        assert_eq!(self.header("content-type"), "application/json");
        let body: Value = serde_json::from_slice(&self.bytes).unwrap();
        let field = |name: &str| body["error"][name].as_str().unwrap_or("null").to_owned();
        assert!(!field("message").is_empty(), "{body}");
        (self.status, field("type"), field("param"), field("code"))
    }
}

impl Agent {
    pub fn new(proxy: &Proxy, stream: bool) -> Self {
        let fields = json!({"model": "gpt-4o", "tools": tools()});
        Self {
            history: vec![json!({"role": "system", "content": "be brief"})],
            stream,
            url: proxy.url("/v1/chat/completions"),
            headers: vec![("authorization", "Bearer k".to_owned())],
            fields: fields.as_object().unwrap().clone(),
        }
    }

    /// The same agent that has just been told something.
    pub fn told(mut self, text: &str) -> Self {
        self.user(text);
        self
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.fields.insert(name.to_owned(), value);
        self
    }

    pub fn user(&mut self, text: &str) {
        self.history.push(json!({"role": "user", "content": text}));
    }

    pub fn result(&mut self, id: &str, text: &str) {
        self.history
            .push(json!({"role": "tool", "tool_call_id": id, "content": text}));
    }

    pub fn body(&self) -> String {
        let mut body = self.fields.clone();
        body.retain(|_, value| !value.is_null());
        body.insert("messages".to_owned(), self.history.clone().into());
        body.insert("stream".to_owned(), self.stream.into());
        Value::Object(body).to_string()
    }

    pub fn request(&self) -> reqwest::RequestBuilder {
        let request = client()
            .post(&self.url)
            .header("content-type", "application/json");
        self.headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, value)
        })
    }

    /// Sends bytes of the test's own under the agent's headers.
    pub async fn post(&self, body: impl Into<reqwest::Body>) -> Answer {
        let response = soon(self.request().body(body).send()).await.unwrap();
        received(response, self.stream).await
    }

    /// Asks, and leaves the history as it is.
    pub async fn ask(&self) -> Answer {
        self.post(self.body()).await
    }

    /// Asks, and keeps the answer, which has to be a whole one.
    pub async fn turn(&mut self) -> Answer {
        let answer = self.ask().await.whole();
        self.keep(&answer.heard);
        answer
    }

    /// A turn whose visible calls are then answered.
    pub async fn work(&mut self, result: &str) -> Answer {
        let answer = self.turn().await;
        for call in &answer.heard.calls {
            self.result(&call.id, result);
        }
        answer
    }

    /// Puts what was heard into the history, as agents do.
    pub fn keep(&mut self, heard: &Heard) {
        let calls: Vec<Value> = heard
            .calls
            .iter()
            .map(|call| {
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments}})
            })
            .collect();
        let mut message = json!({"role": "assistant", "content": heard.text});
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        self.history.push(message);
    }
}

/// Reads a response to its end, be that a broken one.
pub async fn received(response: reqwest::Response, stream: bool) -> Answer {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut chunks = response.bytes_stream();
    let (mut bytes, mut broken) = (Vec::new(), false);
    while let Some(chunk) = soon(chunks.next()).await {
        match chunk {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(_) => {
                broken = true;
                break;
            }
        }
    }
    let events = headers
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    Answer {
        status,
        headers,
        broken,
        heard: Heard::read(&bytes, stream && events),
        bytes: bytes.into(),
    }
}

/// What the last message of a request is known by: the id of the call that it answers, else its
/// text.
pub fn last_key(messages: &[Value]) -> String {
    let last = messages.last().unwrap_or(&Value::Null);
    let key = last["tool_call_id"].as_str().or(last["content"].as_str());
    key.unwrap_or_default().to_owned()
}

/// Replies by what the last message is known by. Of several under one key each is said once, and
/// the last one ever after; a key that is not listed is answered `done`.
pub fn plan<'a>(table: impl IntoIterator<Item = (&'a str, Vec<Reply>)>) -> Script {
    let table: HashMap<String, Vec<Reply>> = table
        .into_iter()
        .map(|(key, replies)| (key.to_owned(), replies))
        .collect();
    let table = Mutex::new(table);
    Script::ask(move |view| {
        let mut table = table.lock().unwrap();
        match table.get_mut(&last_key(view.messages())) {
            Some(replies) if replies.len() > 1 => replies.remove(0),
            Some(replies) => replies[0].clone(),
            None => Reply::text("done"),
        }
    })
}

/// So many turns of work, three at most, each with hidden calls beside a visible one; then `done`.
pub fn annotated(turns: usize) -> Script {
    let rows = [
        (
            "go",
            Reply::calls(vec![explore("d1", "a"), bash("b1")]).saying("One."),
        ),
        ("b1", Reply::calls(vec![learned("d2", "x"), bash("b2")])),
        ("b2", Reply::calls(vec![explore("d3", "c"), bash("b3")])),
    ];
    let rows = rows.into_iter().take(turns);
    plan(rows.map(|(key, reply)| (key, vec![reply])))
}

/// What three turns of such work look like upstream; two are the first eight of it.
pub const WHOLE: [&str; 11] = [
    "system",
    "user",
    "assistant d1 b1",
    "tool d1",
    "tool b1",
    "assistant d2 b2",
    "tool d2",
    "tool b2",
    "assistant d3 b3",
    "tool d3",
    "tool b3",
];

/// A provider that follows a script.
pub async fn provider(script: Script) -> Provider {
    Provider::start(script, Options::default()).await.unwrap()
}

/// The messages of a request in brief: the role, then the ids of calls or of the call answered.
pub fn outline(request: &Received) -> Vec<String> {
    brief(request.value()["messages"].as_array().unwrap())
}

/// See [`outline`].
pub fn brief(messages: &[Value]) -> Vec<String> {
    let ids = |message: &Value| -> Vec<String> {
        let calls = message["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let answered = message.get("tool_call_id").cloned();
        let ids = calls.iter().map(|call| call["id"].clone()).chain(answered);
        ids.map(|id| id.as_str().unwrap_or("?").to_owned())
            .collect()
    };
    messages
        .iter()
        .map(|message| {
            let role = message["role"].as_str().unwrap_or("?").to_owned();
            [vec![role], ids(message)].concat().join(" ")
        })
        .collect()
}

/// The newest request for a completion.
pub fn newest(provider: &Provider) -> Received {
    provider.chats().last().unwrap().clone()
}

/// A message of a request.
pub fn message(request: &Received, at: usize) -> Value {
    request.value()["messages"][at].clone()
}

/// None of the requests was one that a provider refuses.
#[track_caller]
pub fn none_refused(provider: &Provider) {
    for request in provider.chats() {
        assert_eq!(
            request.verdict,
            Verdict::Accepted,
            "{}",
            String::from_utf8_lossy(&request.body)
        );
    }
}

/// Each request's messages extend those of the one before.
#[track_caller]
pub fn extends(requests: &[Received]) {
    for pair in requests.windows(2) {
        let (a, b) = (pair[0].value(), pair[1].value());
        let (a, b) = (
            a["messages"].as_array().unwrap(),
            b["messages"].as_array().unwrap(),
        );
        assert!(a.len() <= b.len(), "{:?} then {:?}", brief(a), brief(b));
        assert_eq!(a[..], b[..a.len()], "{:?} then {:?}", brief(a), brief(b));
    }
}

impl Lenient {
    /// One that always gives the same reply.
    pub async fn saying(reply: Reply) -> Self {
        Self::start(move |_, body| completion(&reply, body)).await
    }
}

/// A reply as a response to this body, streamed if it asks for that.
pub fn completion(reply: &Reply, body: &[u8]) -> Response {
    let text = String::from_utf8_lossy(body);
    let streamed = text.contains(r#""stream":true"#);
    let envelope = Envelope {
        form: Form::Chat,
        id: "chatcmpl-lenient".to_owned(),
        created: 1,
        model: "gpt-4o".to_owned(),
        prompt: 100,
        cached: 0,
        completion: 10,
        include_usage: text.contains(r#""include_usage":true"#),
    };
    let (steps, kind) = if streamed {
        (wire::stream_steps(reply, &envelope), "text/event-stream")
    } else {
        (wire::body_steps(reply, &envelope), "application/json")
    };
    let bytes = steps.into_iter().map(|step| match step {
        Step::Send(bytes) => bytes,
        other => panic!("a lenient upstream can't {other:?}"),
    });
    let bytes: Vec<u8> = bytes.flatten().collect();
    Response::builder()
        .header("content-type", kind)
        .body(Body::from(bytes))
        .unwrap()
}

/// A metric's line that begins with this, or nothing.
pub async fn metric(proxy: &Proxy, begins: &str) -> Option<String> {
    let url = format!("http://{}/metrics", proxy.admin);
    let text = soon(client().get(url).send()).await.unwrap().text().await;
    let text = text.unwrap();
    text.lines()
        .find(|line| line.starts_with(begins))
        .map(str::to_owned)
}

/// What the series of a metric add up to.
pub async fn total(proxy: &Proxy, name: &str) -> f64 {
    let url = format!("http://{}/metrics", proxy.admin);
    let text = soon(client().get(url).send()).await.unwrap().text().await;
    let text = text.unwrap();
    let own = text.lines().filter(|line| line.starts_with(name));
    own.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

/// Waits until a metric has a line that begins with this.
pub async fn until_metric(proxy: &Proxy, begins: &str) -> String {
    soon(async {
        loop {
            if let Some(line) = metric(proxy, begins).await {
                return line;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}
