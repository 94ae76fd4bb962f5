//! What is shown of the calls of one message, kept as calls go. One answer may have thousands of calls, and each of
//! them may go alone, so what is left of the message must follow from the call that went and not from all of them.
//! Never decides what is shown.

use plimsoll_model::ItemKind;

use super::{View, own_note};
use crate::session::index::ItemIndex;
use crate::session::note::Note;
use crate::session::transcript::{Item, Source, TranscriptEntry};

/// What is shown of the calls of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallsShown {
    /// How many are shown, whole or as a note.
    pub shown: u32,
    /// How many are not shown as they came.
    pub less: u32,
    /// How many are missing to a client that had them.
    pub parted: u32,
    /// The tokens of those that are shown.
    pub tokens: u32,
}

impl CallsShown {
    /// Puts what is shown of one call now in the place of what was shown of it.
    pub fn replace(&mut self, before: Self, now: Self) {
        self.shown = self.shown + now.shown - before.shown;
        self.less = self.less + now.less - before.less;
        self.parted = self.parted + now.parted - before.parted;
        self.tokens = self.tokens + now.tokens - before.tokens;
    }
}

impl View {
    /// What is shown of the calls of a message.
    pub(super) fn calls_of(&self, entry: &TranscriptEntry) -> CallsShown {
        let first = self.transcript.items_of(entry).first();
        let calls = first.and_then(|item| self.calls.get(item.entry));
        calls.copied().unwrap_or_default()
    }

    /// What is shown of the calls of a message, counted anew.
    pub(super) fn calls_now(&self, entry: &TranscriptEntry) -> CallsShown {
        let mut calls = CallsShown::default();
        for (at, item) in self.transcript.indexed_items_of(entry) {
            calls.replace(CallsShown::default(), self.call_of(item, at));
        }
        calls
    }

    /// What is shown of one call of a message; nothing for any other item.
    pub(super) fn call_of(&self, item: &Item, at: ItemIndex) -> CallsShown {
        if item.kind != ItemKind::Call {
            return CallsShown::default();
        }
        let note = own_note(&self.notes, at, item);
        if self.marked().shown(item) {
            return CallsShown {
                shown: 1,
                less: u32::from(note.is_some()),
                parted: 0,
                tokens: note.map_or(item.tokens, Note::tokens),
            };
        }
        // The client never had the hidden calls of a message of its own.
        let entry = self.transcript.entries.get(item.entry);
        let clients = entry.is_some_and(|entry| matches!(entry.source, Source::LastHop { .. }));
        CallsShown {
            shown: 0,
            less: 1,
            parted: u32::from(!(item.hidden && clients)),
            tokens: 0,
        }
    }
}
