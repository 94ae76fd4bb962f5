//! What the provider keeps of each request, for tests to look at.
//!
//! Owns the exact bytes and what became of them. It never drops a request by itself: whoever
//! plays long sessions takes them away with `Provider::take`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use crate::rules::{Form, Judged};
use crate::validate::Refusal;

/// One request as it came in.
#[derive(Debug, Clone)]
pub struct Received {
    /// Its number, from 0, over all paths.
    pub index: usize,
    /// When its body was complete.
    pub at: Instant,
    /// The HTTP method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The exact body.
    pub body: Bytes,
    /// What the validator said.
    pub verdict: Verdict,
    /// What the rules made of its thoughts.
    pub judged: Judged,
    /// Its size in tokens, by the formula, without thoughts that the model does not see; 0 for paths
    /// that nobody checks.
    pub size: usize,
    /// Tokens of it that the ideal prefix cache held.
    pub cached: usize,
    pub(crate) progress: Progress,
}

impl Received {
    /// The body as JSON; null if it is none.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A header's text; empty if it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Whether it is a request for a completion of Chat Completions.
    #[must_use]
    pub fn is_chat(&self) -> bool {
        self.form() == Some(Form::Chat)
    }

    /// The wire format of the answer that it asks for, if it asks for one.
    #[must_use]
    pub fn form(&self) -> Option<Form> {
        let path = self.path.split('?').next().unwrap_or_default();
        form_of(&self.method, path)
    }

    /// How far the answer came.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.progress.read()
    }
}

/// The wire format of a path that is asked for answers.
pub(crate) fn form_of(method: &str, path: &str) -> Option<Form> {
    match (method, path) {
        ("POST", "/v1/chat/completions") => Some(Form::Chat),
        ("POST", "/v1/responses") => Some(Form::Responses),
        ("POST", "/v1/messages") => Some(Form::Messages),
        _ => None,
    }
}

/// What the validator said of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A valid request for a completion.
    Accepted,
    /// A request that was refused, and why.
    Refused(Refusal),
    /// A request of another path, which nobody checked.
    Unchecked,
}

/// How far an answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is being sent, or stalls.
    Open,
    /// All of it was handed to the connection, or as much as its fault allows.
    Finished,
    /// The other side left before that.
    Abandoned,
}

/// The shared state behind [`Sent`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<AtomicU8>);

impl Progress {
    fn read(&self) -> Sent {
        match self.0.load(Ordering::Acquire) {
            0 => Sent::Open,
            1 => Sent::Finished,
            _ => Sent::Abandoned,
        }
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch(self.clone())
    }
}

/// Lives as long as the answer is being sent; dropped before its end, the answer was abandoned.
#[derive(Debug)]
pub(crate) struct Watch(Progress);

impl Watch {
    pub(crate) fn finish(&self) {
        self.0.0.store(1, Ordering::Release);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let abandoned = self
            .0
            .0
            .compare_exchange(0, 2, Ordering::AcqRel, Ordering::Acquire);
        // A finished answer stays finished.
        abandoned.ok();
    }
}
