//! Edits of one chat message by bytes: calls left out, text cut, results replaced, hidden calls
//! put back. What an edit does not name keeps its bytes. Never decides what to edit.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::raw::{self, Edit, Object};
use plimsoll_model::{Handed, TurnRecord};

use super::content_parts;
use super::message::REASONING_FIELDS;
use super::signature::{self, CallPlace, DETAILS, Signature};
use super::thinking_blocks;
use crate::edit::{AssistantEdit, CallEdit, Insert, set_members};
use crate::json::{self, ListEdit};

/// An assistant message with the edit applied. `None` if its bytes can't be read; those of a
/// message that was parsed before always can.
pub fn assistant(bytes: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
    let object = Object::parse(bytes).ok()?;
    let mut edits: Vec<Edit> = content_parts::edits(&object, edit);
    let (calls, places) = calls(&object, edit);
    let mut removed: Vec<usize> = Vec::new();
    if let Some(calls) = calls {
        calls.put(&object, "tool_calls", &mut edits, &mut removed);
    }
    if edit.drop_text || edit.text.is_some() {
        // A refusal is text in another field.
        removed.extend(object.position("refusal"));
    }
    // Signatures of calls are no reasoning, and stay with the calls.
    let details = match edit.foreign {
        false => signature::details(&object, &places, edit),
        true => None,
    };
    let signed = match details {
        Some(details) => {
            details.put(&object, DETAILS, &mut edits, &mut removed);
            true
        }
        // Nothing changes if each element signs a call that stays.
        None => edit.drop_reasoning && !edit.foreign && is_list(&object, DETAILS),
    };
    let drops = edit.foreign || edit.drop_reasoning;
    // Blocks that go with all thoughts are not told apart first.
    if let Some(blocks) = (!drops)
        .then(|| thinking_blocks::newest(&object, &edit.joined))
        .flatten()
    {
        blocks.put(&object, thinking_blocks::FIELD, &mut edits, &mut removed);
    }
    for field in REASONING_FIELDS {
        // DeepSeek demands the field with every call, even if it is empty.
        let empty = object.raw(field) == Some(b"\"\"");
        let goes = edit.foreign || edit.drop_reasoning && !empty;
        if goes && !(signed && field == DETAILS) {
            removed.extend(object.position(field));
        }
    }
    edits.extend(json::cuts(&object, |place| removed.contains(&place)));
    Some(json::splice(bytes, edits))
}

fn is_list(object: &Object<'_>, key: &str) -> bool {
    let raw = object.raw(key).unwrap_or_default();
    json::elements(raw).next().is_some()
}

/// How an assistant message's text relates to what earlier hops handed out.
pub fn handed(bytes: &[u8], record: &TurnRecord) -> Handed {
    text_handed(bytes, &record.handed)
}

fn text_handed(bytes: &[u8], handed: &str) -> Handed {
    if handed.is_empty() {
        return Handed::Nothing;
    }
    let object = Object::parse(bytes).ok();
    match object.as_ref().and_then(content_parts::text) {
        Some((text, true)) if text == handed => Handed::All,
        Some((text, _)) if text.starts_with(handed) => Handed::Front,
        Some(_) | None => Handed::Changed,
    }
}

/// A tool message with other content.
pub fn result(bytes: &[u8], text: &str) -> Option<Bytes> {
    Some(json::with_content(&Object::parse(bytes).ok()?, text))
}

/// A system message with a block of text appended: behind a blank line to a string, as one more
/// part to an array.
pub fn append_text(bytes: &[u8], block: &str) -> Option<Bytes> {
    let content = Object::parse(bytes).ok()?.get("content")?;
    json::append_text(bytes, content, "text", block)
}

/// A call on its way into the edited message.
struct EditedCall<'a> {
    bytes: Cow<'a, [u8]>,
    stays: bool,
    /// Whether it is the client's own call.
    visible: bool,
    /// Whether it is a hidden call that an element of `reasoning_details` signed.
    signed: bool,
}

impl EditedCall<'_> {
    fn replace(&mut self, bytes: Option<Bytes>) {
        if let Some(bytes) = bytes {
            self.bytes = Cow::Owned(bytes.to_vec());
        }
    }

    fn place(&self) -> CallPlace {
        let call = Object::parse(&self.bytes).ok();
        let id = call.as_ref().and_then(|call| call.text("id"));
        CallPlace {
            id: id.unwrap_or_default().into_owned(),
            stays: self.stays,
            signed: self.signed,
            visible: self.visible,
        }
    }
}

