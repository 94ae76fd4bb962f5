//! Edits of one unit of a Messages conversation by bytes: blocks left out or cut from the front,
//! results replaced, hidden calls put back. Blocks that an edit does not name keep their bytes.
//! Never decides what to edit.

use std::borrow::Cow;

use bytes::Bytes;

use super::block::{self, Block, BlockType, Unit, UnitForm};
use crate::dialect::edit::{AssistantEdit, CallEdit, bare, behind, handed_at_cap, set_members};
use crate::dialect::json;
use crate::dialect::message::canonical_part;
use crate::model::raw::{self, Object};
use crate::model::{Handed, TurnRecord};

/// A block of an answer that is being edited.
struct Slot<'a> {
    kind: BlockType,
    /// Its bytes; `None` if it goes.
    bytes: Option<Cow<'a, [u8]>>,
}

/// An assistant's unit with the edit applied; no bytes if nothing is left of it that may be sent.
/// `None` if it can't be read; a unit that was parsed before always can.
pub fn assistant(bytes: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
    let unit = Unit::read(bytes).ok()?;
    let UnitForm::Message { content, .. } = &unit.form else {
        return None;
    };
    let rest = remainders(&unit.blocks, &edit.cut.hops, true);
    let rest = rest.unwrap_or_else(|| Remainder::all(&unit.blocks));
    let mut slots = slots(&rest, edit);
    insert(&mut slots, edit);
    let said = |slot: &Slot<'_>| !slot.kind.is_reasoning();
    let same = |(slot, block): (&Slot<'_>, &Block<'_>)| slot.bytes.as_deref() == Some(block.raw);
    if slots.len() == unit.blocks.len() && slots.iter().zip(&unit.blocks).all(same) {
        return Some(Bytes::copy_from_slice(bytes));
    }
    let left = slots.into_iter().filter(|slot| slot.bytes.is_some());
    let left: Vec<Slot<'_>> = left.collect();
    if !left.iter().any(said) {
        return Some(Bytes::new());
    }
    let elements: Vec<Cow<'_, [u8]>> = left.into_iter().filter_map(element).collect();
    let array = json::list(&elements);
    let place = match content {
        Some(span) => (span.clone(), array),
        None => Object::parse(bytes).ok()?.append("content", &array),
    };
    Some(raw::splice(bytes, &[place]))
}

/// A slot as an element of an array of blocks.
fn element(slot: Slot<'_>) -> Option<Cow<'_, [u8]>> {
    let bytes = slot.bytes?;
    let is_string = bytes.first() == Some(&b'"');
    Some(if is_string {
        Cow::Owned(block::text_of(&bytes))
    } else {
        bytes
    })
}

/// The blocks of the last hop, without those that go.
fn slots<'a>(rest: &[Remainder<'_, 'a>], edit: &AssistantEdit<'_>) -> Vec<Slot<'a>> {
    let mut calls = 0..;
    let mut line = edit.text;
    let mut slots = Vec::with_capacity(rest.len() + edit.insert.len());
    for own in rest {
        let block = own.block;
        let as_is = || Some(own.bytes());
        let bytes = match block.kind {
            BlockType::Text if edit.drop_text => None,
            // The line takes the place of the first text; the other texts go.
            BlockType::Text if edit.text.is_some() => match line.take() {
                Some(line) => Some(Cow::Owned(raw::quote(line).into_bytes())),
                None => continue,
            },
            BlockType::Thinking | BlockType::Redacted if edit.drop_reasoning || edit.foreign => {
                None
            }
            BlockType::Call => {
                let call = calls.next().unwrap_or_default();
                let new = edit.of_call(call);
                let new = new.and_then(|new| self::call(block.raw, &new));
                let bytes = new.map_or_else(as_is, |new| Some(Cow::Owned(new.to_vec())));
                bytes.filter(|_| edit.keeps_call(call))
            }
            BlockType::Text
            | BlockType::Thinking
            | BlockType::Redacted
            | BlockType::Result
            | BlockType::Image
            | BlockType::Document
            | BlockType::SearchResult
            | BlockType::Other => as_is(),
        };
        slots.push(Slot {
            kind: block.kind,
            bytes,
        });
    }
    slots
}

