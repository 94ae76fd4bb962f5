//! Edits of one unit of a Responses conversation by bytes: items left out, results replaced, hidden
//! calls put back. What is not named keeps its bytes. Never decides what to edit.
//!
//! The API refuses reasoning that nothing follows, and an item whose id came with reasoning that is
//! not there. So reasoning goes with the last of the items that it led to, and where it goes before
//! them, their ids go with it. A hidden call has its id back only behind reasoning that has one.

use std::borrow::Cow;

use bytes::Bytes;

use super::item::{self, Item, Kind, Unit};
use crate::dialect::edit::{AssistantEdit, CallEdit, Insert, bare, behind};
use crate::model::raw::{self, Edit, Object, Span};
use crate::model::{Handed, TurnRecord};

/// An item on its way into the edited unit.
struct Slot<'a> {
    kind: Kind,
    bytes: Cow<'a, [u8]>,
    stays: bool,
    /// Whether it is a hidden call on its way back.
    hidden: bool,
}

/// An assistant's unit with the edit applied; empty where nothing is left of it. `None` if its
/// bytes can't be read, or do not begin with what is to be cut.
#[must_use]
pub fn assistant(bytes: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
    let items = item::items(bytes).ok()?;
    let own = own(&items, &edit.cut.hops, true)?;
    let mut slots = slots(&own, edit)?;
    insert(&mut slots, &edit.insert);
    thoughts(&mut slots, edit.drop_reasoning);
    let same = |slot: &Slot<'_>| slot.stays && matches!(slot.bytes, Cow::Borrowed(_));
    if own.len() == items.len() && edit.insert.is_empty() && slots.iter().all(same) {
        return Some(Bytes::copy_from_slice(bytes));
    }
    let left = slots.iter().filter(|slot| slot.stays);
    let left: Vec<&[u8]> = left.map(|slot| &*slot.bytes).collect();
    Some(Bytes::from(left.join(&b","[..])))
}

/// The client's items: which of them stay, and calls with their new arguments. Reasoning stays for
/// now.
fn slots<'a>(own: &[Own<'_, 'a>], edit: &AssistantEdit<'_>) -> Option<Vec<Slot<'a>>> {
    let mut calls = 0..;
    let mut line = edit.text;
    let slot = |own: &Own<'_, 'a>| {
        let item = own.item;
        let mut bytes = own.bytes()?;
        let stays = match item.kind {
            Kind::Message(_) if edit.text.is_some() && !edit.drop_text => {
                // All that was said is one line, in the place of the first of it.
                let line = line.take();
                if let Some(line) = line {
                    bytes = Cow::Owned(item.instead(line));
                }
                line.is_some()
            }
            Kind::Message(_) => !edit.drop_text,
            Kind::Call => {
                let call = calls.next().unwrap_or_default();
                if let Some(new) = edit.of_call(call) {
                    bytes = Cow::Owned(with(&item.object, &new).to_vec());
                }
                let keep = edit.keep_calls.as_ref();
                keep.is_none_or(|keep| keep.get(call).copied().unwrap_or(true))
            }
            Kind::Reasoning | Kind::Fixed | Kind::Result | Kind::Trigger | Kind::Unknown => true,
        };
        Some(Slot {
            kind: item.kind,
            bytes,
            stays,
            hidden: false,
        })
    };
    own.iter().map(slot).collect()
}

/// A call with the edit applied.
#[must_use]
pub fn call(call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
    Some(with(&Object::parse(call).ok()?, edit))
}

fn with(call: &Object<'_>, edit: &CallEdit<'_>) -> Bytes {
    let members = [("name", edit.name), ("arguments", edit.arguments)];
    let mut edits: Vec<Edit> = members
        .into_iter()
        .filter_map(|(key, new)| Some(call.set(key, raw::quote(new?).as_bytes())))
        .collect();
    edits.sort_by_key(|(span, _)| span.start);
    raw::splice(call.bytes(), &edits)
}

/// Puts hidden calls back: at their places among all items where the client sends every one that
/// it was shown, else at their places among the calls.
fn insert<'a>(slots: &mut Vec<Slot<'a>>, inserts: &[Insert<'a>]) {
    let all = slots.len() + inserts.len();
    let whole = |insert: &Insert<'_>| insert.block.is_some_and(|(_, of)| of as usize == all);
    let whole = inserts.iter().all(whole);
    for insert in inserts {
        let among_calls = || {
            let places = slots.iter().enumerate();
            let mut calls = places.filter(|(_, slot)| slot.kind == Kind::Call);
            calls.nth(insert.place).map(|(at, _)| at)
        };
        let at = match insert.block {
            Some((at, _)) if whole => Some(at as usize),
            Some(_) | None => among_calls(),
        };
        let slot = Slot {
            kind: Kind::Call,
            bytes: Cow::Borrowed(insert.bytes.as_bytes()),
            stays: true,
            hidden: true,
        };
        slots.insert(at.unwrap_or(usize::MAX).min(slots.len()), slot);
    }
}

