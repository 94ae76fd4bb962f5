//! Edits of one unit of a Messages conversation by bytes: blocks left out or cut from the front,
//! results replaced, hidden calls put back. Blocks that an edit does not name keep their bytes.
//! Never decides what to edit.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::raw::{self, Object};
use plimsoll_model::{Handed, TurnRecord};

use super::block::{self, Block, BlockType, Unit, UnitForm};
use crate::blocks::Piece;
use crate::blocks::edit::{self, BlockForm, Remainder, Slot};
use crate::edit::{AssistantEdit, CallEdit, bare, behind, handed_at_cap};
use crate::json;
use crate::message::canonical_part;

const FORM: BlockForm = BlockForm {
    own: &["type", "id", "name", "input", "cache_control"],
    id: "id",
    arguments: "input",
    quoted: false,
    // A string stands for a block of text.
    instead: |_, text| Some(raw::quote(text).into()),
};

/// An assistant's unit with the edit applied; no bytes if nothing is left of it that may be sent.
/// `None` if it can't be read; a unit that was parsed before always can.
pub fn assistant(bytes: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
    let unit = Unit::read(bytes).ok()?;
    let UnitForm::Message { content, .. } = &unit.form else {
        return None;
    };
    let rest = remainders(&unit.blocks, &edit.cut.hops, true);
    let rest = rest.unwrap_or_else(|| Remainder::all(&unit.blocks));
    let own = rest.iter();
    let own = own.map(|own| Slot::new(own.block.kind.piece(), left(own)));
    let mut slots: Vec<Slot<'_>> = own.collect();
    edit::apply(&mut slots, edit, &FORM);
    if edit.text.is_some() && !edit.drop_text {
        // The places of hidden calls do not count texts that a line replaces.
        slots.retain(|slot| slot.stays || slot.piece != Piece::Text);
    }
    edit::insert(&mut slots, &edit.insert, &edit.left_out, &FORM);
    if edit.drop_reasoning || edit.foreign {
        let thoughts = slots.iter_mut();
        let thoughts = thoughts.filter(|slot| slot.piece == Piece::Reasoning);
        thoughts.for_each(|slot| slot.stays = false);
    }
    let same = |(slot, block): (&Slot<'_>, &Block<'_>)| slot.stays && *slot.bytes == *block.raw;
    if slots.len() == unit.blocks.len() && slots.iter().zip(&unit.blocks).all(same) {
        return Some(Bytes::copy_from_slice(bytes));
    }
    slots.retain(|slot| slot.stays);
    if slots.iter().all(|slot| slot.piece == Piece::Reasoning) {
        return Some(Bytes::new());
    }
    let elements: Vec<Cow<'_, [u8]>> = slots.into_iter().map(element).collect();
    let array = json::list(&elements);
    let place = match content {
        Some(span) => (span.clone(), array),
        None => Object::parse(bytes).ok()?.append("content", &array),
    };
    Some(raw::splice(bytes, &[place]))
}

/// A slot as an element of an array of blocks.
fn element(slot: Slot<'_>) -> Cow<'_, [u8]> {
    match slot.bytes.first() {
        Some(b'"') => Cow::Owned(block::text_of(&slot.bytes)),
        Some(_) | None => slot.bytes,
    }
}

/// A call with the edit applied. `None` if its arguments are to be anything but an object.
pub fn call(call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
    FORM.call(call, edit)
}

/// The bytes of what no earlier hop showed.
fn left<'a>(own: &Remainder<'_, Block<'a>>) -> Cow<'a, [u8]> {
    let Some(text) = &own.text else {
        return Cow::Borrowed(own.block.raw);
    };
    let text = raw::quote(text).into_bytes();
    let block = own.block.with("text", &text);
    Cow::Owned(block.map_or(text, |block| block.to_vec()))
}

/// The client's blocks without those that earlier hops showed; `None` if these are not all there. A
/// client may leave out reasoning and empty texts. Some clients put all reasoning before all text,
/// and join all text to one block; `joined` says whether that may be.
fn remainders<'b, 'a>(
    blocks: &'b [Block<'a>],
    hops: &[&str],
    joined: bool,
) -> Option<Vec<Remainder<'b, Block<'a>>>> {
    let mut left = Remainder::all(blocks);
    for hop in hops {
        let hop = Unit::read(hop.as_bytes()).ok()?;
        let shown = hop
            .blocks
            .iter()
            .filter(|block| block.kind != BlockType::Call);
        for shown in shown.filter(|block| !block.is_empty_text()) {
            if !take(&mut left, shown, joined) && !shown.is_reasoning() {
                return None;
            }
        }
    }
    Some(left)
}

