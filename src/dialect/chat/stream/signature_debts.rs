//! What the client is owed of calls that are kept from it: their signatures, which go to the next
//! call that the client gets, so that the client's own history is complete without the proxy too.
//! It looks at one hop and says what a chunk gets; it never writes one.

use std::collections::HashSet;

use bytes::Bytes;

use super::call_table::{CallTable, Visibility};
use super::wire::{Chunk, ChunkSigns};
use crate::dialect::chat::signature::{self, DETAILS, DetailsEdit};
use crate::dialect::json;
use crate::model::raw::Object;

/// What the client is owed of a hop.
#[derive(Debug, Default)]
pub struct SignatureDebts {
    /// The slots of the calls that got a signature.
    given: HashSet<usize>,
    /// Elements of `reasoning_details` that sign a hidden call, with its slot, until there is a
    /// call that they can go to.
    of_hidden: Vec<(usize, Bytes)>,
    /// Elements that sign a call which has not begun: it may turn out to be hidden.
    of_unknown: Vec<Bytes>,
}

impl SignatureDebts {
    /// What a chunk gets whose pieces belong to these slots.
    pub fn pay(&mut self, table: &CallTable, chunk: &Chunk<'_>, slots: &[usize]) -> ChunkSigns {
        let mut signs = ChunkSigns::default();
        if !table.may_hide() {
            return signs;
        }
        for (part, slot) in chunk.calls.iter().zip(slots) {
            if table.visibility(*slot) != Visibility::Visible || self.given.contains(slot) {
                continue;
            }
            if let Some(owed) = table.owed_to(*slot) {
                self.given.insert(*slot);
                signs.calls.push((part.place, owed));
            }
        }
        signs.details = self.pay_details(table, chunk, slots);
        signs
    }

    /// The elements that are left at the end of a hop, as an array: those that sign no call that
    /// ever came.
    pub fn rest(&mut self, table: &CallTable) -> Option<Bytes> {
        if self.of_unknown.is_empty() && self.of_hidden.is_empty() {
            return None;
        }
        let due = self.due(table, Vec::new(), true, &[]);
        (!due.elements.is_empty()).then(|| json::list(&due.elements))
    }

    fn pay_details(
        &mut self,
        table: &CallTable,
        chunk: &Chunk<'_>,
        slots: &[usize],
    ) -> Option<DetailsEdit> {
        let raw = chunk.delta_member(DETAILS).unwrap_or_default();
        let nothing = raw.is_empty() && self.of_unknown.is_empty() && self.of_hidden.is_empty();
        // A chunk without a delta has no place for them.
        if nothing || !chunk.has_delta() {
            return None;
        }
        let late = !table.is_empty() || chunk.finish().is_some() || chunk.has_whole_calls();
        let own = json::elements(raw).map(Bytes::copy_from_slice).collect();
        let due = self.due(table, own, late, slots);
        match (due.changed, due.elements.is_empty()) {
            (false, _) => None,
            (true, true) => Some(DetailsEdit::Remove),
            (true, false) => Some(DetailsEdit::Replace(json::list(&due.elements))),
        }
    }

    /// The elements that are due now, of the chunk's own and of those that wait. `late` says that
    /// an element which names a call that has not begun names no call at all: it comes with its
    /// call or right before it.
    fn due(&mut self, table: &CallTable, own: Vec<Bytes>, late: bool, slots: &[usize]) -> Due {
        let mut due = Due::default();
        let waited = std::mem::take(&mut self.of_unknown).into_iter();
        let waited = waited.map(|element| (element, true));
        let own = own.into_iter().map(|element| (element, false));
        for (element, waited) in waited.chain(own) {
            let id = Object::parse(&element).ok();
            let id = id.as_ref().and_then(signature::signs);
            let begun = id.as_ref().is_none_or(|id| table.has_id(id));
            match id.and_then(|id| table.hidden_with_id(&id)) {
                Some(slot) => {
                    due.changed = true;
                    self.of_hidden.push((slot, element));
                }
                None if begun || late => {
                    due.changed |= waited;
                    due.elements.push(element);
                }
                None => {
                    due.changed |= !waited;
                    self.of_unknown.push(element);
                }
            }
        }
        // An element that signs a hidden call goes with the next visible call, under that call's
        // id.
        for (hidden, element) in std::mem::take(&mut self.of_hidden) {
            let next = table.next_visible(hidden);
            let shown = next.filter(|next| slots.contains(next) || table.was_shown(*next));
            match shown.and_then(|next| signature::renamed(&element, table.id(next)?)) {
                Some(element) => {
                    due.changed = true;
                    due.elements.push(element);
                }
                None => self.of_hidden.push((hidden, element)),
            }
        }
        due
    }
}

/// Elements of `reasoning_details` for the client.
#[derive(Default)]
struct Due {
    /// Whether they differ from the chunk's own.
    changed: bool,
    elements: Vec<Bytes>,
}
