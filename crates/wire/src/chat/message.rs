//! One chat message taken apart: who speaks, what is counted, and the canonical digest that the
//! chain is made of. Never changes a byte; `edit` does that.

use std::borrow::Cow;
use std::collections::HashSet;

use plimsoll_model::raw::{self, Object};
use plimsoll_model::{CallId, Digest, Role};

use super::content_parts::{self, PartType};
use super::signature::{self, DETAILS};
use super::thinking_blocks;
use crate::json;
use crate::message::{Canonical, MessageError, Parsed, ParsedCall, Part, as_text};

/// The fields that hold reasoning, by provider.
pub const REASONING_FIELDS: [&str; 4] = [
    "reasoning_content",
    "reasoning",
    DETAILS,
    thinking_blocks::FIELD,
];

/// Takes a message apart.
///
/// # Errors
/// [`MessageError`] if the message is not what the format allows.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, MessageError> {
    let object = Object::parse(bytes)?;
    if object.has_duplicates() {
        return Err(MessageError::DuplicateKey);
    }
    let role = object.text("role").ok_or(MessageError::Field("role"))?;
    let (parts, thinking) = content(&object, &role)?;
    let calls = calls(&object)?;
    let (mut reasoning, sealed) = reasoning(&object, &calls);
    reasoning.extend(thinking);
    let result_of = match object.present("tool_call_id") {
        Some(raw) => Some(raw::string(raw).ok_or(MessageError::Field("tool_call_id"))?),
        None => None,
    };
    let legacy = object.present("function_call").is_some() || object.present("audio").is_some();
    let mut digest = Canonical::new(&role);
    digest.parts(&parts);
    digest.calls(&calls);
    if let Some(id) = &result_of {
        digest.id(b'u', id);
    }
    let mut parsed = Parsed {
        parts,
        reasoning,
        sealed,
        calls,
        result_of: result_of.map(|id| CallId(id.into_owned())),
        opaque: legacy,
        ..Parsed::new(role_of(&role), &digest)
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

/// A content: its parts, and the texts of reasoning in it.
type Content<'a> = (Vec<Part<'a>>, Vec<Cow<'a, str>>);

fn content<'a>(object: &Object<'a>, role: &str) -> Result<Content<'a>, MessageError> {
    const WRONG: MessageError = MessageError::Field("content");
    let Some(raw) = object.present("content") else {
        return Ok(Content::default());
    };
    if raw.first() == Some(&b'"') {
        let text = raw::string(raw).ok_or(WRONG)?;
        let parts = if text.is_empty() {
            Vec::new()
        } else {
            vec![Part::Text(text)]
        };
        return Ok((parts, Vec::new()));
    }
    let (mut parts, mut thinking) = Content::default();
    for raw in json::array(raw).ok_or(WRONG)? {
        let object = Object::parse(raw).map_err(|_| WRONG)?;
        if role == "assistant" && PartType::of(&object) == PartType::Thinking {
            thinking.extend(content_parts::thoughts(&object));
        } else {
            parts.push(part(&object, raw)?);
        }
    }
    thinking.retain(|text| !text.is_empty());
    Ok((parts, thinking))
}

fn part<'a>(object: &Object<'a>, raw: &'a [u8]) -> Result<Part<'a>, MessageError> {
    match object.text("type").as_deref() {
        Some("text") => object
            .text("text")
            .map(Part::Text)
            .ok_or(MessageError::Field("content")),
        Some("image_url") => Ok(image(object, raw)),
        _ => Ok(Part::Other(raw)),
    }
}

fn image<'a>(object: &Object<'a>, raw: &'a [u8]) -> Part<'a> {
    let inner = object.child("image_url");
    let url = inner.as_ref().and_then(|inner| inner.text("url"));
    match (url, inner) {
        (Some(url), Some(inner)) => Part::Image {
            url,
            detail: inner.text("detail"),
        },
        _ => Part::Other(raw),
    }
}

/// The texts of reasoning, and how many bytes of it only the provider can read. Fields that say the same to clients
/// that know one of them or another are read once. What signs a call is no reasoning: it stays with the call, and is
/// not counted, as a signature that stands in the call itself is not.
fn reasoning<'a>(object: &Object<'a>, calls: &[ParsedCall<'a>]) -> (Vec<Cow<'a, str>>, usize) {
    let mut sealed = 0;
    let signed = object
        .present(DETAILS)
        .map(|_| calls.iter().map(|call| &*call.id).collect());
    let signed: HashSet<&str> = signed.unwrap_or_default();
    let mut signing = false;
    let mut signs = |detail: &Object<'_>| {
        let signs = signature::signs(detail).is_some_and(|id| signed.contains(id.as_str()));
        signing |= signs;
        signs
    };
    for list in [thinking_blocks::FIELD, DETAILS] {
        let (thoughts, hidden) = thinking_blocks::read(object, list, &mut signs);
        if !thoughts.is_empty() {
            return (thoughts, hidden);
        }
        sealed += hidden;
    }
    // Details of a form that is not known are counted as they stand.
    let known = if sealed > 0 || signing { 2 } else { 3 };
    let fields = ["reasoning_content", "reasoning", DETAILS];
    let texts = fields
        .iter()
        .take(known)
        .filter_map(|field| object.present(field));
    let mut texts = texts.filter_map(as_text).filter(|text| !text.is_empty());
    (texts.next().into_iter().collect(), sealed)
}

