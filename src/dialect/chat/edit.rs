//! Edits of one chat message by bytes: calls left out, text cut, results replaced, hidden calls
//! put back. What is not named keeps its bytes. Never decides what to edit.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::message::REASONING_FIELDS;
use crate::dialect::edit::{AssistantEdit, CallEdit};
use crate::model::Handed;
use crate::model::raw::{self, Edit, Object};

/// An assistant message with the edit applied. `None` if its bytes can't be read, which a message
/// that was parsed before never is.
#[must_use]
pub fn assistant(bytes: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
    let object = Object::parse(bytes).ok()?;
    let mut edits: Vec<Edit> = Vec::new();
    let calls = calls(&object, edit);
    let mut removed: Vec<usize> = Vec::new();
    match (&calls, object.get("tool_calls")) {
        (Calls::Same, _) | (Calls::None, None) => {}
        (Calls::None, Some(_)) => removed.extend(object.position("tool_calls")),
        (Calls::These(array), Some(span)) => edits.push((span, array.clone())),
        (Calls::These(array), None) => edits.push(object.append("tool_calls", array)),
    }
    if let Some(text) = edit.text.filter(|_| !edit.drop_text) {
        edits.push(object.set("content", raw::quote(text).as_bytes()));
        removed.extend(object.position("refusal"));
    } else if edit.drop_text {
        if let Some(span) = object.get("content") {
            edits.push((span, Bytes::from_static(b"null")));
        }
        // A refusal is text in another field.
        removed.extend(object.position("refusal"));
    } else if !edit.cut.text.is_empty() {
        edits.extend(cut_text(&object, edit.cut.text));
    }
    if edit.drop_reasoning {
        removed.extend(
            REASONING_FIELDS
                .iter()
                .filter_map(|field| object.position(field)),
        );
    }
    let cuts = object.remove_spans(|place| removed.contains(&place));
    edits.extend(cuts.into_iter().map(|span| (span, Bytes::new())));
    edits.sort_by_key(|(span, _)| (span.start, span.end));
    Some(raw::splice(bytes, &edits))
}

/// How an assistant message's text relates to what earlier hops handed out.
#[must_use]
pub fn handed(bytes: &[u8], handed: &str) -> Handed {
    if handed.is_empty() {
        return Handed::Nothing;
    }
    let object = Object::parse(bytes).ok();
    let text = object.as_ref().and_then(first_text).map(|(_, text)| text);
    match text {
        Some(text) if text == handed => Handed::All,
        Some(text) if text.starts_with(handed) => Handed::Front,
        Some(_) | None => Handed::Changed,
    }
}

/// A tool message with other content.
#[must_use]
pub fn result(bytes: &[u8], text: &str) -> Option<Bytes> {
    let object = Object::parse(bytes).ok()?;
    Some(raw::splice(
        bytes,
        &[object.set("content", raw::quote(text).as_bytes())],
    ))
}

/// A tool message made by the proxy: the result of a hidden call.
#[must_use]
pub fn hidden_result(id: &str, text: &str) -> Bytes {
    let (id, text) = (raw::quote(id), raw::quote(text));
    Bytes::from(format!(
        r#"{{"role":"tool","tool_call_id":{id},"content":{text}}}"#
    ))
}

/// A system message with a block of text appended: after a blank line to a string, as one more
/// part to an array.
#[must_use]
pub fn append_text(bytes: &[u8], block: &str) -> Option<Bytes> {
    let object = Object::parse(bytes).ok()?;
    let span = object.get("content")?;
    let raw = bytes.get(span.clone())?;
    let edit = match raw.first()? {
        b'"' => {
            let addition = raw::quote(&format!("\n\n{block}"));
            let inner = addition.get(1..)?.to_owned();
            (span.end - 1..span.end, Bytes::from(inner))
        }
        b'[' => {
            let part = format!(r#"{{"type":"text","text":{}}}"#, raw::quote(block));
            let elements = raw::array(raw).ok()?;
            let (at, comma) = elements.last().map_or((1, ""), |last| (last.end, ","));
            let at = span.start + at;
            (at..at, Bytes::from(format!("{comma}{part}")))
        }
        _ => return None,
    };
    Some(raw::splice(bytes, &[edit]))
}

/// A system message made by the proxy.
#[must_use]
pub fn system(block: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"role":"system","content":{}}}"#,
        raw::quote(block)
    ))
}

