//! Edits of one unit of a Messages conversation by bytes: blocks left out or cut from the front,
//! results replaced, hidden calls put back. Blocks that are not named keep their bytes. Never
//! decides what to edit.

use std::borrow::Cow;

use bytes::Bytes;

use super::block::{self, Block, Form, Kind, Unit};
use crate::dialect::edit::{AssistantEdit, CallEdit, bare, behind};
use crate::dialect::message::canonical_part;
use crate::model::raw::{self, Object};
use crate::model::{Handed, TurnRecord};

/// A block of an answer that is being edited.
struct Slot<'a> {
    kind: Kind,
    /// Its bytes; none where it goes.
    bytes: Option<Cow<'a, [u8]>>,
}

/// An assistant's unit with the edit applied; no bytes where nothing of it is left that may be
/// sent. `None` if it can't be read, which one that was parsed before always can.
#[must_use]
pub fn assistant(bytes: &[u8], edit: &AssistantEdit<'_>) -> Option<Bytes> {
    let unit = Unit::read(bytes).ok()?;
    let Form::Message { content, .. } = &unit.form else {
        return None;
    };
    let own = own(&unit.blocks, &edit.cut.hops, true).unwrap_or_else(|| Own::all(&unit.blocks));
    let mut slots = kept(&own, edit);
    let exact = insert(&mut slots, edit);
    let said = |slot: &Slot<'_>| !slot.kind.is_reasoning();
    let incomplete = edit.keep_calls.is_some() && exact == Some(false);
    let parted = incomplete || slots.iter().any(|slot| said(slot) && slot.bytes.is_none());
    if parted && !edit.keep_reasoning {
        // What was thought is bound to its place among all that was said.
        slots
            .iter_mut()
            .filter(|slot| !said(slot))
            .for_each(|slot| slot.bytes = None);
    }
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
    let array = [b"[", elements.join(&b","[..]).as_slice(), b"]"].concat();
    let place = match content {
        Some(span) => (span.clone(), Bytes::from(array)),
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
fn kept<'a>(own: &[Own<'_, 'a>], edit: &AssistantEdit<'_>) -> Vec<Slot<'a>> {
    let mut calls = 0..;
    let mut line = edit.text;
    let mut slots = Vec::with_capacity(own.len() + edit.insert.len());
    for own in own {
        let block = own.block;
        let as_is = || Some(own.bytes());
        let bytes = match block.kind {
            Kind::Text if edit.drop_text => None,
            // All that was said is one line, in the place of the first of it.
            Kind::Text if edit.text.is_some() => match line.take() {
                Some(line) => Some(Cow::Owned(raw::quote(line).into_bytes())),
                None => continue,
            },
            Kind::Thinking | Kind::Redacted if edit.drop_reasoning || edit.foreign => None,
            Kind::Call => {
                let call = calls.next().unwrap_or_default();
                let keep = edit.keep_calls.as_ref();
                let keeps = keep.is_none_or(|keep| keep.get(call).copied().unwrap_or(true));
                let new = edit.of_call(call).and_then(|new| with(block.raw, &new));
                let bytes = new.map_or_else(as_is, |new| Some(Cow::Owned(new)));
                bytes.filter(|_| keeps)
            }
            Kind::Text
            | Kind::Thinking
            | Kind::Redacted
            | Kind::Result
            | Kind::Image
            | Kind::Document
            | Kind::SearchResult
            | Kind::Other => as_is(),
        };
        slots.push(Slot {
            kind: block.kind,
            bytes,
        });
    }
    slots
}

/// A call with the edit applied.
#[must_use]
pub fn call(call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
    with(call, edit).map(Bytes::from)
}

