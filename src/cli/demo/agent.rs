//! The agent of the demo: keeps its whole history, sends all of it with each turn over HTTP, and
//! reads the answer as any client would. Owns its history. Never knows more about the proxy than
//! its address and its response headers.

use std::net::SocketAddr;

use anyhow::Context as _;
use plimsoll_scripted::Heard;
use plimsoll_scripted::trace::{Message, Recording};
use serde_json::{Value, json};

use crate::cli::health::client;

/// A well-known model with a known price, whose cache needs no markers.
pub const MODEL: &str = "gpt-5";

/// An agent between two turns.
pub struct Agent {
    http: reqwest::Client,
    url: String,
    /// The request up to its messages.
    head: String,
    /// The exact JSON of each message.
    history: Vec<String>,
}

/// What one turn brought.
pub struct TurnResult {
    /// The body that the agent sent.
    pub body: String,
    /// What it received.
    pub heard: Heard,
    /// Whether the proxy said that the budget could not be met.
    pub exceeded: bool,
    /// The stage that failed, if the proxy forwarded the agent's own bytes.
    pub fail_open: Option<String>,
    /// The proxy's own time until its first byte, in milliseconds, if it reported that.
    pub overhead: Option<f64>,
}

impl Agent {
    /// An agent whose history is empty.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn new(proxy: SocketAddr, recording: &Recording) -> anyhow::Result<Self> {
        let tools = recording.tools.as_deref().unwrap_or("[]");
        let options = r#""stream":true,"stream_options":{"include_usage":true}"#;
        Ok(Self {
            http: client().context("can't make an HTTP client")?,
            url: format!("http://{proxy}/v1/chat/completions"),
            head: format!(r#"{{"model":"{MODEL}",{options},"tools":{tools},"messages":["#),
            history: Vec::new(),
        })
    }

    /// Sends what the agent adds before the next answer, and adds the answer to its history.
    ///
    /// # Errors
    /// If the proxy does not answer, or answers with an error.
    pub async fn turn(&mut self, adds: &[Message]) -> anyhow::Result<TurnResult> {
        // Like a real agent, this one sends its whole history with each turn.
        let adds = adds.iter().map(|message| message.raw.clone());
        self.history.extend(adds);
        let body = format!("{}{}]}}", self.head, self.history.join(","));
        let request = self.http.post(&self.url).body(body.clone());
        let request = request.header("content-type", "application/json");
        let request = request.header("authorization", "Bearer demo");
        let response = request.send().await.context("the proxy did not answer")?;
        let status = response.status();
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let exceeded = header("x-plimsoll-budget").as_deref() == Some("exceeded");
        let fail_open = header("x-plimsoll-fail-open");
        let overhead = header("x-plimsoll-overhead-ms").and_then(|text| text.parse().ok());
        let bytes = response.bytes().await.context("the answer broke off")?;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&bytes);
            anyhow::bail!("the proxy answered {status}: {text}");
        }
        let heard = Heard::stream(&bytes);
        // The agent keeps only what it saw, so a hidden call can't come back by its history.
        self.history.push(said(&heard).to_string());
        Ok(TurnResult {
            body,
            heard,
            exceeded,
            fail_open,
            overhead,
        })
    }
}

/// What an agent keeps of an answer: its text and its calls.
fn said(heard: &Heard) -> Value {
    let calls = heard.calls.iter().map(|call| {
        json!({"id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": call.arguments}})
    });
    let calls: Vec<Value> = calls.collect();
    let mut message = json!({"role": "assistant", "content": heard.text});
    if let (false, Some(fields)) = (calls.is_empty(), message.as_object_mut()) {
        fields.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    message
}
