//! What a view has left of single items: their sizes, and how their texts are shown. Never writes a text.

use plimsoll_model::ItemKind;

use super::{View, own_note};
use crate::session::index::ItemIndex;
use crate::session::marked::Marked;
use crate::session::note::Note;

/// How the text of an item is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownText<'a> {
    /// As it came.
    Whole,
    /// As this text.
    Note(&'a Note),
    /// Not at all.
    Gone,
}

impl View {
    /// How the view shows the text of an item: of a call its arguments.
    #[must_use]
    pub fn text_of(&self, index: ItemIndex) -> ShownText<'_> {
        let Some(item) = self.transcript.items.get(index) else {
            return ShownText::Gone;
        };
        let (shown, notes) = match item.kind {
            ItemKind::System | ItemKind::User | ItemKind::Opaque => return ShownText::Whole,
            // A result without a call stands as it came.
            ItemKind::Result if item.pair.is_none() => return ShownText::Whole,
            ItemKind::Result => (
                self.marked().call_shown(item.holder(index)),
                &self.notes.results,
            ),
            ItemKind::Call => (self.marked().call_shown(index), &self.notes.arguments),
            ItemKind::Text | ItemKind::Reasoning => (self.is_shown(item), &self.notes.results),
        };
        match notes.get(&item.holder(index)) {
            _ if !shown => ShownText::Gone,
            Some(note) => ShownText::Note(note),
            None => ShownText::Whole,
        }
    }

    /// Tokens that the view shows of an item: of a call also those of its result, without the tokens
    /// of their messages. 0 if the item is not shown, and for results, which count with their calls.
    #[must_use]
    pub fn tokens_of(&self, index: ItemIndex) -> u32 {
        let seen = Marked::new(&self.transcript, &self.marks);
        let Some(item) = seen.transcript.items.get(index) else {
            return 0;
        };
        let own = own_note(&self.notes, index, item).map_or(item.tokens, |note| note.tokens());
        match item.kind {
            ItemKind::Result if item.pair.is_some() => 0,
            ItemKind::Call if !seen.call_shown(index) => 0,
            ItemKind::Call => {
                let result = item.pair.and_then(|pair| seen.transcript.items.get(pair));
                let note = self.notes.results.get(&index);
                let result = note
                    .map(|note| note.tokens())
                    .or(result.map(|item| item.tokens));
                own + result.unwrap_or(0)
            }
            ItemKind::Text | ItemKind::Reasoning if !self.is_shown(item) => 0,
            ItemKind::Text
            | ItemKind::Reasoning
            | ItemKind::Result
            | ItemKind::System
            | ItemKind::User
            | ItemKind::Opaque => own,
        }
    }
}
