//! One unit of a Responses conversation taken apart: who speaks, what is counted, and the canonical
//! digest that the chain is made of. Never changes a byte; `edit` does that.

use std::borrow::Cow;

use plimsoll_model::{CallId, Digest, Role};

use super::item::{self, ItemType, ResponsesItem, Unit};
use crate::blocks::Piece;
use crate::message::{Canonical, MessageError, Parsed, ParsedCall, Part, canonical_part};

/// Takes a unit apart.
///
/// # Errors
/// [`MessageError`] if it is not what the format allows.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, MessageError> {
    match item::read(bytes)? {
        Unit::Instructions(text, _) => Ok(spoken(Role::System, "system", vec![Part::Text(text)])),
        Unit::Input(text) => Ok(spoken(Role::User, "user", vec![Part::Text(text)])),
        Unit::Items(items) => match items.as_slice() {
            [one] if !one.kind.is_answer() => single(one),
            run => answer(run),
        },
    }
}

/// An item that stands for itself.
fn single<'a>(item: &ResponsesItem<'a>) -> Result<Parsed<'a>, MessageError> {
    match item.kind {
        ItemType::Message(role) => {
            let name = item.object.text("role");
            let name = name.ok_or(MessageError::Field("role"))?;
            Ok(spoken(role, &name, item.parts()?))
        }
        ItemType::Result => result(item),
        ItemType::Tools => Ok(declaration(item)),
        ItemType::Reasoning
        | ItemType::Call
        | ItemType::Fixed
        | ItemType::Trigger
        | ItemType::Unknown => Ok(unknown(item)),
    }
}

/// A message of anyone but the model.
fn spoken<'a>(role: Role, name: &str, parts: Vec<Part<'a>>) -> Parsed<'a> {
    let mut canonical = canonical(name);
    canonical.parts(&parts);
    Parsed {
        parts,
        ..Parsed::new(role, &canonical)
    }
}

fn result<'a>(item: &ResponsesItem<'a>) -> Result<Parsed<'a>, MessageError> {
    let parts = item.parts()?;
    let id = item.call_id();
    let mut canonical = canonical("tool");
    canonical.parts(&parts);
    if let Some(id) = &id {
        canonical.id(b'u', id);
    }
    Ok(Parsed {
        // The digest is of the parts as JSON, as it was when older sessions were stored.
        parts: item
            .shell()
            .unwrap_or(parts)
            .into_iter()
            .chain(item.tools())
            .collect(),
        result_of: id.map(|id| CallId(id.into_owned())),
        // What declares tools must stay, and an output that has a form of its own can't become a text.
        opaque: !item.takes_text() && item.tools().is_some(),
        whole: !item.takes_text(),
        ..Parsed::new(Role::Tool, &canonical)
    })
}

/// Tools that the client declares in the conversation. They are the client's setting like its system
/// text: never edited and never evicted. Their item has an id of its own, which clients may change.
fn declaration<'a>(item: &ResponsesItem<'a>) -> Parsed<'a> {
    let mut canonical = canonical("tools");
    let tools = item.object.present("tools").unwrap_or_default();
    canonical.put(b'o', &canonical_part(tools));
    Parsed {
        parts: item.tools().into_iter().collect(),
        opaque: true,
        ..Parsed::new(Role::System, &canonical)
    }
}

/// An item that only the provider understands.
fn unknown<'a>(item: &ResponsesItem<'a>) -> Parsed<'a> {
    let mut canonical = canonical("other");
    let sealed = item.sealed();
    match item.object.present("encrypted_content") {
        Some(raw) => canonical.put(b's', raw),
        None => canonical.put(b'o', &canonical_part(item.raw())),
    }
    Parsed {
        parts: match sealed {
            0 => vec![item.tools().unwrap_or(Part::Other(item.raw()))],
            _ => Vec::new(),
        },
        sealed,
        opaque: true,
        ..Parsed::new(Role::Other, &canonical)
    }
}

/// The items of an answer.
fn answer<'a>(run: &[ResponsesItem<'a>]) -> Result<Parsed<'a>, MessageError> {
    let mut parsed = Parsed::new(Role::Assistant, &canonical("assistant"));
    let mut text = String::new();
    let mut kept = Vec::new();
    for item in run {
        match item.kind.piece() {
            Piece::Text => {
                text.push_str(&item.said());
                parsed.parts.extend(item.parts()?);
            }
            Piece::Reasoning => {
                parsed.reasoning.extend(item.thoughts());
                parsed.sealed += item.sealed();
            }
            Piece::Call => parsed.calls.push(item.call()),
            Piece::Other => {
                let tools = item.tools();
                parsed.parts.push(tools.unwrap_or(Part::Other(item.raw())));
                parsed.opaque = true;
                if item.object.text("type").as_deref() == Some("item_reference") {
                    kept.extend(item.id());
                }
            }
        }
    }
    let digest = canonical_answer(&text, &parsed.calls, &kept);
    (parsed.canonical, parsed.nameless) = (digest.finish(), digest.nameless());
    Ok(parsed)
}

