//! Edits of one unit of a Responses conversation by bytes: items left out, results replaced, hidden
//! calls put back. What an edit does not name keeps its bytes. Never decides what to edit.
//!
//! The API refuses reasoning that nothing follows, and an item whose id came with reasoning that is
//! not there. So reasoning is removed with the last of the items that it led to; if it is removed
//! before them, their ids are removed with it. A hidden call gets its id back only behind reasoning
//! that has one.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::raw::{self, Object};
use plimsoll_model::{Handed, TurnRecord};

use super::item::{self, ItemType, ResponsesItem, Unit};
use crate::blocks::Piece;
use crate::blocks::edit::{self, BlockForm, Remainder, Slot};
use crate::edit::{AssistantEdit, CallEdit, bare, behind, handed_at_cap};
use crate::json;

const FORM: BlockForm = BlockForm {
    own: &[
        "type",
        "id",
        "call_id",
        "name",
        "arguments",
        "input",
        "status",
    ],
    id: "call_id",
    arguments: "arguments",
    quoted: true,
    instead: |item, text| Some(ResponsesItem::read(item).ok()?.instead(text)),
};

/// An assistant's unit with the edit applied; empty if nothing is left of it. `None` if its bytes
/// can't be read, or do not begin with the hops that are to be cut.
pub fn assistant(bytes: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
    let items = item::items(bytes).ok()?;
    let rest = remainders(&items, &edit.cut.hops, true)?;
    let own = rest.iter();
    let own = own.map(|own| Some(Slot::new(own.block.kind.piece(), left(own)?)));
    let mut slots: Vec<Slot<'_>> = own.collect::<Option<_>>()?;
    edit::apply(&mut slots, edit, &FORM);
    edit::insert(&mut slots, &edit.insert, &[], &FORM);
    thoughts(&mut slots, edit.drop_reasoning || edit.foreign);
    let same = |slot: &Slot<'_>| slot.stays && matches!(slot.bytes, Cow::Borrowed(_));
    if rest.len() == items.len() && edit.insert.is_empty() && slots.iter().all(same) {
        return Some(Bytes::copy_from_slice(bytes));
    }
    let left = slots.iter().filter(|slot| slot.stays);
    let left: Vec<&[u8]> = left.map(|slot| &*slot.bytes).collect();
    Some(json::joined(&left))
}

/// A call with the edit applied.
pub fn call(call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
    FORM.call(call, edit)
}