/// The calls as they are sent, and what became of each of them.
fn calls(object: &Object<'_>, edit: &AssistantEdit<'_>) -> (Option<ListEdit>, Vec<CallPlace>) {
    let raw = object.present("tool_calls").unwrap_or_default();
    let named = !edit.names.is_empty() || !edit.ids.is_empty();
    let edits_calls = !edit.arguments.is_empty() || named || edit.foreign;
    let same = edit.keep_calls.is_none() && edit.insert.is_empty() && !edits_calls;
    if same && !edit.drop_reasoning {
        return (None, Vec::new());
    }
    let own = |(index, call)| {
        let mut piece = EditedCall {
            bytes: Cow::Borrowed(call),
            stays: edit.keeps_call(index),
            visible: true,
            signed: false,
        };
        piece.replace(edit.of_call(index).and_then(|new| self::call(call, &new)));
        piece
    };
    let mut all: Vec<EditedCall<'_>> = json::elements(raw).enumerate().map(own).collect();
    // The places of hidden calls count all calls, so they are put back before any call is left out.
    for hidden in &edit.insert {
        let back = put_back(&mut all, hidden);
        all.insert(hidden.place.min(all.len()), back);
    }
    for (before, hidden) in edit.left_out.iter().enumerate() {
        let bytes = hidden.bytes.as_bytes();
        let mut out = EditedCall {
            bytes: Cow::Borrowed(bytes),
            stays: false,
            visible: false,
            signed: hidden.signed,
        };
        out.replace(hidden.foreign.then(|| signature::bare(bytes)).flatten());
        all.insert((hidden.place + before).min(all.len()), out);
    }
    if !edit.foreign {
        hand_on(&mut all);
    }
    let places = all.iter().map(EditedCall::place).collect();
    if same {
        return (None, places);
    }
    let kept = all.iter().filter(|call| call.stays);
    let kept: Vec<&[u8]> = kept.map(|call| &*call.bytes).collect();
    (Some(ListEdit::leaving(&kept)), places)
}

/// A hidden call on its way back. The client got its signature with a call behind it: there the
/// signature is taken off again, so that the message is what the model said. A call that another
/// model made has no signature but the one that the client itself sends with it.
fn put_back<'a>(all: &mut [EditedCall<'_>], hidden: &Insert<'a>) -> EditedCall<'a> {
    let bytes = hidden.bytes.as_bytes();
    let mut back = EditedCall {
        bytes: Cow::Borrowed(bytes),
        stays: true,
        visible: false,
        signed: hidden.signed,
    };
    let signature = Signature::of(bytes);
    let behind = all.iter_mut().skip(hidden.place).find(|call| call.visible);
    let copy = behind
        .zip(signature.as_ref())
        .filter(|(call, own)| Signature::of(&call.bytes).is_some_and(|copy| copy.is(own)));
    let shown = copy.is_some();
    if let Some((call, own)) = copy {
        call.replace(own.take(&call.bytes));
    }
    if hidden.foreign
        && let Some(bare) = signature::bare(bytes)
    {
        let signed = signature.filter(|_| shown).and_then(|own| own.put(&bare));
        back.replace(Some(signed.unwrap_or(bare)));
    }
    back
}

/// Moves the signature of each call that goes to the next call that stays, unless that has its own.
fn hand_on(all: &mut [EditedCall<'_>]) {
    for at in 0..all.len() {
        let gone = all.get(at).filter(|call| !call.stays);
        let Some(signature) = gone.and_then(|call| Signature::of(&call.bytes)) else {
            continue;
        };
        let next = all.iter_mut().skip(at + 1).find(|call| call.stays);
        if let Some(next) = next.filter(|next| Signature::of(&next.bytes).is_none()) {
            next.replace(signature.put(&next.bytes));
        }
    }
}

/// A function call with the edit applied.
pub fn call(call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
    let bare = edit.bare.then(|| signature::bare(call)).flatten();
    let call = bare.as_deref().unwrap_or(call);
    let object = Object::parse(call).ok()?;
    let Some(function) = object.get("function") else {
        return bare;
    };
    let inner = Object::parse(call.get(function.clone())?).ok()?;
    let arguments = edit.arguments.map(raw::quote);
    let members = [
        ("name", edit.name.map(raw::quote)),
        ("arguments", arguments),
    ];
    let edits = set_members(&inner, members).into_iter();
    let mut edits: Vec<Edit> = edits
        .map(|(at, new)| (raw::shift(&at, function.start), new))
        .collect();
    edits.extend(set_members(&object, [("id", edit.id.map(raw::quote))]));
    Some(json::splice(call, edits))
}

#[cfg(test)]
mod tests;