/// A call with the edit applied; its arguments must be an object.
fn with(call: &[u8], edit: &CallEdit<'_>) -> Option<Vec<u8>> {
    if let Some(input) = edit.arguments {
        Object::parse(input.as_bytes()).ok()?;
    }
    let bare = edit.bare.then(|| bare_call(call)).flatten();
    let call = bare.as_deref().unwrap_or(call);
    let name = edit.name.map(raw::quote);
    let members = [("name", name.as_deref()), ("input", edit.arguments)];
    let object = Object::parse(call).ok()?;
    let mut edits: Vec<_> = members
        .into_iter()
        .filter_map(|(key, new)| Some(object.set(key, new?.as_bytes())))
        .collect();
    edits.sort_by_key(|(span, _)| span.start);
    Some(raw::splice(call, &edits).to_vec())
}

/// A call without members that are not the API's own.
fn bare_call(call: &[u8]) -> Option<Vec<u8>> {
    const OWN: [&str; 5] = ["type", "id", "name", "input", "cache_control"];
    let object = Object::parse(call).ok()?;
    let foreign = |place: usize| {
        let member = object.members().get(place);
        member.is_some_and(|member| !OWN.contains(&member.key.as_ref()))
    };
    let cuts = object.remove_spans(foreign).into_iter();
    let edits: Vec<_> = cuts.map(|cut| (cut, Bytes::new())).collect();
    Some(raw::splice(call, &edits).to_vec())
}

/// Puts hidden calls back. Where the client kept all other blocks of the hop, each goes to its
/// block's place, because what was thought stands between calls; else to its place among the
/// calls. Whether the client kept all other blocks; none where that can't be told. Hidden calls that
/// stay out count for that as those that go back do, so that the answer is the same as before they went.
fn insert<'a>(slots: &mut Vec<Slot<'a>>, edit: &AssistantEdit<'a>) -> Option<bool> {
    let first = edit.insert.first().or(edit.left_out.first())?;
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
            kind: Kind::Call,
            bytes: Some(bare.map_or(Cow::Borrowed(bytes), Cow::Owned)),
        };
        slots.insert(at.min(slots.len()), slot);
    }
    exact
}

/// Where a call goes that is to be this one among all calls.
fn place(slots: &[Slot<'_>], call: usize) -> usize {
    let calls = slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| slot.kind == Kind::Call);
    calls.map(|(at, _)| at).nth(call).unwrap_or(slots.len())
}

/// A block of the client's that no earlier hop showed, or not all of it.
struct Own<'b, 'a> {
    block: &'b Block<'a>,
    /// What is left of its text, where the client joined it to what an earlier hop showed.
    text: Option<String>,
}

impl<'b, 'a> Own<'b, 'a> {
    fn all(blocks: &'b [Block<'a>]) -> Vec<Self> {
        let own = |block| Self { block, text: None };
        blocks.iter().map(own).collect()
    }

    fn bytes(&self) -> Cow<'a, [u8]> {
        let Some(text) = &self.text else {
            return Cow::Borrowed(self.block.raw);
        };
        let text = raw::quote(text).into_bytes();
        Cow::Owned(self.block.with("text", &text).unwrap_or(text))
    }
}

/// The client's blocks without those that earlier hops showed; `None` where they are others.
/// Reasoning that the client left out is not missed, and neither is text that says nothing; some
/// clients put all reasoning before all text, and all text into one block if it may be `joined`.
fn own<'b, 'a>(blocks: &'b [Block<'a>], hops: &[&str], joined: bool) -> Option<Vec<Own<'b, 'a>>> {
    let mut left = Own::all(blocks);
    for hop in hops {
        let hop = Unit::read(hop.as_bytes()).ok()?;
        let shown = hop.blocks.iter().filter(|block| block.kind != Kind::Call);
        for shown in shown.filter(|block| !block.is_empty_text()) {
            if !take(&mut left, shown, joined) && !shown.kind.is_reasoning() {
                return None;
            }
        }
    }
    Some(left)
}