enum Calls {
    Same,
    None,
    These(Bytes),
}

fn calls(object: &Object<'_>, edit: &AssistantEdit<'_>) -> Calls {
    let edits_calls = !edit.arguments.is_empty() || !edit.names.is_empty();
    if edit.keep_calls.is_none() && edit.insert.is_empty() && !edits_calls {
        return Calls::Same;
    }
    let raw = object.present("tool_calls").unwrap_or(b"[]");
    let elements = raw::array(raw).unwrap_or_default();
    // Places of hidden calls count all calls, so they are put back before any is left out.
    let kept = |index: usize| {
        edit.keep_calls
            .as_ref()
            .is_none_or(|keep| keep.get(index).copied().unwrap_or(true))
    };
    let element = |index: usize, span: Range<usize>| {
        let call = raw.get(span).filter(|_| kept(index))?;
        let new = edit.of_call(index).and_then(|new| self::call(call, &new));
        Some(new.map_or(Cow::Borrowed(call), |new| Cow::Owned(new.to_vec())))
    };
    let mut all: Vec<Option<Cow<'_, [u8]>>> = elements
        .into_iter()
        .enumerate()
        .map(|(index, span)| element(index, span))
        .collect();
    for hidden in &edit.insert {
        all.insert(
            hidden.place.min(all.len()),
            Some(Cow::Borrowed(hidden.bytes.as_bytes())),
        );
    }
    let kept: Vec<Cow<'_, [u8]>> = all.into_iter().flatten().collect();
    if kept.is_empty() {
        return Calls::None;
    }
    let mut array = Vec::with_capacity(raw.len() + 64);
    array.push(b'[');
    array.extend_from_slice(&kept.join(&b","[..]));
    array.push(b']');
    Calls::These(Bytes::from(array))
}

/// A function call with the edit applied.
#[must_use]
pub fn call(call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
    let object = Object::parse(call).ok()?;
    let function = object.get("function")?;
    let inner = Object::parse(call.get(function.clone())?).ok()?;
    let members = [("name", edit.name), ("arguments", edit.arguments)];
    let mut edits: Vec<Edit> = members
        .into_iter()
        .filter_map(|(key, new)| Some(inner.set(key, raw::quote(new?).as_bytes())))
        .map(|(span, new)| (raw::shift(&span, function.start), new))
        .collect();
    edits.sort_by_key(|(span, _)| span.start);
    Some(raw::splice(call, &edits))
}

/// The first text of a message's content with the span of its JSON string.
fn first_text<'a>(object: &Object<'a>) -> Option<(Range<usize>, Cow<'a, str>)> {
    let span = object.get("content")?;
    let raw = object.raw("content")?;
    if raw.first() == Some(&b'"') {
        return Some((span, raw::string(raw)?));
    }
    let first = raw::array(raw).ok()?.into_iter().next()?;
    let part = Object::parse(raw.get(first.clone())?).ok()?;
    let inner = raw::shift(&part.get("text")?, span.start + first.start);
    Some((inner, part.text("text")?))
}

