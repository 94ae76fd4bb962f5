//! Signatures of calls: what a provider demands back with them, and where it goes when the call
//! that it came with is left out. Knows where they stand, and never decides which calls stay.
//!
//! Gemini signs the first call of a message only, and refuses the calls of the current turn where
//! the first one has no signature (<https://ai.google.dev/gemini-api/docs/thought-signatures>). Its
//! OpenAI-compatible surface puts it into the call, as `extra_content.google.thought_signature`;
//! LiteLLM puts it under `provider_specific_fields`. OpenRouter keeps it in the message, as an
//! encrypted element of `reasoning_details` that names the call by its `id`
//! (<https://openrouter.ai/docs/guides/best-practices/reasoning-tokens#preserving-reasoning-blocks>).

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;
use serde_json::Value;

use crate::dialect::answer::{Answer, Call};
use crate::dialect::edit::AssistantEdit;
use crate::dialect::json;
use crate::model::raw::{self, Object};

/// The members of a call that are the API's own.
const OWN_MEMBERS: [&str; 5] = ["index", "id", "type", "function", "custom"];
/// The names of the member that holds a signature, however deep it stands.
const KEYS: [&str; 2] = ["thought_signature", "thoughtSignature"];
/// The field of a message whose elements may sign calls.
pub const DETAILS: &str = "reasoning_details";

/// A call's signature with the member that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The member of the call.
    pub key: String,
    /// The member's value as raw JSON.
    pub raw: Bytes,
    /// The signature itself.
    value: String,
}

impl Signature {
    /// The signature in one member of a call.
    pub fn read(key: &str, raw: &[u8]) -> Option<Self> {
        let named = KEYS.contains(&key);
        let holds = |key: &&str| memmem::find(raw, key.as_bytes()).is_some();
        if OWN_MEMBERS.contains(&key) || !(named || KEYS.iter().any(holds)) {
            return None;
        }
        let parsed: Value = serde_json::from_slice(raw).ok()?;
        let value = if named {
            text(&parsed)
        } else {
            within(&parsed)
        };
        Some(Self {
            key: key.to_owned(),
            raw: Bytes::copy_from_slice(raw),
            value: value?,
        })
    }

    /// The signature of a call.
    pub fn of(call: &[u8]) -> Option<Self> {
        if !KEYS
            .iter()
            .any(|key| memmem::find(call, key.as_bytes()).is_some())
        {
            return None;
        }
        let call = Object::parse(call).ok()?;
        let mut members = call.members().iter();
        members.find_map(|member| Self::read(&member.key, call.bytes().get(member.value.clone())?))
    }

    /// Whether both are the same signature, however they are written.
    pub fn is(&self, other: &Self) -> bool {
        self.value == other.value
    }

    /// The call with this signature.
    pub fn put(&self, call: &[u8]) -> Option<Bytes> {
        let object = Object::parse(call).ok()?;
        Some(json::with(&object, &self.key, &self.raw))
    }

    /// The call without the member that holds this signature.
    pub fn take(&self, call: &[u8]) -> Option<Bytes> {
        json::without(call, |member| {
            let raw = call.get(member.value.clone());
            let own = raw.and_then(|raw| Self::read(&member.key, raw));
            own.is_some_and(|own| own.is(self))
        })
    }
}

fn text(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned)
}

fn within(value: &Value) -> Option<String> {
    let members = value.as_object()?;
    let own = KEYS
        .iter()
        .filter_map(|key| members.get(*key))
        .find_map(text);
    own.or_else(|| members.values().find_map(within))
}

/// A call without the members that only the provider that made the call can read.
pub fn bare(call: &[u8]) -> Option<Bytes> {
    json::with_only(call, &OWN_MEMBERS)
}

/// The visible calls of an answer as the client gets them: the signature of a hidden call goes to
/// the next visible one.
pub fn visible(answer: &Answer) -> Vec<Call> {
    let mut owed: Option<Signature> = None;
    let mut visible = Vec::new();
    for call in &answer.calls {
        let own = of_members(&call.extra);
        if call.hidden {
            owed = owed.or(own);
            continue;
        }
        let mut call = call.clone();
        if let Some(owed) = owed.take().filter(|_| own.is_none()) {
            call.extra.retain(|(key, _)| *key != owed.key);
            call.extra.push((owed.key, owed.raw));
        }
        visible.push(call);
    }
    visible
}

/// The signature among members that are not the API's own.
pub fn of_members(members: &[(String, Bytes)]) -> Option<Signature> {
    members
        .iter()
        .find_map(|(key, raw)| Signature::read(key, raw))
}

/// The id of the call that an element of `reasoning_details` signs.
pub fn signs(detail: &Object<'_>) -> Option<String> {
    let sealed = detail.text("type").as_deref() == Some("reasoning.encrypted");
    let id = detail.text("id").filter(|id| sealed && !id.is_empty())?;
    Some(id.into_owned())
}

/// One call of a message, as far as signatures depend on it.
pub struct CallPlace {
    pub id: String,
    /// Whether the message is sent with it.
    pub stays: bool,
    /// Whether it is hidden and an element of `reasoning_details` signed it.
    pub signed: bool,
    /// Whether the client has it.
    pub visible: bool,
}

