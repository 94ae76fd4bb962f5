//! The chunks that the proxy writes itself, if it ends a turn that the model would have continued.
//! They carry the first hop's id, time and model ([`Origin`]), and leave out what that hop did not
//! have.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::Usage;
use plimsoll_model::raw::{self, Object};

use super::chunk::Chunk;
use crate::chat::signature::DETAILS;
use crate::sse;

/// The fields of the first hop that every frame for the client carries, as raw JSON.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    pub id: Option<Bytes>,
    /// The creation time.
    pub created: Option<Bytes>,
    /// The model's name.
    pub model: Option<Bytes>,
}

impl Origin {
    /// Learns the fields that are not known yet. Empty ids and zero times, as Azure's first chunk
    /// has them, count as absent.
    pub fn learn(&mut self, chunk: &Chunk<'_>) {
        let known = |key: &str| {
            let raw = chunk.top.object.present(key)?;
            (!matches!(raw, b"\"\"" | b"0")).then(|| Bytes::copy_from_slice(raw))
        };
        self.id = self.id.take().or_else(|| known("id"));
        self.created = self.created.take().or_else(|| known("created"));
        self.model = self.model.take().or_else(|| known("model"));
    }

    /// The id, decoded.
    pub fn id(&self) -> Option<String> {
        decoded(&self.id)
    }

    /// The creation time in seconds.
    pub fn created(&self) -> Option<u64> {
        let created = self.created.as_deref()?;
        std::str::from_utf8(created).ok()?.parse().ok()
    }

    /// The model's name, decoded.
    pub fn model(&self) -> Option<String> {
        decoded(&self.model)
    }
}

fn decoded(string: &Option<Bytes>) -> Option<String> {
    string.as_deref().and_then(raw::string).map(Cow::into_owned)
}

/// A chunk that says a text.
pub fn text_event(origin: &Origin, role: bool, text: &str) -> Bytes {
    let text = raw::quote(text);
    delta_event(origin, role, &format!(r#""content":{text}"#))
}

/// A chunk with the rest of the `reasoning_details`.
pub fn details_event(origin: &Origin, role: bool, details: &[u8]) -> Bytes {
    let details = String::from_utf8_lossy(details);
    delta_event(origin, role, &format!(r#""{DETAILS}":{details}"#))
}

/// A chunk that ends the response.
pub fn finish_event(origin: &Origin, role: bool, reason: &str) -> Bytes {
    let delta = if role { r#""role":"assistant""# } else { "" };
    choice_event(origin, delta, &raw::quote(reason))
}

fn delta_event(origin: &Origin, role: bool, member: &str) -> Bytes {
    let role = if role { r#""role":"assistant","# } else { "" };
    choice_event(origin, &format!("{role}{member}"), "null")
}

fn choice_event(origin: &Origin, delta: &str, finish: &str) -> Bytes {
    let choice = format!(r#"[{{"index":0,"delta":{{{delta}}},"finish_reason":{finish}}}]"#);
    chunk_event(origin, &choice, "")
}

/// A chunk that tells the usage.
pub fn usage_event(origin: &Origin, usage: &Usage) -> Bytes {
    let Usage {
        prompt,
        cached,
        completion,
        reasoning,
        ..
    } = usage;
    let total = prompt.saturating_add(*completion);
    let usage = format!(
        concat!(
            r#","usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"#,
            r#""prompt_tokens_details":{{"cached_tokens":{}}},"#,
            r#""completion_tokens_details":{{"reasoning_tokens":{}}}}}"#
        ),
        prompt, completion, total, cached, reasoning
    );
    chunk_event(origin, "[]", &usage)
}

fn chunk_event(origin: &Origin, choices: &str, more: &str) -> Bytes {
    let member = |key: &str, value: &Option<Bytes>| {
        let value = value.as_deref().map(String::from_utf8_lossy);
        value
            .map(|value| format!(r#""{key}":{value},"#))
            .unwrap_or_default()
    };
    let data = format!(
        r#"{{{}"object":"chat.completion.chunk",{}{}"choices":{choices}{more}}}"#,
        member("id", &origin.id),
        member("created", &origin.created),
        member("model", &origin.model),
    );
    sse::event(data.as_bytes())
}

/// An error event of the proxy's own. An object with an `error` is sent as it is, any other object
/// is put under that key, and bytes that are no JSON object become the message.
pub fn error_event(error: &[u8]) -> Bytes {
    let text = String::from_utf8_lossy(error);
    let data = match Object::parse(error) {
        Ok(object) if object.present("error").is_some() => text.into_owned(),
        Ok(_) => format!(r#"{{"error":{text}}}"#),
        Err(_) => format!(r#"{{"error":{{"message":{}}}}}"#, raw::quote(&text)),
    };
    sse::event(data.as_bytes())
}