/// Decides what becomes of reasoning: it leads to all that follows up to the next.
fn thoughts(slots: &mut [Slot<'_>], drop: bool) {
    let is_thought = |slot: &Slot<'_>| slot.kind == Kind::Reasoning;
    for group in slots.chunk_by_mut(|before, next| is_thought(before) || !is_thought(next)) {
        let leads = group.iter().take_while(|slot| is_thought(slot)).count();
        let (leading, led) = group.split_at_mut(leads);
        let gone = !led.is_empty() && led.iter().all(|slot| !slot.stays);
        // What the provider's own tools did can't do without its id.
        let bound = led
            .iter()
            .any(|slot| slot.stays && slot.kind == Kind::Fixed);
        let drops = gone || drop && !bound;
        // Where the client left reasoning out it left ids out too, or the id was never tied to any.
        let tied = leading.iter().any(|slot| has_id(&slot.bytes));
        for slot in leading.iter_mut().filter(|_| drops) {
            slot.stays = false;
        }
        let bare =
            |slot: &&mut Slot<'_>| slot.stays && (leads > 0 && drops || slot.hidden && !tied);
        for slot in led.iter_mut().filter(bare) {
            if let Some(bare) = without_id(&slot.bytes) {
                slot.bytes = Cow::Owned(bare.to_vec());
            }
        }
    }
}

fn has_id(raw: &[u8]) -> bool {
    Object::parse(raw).is_ok_and(|object| object.present("id").is_some())
}

fn without_id(raw: &[u8]) -> Option<Bytes> {
    let object = Object::parse(raw).ok()?;
    let id = object.position("id")?;
    let cut = object.remove_span(id)?;
    Some(raw::splice(raw, &[(cut, Bytes::new())]))
}

/// An item of the client's that no earlier hop showed, or not all of it.
struct Own<'b, 'a> {
    item: &'b Item<'a>,
    /// What is left of its text, where the client joined it to what an earlier hop showed.
    text: Option<String>,
    /// Whether its id is that of an earlier hop's item, which has it still.
    taken: bool,
}

impl<'a> Own<'_, 'a> {
    fn bytes(&self) -> Option<Cow<'a, [u8]>> {
        let Some(text) = &self.text else {
            return Some(Cow::Borrowed(self.item.raw()));
        };
        let rest = self.item.saying(text)?;
        let bare = without_id(&rest).filter(|_| self.taken);
        Some(Cow::Owned(bare.map_or(rest, |bare| bare.to_vec())))
    }
}

/// The client's items without those that earlier hops showed; `None` where these are not all there.
/// Clients drop reasoning and what the provider's own tools did, which is borne; some put all
/// reasoning first, and all text into one message if it may be `joined`.
fn own<'b, 'a>(items: &'b [Item<'a>], hops: &[&str], joined: bool) -> Option<Vec<Own<'b, 'a>>> {
    let own = |item| Own {
        item,
        text: None,
        taken: false,
    };
    let mut left: Vec<Own<'b, 'a>> = items.iter().map(own).collect();
    for hop in hops {
        let hop = item::items(hop.as_bytes()).unwrap_or_default();
        for shown in &hop {
            let thought = |own: &Own<'_, '_>| {
                own.item.kind == Kind::Reasoning && same_thought(own.item, shown)
            };
            if let Some(at) = left.iter().position(thought) {
                left.remove(at);
            }
            if is_shown(shown) && !take(&mut left, shown, joined) {
                return None;
            }
        }
    }
    Some(left)
}

/// Takes out what was shown, if the first that was said is that.
fn take(left: &mut Vec<Own<'_, '_>>, shown: &Item<'_>, joined: bool) -> bool {
    let text = shown.said();
    let mut said = left.iter_mut().enumerate();
    let first = said.find(|(_, own)| own.item.kind != Kind::Reasoning);
    let Some((at, first)) = first else {
        return text.is_empty();
    };
    if first.text.is_none() && same(first.item, shown) {
        left.remove(at);
        return true;
    }
    if text.is_empty() || !joined || first.item.kind != shown.kind {
        return text.is_empty();
    }
    let before = first.text.take().unwrap_or_else(|| first.item.said());
    match behind(&before, &text) {
        None => return false,
        Some("") => {
            left.remove(at);
        }
        Some(rest) => {
            first.text = Some(rest.to_owned());
            first.taken |= first.item.id() == shown.id();
        }
    }
    true
}

/// Whether the client saw this item of a hop whose calls were all hidden, whatever became of its
/// reasoning.
fn is_shown(item: &Item<'_>) -> bool {
    matches!(item.kind, Kind::Message(_) | Kind::Fixed)
}

