//! Tells which kinds of edits a view contains, so that a refusal of the upstream can be traced to
//! one. Never decides what is shown.

use plimsoll_model::{EditKind, Edits, ItemKind};

use super::{Shown, View};
use crate::session::graph::DelimiterRole;
use crate::session::transcript::Item;

impl View {
    /// The kinds of edits in a view. Breakpoints are left out: the renderer sets those.
    #[must_use]
    pub fn edits(&self) -> Edits {
        let seen = self.marked();
        let transcript = seen.transcript;
        let mut edits = Edits::default();
        let edited = self.is_edited();
        // Without marks no message is edited.
        for entry in transcript.entries.iter().filter(|_| edited) {
            let items = transcript.items_of(entry);
            match self.shown_of(entry) {
                Shown::Gone | Shown::Whole => {}
                Shown::Note(_) => {
                    let call = items.first().and_then(|item| item.pair);
                    let call = call.and_then(|call| transcript.items.get(call));
                    // A hidden call's result is the proxy's own text anyway.
                    if call.is_some_and(|call| !call.hidden) {
                        edits.put(EditKind::Results);
                    }
                }
                Shown::Less {
                    text,
                    reasoning,
                    arguments,
                    ..
                } => {
                    let lost =
                        |kind, kept: bool| !kept && items.iter().any(|item| item.kind == kind);
                    if lost(ItemKind::Reasoning, reasoning) {
                        edits.put(EditKind::Reasoning);
                    }
                    if lost(ItemKind::Text, text) {
                        edits.put(EditKind::Text);
                    }
                    if !arguments.is_empty() {
                        edits.put(EditKind::Arguments);
                    }
                }
            }
        }
        // The client never sent the messages of hidden hops, so their reasoning is an edit by
        // itself.
        let thought = |item: &Item| {
            let reasoning = item.kind == ItemKind::Reasoning && item.tokens > 0;
            reasoning && seen.is_hop(item) && seen.stays(item, true)
        };
        if transcript.items.iter().any(thought) {
            edits.put(EditKind::HopReasoning);
        }
        let hidden = |item: &Item| item.hidden && seen.shown(item);
        if transcript.items.iter().any(hidden) {
            edits.put(EditKind::Hidden);
        }
        edits
    }

    /// Whether any message may be shown other than whole.
    fn is_edited(&self) -> bool {
        let transcript = self.transcript();
        let stray = |item: &Item| item.delimiter == Some(DelimiterRole::Stray);
        !self.marks().is_empty()
            || !transcript.without.is_empty()
            || transcript.items.iter().any(stray)
    }
}