fn calls<'a>(object: &Object<'a>) -> Result<Vec<ParsedCall<'a>>, MessageError> {
    let Some(raw) = object.present("tool_calls") else {
        return Ok(Vec::new());
    };
    let calls = json::array(raw).ok_or(MessageError::Field("tool_calls"))?;
    calls.map(call).collect()
}

/// Reads one element of `tool_calls`.
///
/// # Errors
/// [`MessageError::Field`] if it is no object.
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

/// The canonical digest of a message that the proxy handed out: its text, and its visible calls as
/// (id, name, arguments).
pub fn canonical_of_answer(text: &str, calls: &[ParsedCall<'_>]) -> Digest {
    let mut digest = Canonical::new("assistant");
    digest.text(text);
    digest.calls(calls);
    digest.finish()
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
            (
                r#"{"role":"assistant","content":"x"}"#,
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"x"}]}"#,
            ),
            (
                r#"{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"S"}}},{"id":"b","function":{"name":"f","arguments":"{}"}}]}"#,
                r#"{"role":"assistant","reasoning_details":[{"type":"reasoning.encrypted","data":"S","id":"b"}],"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"S"}}}]}"#,
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
    fn parts_that_think_are_reasoning() {
        let one = br#"{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"},{"type":"text","text":"so"}]}]}"#;
        let one = parse(one).unwrap();
        assert_eq!(
            (one.parts.len(), one.reasoning),
            (0, vec!["hm".into(), "so".into()])
        );
    }

    #[test]
    fn thinking_blocks_are_reasoning_that_stands_twice_beside_the_field() {
        let message = br#"{"role":"assistant","content":"x","reasoning_content":"hmso","thinking_blocks":[{"type":"thinking","thinking":"hm","signature":"0123"},{"type":"redacted_thinking","data":"01234567"},{"type":"thinking","thinking":"","signature":"01234"},{"type":"thinking","thinking":"so","signature":"4567"}]}"#;
        let one = parse(message).unwrap();
        assert_eq!(one.reasoning, ["hm", "so"]);
        // What is thought in no words is told by the length of what is sealed.
        assert_eq!(one.sealed, 8 + 5);
        assert_eq!(
            one.canonical,
            digest(r#"{"role":"assistant","content":"x"}"#)
        );
        let odd = parse(br#"{"role":"assistant","reasoning_content":"hm","thinking_blocks":[null,7,{"type":"thinking","thinking":7}]}"#);
        assert_eq!(odd.unwrap().reasoning, ["hm"]);
        let none = parse(br#"{"role":"assistant","content":"x","thinking_blocks":null}"#);
        assert!(none.unwrap().reasoning.is_empty());
    }

    #[test]
    fn what_two_fields_say_is_thought_once() {
        let of = |fields: &str| {
            let message = format!(r#"{{"role":"assistant","content":"x",{fields}}}"#);
            let parsed = parse(message.as_bytes()).unwrap();
            let reasoning = parsed.reasoning.iter().map(|text| text.to_string());
            (reasoning.collect::<Vec<_>>(), parsed.sealed)
        };
        let details = r#""reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"0123"},{"type":"reasoning.encrypted","data":"01234567"},{"type":"reasoning.summary","summary":"so"}]"#;
        let plain = r#""reasoning":"hmso","reasoning_content":"hmso""#;
        assert_eq!(of(plain), (vec!["hmso".to_owned()], 0));
        let both = of(&format!("{plain},{details}"));
        assert_eq!(both, (vec!["hm".to_owned(), "so".to_owned()], 8));
        let sealed = r#""reasoning_details":[{"type":"reasoning.encrypted","data":"01234567"}]"#;
        assert_eq!(of(sealed), (Vec::new(), 8));
        // What signs a call stays when the thoughts go, so it is none.
        let signing = |id: &str| {
            format!(
                r#""tool_calls":[{{"id":"a","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}],"reasoning_details":[{{"type":"reasoning.encrypted","id":"{id}","data":"01234567"}}]"#
            )
        };
        assert_eq!(of(&signing("a")), (Vec::new(), 0));
        assert_eq!(of(&signing("rs_1")), (Vec::new(), 8));
        assert_eq!(
            of(r#""reasoning_details":"hm""#),
            (vec!["hm".to_owned()], 0)
        );
    }

    #[test]
    fn arguments_that_are_no_json_are_text() {
        let one = parse(br#"{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{oops"}}]}"#).unwrap();
        assert_eq!(one.calls[0].arguments, "{oops");
    }
}