/// Whether the client's item is the hop's, or refers to it.
fn same(client: &Item<'_>, hop: &Item<'_>) -> bool {
    let named = client.kind == Kind::Fixed && client.id().is_some() && client.id() == hop.id();
    let said = || hop.kind == client.kind && client.kind != Kind::Fixed;
    named || (said() && client.said() == hop.said())
}

fn same_thought(client: &Item<'_>, hop: &Item<'_>) -> bool {
    if hop.kind != Kind::Reasoning {
        return false;
    }
    let sealed = "encrypted_content";
    let sealed = (client.object.text(sealed), hop.object.text(sealed));
    match (client.id(), hop.id(), sealed) {
        (Some(client), Some(hop), _) | (_, _, (Some(client), Some(hop))) => client == hop,
        _ => client.thoughts() == hop.thoughts(),
    }
}

/// How the client's unit of a turn relates to what the turn's earlier hops handed out.
#[must_use]
pub fn handed(bytes: &[u8], record: &TurnRecord) -> Handed {
    let mut hops: Vec<&str> = Vec::new();
    hops.extend(record.hops.iter().filter_map(|hop| hop.message.as_deref()));
    if hops.is_empty() {
        return Handed::Nothing;
    }
    if hops.len() == record.hops.len() {
        return capped(bytes, &record.handed);
    }
    let visible = |hop: &&str| {
        let items = item::items(hop.as_bytes()).unwrap_or_default();
        items.iter().any(is_shown)
    };
    if !hops.iter().any(visible) {
        return Handed::Nothing;
    }
    let Ok(items) = item::items(bytes) else {
        return Handed::Changed;
    };
    // Texts that begin alike may be others: a join has to be all that the turn said.
    let said = || items.iter().map(Item::said).collect::<String>();
    let joined = || bare(&said()) == record.bare && own(&items, &hops, true).is_some();
    if own(&items, &hops, false).is_some() || joined() {
        Handed::Split
    } else {
        Handed::Changed
    }
}

/// As [`handed`], where the record keeps every hop whole.
fn capped(bytes: &[u8], handed: &str) -> Handed {
    if handed.is_empty() {
        return Handed::Nothing;
    }
    let Ok(items) = item::items(bytes) else {
        return Handed::Changed;
    };
    let said: String = items.iter().map(Item::said).collect();
    let calls = items.iter().any(|item| item.kind == Kind::Call);
    if bare(&said) == bare(handed) && !calls {
        Handed::All
    } else {
        Handed::Changed
    }
}

/// A result with other content.
#[must_use]
pub fn result(bytes: &[u8], text: &str) -> Option<Bytes> {
    let item = Item::read(bytes).ok()?;
    let output = item.shell_saying(text);
    let output = output.unwrap_or_else(|| raw::quote(text).into_bytes());
    let new = item.object.set("output", &output);
    Some(raw::splice(bytes, &[new]))
}

/// The result of a hidden call as a unit.
#[must_use]
pub fn hidden_result(id: &str, text: &str) -> Bytes {
    let (id, text) = (raw::quote(id), raw::quote(text));
    Bytes::from(format!(
        r#"{{"type":"function_call_output","call_id":{id},"output":{text}}}"#
    ))
}

/// A system unit with a block of text appended: after a blank line to a string, as one more part to
/// an array.
#[must_use]
pub fn append_text(bytes: &[u8], block: &str) -> Option<Bytes> {
    // Half a character in what stands there can't be read, and need not be: nothing is moved by that.
    let mended = raw::mended(bytes);
    let edit = match item::read(mended.as_deref().unwrap_or(bytes)).ok()? {
        Unit::Instructions(_, span) => append(bytes, span, block)?,
        Unit::Items(items) => append(bytes, items.first()?.object.get("content")?, block)?,
        Unit::Input(_) => return None,
    };
    Some(raw::splice(bytes, &[edit]))
}

/// The edit that appends to the string or the array of parts at this span.
fn append(bytes: &[u8], span: Span, block: &str) -> Option<Edit> {
    let raw = bytes.get(span.clone())?;
    match raw.first()? {
        b'"' => {
            let addition = raw::quote(&format!("\n\n{block}"));
            let inner = addition.get(1..)?.to_owned();
            Some((span.end - 1..span.end, Bytes::from(inner)))
        }
        b'[' => {
            let part = format!(r#"{{"type":"input_text","text":{}}}"#, raw::quote(block));
            let elements = raw::array(raw).ok()?;
            let (at, comma) = elements.last().map_or((1, ""), |last| (last.end, ","));
            let at = span.start + at;
            Some((at..at, Bytes::from(format!("{comma}{part}"))))
        }
        _ => None,
    }
}

/// A system unit of the proxy's own.
#[must_use]
pub fn system(block: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"role":"system","content":{}}}"#,
        raw::quote(block)
    ))
}

#[cfg(test)]
mod tests;
