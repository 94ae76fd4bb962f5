//! One chat message taken apart: who speaks, what is counted, and the canonical digest that the
//! chain is made of. Never changes a byte; `edit` does that.

use std::borrow::Cow;

use serde_json::Value;
use twox_hash::XxHash3_128;

use crate::model::raw::{self, Object, RawError};
use crate::model::{CallId, Digest, Role};

/// Why a message could not be read. The request then goes upstream as it came.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MessageError {
    /// Not a JSON object.
    #[error("each message must be a JSON object: {0}")]
    Shape(#[from] RawError),
    /// A key twice: parsers disagree on which one counts.
    #[error("each key may stand once in a message")]
    DuplicateKey,
    /// A field of another type than the dialect allows, or text with a lone surrogate.
    #[error("the field {0:?} must be valid text of the type that the API names")]
    Field(&'static str),
}

/// A call of an assistant message.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedCall<'a> {
    /// Its id; empty where absent.
    pub id: Cow<'a, str>,
    /// The tool's name; empty where absent.
    pub name: Cow<'a, str>,
    /// The arguments as text; raw JSON where they are no string.
    pub arguments: Cow<'a, str>,
}

/// A part of a message's content, for counting.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text, counted as such.
    Text(Cow<'a, str>),
    /// An image by address or data, with its detail level.
    Image {
        /// A `data:` or remote address.
        url: Cow<'a, str>,
        /// `low`, `high` or `auto`.
        detail: Option<Cow<'a, str>>,
    },
    /// Anything else as raw JSON.
    Other(&'a [u8]),
}

/// One message taken apart, borrowing from its bytes.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// Who speaks.
    pub role: Role,
    /// The digest of the canonical projection (design §3).
    pub canonical: Digest,
    /// The parts of the content.
    pub parts: Vec<Part<'a>>,
    /// Texts of reasoning fields, raw JSON where they are no strings.
    pub reasoning: Vec<Cow<'a, str>>,
    /// The calls in array order.
    pub calls: Vec<ParsedCall<'a>>,
    /// The call that a tool message answers.
    pub result_of: Option<CallId>,
    /// Whether it holds something that must never be edited.
    pub opaque: bool,
}

/// The fields that hold reasoning, by provider habit.
pub const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_details"];

/// Takes a message apart.
///
/// # Errors
/// [`MessageError`] where the message is not what the dialect allows.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, MessageError> {
    let object = Object::parse(bytes)?;
    if object.has_duplicates() {
        return Err(MessageError::DuplicateKey);
    }
    let role = object.text("role").ok_or(MessageError::Field("role"))?;
    let parts = content(&object)?;
    let calls = calls(&object)?;
    let result_of = match object.present("tool_call_id") {
        Some(raw) => Some(raw::string(raw).ok_or(MessageError::Field("tool_call_id"))?),
        None => None,
    };
    let legacy = object.present("function_call").is_some() || object.present("audio").is_some();
    let mut parsed = Parsed {
        role: role_of(&role),
        canonical: canonical(&role, &parts, &calls, result_of.as_deref()),
        parts,
        reasoning: reasoning(&object),
        calls,
        result_of: result_of.map(|id| CallId(id.into_owned())),
        opaque: legacy,
    };
    if let Some(refusal) = object.present("refusal").and_then(raw::string) {
        parsed.parts.push(Part::Text(refusal));
    }
    if let Some(call) = object.present("function_call") {
        parsed.parts.push(Part::Other(call));
    }
    Ok(parsed)
}

fn role_of(role: &str) -> Role {
    match role {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => Role::Other,
    }
}

fn content<'a>(object: &Object<'a>) -> Result<Vec<Part<'a>>, MessageError> {
    let Some(raw) = object.present("content") else {
        return Ok(Vec::new());
    };
    if raw.first() == Some(&b'"') {
        let text = raw::string(raw).ok_or(MessageError::Field("content"))?;
        return Ok(if text.is_empty() {
            Vec::new()
        } else {
            vec![Part::Text(text)]
        });
    }
    let spans = raw::array(raw).map_err(|_| MessageError::Field("content"))?;
    spans
        .into_iter()
        .filter_map(|span| raw.get(span))
        .map(part)
        .collect()
}