/// The edit of a message's `reasoning_details`; `None` if nothing changes. An element that signs a
/// call stays with that call, or signs the next call that stays. The other elements all stay or all
/// go, except those of earlier hops: the client could not tell those from the newest hop's, so they
/// always go.
pub fn details(
    object: &Object<'_>,
    calls: &[CallPlace],
    edit: &AssistantEdit<'_>,
) -> Option<DetailsEdit> {
    let raw = object.present(DETAILS)?;
    let elements = json::array(raw)?.map(Cow::Borrowed).collect();
    let (elements, uncut) = newest(elements, &edit.joined);
    let drop = edit.drop_reasoning;
    let mut signed: Vec<Option<String>> = elements
        .iter()
        .map(|element| signs(&Object::parse(element).ok()?))
        .map(|id| id.filter(|id| calls.iter().any(|call| call.id == *id)))
        .collect();
    let before = signed.clone();
    let has = |signed: &[Option<String>], id: &str| signed.iter().flatten().any(|own| own == id);
    // The client got the hidden call's signature as that of its own call. Here it becomes the
    // hidden call's again, and moves on from there if the hidden call is left out.
    for (at, call) in calls.iter().enumerate() {
        let behind = calls.iter().skip(at + 1).find(|next| next.visible);
        if let (true, Some(next)) = (call.signed, behind)
            && !has(&signed, &call.id)
            && let Some(own) = signed.iter_mut().flatten().find(|own| **own == next.id)
        {
            own.clone_from(&call.id);
        }
    }
    // The signature of a call that goes moves to the next call that stays, unless that has its own.
    let mut gone: Vec<usize> = Vec::new();
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| !call.stays) {
        let next = calls.iter().skip(at + 1).find(|next| next.stays);
        let next = next.filter(|next| !has(&signed, &next.id));
        for (element, own) in signed.iter_mut().enumerate() {
            match (own, &next) {
                (Some(own), Some(next)) if *own == call.id => own.clone_from(&next.id),
                (Some(own), None) if *own == call.id => gone.push(element),
                _ => {}
            }
        }
    }
    let kept =
        |at: &usize| !gone.contains(at) && (!drop || signed.get(*at).is_some_and(Option::is_some));
    let places: Vec<usize> = (0..elements.len()).filter(kept).collect();
    if uncut && places.len() == elements.len() && signed == before {
        return None;
    }
    if places.is_empty() {
        return Some(DetailsEdit::Remove);
    }
    let element = |at: usize| {
        let element = elements.get(at).map(Cow::as_ref).unwrap_or_default();
        let new = signed.get(at).filter(|new| before.get(at) != Some(new));
        match new {
            Some(Some(id)) => renamed(element, id).unwrap_or_default(),
            Some(None) | None => Bytes::copy_from_slice(element),
        }
    };
    let all: Vec<Bytes> = places.into_iter().map(element).collect();
    Some(DetailsEdit::Replace(json::list(&all)))
}

/// The elements without those that earlier hops had shown, and whether all elements are left. A
/// client either appends the elements of each hop or joins the texts of those with one index.
fn newest<'a>(elements: Vec<Cow<'a, [u8]>>, joined: &[&str]) -> (Vec<Cow<'a, [u8]>>, bool) {
    let mut said = String::new();
    for hop in joined {
        let hop = Object::parse(hop.as_bytes()).ok();
        let raw = hop.as_ref().and_then(|hop| hop.present(DETAILS));
        for element in json::objects(raw.unwrap_or_default()) {
            said.extend(element.text("text").map(Cow::into_owned));
        }
    }
    let (mut rest, mut uncut, mut thought) = (said.as_str(), true, false);
    let mut left = Vec::with_capacity(elements.len());
    for element in &elements {
        let object = Object::parse(element).ok();
        let text = object.as_ref().and_then(|object| object.text("text"));
        let text = text.filter(|text| !text.is_empty());
        let whole = rest.is_empty();
        thought |= text.is_some() && whole;
        let text = text.filter(|_| !whole);
        let new = match (&object, text) {
            (_, Some(text)) if rest.starts_with(&*text) => {
                rest = rest.get(text.len()..).unwrap_or_default();
                uncut = false;
                continue;
            }
            (Some(object), Some(text)) => {
                thought = true;
                text.strip_prefix(rest).map(|own| {
                    rest = "";
                    object.set("text", raw::quote(own).as_bytes())
                })
            }
            _ => None,
        };
        left.push(match new {
            Some(edit) => {
                uncut = false;
                Cow::Owned(raw::splice(element, &[edit]).to_vec())
            }
            None => element.clone(),
        });
    }
    // If no thought is left, the client was never shown the earlier hops, and the newest hop merely
    // thought the same as they did: nothing is cut.
    if thought {
        (left, uncut)
    } else {
        (elements, true)
    }
}

/// The change of a message's `reasoning_details`.
#[derive(Debug, PartialEq, Eq)]
pub enum DetailsEdit {
    /// This JSON array takes their place.
    Replace(Bytes),
    /// The field is removed.
    Remove,
}

/// An element of `reasoning_details` made to sign the call with this id.
pub fn renamed(detail: &[u8], id: &str) -> Option<Bytes> {
    let object = Object::parse(detail).ok()?;
    Some(json::with_text(&object, "id", id))
}

#[cfg(test)]
mod tests;
