//! What the client is owed of calls that are kept from it: their signatures, which go to the next
//! call that it gets, so that its own history is complete without the proxy too. It looks at one hop
//! and says what a chunk gets; it never writes one.

use bytes::Bytes;

use super::calls::{Fate, Table};
use super::wire::Chunk;
use crate::dialect::chat::signature::{self, DETAILS, Detailed, Signature};
use crate::model::raw::{self, Object};

/// What is owed of a hop.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// The calls that got a signature, by slot.
    given: Vec<usize>,
    /// Elements of `reasoning_details` that sign a hidden call, by its slot, until there is a call
    /// that they can go to.
    details: Vec<(usize, Bytes)>,
    /// Elements that sign a call which has not begun, by its id: it may turn out to be hidden.
    early: Vec<Bytes>,
}

/// What one chunk gets, or loses.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// Signatures for calls, by their places in the chunk's array.
    pub(super) calls: Vec<(usize, Signature)>,
    /// The chunk's `reasoning_details`, where they change.
    pub(super) details: Option<Detailed>,
}

impl Signs {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.details.is_none()
    }
}

impl Owed {
    /// What a chunk gets whose pieces belong to these slots.
    pub(super) fn pay(&mut self, table: &Table, chunk: &Chunk<'_>, slots: &[usize]) -> Signs {
        if !table.may_hide() {
            return Signs::default();
        }
        let mut signs = Signs::default();
        for (part, slot) in chunk.calls.iter().zip(slots) {
            if table.fate(*slot) != Fate::Visible || self.given.contains(slot) {
                continue;
            }
            if let Some(owed) = table.owed_to(*slot) {
                self.given.push(*slot);
                signs.calls.push((part.place, owed));
            }
        }
        signs.details = self.pay_details(table, chunk, slots);
        signs
    }

    fn pay_details(
        &mut self,
        table: &Table,
        chunk: &Chunk<'_>,
        slots: &[usize],
    ) -> Option<Detailed> {
        let raw = chunk.said_raw(DETAILS).unwrap_or_default();
        if raw.is_empty() && self.early.is_empty() && self.details.is_empty() {
            return None;
        }
        let early = std::mem::take(&mut self.early);
        let late = !table.is_empty() || chunk.finish().is_some();
        let mut elements: Vec<Bytes> = Vec::new();
        let mut changed = false;
        let spans = raw::array(raw).unwrap_or_default();
        let own = spans.into_iter().filter_map(|span| raw.get(span));
        let own = own.map(Bytes::copy_from_slice);
        let all = early.into_iter().map(|element| (element, true));
        for (element, waited) in all.chain(own.map(|element| (element, false))) {
            let id = Object::parse(&element).ok();
            let id = id.as_ref().and_then(signature::signs);
            let begun = id.as_ref().is_none_or(|id| table.has_id(id));
            match id.and_then(|id| table.hidden_with_id(&id)) {
                Some(slot) => {
                    changed = true;
                    self.details.push((slot, element));
                }
                // What signs a call comes with it or right before it; else it names none.
                None if begun || late => {
                    changed |= waited;
                    elements.push(element);
                }
                None => {
                    changed |= !waited;
                    self.early.push(element);
                }
            }
        }
        let mut waiting = Vec::new();
        for (hidden, element) in std::mem::take(&mut self.details) {
            let next = table.next_visible(hidden);
            let heard = next.filter(|next| slots.contains(next) || table.was_shown(*next));
            match heard.and_then(|next| signature::renamed(&element, table.id(next)?)) {
                Some(element) => {
                    changed = true;
                    elements.push(element);
                }
                None => waiting.push((hidden, element)),
            }
        }
        self.details = waiting;
        match (changed, elements.is_empty()) {
            (false, _) => None,
            (true, true) => Some(Detailed::Gone),
            (true, false) => Some(Detailed::These(Bytes::from(
                [b"[", elements.join(&b","[..]).as_slice(), b"]"].concat(),
            ))),
        }
    }
}