/// A call with the edit applied. `None` if its arguments are to be anything but an object.
pub fn call(call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
    if let Some(input) = edit.arguments {
        Object::parse(input.as_bytes()).ok()?;
    }
    let bare = edit.bare.then(|| bare_call(call)).flatten();
    let call = Object::parse(bare.as_deref().unwrap_or(call)).ok()?;
    let input = edit.arguments.map(str::to_owned);
    let members = [
        ("id", edit.id.map(raw::quote)),
        ("name", edit.name.map(raw::quote)),
        ("input", input),
    ];
    Some(json::splice(call.bytes(), set_members(&call, members)))
}

/// A call without the members that are not the API's own.
fn bare_call(call: &[u8]) -> Option<Bytes> {
    json::with_only(call, &["type", "id", "name", "input", "cache_control"])
}

/// Puts hidden calls back. If the client kept all other blocks of the hop, each call goes to its
/// place among the blocks, because reasoning stands between calls; else to its place among the
/// calls. Hidden calls that stay out count like those that go back, so that the places don't depend on which stay
/// out.
fn insert<'a>(slots: &mut Vec<Slot<'a>>, edit: &AssistantEdit<'a>) {
    let Some(first) = edit.insert.first() else {
        return;
    };
    let total = first.block.map(|(_, total)| total as usize);
    let exact = total.map(|total| total == slots.len() + edit.insert.len() + edit.left_out.len());
    for hidden in &edit.insert {
        let at = match hidden.block {
            Some((at, _)) if exact == Some(true) => {
                let places = edit.left_out.iter().filter_map(|out| out.block);
                at as usize - places.filter(|(place, _)| *place < at).count()
            }
            _ => place(slots, hidden.place),
        };
        let bytes = hidden.bytes.as_bytes();
        let bare = hidden.foreign.then(|| bare_call(bytes)).flatten();
        let slot = Slot {
            kind: BlockType::Call,
            bytes: Some(bare.map_or(Cow::Borrowed(bytes), |bare| Cow::Owned(bare.to_vec()))),
        };
        slots.insert(at.min(slots.len()), slot);
    }
}

/// Where the call with this index among all calls goes.
fn place(slots: &[Slot<'_>], call: usize) -> usize {
    let calls = slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| slot.kind == BlockType::Call);
    calls.map(|(at, _)| at).nth(call).unwrap_or(slots.len())
}

/// A block of the client's, or the rest of one, that no earlier hop showed.
struct Remainder<'b, 'a> {
    block: &'b Block<'a>,
    /// The rest of its text, if the client joined its text to what an earlier hop showed.
    text: Option<String>,
}

impl<'b, 'a> Remainder<'b, 'a> {
    fn all(blocks: &'b [Block<'a>]) -> Vec<Self> {
        let own = |block| Self { block, text: None };
        blocks.iter().map(own).collect()
    }

    fn bytes(&self) -> Cow<'a, [u8]> {
        let Some(text) = &self.text else {
            return Cow::Borrowed(self.block.raw);
        };
        let text = raw::quote(text).into_bytes();
        Cow::Owned(match self.block.with("text", &text) {
            Some(block) => block.to_vec(),
            None => text,
        })
    }
}

/// The client's blocks without those that earlier hops showed; `None` if these are not all there. A
/// client may leave out reasoning and empty texts. Some clients put all reasoning before all text,
/// and join all text to one block; `joined` says whether that may be.
fn remainders<'b, 'a>(
    blocks: &'b [Block<'a>],
    hops: &[&str],
    joined: bool,
) -> Option<Vec<Remainder<'b, 'a>>> {
    let mut left = Remainder::all(blocks);
    for hop in hops {
        let hop = Unit::read(hop.as_bytes()).ok()?;
        let shown = hop
            .blocks
            .iter()
            .filter(|block| block.kind != BlockType::Call);
        for shown in shown.filter(|block| !block.is_empty_text()) {
            if !take(&mut left, shown, joined) && !shown.kind.is_reasoning() {
                return None;
            }
        }
    }
    Some(left)
}

/// Takes out a block that was shown, if it is the first of its sort (reasoning, or all else). Empty
/// texts before it go too.
fn take(left: &mut Vec<Remainder<'_, '_>>, shown: &Block<'_>, joined: bool) -> bool {
    let sort = |own: &Remainder<'_, '_>| {
        own.block.kind.is_reasoning() == shown.kind.is_reasoning() && !own.block.is_empty_text()
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
fn is_all(own: &[Remainder<'_, '_>], blocks: &[Block<'_>]) -> bool {
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
    let edit = json::append_text(bytes, content, "text", block)?;
    Some(raw::splice(bytes, &[edit]))
}