/// Takes out a block that was shown, if it is the first of its sort (reasoning, or all else). Empty
/// texts before it go too.
fn take(left: &mut Vec<Remainder<'_, Block<'_>>>, shown: &Block<'_>, joined: bool) -> bool {
    let sort = |own: &Remainder<'_, Block<'_>>| {
        own.block.is_reasoning() == shown.is_reasoning() && !own.block.is_empty_text()
    };
    let Some((at, first)) = left.iter_mut().enumerate().find(|(_, own)| sort(own)) else {
        return false;
    };
    if first.text.is_some() || !is_same(first.block, shown) {
        let text = first
            .text
            .clone()
            .or_else(|| Some(first.block.text()?.into_owned()));
        let rest = text.filter(|_| joined).zip(shown.text());
        let rest = rest.and_then(|(text, shown)| Some(behind(&text, &shown)?.to_owned()));
        let Some(rest) = rest else { return false };
        if !rest.is_empty() {
            first.text = Some(rest);
            return true;
        }
    }
    let after = left.split_off(at + 1);
    left.pop();
    left.retain(|own| !own.block.is_empty_text());
    left.extend(after);
    true
}

/// Whether the client's block is the one that was shown to it.
fn is_same(block: &Block<'_>, shown: &Block<'_>) -> bool {
    let same = |key: &str| block.field(key) == shown.field(key);
    block.kind == shown.kind
        && match shown.kind {
            BlockType::Text => block.text() == shown.text(),
            BlockType::Thinking if shown.field("signature").is_some() => same("signature"),
            BlockType::Thinking => same("thinking"),
            BlockType::Redacted => same("data"),
            BlockType::Call
            | BlockType::Result
            | BlockType::Image
            | BlockType::Document
            | BlockType::SearchResult
            | BlockType::Other => canonical_part(block.raw) == canonical_part(shown.raw),
        }
}

/// Whether these are all of the blocks, each of them whole.
fn is_all(own: &[Remainder<'_, Block<'_>>], blocks: &[Block<'_>]) -> bool {
    own.len() == blocks.len() && own.iter().all(|own| own.text.is_none())
}

/// How the client's unit of a turn relates to what the turn's earlier hops handed out.
pub fn handed(bytes: &[u8], record: &TurnRecord) -> Handed {
    let hops = record.handed_out();
    let capped = record.hops.iter().all(|hop| hop.message.is_some());
    // Nearly all turns have one hop, and every request asks this for all turns.
    if hops.is_empty() && !capped {
        return Handed::Nothing;
    }
    let Ok(unit) = Unit::read(bytes) else {
        return Handed::Changed;
    };
    if capped {
        let calls = unit.calls().next().is_some();
        return handed_at_cap(&unit.text(), calls, &record.handed);
    }
    // Another text may begin alike, so a joined text must be all that the turn said.
    let joined =
        || remainders(&unit.blocks, &hops, true).filter(|_| bare(&unit.text()) == record.bare);
    match remainders(&unit.blocks, &hops, false).or_else(joined) {
        // The earlier hops showed nothing, or only reasoning that the client left out.
        Some(own) if is_all(&own, &unit.blocks) => Handed::Nothing,
        Some(_) => Handed::Split,
        None => Handed::Changed,
    }
}

/// A result with other content. Whether it is an error stays, and so does a marker of the client's.
pub fn result(bytes: &[u8], text: &str) -> Option<Bytes> {
    Some(json::with_content(&Object::parse(bytes).ok()?, text))
}

/// A system text, or a system message, with a block of text appended: behind a blank line to a
/// string, as one more block at the end of an array, because providers check the first blocks.
pub fn append_text(bytes: &[u8], block: &str) -> Option<Bytes> {
    let content = match bytes.first()? {
        b'{' => Object::parse(bytes).ok()?.get("content")?,
        _ => 0..bytes.len(),
    };
    json::append_text(bytes, content, "text", block)
}