fn cut_text(object: &Object<'_>, handed: &str) -> Option<Edit> {
    let (span, text) = first_text(object)?;
    let rest = text.strip_prefix(handed)?;
    // An answer of several hops whose last said nothing must not go up with empty text.
    let new = if rest.is_empty() {
        "null".to_owned()
    } else {
        raw::quote(rest)
    };
    Some((span, Bytes::from(new)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::edit::{Cut, Insert};

    fn hidden(place: usize, bytes: &str) -> Insert<'_> {
        Insert {
            place,
            block: None,
            bytes,
        }
    }

    const MESSAGE: &str = r#"{"role": "assistant","content":"one\n\ntwo", "reasoning_content":"hm" ,"tool_calls":[{"id":"a"}, {"id":"b"}],"x":1e3}"#;

    #[track_caller]
    fn check(edit: &AssistantEdit<'_>, expect: &str) {
        let got = assistant(MESSAGE.as_bytes(), edit).unwrap();
        assert_eq!(std::str::from_utf8(&got).unwrap(), expect);
    }

    #[test]
    fn an_empty_edit_changes_no_byte() {
        check(&AssistantEdit::default(), MESSAGE);
    }

    #[test]
    fn edits_touch_what_they_name_and_nothing_else() {
        check(
            &AssistantEdit {
                cut: Cut {
                    text: "one\n\n",
                    hops: Vec::new(),
                },
                insert: vec![hidden(1, r#"{"id":"h"}"#)],
                ..Default::default()
            },
            r#"{"role": "assistant","content":"two", "reasoning_content":"hm" ,"tool_calls":[{"id":"a"},{"id":"h"},{"id":"b"}],"x":1e3}"#,
        );
        check(
            &AssistantEdit {
                drop_text: true,
                drop_reasoning: true,
                keep_calls: Some(vec![false, true]),
                ..Default::default()
            },
            r#"{"role": "assistant","content":null, "tool_calls":[{"id":"b"}],"x":1e3}"#,
        );
        check(
            &AssistantEdit {
                text: Some("[a \"line\"]"),
                ..Default::default()
            },
            r#"{"role": "assistant","content":"[a \"line\"]", "reasoning_content":"hm" ,"tool_calls":[{"id":"a"}, {"id":"b"}],"x":1e3}"#,
        );
        check(
            &AssistantEdit {
                keep_calls: Some(vec![false, false]),
                ..Default::default()
            },
            r#"{"role": "assistant","content":"one\n\ntwo", "reasoning_content":"hm" ,"x":1e3}"#,
        );
        check(
            &AssistantEdit {
                keep_calls: Some(vec![false, false]),
                insert: vec![hidden(0, r#"{"id":"h"}"#), hidden(3, r#"{"id":"i"}"#)],
                ..Default::default()
            },
            r#"{"role": "assistant","content":"one\n\ntwo", "reasoning_content":"hm" ,"tool_calls":[{"id":"h"},{"id":"i"}],"x":1e3}"#,
        );
    }

    #[test]
    fn arguments_are_replaced_in_place() {
        let message = r#"{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b","function": {"name":"w", "arguments":"{\"long\":1}"},"x":1}]}"#;
        let edit = AssistantEdit {
            arguments: vec![(1, r#"{"l":"…"}"#)],
            ..Default::default()
        };
        assert_eq!(
            assistant(message.as_bytes(), &edit).unwrap(),
            r#"{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b","function": {"name":"w", "arguments":"{\"l\":\"…\"}"},"x":1}]}"#
        );
    }

    #[test]
    fn text_in_parts_is_cut_in_its_first_part() {
        let parts = r#"{"role":"assistant","content":[{"type":"text","text":"ab"}]}"#;
        let edit = AssistantEdit {
            cut: Cut {
                text: "a",
                hops: Vec::new(),
            },
            ..Default::default()
        };
        assert_eq!(handed(parts.as_bytes(), "a"), Handed::Front);
        assert_eq!(
            assistant(parts.as_bytes(), &edit).unwrap(),
            r#"{"role":"assistant","content":[{"type":"text","text":"b"}]}"#
        );
    }

    #[test]
    fn guidance_goes_behind_a_blank_line_or_as_a_part() {
        for (from, to) in [
            (
                r#"{"role":"system","content":"be\"brief"}"#,
                r#"{"role":"system","content":"be\"brief\n\nG"}"#,
            ),
            (
                r#"{"role":"system","content":[]}"#,
                r#"{"role":"system","content":[{"type":"text","text":"G"}]}"#,
            ),
            (
                r#"{"role":"developer","content":[{"type":"text","text":"x"} ]}"#,
                r#"{"role":"developer","content":[{"type":"text","text":"x"},{"type":"text","text":"G"} ]}"#,
            ),
        ] {
            assert_eq!(append_text(from.as_bytes(), "G").unwrap(), to);
        }
    }

    #[test]
    fn a_result_is_replaced_in_place() {
        let bytes =
            br#"{"role":"tool","content":[{"type":"text","text":"big"}],"tool_call_id":"a"}"#;
        assert_eq!(
            result(bytes, "stub").unwrap(),
            r#"{"role":"tool","content":"stub","tool_call_id":"a"}"#
        );
    }
}