fn part(raw: &[u8]) -> Result<Part<'_>, MessageError> {
    let object = Object::parse(raw).map_err(|_| MessageError::Field("content"))?;
    match object.text("type").as_deref() {
        Some("text") => object
            .text("text")
            .map(Part::Text)
            .ok_or(MessageError::Field("content")),
        Some("image_url") => Ok(image(&object, raw)),
        _ => Ok(Part::Other(raw)),
    }
}

fn image<'a>(object: &Object<'a>, raw: &'a [u8]) -> Part<'a> {
    let inner = object
        .raw("image_url")
        .and_then(|value| Object::parse(value).ok());
    let Some(inner) = inner else {
        return Part::Other(raw);
    };
    match inner.text("url") {
        Some(url) => Part::Image {
            url,
            detail: inner.text("detail"),
        },
        None => Part::Other(raw),
    }
}

fn reasoning<'a>(object: &Object<'a>) -> Vec<Cow<'a, str>> {
    REASONING_FIELDS
        .iter()
        .filter_map(|field| object.present(field))
        .filter_map(as_text)
        .filter(|text| !text.is_empty())
        .collect()
}

fn calls<'a>(object: &Object<'a>) -> Result<Vec<ParsedCall<'a>>, MessageError> {
    let Some(raw) = object.present("tool_calls") else {
        return Ok(Vec::new());
    };
    let spans = raw::array(raw).map_err(|_| MessageError::Field("tool_calls"))?;
    spans
        .into_iter()
        .filter_map(|span| raw.get(span))
        .map(call)
        .collect()
}

/// Reads one element of `tool_calls`.
///
/// # Errors
/// [`MessageError::Field`] where it is no object.
pub fn call(raw: &[u8]) -> Result<ParsedCall<'_>, MessageError> {
    let object = Object::parse(raw).map_err(|_| MessageError::Field("tool_calls"))?;
    let holder = object.raw("function").or_else(|| object.raw("custom"));
    let inner = holder.and_then(|value| Object::parse(value).ok());
    let field = |key: &str| {
        inner
            .as_ref()
            .and_then(|inner| inner.present(key))
            .and_then(as_text)
            .unwrap_or_default()
    };
    let arguments = match field("arguments") {
        empty if empty.is_empty() => field("input"),
        found => found,
    };
    Ok(ParsedCall {
        id: object.text("id").unwrap_or_default(),
        name: field("name"),
        arguments,
    })
}

/// A digest of a call's name and canonical arguments: equal for the same call made again.
#[must_use]
pub fn call_digest(name: &str, arguments: &str) -> u64 {
    let arguments = canonical_arguments(arguments);
    let bytes = [name.as_bytes(), &arguments[..]].join(&0);
    // The low half is as good a digest as any other.
    XxHash3_128::oneshot(&bytes) as u64
}

/// A string decoded, or any other value as its raw text.
fn as_text(raw: &[u8]) -> Option<Cow<'_, str>> {
    if raw.first() == Some(&b'"') {
        return raw::string(raw);
    }
    std::str::from_utf8(raw).ok().map(Cow::Borrowed)
}

/// The canonical digest of a message that the proxy handed out: text and visible calls as
/// (id, name, arguments).
#[must_use]
pub fn canonical_of_answer(text: &str, calls: &[ParsedCall<'_>]) -> Digest {
    let parts = if text.is_empty() {
        vec![]
    } else {
        vec![Part::Text(Cow::Borrowed(text))]
    };
    canonical("assistant", &parts, calls, None)
}

fn canonical(
    role: &str,
    parts: &[Part<'_>],
    calls: &[ParsedCall<'_>],
    result_of: Option<&str>,
) -> Digest {
    let mut hasher = Canonical(blake3::Hasher::new());
    hasher.put(b'r', role.as_bytes());
    for part in parts {
        match part {
            Part::Text(text) if text.is_empty() => {}
            Part::Text(text) => hasher.put(b't', text.as_bytes()),
            Part::Image { url, .. } => hasher.put(b'i', url.as_bytes()),
            Part::Other(raw) => hasher.put(b'o', &canonical_part(raw)),
        }
    }
    for call in calls {
        hasher.put(b'c', call.id.as_bytes());
        hasher.put(b'n', call.name.as_bytes());
        hasher.put(b'a', &canonical_arguments(&call.arguments));
    }
    if let Some(id) = result_of {
        hasher.put(b'u', id.as_bytes());
    }
    Digest(*hasher.0.finalize().as_bytes())
}

/// Length-prefixed and tagged, so that bytes never shift from one field into the next.
struct Canonical(blake3::Hasher);

impl Canonical {
    fn put(&mut self, tag: u8, bytes: &[u8]) {
        self.0.update(&[tag]);
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
}

/// Arguments with sorted keys, no white space and numbers in shortest f64 form; as they are where
/// they are no JSON.
fn canonical_arguments(arguments: &str) -> Cow<'_, [u8]> {
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) => Cow::Owned(sorted(&value)),
        Err(_) => Cow::Borrowed(arguments.as_bytes()),
    }
}

/// A content part without the cache marker that clients move between turns.
fn canonical_part(raw: &[u8]) -> Cow<'_, [u8]> {
    match serde_json::from_slice::<Value>(raw) {
        Ok(Value::Object(mut map)) => {
            map.remove("cache_control");
            Cow::Owned(sorted(&Value::Object(map)))
        }
        _ => Cow::Borrowed(raw),
    }
}

