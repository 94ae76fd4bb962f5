//! Who speaks, and chunks of our own, where a turn is ended that the upstream would have gone on with. They carry
//! the first hop's id, time and model, and leave out what it did not have.

use std::borrow::Cow;

use bytes::Bytes;

use super::Chunk;
use crate::dialect::chat::signature::DETAILS;
use crate::dialect::sse;
use crate::model::Usage;
use crate::model::raw::{self, Object};

/// Who speaks: fields of the first hop that every frame for the client carries.
#[derive(Debug, Clone, Default)]
pub(in crate::dialect::chat::stream) struct Origin {
    /// Raw JSON of the id.
    pub(in crate::dialect::chat::stream) id: Option<Bytes>,
    /// Raw JSON of the creation time.
    pub(in crate::dialect::chat::stream) created: Option<Bytes>,
    /// Raw JSON of the model's name.
    pub(in crate::dialect::chat::stream) model: Option<Bytes>,
}

impl Origin {
    /// Learns what is not known yet. Empty ids and zero times, as Azure's first chunk has them,
    /// are none.
    pub(in crate::dialect::chat::stream) fn learn(&mut self, chunk: &Chunk<'_>) {
        let known = |key: &str| {
            let raw = chunk.top.object.present(key)?;
            (!matches!(raw, b"\"\"" | b"0")).then(|| Bytes::copy_from_slice(raw))
        };
        self.id = self.id.take().or_else(|| known("id"));
        self.created = self.created.take().or_else(|| known("created"));
        self.model = self.model.take().or_else(|| known("model"));
    }

    /// The id, decoded.
    pub(in crate::dialect::chat::stream) fn id(&self) -> Option<String> {
        self.id
            .as_deref()
            .and_then(raw::string)
            .map(Cow::into_owned)
    }

    /// The creation time in seconds.
    pub(in crate::dialect::chat::stream) fn created(&self) -> Option<u64> {
        self.created
            .as_deref()
            .and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok())
    }

    /// The model's name, decoded.
    pub(in crate::dialect::chat::stream) fn model(&self) -> Option<String> {
        self.model
            .as_deref()
            .and_then(raw::string)
            .map(Cow::into_owned)
    }
}

/// A chunk of our own that says a text.
pub(in crate::dialect::chat::stream) fn text_event(
    origin: &Origin,
    role: bool,
    text: &str,
) -> Bytes {
    let role = if role { r#""role":"assistant","# } else { "" };
    let text = raw::quote(text);
    choice_event(origin, &format!(r#"{{{role}"content":{text}}}"#), "null")
}

/// A chunk of our own that tells what is left of `reasoning_details`.
pub(in crate::dialect::chat::stream) fn details_event(
    origin: &Origin,
    role: bool,
    details: &[u8],
) -> Bytes {
    let role = if role { r#""role":"assistant","# } else { "" };
    let details = String::from_utf8_lossy(details);
    choice_event(
        origin,
        &format!(r#"{{{role}"{DETAILS}":{details}}}"#),
        "null",
    )
}

/// A chunk of our own that ends the response.
pub(in crate::dialect::chat::stream) fn finish_event(
    origin: &Origin,
    role: bool,
    reason: &str,
) -> Bytes {
    let delta = if role {
        r#"{"role":"assistant"}"#
    } else {
        "{}"
    };
    choice_event(origin, delta, &raw::quote(reason))
}

fn choice_event(origin: &Origin, delta: &str, finish: &str) -> Bytes {
    let choice = format!(r#"[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]"#);
    chunk_event(origin, &choice, "")
}

/// A chunk of our own that tells the usage.
pub(in crate::dialect::chat::stream) fn usage_event(origin: &Origin, usage: &Usage) -> Bytes {
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

/// An error event of our own. An object with an `error` goes as it is, any other is put under
/// that key, and what is no JSON object becomes the message.
pub(in crate::dialect::chat::stream) fn error_event(error: &[u8]) -> Bytes {
    let data = match Object::parse(error) {
        Ok(object) if object.present("error").is_some() => {
            String::from_utf8_lossy(error).into_owned()
        }
        Ok(_) => format!(r#"{{"error":{}}}"#, String::from_utf8_lossy(error)),
        Err(_) => {
            let message = raw::quote(&String::from_utf8_lossy(error));
            format!(r#"{{"error":{{"message":{message}}}}}"#)
        }
    };
    sse::event(data.as_bytes())
}