/// The canonical digest of a turn's visible response: its text, and its visible calls as (id, name,
/// arguments).
pub fn canonical_of_answer(text: &str, calls: &[ParsedCall<'_>]) -> Digest {
    canonical_answer(text, calls, &[]).finish()
}

/// The digest takes all texts as one, because clients split and join texts as they like. It leaves
/// out the items of the provider's own tools, because many clients do not send them back. A
/// reference stands for an item that can't be seen here.
fn canonical_answer(
    text: &str,
    calls: &[ParsedCall<'_>],
    references: &[Cow<'_, str>],
) -> Canonical {
    let mut canonical = canonical("assistant");
    canonical.text(text);
    canonical.calls(calls);
    for id in references {
        canonical.put(b'o', id.as_bytes());
    }
    canonical
}

/// The beginning of a digest. The format stands before the role, because the same words in another
/// format are other bytes upstream.
fn canonical(role: &str) -> Canonical {
    let mut canonical = Canonical::new("responses");
    canonical.put(b'r', role.as_bytes());
    canonical
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat;

    fn digest(json: &str) -> Digest {
        parse(json.as_bytes()).unwrap().canonical
    }

    #[test]
    fn what_clients_change_between_turns_is_not_canonical() {
        let same = [
            (
                r#""hi""#,
                r#"{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"hi"}]}"#,
            ),
            (
                r#"{"role":"assistant","content":"a b"}"#,
                r#"{"type":"reasoning","id":"rs_1","summary":[]},{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a ","annotations":[]}]},{"role":"assistant","content":[{"type":"output_text","text":"b","logprobs":[]}]}"#,
            ),
            (
                r#"{"type":"function_call","id":"fc_1","status":"completed","call_id":"c","name":"f","arguments":"{ \"b\":\t1.0, \"a\": [1e3] }"}"#,
                r#"{"arguments":"{\"a\":[1000],\"b\":1}","call_id":"c","name":"f","type":"function_call"}"#,
            ),
            (
                r#"{"type":"function_call_output","id":"fco_1","call_id":"c","output":"x"}"#,
                r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}"#,
            ),
            (
                r#"{"type":"web_search_call","id":"ws_1"},{"role":"assistant","content":"x"}"#,
                r#"{"role":"assistant","content":[{"type":"output_text","text":"x"},{"type":"refusal","refusal":"no"}]}"#,
            ),
            (
                r#"{"type":"compaction","id":"cmp_1","encrypted_content":"abc"}"#,
                r#"{"encrypted_content":"abc","type":"compaction"}"#,
            ),
        ];
        for (left, right) in same {
            assert_eq!(digest(left), digest(right), "{left} / {right}");
        }
    }

    #[test]
    fn what_was_said_is_canonical() {
        let base = r#"{"role":"assistant","content":"x"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}"#;
        for (from, to) in [
            ("\"x\"", "\"y\""),
            ("\"a\"", "\"b\""),
            ("\"f\"", "\"g\""),
            ("{}", "{\\\"k\\\":1}"),
            (
                r#"{"role":"assistant","content":"x"}"#,
                r#"{"type":"item_reference","id":"msg_1"}"#,
            ),
        ] {
            let other = base.replacen(from, to, 1);
            assert_ne!(digest(base), digest(&other), "{from} -> {to}");
        }
        let user = r#"{"role":"user","content":"x"}"#;
        assert_ne!(digest(user), digest(&user.replace("user", "developer")));
        assert_ne!(
            digest(user),
            chat::message::parse(user.as_bytes()).unwrap().canonical
        );
    }

    #[test]
    fn an_answer_is_what_was_handed_out() {
        let run = r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"0123456789ab"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]},{"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"*** Begin"},{"type":"shell_call","call_id":"d","action":{"commands":["ls"]}}"#;
        let parsed = parse(run.as_bytes()).unwrap();
        assert_eq!(parsed.role, Role::Assistant);
        assert_eq!(parsed.parts, vec![Part::Text("x".into())]);
        assert_eq!(parsed.reasoning, ["hm"]);
        assert_eq!(parsed.sealed, 12);
        assert!(!parsed.opaque);
        let called = |id, name, arguments: &'static str| ParsedCall {
            id: Cow::Borrowed(id),
            name: Cow::Borrowed(name),
            arguments: Cow::Borrowed(arguments),
        };
        let calls = [
            called("c", "apply_patch", "*** Begin"),
            called("d", "shell_call", r#"{"commands":["ls"]}"#),
        ];
        assert_eq!(parsed.calls, calls);
        assert_eq!(parsed.canonical, canonical_of_answer("x", &calls));
    }

    #[test]
    fn what_has_a_form_of_its_own_is_never_edited() {
        for (json, role, (opaque, whole)) in [
            (
                r#"{"type":"function_call_output","call_id":"c","output":"x"}"#,
                Role::Tool,
                (false, false),
            ),
            (
                r#"{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:,"}}"#,
                Role::Tool,
                (false, true),
            ),
            (
                r#"{"type":"shell_call_output","call_id":"c","output":[{"stdout":"a","stderr":"b","outcome":{"type":"exit","exit_code":0}}]}"#,
                Role::Tool,
                (false, false),
            ),
            (
                r#"{"type":"shell_call_output","call_id":"c","output":[]}"#,
                Role::Tool,
                (false, true),
            ),
            (
                r#"{"type":"tool_search_output","call_id":"c","tools":[]}"#,
                Role::Tool,
                (true, true),
            ),
            (
                r#"{"type":"web_search_call","id":"w"}"#,
                Role::Assistant,
                (true, false),
            ),
            (
                r#"{"type":"compaction","id":"c"}"#,
                Role::Other,
                (true, false),
            ),
            (r#"{"type":"of tomorrow"}"#, Role::Other, (true, false)),
        ] {
            let parsed = parse(json.as_bytes()).unwrap();
            let found = (parsed.role, parsed.opaque, parsed.whole);
            assert_eq!(found, (role, opaque, whole), "{json}");
        }
    }

    #[test]
    fn unreadable_units_are_errors_not_panics() {
        for bad in [
            "3",
            "[]",
            r#"{"content":"x"}"#,
            r#"{"role":"user","role":"user"}"#,
            r#"{"role":"user","content":"\ud800"}"#,
            r#"{"role":"user","content":7}"#,
            r#"{"role":"user","content":[{"type":"input_text"}]}"#,
            r#"{"type":"function_call_output","call_id":"c","output":7}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
