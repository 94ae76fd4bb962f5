//! What the proxy adds to a small session of always the same size, asked while a long one is under
//! way: the same request through the proxy of the long one, through another that serves probes only,
//! and directly to the provider, in turn. The other one tells what is the machine's doing. Owns the
//! probe's session; never looks at the long one.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

/// What the header of a probe's requests begins with, so that the provider can tell them.
pub const PROBE: &str = "probe:";
/// What the provider answers.
pub const ANSWER: &str = "done";
/// Bytes of a probe's body, about.
const BYTES: usize = 100_000;
/// Bytes of each of its results, about.
const RESULT: usize = 6_000;

/// A small session: the body of its last but one request, and of its last.
pub struct Probe {
    client: reqwest::Client,
    /// The proxy of the long session, the one that serves probes only, and the provider.
    urls: [String; 3],
    before: Bytes,
    last: Bytes,
    sent: usize,
}

/// How long one exchange took each way.
#[derive(Clone, Copy, Default)]
pub struct Round {
    /// Through the proxy of the long session.
    pub proxied: Duration,
    /// Through the one that serves probes only.
    pub control: Duration,
    /// Directly to the provider.
    pub direct: Duration,
}

impl Round {
    /// What the proxy of the long session added, in milliseconds.
    pub fn added(&self) -> f64 {
        (self.proxied.as_secs_f64() - self.direct.as_secs_f64()) * 1e3
    }

    /// What the other one added, in milliseconds.
    pub fn control_added(&self) -> f64 {
        (self.control.as_secs_f64() - self.direct.as_secs_f64()) * 1e3
    }
}

impl Probe {
    /// A probe of the proxy of the long session, of one that serves probes only, and of the
    /// provider behind them, given by their URLs of completions.
    pub fn new(client: reqwest::Client, urls: [String; 3]) -> Self {
        let mut list = vec![
            json!({"role": "system", "content": "be brief"}),
            json!({"role": "user", "content": "read it all"}),
        ];
        let line = "src/pipeline/open.rs:120: let state = locate_state(app, &place, request)?;\n";
        for number in 0..BYTES / RESULT {
            let id = format!("probe-{number}");
            let text = format!("{number} {}", line.repeat(RESULT / line.len()));
            list.push(json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}},
            ]}));
            list.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
        }
        let before = body(&list);
        list.push(json!({"role": "assistant", "content": ANSWER}));
        list.push(json!({"role": "user", "content": "and now"}));
        Self {
            client,
            urls,
            before,
            last: body(&list),
            sent: 0,
        }
    }

    /// The size of the request that is timed, in bytes.
    pub fn bytes(&self) -> usize {
        self.last.len()
    }

    /// One exchange each way, in a session of its own whose turn before was served, too. Which way
    /// is first changes from round to round.
    pub async fn round(&mut self) -> Round {
        self.sent += 1;
        let [proxy, control, provider] = &self.urls;
        for url in [proxy, control] {
            self.ask(url, &self.before).await;
        }
        let mut round = Round::default();
        let mut ways = [
            (proxy, &mut round.proxied),
            (control, &mut round.control),
            (provider, &mut round.direct),
        ];
        ways.rotate_left(self.sent % 3);
        for (url, took) in ways {
            *took = self.ask(url, &self.last).await;
        }
        round
    }

    async fn ask(&self, url: &str, body: &Bytes) -> Duration {
        let request = self
            .client
            .post(url)
            .bearer_auth("sk-probe")
            .header("content-type", "application/json")
            .header("x-plimsoll-session", format!("probe-{}", self.sent))
            .header(
                plimsoll_scripted::TURN_HEADER,
                format!("{PROBE}{}", self.sent),
            )
            .body(body.clone());
        let begun = Instant::now();
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        let took = begun.elapsed();
        assert!(status.is_success(), "a probe was refused: {status} {text}");
        took
    }
}

fn body(messages: &[Value]) -> Bytes {
    let tools = json!([{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]);
    let body = json!({
        "model": "scripted-1", "messages": messages, "tools": tools,
        "stream": true, "stream_options": {"include_usage": true},
    });
    body.to_string().into()
}