fn sorted(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_sorted(value, &mut out);
    out
}

/// `serde_json`'s map is a `BTreeMap`, so its keys are sorted already; only numbers need care.
fn write_sorted(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) => out.extend_from_slice(format!("{float:?}").as_bytes()),
            None => out.extend_from_slice(number.to_string().as_bytes()),
        },
        Value::Array(elements) => {
            out.push(b'[');
            for element in elements {
                write_sorted(element, out);
                out.push(b',');
            }
            out.push(b']');
        }
        Value::Object(map) => {
            out.push(b'{');
            for (key, element) in map {
                out.extend_from_slice(raw::quote(key).as_bytes());
                out.push(b':');
                write_sorted(element, out);
                out.push(b',');
            }
            out.push(b'}');
        }
        Value::String(text) => out.extend_from_slice(raw::quote(text).as_bytes()),
        Value::Null | Value::Bool(_) => out.extend_from_slice(value.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(json: &str) -> Digest {
        parse(json.as_bytes()).unwrap().canonical
    }

    #[test]
    fn what_clients_change_between_turns_is_not_canonical() {
        let same: &[(&str, &str)] = &[
            (
                r#"{"role":"user","content":"hi"}"#,
                r#"{"content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}],"role":"user"}"#,
            ),
            (
                r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{ \"b\":\t1.0, \"a\": [1e3] }"}}]}"#,
                r#"{"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[{"index":0,"id":"a","function":{"arguments":"{\"a\":[1000],\"b\":1}","name":"f"}}]}"#,
            ),
            (
                r#"{"role":"assistant","content":"x"}"#,
                r#"{"role":"assistant","content":"x","refusal":null,"tool_calls":null,"id":"m1"}"#,
            ),
        ];
        for (left, right) in same {
            assert_eq!(digest(left), digest(right), "{left} / {right}");
        }
    }

    #[test]
    fn what_was_said_is_canonical() {
        let base = r#"{"role":"assistant","content":"x","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}"#;
        for (from, to) in [
            ("\"x\"", "\"y\""),
            ("\"a\"", "\"b\""),
            ("\"f\"", "\"g\""),
            ("{}", "{\\\"k\\\":1}"),
            ("assistant", "user"),
        ] {
            assert_ne!(
                digest(base),
                digest(&base.replacen(from, to, 1)),
                "{from} -> {to}"
            );
        }
        assert_ne!(
            digest(r#"{"role":"user","content":[{"type":"text","text":"ab"}]}"#),
            digest(
                r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#
            ),
        );
    }

    #[test]
    fn unreadable_messages_are_errors_not_panics() {
        for bad in [
            "3",
            "[]",
            r#"{"content":"x"}"#,
            r#"{"role":"user","role":"user"}"#,
            r#"{"role":"user","content":"\ud800"}"#,
            r#"{"role":"user","content":7}"#,
            r#"{"role":"assistant","tool_calls":{}}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn arguments_that_are_no_json_are_text() {
        let one = parse(br#"{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{oops"}}]}"#).unwrap();
        assert_eq!(one.calls[0].arguments, "{oops");
    }
}
