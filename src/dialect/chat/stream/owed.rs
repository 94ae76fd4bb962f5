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

    /// What is left at the end of a hop, as an array: what signs no call that ever came.
    pub(super) fn rest(&mut self, table: &Table) -> Option<Bytes> {
        if self.early.is_empty() && self.details.is_empty() {
            return None;
        }
        let due = self.due(table, Vec::new(), true, &[]);
        (!due.elements.is_empty()).then(|| due.array())
    }

    fn pay_details(
        &mut self,
        table: &Table,
        chunk: &Chunk<'_>,
        slots: &[usize],
    ) -> Option<Detailed> {
        let raw = chunk.said_raw(DETAILS).unwrap_or_default();
        let nothing = raw.is_empty() && self.early.is_empty() && self.details.is_empty();
        // Where nothing is said there is no place for them.
        if nothing || !chunk.has_body() {
            return None;
        }
        let late = !table.is_empty() || chunk.finish().is_some() || chunk.has_whole_calls();
        let spans = raw::array(raw).unwrap_or_default();
        let own = spans.into_iter().filter_map(|span| raw.get(span));
        let own = own.map(Bytes::copy_from_slice).collect();
        let due = self.due(table, own, late, slots);
        match (due.changed, due.elements.is_empty()) {
            (false, _) => None,
            (true, true) => Some(Detailed::Gone),
            (true, false) => Some(Detailed::These(due.array())),
        }
    }

    /// The elements that are due now, of these and of those that wait. `late` says that what signs a
    /// call which has not begun names none: it comes with its call or right before it.
    fn due(&mut self, table: &Table, own: Vec<Bytes>, late: bool, slots: &[usize]) -> Due {
        let mut due = Due::default();
        let early = std::mem::take(&mut self.early);
        let all = early.into_iter().map(|element| (element, true));
        for (element, waited) in all.chain(own.into_iter().map(|element| (element, false))) {
            let id = Object::parse(&element).ok();
            let id = id.as_ref().and_then(signature::signs);
            let begun = id.as_ref().is_none_or(|id| table.has_id(id));
            match id.and_then(|id| table.hidden_with_id(&id)) {
                Some(slot) => {
                    due.changed = true;
                    self.details.push((slot, element));
                }
                None if begun || late => {
                    due.changed |= waited;
                    due.elements.push(element);
                }
                None => {
                    due.changed |= !waited;
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
                    due.changed = true;
                    due.elements.push(element);
                }
                None => waiting.push((hidden, element)),
            }
        }
        self.details = waiting;
        due
    }
}

/// Elements of `reasoning_details` for the client.
#[derive(Default)]
struct Due {
    /// Whether they are others than the chunk's own.
    changed: bool,
    elements: Vec<Bytes>,
}

impl Due {
    fn array(&self) -> Bytes {
        Bytes::from([b"[", self.elements.join(&b","[..]).as_slice(), b"]"].concat())
    }
}