/// Decides what becomes of reasoning. Reasoning leads to all that follows it, up to the next
/// reasoning.
fn thoughts(slots: &mut [Slot<'_>], drop: bool) {
    let is_thought = |slot: &Slot<'_>| slot.piece == Piece::Reasoning;
    for group in slots.chunk_by_mut(|before, next| is_thought(before) || !is_thought(next)) {
        let leads = group.iter().take_while(|slot| is_thought(slot)).count();
        let (leading, led) = group.split_at_mut(leads);
        let gone = !led.is_empty() && led.iter().all(|slot| !slot.stays);
        // The items of the provider's own tools are unreadable without their ids.
        let bound = led
            .iter()
            .any(|slot| slot.stays && slot.piece == Piece::Other);
        let drops = gone || drop && !bound;
        // If the client left reasoning out, it left ids out too, or no id was tied to reasoning.
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
    Some(raw::splice(raw, &json::cuts(&object, |place| place == id)))
}

/// The bytes of what no earlier hop showed.
fn left<'a>(own: &Remainder<'_, ResponsesItem<'a>>) -> Option<Cow<'a, [u8]>> {
    let Some(text) = &own.text else {
        return Some(Cow::Borrowed(own.block.raw()));
    };
    let rest = own.block.saying(text)?;
    let bare = without_id(&rest).filter(|_| own.taken);
    Some(Cow::Owned(bare.unwrap_or(rest).to_vec()))
}

/// More items than this are not compared, each with each. No model makes so many in an answer.
const MOST_ITEMS: usize = 2_000;

/// The client's items without those that earlier hops showed; `None` if these are not all there. A
/// client may drop reasoning and the items of the provider's own tools. Some clients put all
/// reasoning first, and join all text to one message; `joined` says whether that may be.
fn remainders<'b, 'a>(
    items: &'b [ResponsesItem<'a>],
    hops: &[&str],
    joined: bool,
) -> Option<Vec<Remainder<'b, ResponsesItem<'a>>>> {
    let mut left = Remainder::all(items);
    for hop in hops {
        let hop = item::items(hop.as_bytes()).unwrap_or_default();
        if items.len().max(hop.len()) > MOST_ITEMS {
            return None;
        }
        for shown in &hop {
            let thought = |own: &Remainder<'_, ResponsesItem<'_>>| {
                own.block.kind == ItemType::Reasoning && same_thought(own.block, shown)
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

/// Takes out an item that was shown, if it is the first of the client's items that is no reasoning.
fn take(
    left: &mut Vec<Remainder<'_, ResponsesItem<'_>>>,
    shown: &ResponsesItem<'_>,
    joined: bool,
) -> bool {
    let text = shown.said();
    let mut said = left.iter_mut().enumerate();
    let first = said.find(|(_, own)| own.block.kind != ItemType::Reasoning);
    let Some((at, first)) = first else {
        return text.is_empty();
    };
    if first.text.is_none() && same(first.block, shown) {
        left.remove(at);
        return true;
    }
    if text.is_empty() || !joined || first.block.kind != shown.kind {
        return text.is_empty();
    }
    let before = first.text.take().unwrap_or_else(|| first.block.said());
    match behind(&before, &text) {
        None => return false,
        Some("") => {
            left.remove(at);
        }
        Some(rest) => {
            first.text = Some(rest.to_owned());
            first.taken |= first.block.id() == shown.id();
        }
    }
    true
}

/// Whether the client saw this item of a hop whose calls were all hidden. Reasoning does not count.
fn is_shown(item: &ResponsesItem<'_>) -> bool {
    matches!(item.kind, ItemType::Message(_) | ItemType::Fixed)
}

/// Whether the client's item is the hop's, or refers to it.
fn same(client: &ResponsesItem<'_>, hop: &ResponsesItem<'_>) -> bool {
    let named = client.kind == ItemType::Fixed && client.id().is_some() && client.id() == hop.id();
    let said = || hop.kind == client.kind && client.kind != ItemType::Fixed;
    named || (said() && client.said() == hop.said())
}

fn same_thought(client: &ResponsesItem<'_>, hop: &ResponsesItem<'_>) -> bool {
    if hop.kind != ItemType::Reasoning {
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
pub fn handed(bytes: &[u8], record: &TurnRecord) -> Handed {
    let hops = record.handed_out();
    if record.hops.iter().all(|hop| hop.message.is_some()) {
        return capped(bytes, &record.handed);
    }
    if hops.is_empty() {
        return Handed::Nothing;
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
    // Another text may begin alike, so a joined text must be all that the turn said.
    let said = || items.iter().map(ResponsesItem::said).collect::<String>();
    let joined = || bare(&said()) == record.bare && remainders(&items, &hops, true).is_some();
    if remainders(&items, &hops, false).is_some() || joined() {
        Handed::Split
    } else {
        Handed::Changed
    }
}

/// Like [`handed`], if the record keeps every hop whole.
fn capped(bytes: &[u8], handed: &str) -> Handed {
    if handed.is_empty() {
        return Handed::Nothing;
    }
    let Ok(items) = item::items(bytes) else {
        return Handed::Changed;
    };
    let said: String = items.iter().map(ResponsesItem::said).collect();
    let calls = items.iter().any(|item| item.kind == ItemType::Call);
    handed_at_cap(&said, calls, handed)
}

/// A result with other content.
pub fn result(bytes: &[u8], text: &str) -> Option<Bytes> {
    let item = ResponsesItem::read(bytes).ok()?;
    let output = item.shell_saying(text);
    let output = output.unwrap_or_else(|| raw::quote(text).into_bytes().into());
    Some(json::with(&item.object, "output", &output))
}

/// Appends a block of text to a system unit: a blank line and the block, or one more part.
pub fn append_text(bytes: &[u8], block: &str) -> Option<Bytes> {
    // A lone surrogate in the text makes the unit unreadable. Its stand-in has the same length, so
    // the span that is found fits the client's own bytes.
    let mended = raw::mended(bytes);
    let content = match item::read(mended.as_deref().unwrap_or(bytes)).ok()? {
        Unit::Instructions(_, span) => span,
        Unit::Items(items) => items.first()?.object.get("content")?,
        Unit::Input(_) => return None,
    };
    json::append_text(bytes, content, "input_text", block)
}

#[cfg(test)]
mod tests;
