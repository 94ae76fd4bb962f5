//! Explicit breakpoints of OpenAI's cache in Chat Completions and Responses: which messages take one, and how it is
//! written. Never decides where one is of use.
//!
//! From GPT-5.6 on the cache matches at breakpoints alone, and there is one at the newest message by itself
//! (<https://developers.openai.com/api/docs/guides/prompt-caching>, 2026-11). Input blocks of text, images and files take
//! another. Only messages of the user and system texts are marked here: that an answer takes none is documented, and of
//! results it is not clear.

use bytes::Bytes;
use memchr::memmem;
use plimsoll_model::raw::{self, Object};

use super::json;
use crate::Dialect;

/// The member that is a breakpoint.
const MARKER: &str = "prompt_cache_breakpoint";
const EXPLICIT: &[u8] = br#"{"mode":"explicit"}"#;

/// How many breakpoints a client sets in its messages. Words in its texts may count too.
pub fn count(messages: &[u8]) -> usize {
    memmem::find_iter(messages, MARKER.as_bytes()).count()
}

/// Whether a client has turned off the breakpoint that its provider sets. Then it decides alone what is cached.
pub fn is_alone(request: &Object<'_>) -> bool {
    let options = request.child("prompt_cache_options");
    options.is_some_and(|options| options.text("mode").is_some_and(|mode| mode == "explicit"))
}

/// A message with a breakpoint at its end. `None` if it takes none. A content that is a string becomes a block, which is
/// the same to the provider.
pub fn marked(dialect: Dialect, message: &[u8]) -> Option<Bytes> {
    let (text, kinds): (&str, &[&str]) = match dialect {
        Dialect::Chat => ("text", &["text", "image_url", "file"]),
        Dialect::Responses => ("input_text", &["input_text", "input_image", "input_file"]),
        Dialect::Messages => return None,
    };
    let object = Object::parse(message).ok()?;
    let kind = object.text("type");
    let spoken = kind.is_none_or(|kind| kind == "message");
    let role = object.text("role").filter(|_| spoken)?;
    if !matches!(role.as_ref(), "user" | "system" | "developer") {
        return None;
    }
    let span = object.get("content")?;
    let content = object.raw("content")?;
    let marker = (MARKER, EXPLICIT);
    if content.starts_with(b"\"") {
        let said = raw::string(content)?;
        if said.trim().is_empty() {
            return None;
        }
        return json::marked_text(message, span, text, marker);
    }
    let last = raw::array(content).ok()?.pop()?;
    let block = Object::parse(content.get(last.clone())?).ok()?;
    let fits = block
        .text("type")
        .is_some_and(|kind| kinds.contains(&kind.as_ref()));
    let says = block
        .text("text")
        .is_none_or(|said| !said.trim().is_empty());
    if !fits || !says || block.get(MARKER).is_some() {
        return None;
    }
    json::marked(message, &raw::shift(&last, span.start), marker)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn got(dialect: Dialect, message: &Value) -> Option<Value> {
        let marked = marked(dialect, message.to_string().as_bytes())?;
        Some(serde_json::from_slice(&marked).unwrap())
    }

    #[test]
    fn what_the_user_and_the_system_say_is_marked_at_its_end() {
        let marker = json!({"mode": "explicit"});
        for (dialect, text, image) in [
            (
                Dialect::Chat,
                "text",
                json!({"type": "image_url", "image_url": {"url": "data:,"}}),
            ),
            (
                Dialect::Responses,
                "input_text",
                json!({"type": "input_image", "image_url": "data:,"}),
            ),
        ] {
            for role in ["user", "system", "developer"] {
                let message = json!({"role": role, "content": "go \"on\""});
                let block =
                    json!({"type": text, "text": "go \"on\"", "prompt_cache_breakpoint": marker});
                assert_eq!(
                    got(dialect, &message).unwrap(),
                    json!({"role": role, "content": [block]})
                );
            }
            let message =
                json!({"role": "user", "content": [{"type": text, "text": "see"}, image]});
            let mut expect = message.clone();
            expect["content"][1]["prompt_cache_breakpoint"] = marker.clone();
            assert_eq!(got(dialect, &message), Some(expect.clone()));
            assert_eq!(got(dialect, &expect), None);
        }
    }

    #[test]
    fn nothing_else_is() {
        for (dialect, message) in [
            (
                Dialect::Chat,
                json!({"role": "assistant", "content": "said"}),
            ),
            (
                Dialect::Chat,
                json!({"role": "tool", "tool_call_id": "c", "content": "ok"}),
            ),
            (Dialect::Chat, json!({"role": "user", "content": " "})),
            (Dialect::Chat, json!({"role": "user", "content": null})),
            (Dialect::Chat, json!({"role": "user", "content": []})),
            (
                Dialect::Chat,
                json!({"role": "user", "content": [{"type": "input_audio"}]}),
            ),
            (
                Dialect::Responses,
                json!({"type": "function_call_output", "call_id": "c", "output": "ok"}),
            ),
            (
                Dialect::Responses,
                json!({"type": "item_reference", "id": "x"}),
            ),
            (Dialect::Responses, json!("go on")),
            (Dialect::Messages, json!({"role": "user", "content": "go"})),
        ] {
            assert_eq!(got(dialect, &message), None, "{message}");
        }
    }

    #[test]
    fn a_client_that_decides_alone_is_seen() {
        let alone = |body: &str| is_alone(&Object::parse(body.as_bytes()).unwrap());
        assert!(alone(r#"{"prompt_cache_options":{"mode":"explicit"}}"#));
        assert!(!alone(r#"{"prompt_cache_options":{"mode":"implicit"}}"#));
        assert!(!alone(r#"{"prompt_cache_options":null}"#));
        assert!(!alone("{}"));
        assert_eq!(
            count(br#"[{"prompt_cache_breakpoint":{}},{"prompt_cache_breakpoint":{}}]"#),
            2
        );
    }
}
