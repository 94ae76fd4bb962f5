//! What the client is owed of calls that are kept from it: their signatures, which go to the next
//! call that the client gets, so that the client's own history is complete without the proxy too.
//! It looks at one hop and says what a chunk gets; it never writes one.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use plimsoll_model::raw::Object;

use super::call_table::{CallTable, Visibility};
use super::wire::{Chunk, ChunkSigns};
use crate::chat::signature::{self, DETAILS};
use crate::json::{self, ListEdit};

/// What the client is owed of a hop.
#[derive(Debug, Default)]
pub struct SignatureDebts {
    /// The slots of the calls that were looked at: a call gets a signature with its first piece or not at all.
    asked: HashSet<usize>,
    /// Elements of `reasoning_details` that sign a hidden call, by its slot, until there is a call
    /// that they can go to.
    of_hidden: BTreeMap<usize, Vec<Bytes>>,
    /// Elements that sign a call which has not begun: it may turn out to be hidden.
    of_unknown: Vec<Bytes>,
}

impl SignatureDebts {
    /// What a chunk gets whose pieces belong to these slots.
    pub fn pay(&mut self, table: &CallTable, chunk: &Chunk<'_>, slots: &[usize]) -> ChunkSigns {
        let (mut signs, mut first) = (ChunkSigns::default(), Vec::new());
        if !table.may_hide() {
            return signs;
        }
        for (part, slot) in chunk.calls.iter().zip(slots) {
            // To ask for each piece anew would go over the hidden calls before it with each.
            if table.visibility(*slot) != Visibility::Visible || !self.asked.insert(*slot) {
                continue;
            }
            first.push(*slot);
            if let Some(owed) = table.owed_to(*slot) {
                signs.calls.push((part.place, owed));
            }
        }
        signs.details = self.pay_details(table, chunk, &first);
        signs
    }

    /// The elements that are left at the end of a hop, as an array: those that sign no call that
    /// ever came.
    pub fn rest(&mut self, table: &CallTable) -> Option<Bytes> {
        if self.of_unknown.is_empty() && self.of_hidden.is_empty() {
            return None;
        }
        let mut due = self.due(table, Vec::new(), true);
        for slot in self.of_hidden.keys().copied().collect::<Vec<_>>() {
            self.release(table, slot, &mut due);
        }
        (!due.elements.is_empty()).then(|| json::list(&due.elements))
    }

    /// How many bytes wait.
    pub fn bytes(&self) -> usize {
        let of_hidden = self.of_hidden.values().flatten();
        let waiting = self.of_unknown.iter().chain(of_hidden);
        let waiting = waiting.map(|element| element.len() + size_of::<Bytes>());
        waiting.sum::<usize>() + self.asked.len() * size_of::<usize>()
    }

    fn pay_details(
        &mut self,
        table: &CallTable,
        chunk: &Chunk<'_>,
        first: &[usize],
    ) -> Option<ListEdit> {
        let raw = chunk.delta_member(DETAILS).unwrap_or_default();
        let nothing = raw.is_empty() && self.of_unknown.is_empty() && self.of_hidden.is_empty();
        // A chunk without a delta has no place for them.
        if nothing || !chunk.has_delta() {
            return None;
        }
        let late = !table.is_empty() || chunk.finish().is_some() || chunk.has_whole_calls();
        let own = json::elements(raw).map(Bytes::copy_from_slice).collect();
        let mut due = self.due(table, own, late);
        for shown in first {
            let before = self.of_hidden.range(..shown).rev();
            let owed = before.take_while(|(slot, _)| table.next_visible(**slot) == Some(*shown));
            let mut owed: Vec<usize> = owed.map(|(slot, _)| *slot).collect();
            owed.reverse();
            for slot in owed {
                self.release(table, slot, &mut due);
            }
        }
        due.changed.then(|| ListEdit::leaving(&due.elements))
    }

    /// The elements that are due now, of the chunk's own and of those that wait. `late` says that
    /// an element which names a call that has not begun names no call at all: it comes with its
    /// call or right before it.
    fn due(&mut self, table: &CallTable, own: Vec<Bytes>, late: bool) -> Due {
        let mut due = Due::default();
        // As long as no call has begun, what waits for one goes on waiting.
        let waited = if late {
            std::mem::take(&mut self.of_unknown)
        } else {
            Vec::new()
        };
        let waited = waited.into_iter().map(|element| (element, true));
        let own = own.into_iter().map(|element| (element, false));
        for (element, waited) in waited.chain(own) {
            let id = Object::parse(&element).ok();
            let id = id.as_ref().and_then(signature::signs);
            let begun = id.as_ref().is_none_or(|id| table.has_id(id));
            match id.and_then(|id| table.hidden_with_id(&id)) {
                Some(slot) => {
                    due.changed = true;
                    self.of_hidden.entry(slot).or_default().push(element);
                    self.release(table, slot, &mut due);
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
        due
    }

    /// Gives the elements that sign a hidden call to the next visible call, under that call's id,
    /// if the client was told of it.
    fn release(&mut self, table: &CallTable, hidden: usize, due: &mut Due) {
        let next = table.next_visible(hidden);
        let shown = next.filter(|next| self.asked.contains(next));
        let Some(id) = shown.and_then(|shown| table.id(shown)) else {
            return;
        };
        for element in self.of_hidden.remove(&hidden).unwrap_or_default() {
            due.changed = true;
            due.elements.extend(signature::renamed(&element, id));
        }
    }
}

/// Elements of `reasoning_details` for the client.
#[derive(Default)]
struct Due {
    /// Whether they differ from the chunk's own.
    changed: bool,
    elements: Vec<Bytes>,
}
