//! The editor of an answer that is made of blocks: what becomes of each block, and where hidden calls
//! go back. It knows no field name of a format and never decides what to edit.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::raw::{self, Object};

use super::Piece;
use crate::edit::{AssistantEdit, CallEdit, Insert, set_members};
use crate::json;

/// How a format writes what the editor writes anew.
pub struct BlockForm {
    /// The members of a call that are the API's own.
    pub own: &'static [&'static str],
    /// The member of a call that holds its id.
    pub id: &'static str,
    /// The member of a call that holds its arguments.
    pub arguments: &'static str,
    /// Whether the arguments are a string. If not, they are an object.
    pub quoted: bool,
    /// A block of text with another text.
    pub instead: fn(&[u8], &str) -> Option<Bytes>,
}

impl BlockForm {
    /// A call with the edit applied. `None` if its arguments are to be anything but what they are in the format.
    pub fn call(&self, call: &[u8], edit: &CallEdit<'_>) -> Option<Bytes> {
        if let Some(object) = edit.arguments.filter(|_| !self.quoted) {
            Object::parse(object.as_bytes()).ok()?;
        }
        let written = |text: &str| {
            if self.quoted {
                raw::quote(text)
            } else {
                text.to_owned()
            }
        };
        let bare = edit.bare.then(|| self.bare(call)).flatten();
        let call = Object::parse(bare.as_deref().unwrap_or(call)).ok()?;
        let members = [
            (self.id, edit.id.map(raw::quote)),
            ("name", edit.name.map(raw::quote)),
            (self.arguments, edit.arguments.map(written)),
        ];
        Some(json::splice(call.bytes(), set_members(&call, members)))
    }

    /// A call without the members that are not the API's own.
    fn bare(&self, call: &[u8]) -> Option<Bytes> {
        json::with_only(call, self.own)
    }
}

/// A block of the client's, or the rest of one, that no earlier hop showed.
pub struct Remainder<'b, B> {
    /// The block.
    pub block: &'b B,
    /// The rest of its text, if the client joined its text to what an earlier hop showed.
    pub text: Option<String>,
    /// Whether its id belongs to an earlier hop's block.
    pub taken: bool,
}

impl<'b, B> Remainder<'b, B> {
    /// All blocks, each of them whole.
    pub fn all(blocks: &'b [B]) -> Vec<Self> {
        let own = |block| Self {
            block,
            text: None,
            taken: false,
        };
        blocks.iter().map(own).collect()
    }
}

/// A block on its way into the edited answer.
pub struct Slot<'a> {
    /// What it is.
    pub piece: Piece,
    /// Its bytes.
    pub bytes: Cow<'a, [u8]>,
    /// Whether the answer is sent with it.
    pub stays: bool,
    /// Whether it is a hidden call on its way back.
    pub hidden: bool,
}

impl<'a> Slot<'a> {
    /// A block of the client's.
    pub fn new(piece: Piece, bytes: Cow<'a, [u8]>) -> Self {
        Self {
            piece,
            bytes,
            stays: true,
            hidden: false,
        }
    }
}

/// Applies the edit to the client's texts and calls. Reasoning stays for now.
pub fn apply(slots: &mut [Slot<'_>], edit: &AssistantEdit<'_>, form: &BlockForm) {
    let mut calls = 0..;
    let mut line = edit.text.filter(|_| !edit.drop_text);
    let drops = edit.drop_text || line.is_some();
    for slot in slots {
        let new = match slot.piece {
            // The line takes the place of the first text; the other texts go.
            Piece::Text => {
                let new = line.take();
                slot.stays = new.is_some() || !drops;
                new.and_then(|line| (form.instead)(&slot.bytes, line))
            }
            Piece::Call => {
                let call = calls.next().unwrap_or_default();
                slot.stays = edit.keeps_call(call);
                edit.of_call(call)
                    .and_then(|new| form.call(&slot.bytes, &new))
            }
            Piece::Reasoning | Piece::Other => None,
        };
        if let Some(new) = new {
            slot.bytes = Cow::Owned(new.to_vec());
        }
    }
}

/// Puts hidden calls back. If the client kept all other blocks of the hop, each call goes to its
/// place among the blocks, because reasoning stands between calls; else to its place among the
/// calls. Hidden calls that are left out count like those that go back, so that the places don't
/// depend on which stay out.
pub fn insert<'a>(
    slots: &mut Vec<Slot<'a>>,
    inserts: &[Insert<'a>],
    left_out: &[Insert<'_>],
    form: &BlockForm,
) {
    let all = slots.len() + inserts.len() + left_out.len();
    let whole = |hidden: &Insert<'_>| hidden.block.is_some_and(|(_, of)| of as usize == all);
    let whole = inserts.iter().all(whole);
    for hidden in inserts {
        let at = match hidden.block {
            Some((at, _)) if whole => {
                let places = left_out.iter().filter_map(|out| out.block);
                Some(at as usize - places.filter(|(place, _)| *place < at).count())
            }
            Some(_) | None => {
                let places = slots.iter().enumerate();
                let mut calls = places.filter(|(_, slot)| slot.piece == Piece::Call);
                calls.nth(hidden.place).map(|(at, _)| at)
            }
        };
        let bytes = hidden.bytes.as_bytes();
        let bare = hidden.foreign.then(|| form.bare(bytes)).flatten();
        let bytes = bare.map_or(Cow::Borrowed(bytes), |bare| Cow::Owned(bare.to_vec()));
        let back = Slot {
            hidden: true,
            ..Slot::new(Piece::Call, bytes)
        };
        slots.insert(at.unwrap_or(usize::MAX).min(slots.len()), back);
    }
}
