//! Edits of one chat message by bytes: calls left out, text cut, results replaced, hidden calls
//! put back. What is not named keeps its bytes. Never decides what to edit.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::content;
use super::message::REASONING_FIELDS;
use super::signature::{self, DETAILS, Detailed, Place, Signature};
use crate::dialect::edit::{AssistantEdit, CallEdit, Insert};
use crate::model::Handed;
use crate::model::raw::{self, Edit, Object};

/// An assistant message with the edit applied. `None` if its bytes can't be read, which a message
/// that was parsed before never is.
#[must_use]
pub fn assistant(bytes: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
    let object = Object::parse(bytes).ok()?;
    let mut edits: Vec<Edit> = content::edits(&object, edit);
    let (calls, places) = calls(&object, edit);
    let mut removed: Vec<usize> = Vec::new();
    match (&calls, object.get("tool_calls")) {
        (Calls::Same, _) | (Calls::None, None) => {}
        (Calls::None, Some(_)) => removed.extend(object.position("tool_calls")),
        (Calls::These(array), Some(span)) => edits.push((span, array.clone())),
        (Calls::These(array), None) => edits.push(object.append("tool_calls", array)),
    }
    if edit.drop_text || edit.text.is_some() {
        // A refusal is text in another field.
        removed.extend(object.position("refusal"));
    }
    // What signs calls is no reasoning, and stays with them.
    let details = match edit.foreign {
        false => signature::details(&object, &places, edit),
        true => None,
    };
    let signed = match (&details, object.get(DETAILS)) {
        (Some(Detailed::These(array)), Some(span)) => {
            edits.push((span, array.clone()));
            true
        }
        (Some(Detailed::Gone), Some(_)) => {
            removed.extend(object.position(DETAILS));
            true
        }
        // Nothing changes where each element signs a call that stays.
        (None, Some(_)) => edit.drop_reasoning && !edit.foreign && is_list(&object, DETAILS),
        (_, None) => false,
    };
    for field in REASONING_FIELDS
        .iter()
        .filter(|field| !signed || **field != DETAILS)
    {
        // DeepSeek demands the field with every call, be it empty.
        let empty = object.raw(field) == Some(b"\"\"");
        if edit.foreign || edit.drop_reasoning && !empty {
            removed.extend(object.position(field));
        }
    }
    let cuts = object.remove_spans(|place| removed.contains(&place));
    edits.extend(cuts.into_iter().map(|span| (span, Bytes::new())));
    edits.sort_by_key(|(span, _)| (span.start, span.end));
    Some(raw::splice(bytes, &edits))
}

fn is_list(object: &Object<'_>, key: &str) -> bool {
    let raw = object.raw(key).unwrap_or_default();
    raw.first() == Some(&b'[') && raw::array(raw).is_ok_and(|list| !list.is_empty())
}

