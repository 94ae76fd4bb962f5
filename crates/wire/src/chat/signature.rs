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
use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use memchr::memmem;
use plimsoll_model::raw::{self, Object};
use serde_json::Value;

use crate::answer::{Answer, Call};
use crate::edit::AssistantEdit;
use crate::json::{self, ListEdit};

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
        let own = of_members(call.extra.iter().map(|(key, raw)| (key, raw)));
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
pub fn of_members<'a>(
    members: impl IntoIterator<Item = (&'a String, &'a Bytes)>,
) -> Option<Signature> {
    let mut members = members.into_iter();
    members.find_map(|(key, raw)| Signature::read(key, raw))
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
) -> Option<ListEdit> {
    let raw = object.present(DETAILS)?;
    let elements = json::array(raw)?.map(Cow::Borrowed).collect();
    let (elements, uncut) = newest(elements, &edit.joined);
    let drop = edit.drop_reasoning;
    let ids: HashSet<&str> = calls.iter().map(|call| call.id.as_str()).collect();
    let before: Vec<Option<String>> = elements
        .iter()
        .map(|element| signs(&Object::parse(element).ok()?))
        .map(|id| id.filter(|id| ids.contains(id.as_str())))
        .collect();
    let (signed, gone) = moved(&before, calls);
    let kept =
        |at: &usize| !gone.contains(at) && (!drop || signed.get(*at).is_some_and(Option::is_some));
    let places: Vec<usize> = (0..elements.len()).filter(kept).collect();
    if uncut && places.len() == elements.len() && signed == before {
        return None;
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
    Some(ListEdit::leaving(&all))
}

/// Which call each element signs once those that were hidden or go have theirs in the right place, and the elements
/// that sign none any more. `before` says which call each signs as the client has it.
fn moved(before: &[Option<String>], calls: &[CallPlace]) -> (Vec<Option<String>>, HashSet<usize>) {
    // A message may have tens of thousands of calls, and as many elements.
    let mut of: HashMap<&str, BTreeSet<usize>> = HashMap::new();
    for (element, id) in before.iter().enumerate() {
        if let Some(id) = id {
            of.entry(id).or_default().insert(element);
        }
    }
    // The client got the hidden call's signature as that of its own call. Here it becomes the
    // hidden call's again, and moves on from there if the hidden call is left out.
    for (call, behind) in with_next(calls, |next| next.visible) {
        if let (true, false, Some(next)) = (call.signed, of.contains_key(&*call.id), behind)
            && let Some(theirs) = of.get_mut(&*next.id)
            && let Some(first) = theirs.pop_first()
        {
            if theirs.is_empty() {
                of.remove(&*next.id);
            }
            of.insert(&call.id, BTreeSet::from([first]));
        }
    }
    // The signature of a call that goes moves to the next call that stays, unless that has its own.
    let mut gone = HashSet::new();
    for (call, next) in with_next(calls, |next| next.stays) {
        if call.stays {
            continue;
        }
        let next = next.filter(|next| !of.contains_key(&*next.id));
        match (of.remove(&*call.id), next) {
            (Some(elements), Some(next)) => {
                of.insert(&next.id, elements);
            }
            (Some(elements), None) => gone.extend(elements),
            (None, _) => {}
        }
    }
    let mut signed = vec![None; before.len()];
    for (id, elements) in of {
        for element in elements {
            if let Some(own) = signed.get_mut(element) {
                *own = Some(id.to_owned());
            }
        }
    }
    (signed, gone)
}

/// Each call with the first behind it that is of a kind.
fn with_next(
    calls: &[CallPlace],
    of_kind: impl Fn(&CallPlace) -> bool,
) -> Vec<(&CallPlace, Option<&CallPlace>)> {
    let mut next = None;
    let mut all = Vec::with_capacity(calls.len());
    for call in calls.iter().rev() {
        all.push((call, next));
        if of_kind(call) {
            next = Some(call);
        }
    }
    all.reverse();
    all
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

/// An element of `reasoning_details` made to sign the call with this id.
pub fn renamed(detail: &[u8], id: &str) -> Option<Bytes> {
    let object = Object::parse(detail).ok()?;
    Some(json::with_text(&object, "id", id))
}

#[cfg(test)]
mod tests;