/// Takes out what was shown, if the first of its sort is that; what says nothing before it goes too.
fn take(left: &mut Vec<Own<'_, '_>>, shown: &Block<'_>, joined: bool) -> bool {
    let sort = |own: &Own<'_, '_>| {
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
            Kind::Text => block.text() == shown.text(),
            Kind::Thinking if shown.field("signature").is_some() => same("signature"),
            Kind::Thinking => same("thinking"),
            Kind::Redacted => same("data"),
            Kind::Call
            | Kind::Result
            | Kind::Image
            | Kind::Document
            | Kind::SearchResult
            | Kind::Other => canonical_part(block.raw) == canonical_part(shown.raw),
        }
}

/// Whether these are all of the blocks, each of them whole.
fn is_all(own: &[Own<'_, '_>], blocks: &[Block<'_>]) -> bool {
    own.len() == blocks.len() && own.iter().all(|own| own.text.is_none())
}

/// How the client's unit of a turn relates to what the turn's earlier hops handed out.
#[must_use]
pub fn handed(bytes: &[u8], record: &TurnRecord) -> Handed {
    let earlier = record.hops.len().saturating_sub(1);
    let earlier = record.hops.iter().take(earlier);
    let hops: Vec<&str> = earlier.filter_map(|hop| hop.message.as_deref()).collect();
    let capped = record.hops.iter().all(|hop| hop.message.is_some());
    // Nearly all turns have one hop, and every request asks for all turns.
    if hops.is_empty() && !capped {
        return Handed::Nothing;
    }
    let Ok(unit) = Unit::read(bytes) else {
        return Handed::Changed;
    };
    let said = || bare(&unit.text());
    if capped {
        let all = unit.calls().next().is_none() && said() == bare(&record.handed);
        return if all { Handed::All } else { Handed::Changed };
    }
    // Texts that begin alike may be others: a join has to be all that the turn said.
    let joined = || own(&unit.blocks, &hops, true).filter(|_| said() == record.bare);
    match own(&unit.blocks, &hops, false).or_else(joined) {
        // Nothing was shown, or nothing but reasoning that the client left out.
        Some(own) if is_all(&own, &unit.blocks) => Handed::Nothing,
        Some(_) => Handed::Split,
        None => Handed::Changed,
    }
}

/// A result with other content. Whether it is an error stays, and so does a marker of the client's.
#[must_use]
pub fn result(bytes: &[u8], text: &str) -> Option<Bytes> {
    let object = Object::parse(bytes).ok()?;
    let content = object.set("content", raw::quote(text).as_bytes());
    Some(raw::splice(bytes, &[content]))
}

/// The result of a hidden call as a unit.
#[must_use]
pub fn hidden_result(id: &str, text: &str) -> Bytes {
    let (id, text) = (raw::quote(id), raw::quote(text));
    Bytes::from(format!(
        r#"{{"type":"tool_result","tool_use_id":{id},"content":{text}}}"#
    ))
}

/// A system text, or a system message, with a block of text appended: after a blank line to a
/// string, as one more block at the end of an array, because providers check the first ones.
#[must_use]
pub fn append_text(bytes: &[u8], block: &str) -> Option<Bytes> {
    let span = match bytes.first()? {
        b'{' => Object::parse(bytes).ok()?.get("content")?,
        _ => 0..bytes.len(),
    };
    let content = bytes.get(span.clone())?;
    let (at, new) = match content.first()? {
        b'"' => {
            let quoted = raw::quote(&format!("\n\n{block}"));
            (
                content.len() - 1,
                quoted.get(1..quoted.len() - 1)?.to_owned(),
            )
        }
        b'[' => {
            let text = block::text_of(raw::quote(block).as_bytes());
            let text = String::from_utf8(text).ok()?;
            match raw::array(content).ok()?.last() {
                Some(last) => (last.end, format!(",{text}")),
                None => (1, text),
            }
        }
        _ => return None,
    };
    let at = span.start + at;
    Some(raw::splice(bytes, &[(at..at, Bytes::from(new))]))
}

/// A system text of the proxy's own.
#[must_use]
pub fn system(block: &str) -> Bytes {
    Bytes::from(raw::quote(block))
}