/// How an assistant message's text relates to what earlier hops handed out.
#[must_use]
pub fn handed(bytes: &[u8], handed: &str) -> Handed {
    if handed.is_empty() {
        return Handed::Nothing;
    }
    let object = Object::parse(bytes).ok();
    match object.as_ref().and_then(content::said) {
        Some((text, true)) if text == handed => Handed::All,
        Some((text, _)) if text.starts_with(handed) => Handed::Front,
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

/// A call on its way into the edited message.
struct Piece<'a> {
    bytes: Cow<'a, [u8]>,
    stays: bool,
    /// The client's own, or one of the hop's own message.
    own: bool,
    /// Of hidden ones: whether an element of `reasoning_details` signed it.
    signed: bool,
}

/// The calls as they are sent, and what became of each of them.
fn calls(object: &Object<'_>, edit: &AssistantEdit<'_>) -> (Calls, Vec<Place>) {
    let raw = object.present("tool_calls").unwrap_or(b"[]");
    let elements = raw::array(raw).unwrap_or_default();
    let edits_calls = !edit.arguments.is_empty() || !edit.names.is_empty() || edit.foreign;
    let same = edit.keep_calls.is_none() && edit.insert.is_empty() && !edits_calls;
    if same && !edit.drop_reasoning {
        return (Calls::Same, Vec::new());
    }
    // Places of hidden calls count all calls, so they are put back before any is left out.
    let kept = |index: usize| {
        edit.keep_calls
            .as_ref()
            .is_none_or(|keep| keep.get(index).copied().unwrap_or(true))
    };
    let own = |(index, span): (usize, Range<usize>)| {
        let call = raw.get(span).unwrap_or_default();
        let new = edit.of_call(index).and_then(|new| self::call(call, &new));
        Piece {
            bytes: new.map_or(Cow::Borrowed(call), |new| Cow::Owned(new.to_vec())),
            stays: kept(index),
            own: true,
            signed: false,
        }
    };
    let mut all: Vec<Piece<'_>> = elements.into_iter().enumerate().map(own).collect();
    for hidden in &edit.insert {
        let back = put_back(&mut all, hidden);
        all.insert(hidden.place.min(all.len()), back);
    }
    for (before, hidden) in edit.left_out.iter().enumerate() {
        let bytes = hidden.bytes.as_bytes();
        let bare = hidden.foreign.then(|| signature::bare(bytes)).flatten();
        let piece = Piece {
            bytes: bare.map_or(Cow::Borrowed(bytes), |bare| Cow::Owned(bare.to_vec())),
            stays: false,
            own: false,
            signed: hidden.signed,
        };
        all.insert((hidden.place + before).min(all.len()), piece);
    }
    if !edit.foreign {
        hand_on(&mut all);
    }
    let places = all.iter().map(place).collect();
    let kept: Vec<&[u8]> = all
        .iter()
        .filter(|piece| piece.stays)
        .map(|piece| &*piece.bytes)
        .collect();
    if same {
        return (Calls::Same, places);
    }
    if kept.is_empty() {
        return (Calls::None, places);
    }
    let mut array = Vec::with_capacity(raw.len() + 64);
    array.push(b'[');
    array.extend_from_slice(&kept.join(&b","[..]));
    array.push(b']');
    (Calls::These(Bytes::from(array)), places)
}

fn place(piece: &Piece<'_>) -> Place {
    let call = Object::parse(&piece.bytes).ok();
    let id = call.as_ref().and_then(|call| call.text("id"));
    Place {
        id: id.unwrap_or_default().into_owned(),
        stays: piece.stays,
        signed: piece.signed,
        visible: piece.own,
    }
}

/// A hidden call on its way back. Its signature went to the client with a call behind it: there it
/// is taken off again, so that what is sent is what the model said. One that another model made has
/// none but what the client itself sends with it.
fn put_back<'a>(all: &mut [Piece<'_>], hidden: &Insert<'a>) -> Piece<'a> {
    let bytes = hidden.bytes.as_bytes();
    let mut call = Cow::Borrowed(bytes);
    let signature = Signature::of(bytes);
    let behind = all.iter_mut().skip(hidden.place).find(|piece| piece.own);
    let copy = behind
        .zip(signature.as_ref())
        .filter(|(piece, own)| Signature::of(&piece.bytes).is_some_and(|copy| copy.is(own)));
    let shown = copy.is_some();
    if let Some((piece, own)) = copy
        && let Some(bare) = own.take(&piece.bytes)
    {
        piece.bytes = Cow::Owned(bare.to_vec());
    }
    if hidden.foreign
        && let Some(bare) = signature::bare(bytes)
    {
        let own = signature.filter(|_| shown);
        let new = own.and_then(|own| own.put(&bare)).unwrap_or(bare);
        call = Cow::Owned(new.to_vec());
    }
    Piece {
        bytes: call,
        stays: true,
        own: false,
        signed: hidden.signed,
    }
}

/// The signature of a call that goes is that of the next one that stays, unless that has its own.
fn hand_on(all: &mut [Piece<'_>]) {
    for at in 0..all.len() {
        let gone = all.get(at).filter(|piece| !piece.stays);
        let Some(signature) = gone.and_then(|piece| Signature::of(&piece.bytes)) else {
            continue;
        };
        let next = all.iter_mut().skip(at + 1).find(|piece| piece.stays);
        if let Some(next) = next.filter(|next| Signature::of(&next.bytes).is_none())
            && let Some(signed) = signature.put(&next.bytes)
        {
            next.bytes = Cow::Owned(signed.to_vec());
        }
    }
}

/// A function call with the edit applied.
#[must_use]
pub fn call(call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
    let bare = edit.bare.then(|| signature::bare(call)).flatten();
    let call = bare.as_deref().unwrap_or(call);
    let object = Object::parse(call).ok()?;
    let Some(function) = object.get("function") else {
        return bare;
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::edit::Cut;

    fn hidden(place: usize, bytes: &str) -> Insert<'_> {
        Insert {
            place,
            bytes,
            ..Insert::default()
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

    fn signed(id: &str, signature: &str) -> String {
        let call = format!(r#"{{"id":"{id}","function":{{"name":"f","arguments":"{{}}"}}"#);
        match signature {
            "" => format!("{call}}}"),
            own => {
                format!(r#"{call},"extra_content":{{"google":{{"thought_signature":"{own}"}}}}}}"#)
            }
        }
    }

    fn message(calls: &[String]) -> String {
        let calls = calls.join(",");
        format!(r#"{{"role":"assistant","content":null,"tool_calls":[{calls}]}}"#)
    }

    #[track_caller]
    fn edited(calls: &[String], edit: &AssistantEdit<'_>, want: &[String]) {
        let got = assistant(message(calls).as_bytes(), edit).unwrap();
        assert_eq!(std::str::from_utf8(&got).unwrap(), message(want));
    }

    #[test]
    fn a_signature_goes_on_to_the_next_call_that_stays() {
        let keep = |keep: &[bool]| AssistantEdit {
            keep_calls: Some(keep.to_vec()),
            ..AssistantEdit::default()
        };
        let three = [signed("a", "S"), signed("b", ""), signed("c", "")];
        edited(
            &three,
            &keep(&[false, true, true]),
            &[signed("b", "S"), signed("c", "")],
        );
        edited(&three, &keep(&[false, false, true]), &[signed("c", "S")]);
        edited(
            &three,
            &keep(&[true, false, true]),
            &[signed("a", "S"), signed("c", "")],
        );
        let own = [signed("a", "S"), signed("b", "T"), signed("c", "")];
        edited(&own, &keep(&[false, true, true]), &own[1..]);
        edited(&own, &keep(&[false, false, true]), &[signed("c", "S")]);
        let bare = AssistantEdit {
            foreign: true,
            ..keep(&[false, true, true])
        };
        edited(&own, &bare, &[signed("b", ""), signed("c", "")]);
    }

    #[test]
    fn a_hidden_call_takes_its_signature_back() {
        let hidden_call = signed("h", "S");
        let back = |foreign| AssistantEdit {
            insert: vec![Insert {
                foreign,
                ..hidden(0, &hidden_call)
            }],
            ..AssistantEdit::default()
        };
        // As the client has it, and as one has it that drops what it doesn't know.
        let want = [signed("h", "S"), signed("v", ""), signed("w", "")];
        edited(&[signed("v", "S"), signed("w", "")], &back(false), &want);
        edited(&[signed("v", ""), signed("w", "")], &back(false), &want);
        // What another provider's model signed goes only where the client sends it itself.
        edited(
            &[signed("v", "S")],
            &back(true),
            &[signed("h", "S"), signed("v", "")],
        );
        edited(
            &[signed("v", "")],
            &back(true),
            &[signed("h", ""), signed("v", "")],
        );
        // One that stays out leaves its signature.
        let out = |foreign| AssistantEdit {
            left_out: vec![Insert {
                foreign,
                ..hidden(0, &hidden_call)
            }],
            keep_calls: Some(vec![true, true]),
            ..AssistantEdit::default()
        };
        let two = [signed("v", ""), signed("w", "")];
        edited(&two, &out(false), &[signed("v", "S"), signed("w", "")]);
        edited(&two, &out(true), &two);
        // Both in one.
        let one_of_two = AssistantEdit {
            keep_calls: Some(vec![false, true]),
            ..back(false)
        };
        edited(
            &[signed("v", "S"), signed("w", "")],
            &one_of_two,
            &[signed("h", "S"), signed("w", "")],
        );
    }

    #[test]
    fn empty_reasoning_is_nothing_to_evict() {
        let message = r#"{"role":"assistant","content":"x","reasoning_content":"","reasoning":""}"#;
        let edit = AssistantEdit {
            drop_reasoning: true,
            ..AssistantEdit::default()
        };
        assert_eq!(assistant(message.as_bytes(), &edit).unwrap(), message);
        let foreign = AssistantEdit {
            foreign: true,
            ..AssistantEdit::default()
        };
        let got = assistant(message.as_bytes(), &foreign).unwrap();
        assert_eq!(got, r#"{"role":"assistant","content":"x"}"#);
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
