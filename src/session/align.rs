//! Alignment: ties the records of a known path to a client's messages after the client changed or
//! dropped something in the middle (design §3, Anchors). What an anchor ties is kept, all else is
//! dropped. Never consults the store: it is given the path that an anchor led to.

use std::collections::HashMap;
use std::sync::Arc;

use super::path::{ASSISTANT_ITEMS, Entry, Path};
use crate::model::{Role, Shape, TurnRecord};

/// The records of `known` whose visible responses still stand among the messages, at their new
/// positions. Marks stay, those of dropped records too. Messages between them get fresh numbers
/// unless they stand as the record saw them.
#[must_use]
pub fn align(known: &Path, shapes: &[Arc<Shape>]) -> Path {
    let anchors = Anchors::of(shapes);
    let mut entries: Vec<Entry> = Vec::new();
    let mut next = known.next;
    let mut from = 0;
    let mut before: Option<usize> = None;
    for (index, entry) in known.entries.iter().enumerate() {
        let follows = before.is_some_and(|before| before + 1 == index) || index == 0;
        let Some(position) = anchors.find(&entry.record, from, follows, shapes) else {
            continue;
        };
        let length = entry.position.saturating_sub(covered(known, index));
        let now = u32::try_from(position - from).unwrap_or(u32::MAX);
        let base = if follows && length == now {
            entry.base
        } else {
            let fresh = next;
            next = next.plus(items(shapes.get(from..position).unwrap_or_default()));
            fresh
        };
        let position_now = u32::try_from(position).unwrap_or(u32::MAX);
        entries.push(Entry {
            position: position_now,
            base,
            ..entry.clone()
        });
        from = position + 1;
        before = Some(index);
    }
    let mut path = Path::new(entries, known.marks.clone(), next);
    path.aligned = true;
    path.told_before(known.guide);
    path
}

/// The path to a response that a request says it goes on from, whose messages were put together
/// again: as it is where every response stands where it stood, else aligned. `None` where the newest
/// one stands nowhere.
#[must_use]
pub fn stand(known: Path, shapes: &[Arc<Shape>]) -> Option<Path> {
    let stands = |entry: &Entry| {
        let shape = shapes.get(entry.position as usize);
        shape.is_some_and(|shape| shape.canonical == entry.record.visible)
    };
    if known.entries.iter().all(stands) {
        return Some(known);
    }
    let newest = known.entries.last()?.id;
    let aligned = align(&known, shapes);
    let kept = aligned.entries.last()?.id == newest;
    kept.then_some(aligned)
}

/// The index of the first message that the record at `index` was the first to see.
fn covered(known: &Path, index: usize) -> u32 {
    let before = index
        .checked_sub(1)
        .and_then(|before| known.entries.get(before));
    before.map_or(0, |entry| entry.position + 1)
}

/// How many item numbers messages take.
fn items(shapes: &[Arc<Shape>]) -> u32 {
    shapes.iter().map(|shape| message_items(shape)).sum()
}

/// How many item numbers one client message takes: a result shares its call's.
#[must_use]
pub fn message_items(shape: &Shape) -> u32 {
    match shape.role {
        Role::Assistant => ASSISTANT_ITEMS + u32::try_from(shape.calls.len()).unwrap_or(u32::MAX),
        Role::Tool => 0,
        Role::System | Role::User | Role::Other => 1,
    }
}

/// Where the assistant messages of a request can be found by what they say.
struct Anchors<'a> {
    by_digest: HashMap<crate::model::Digest, Vec<usize>>,
    by_call: HashMap<(&'a str, &'a str), Vec<usize>>,
}

impl<'a> Anchors<'a> {
    fn of(shapes: &'a [Arc<Shape>]) -> Self {
        let mut by_digest: HashMap<_, Vec<usize>> = HashMap::new();
        let mut by_call: HashMap<_, Vec<usize>> = HashMap::new();
        let assistants = shapes
            .iter()
            .enumerate()
            .filter(|(_, s)| s.role == Role::Assistant);
        for (index, shape) in assistants {
            by_digest.entry(shape.canonical).or_default().push(index);
            for call in shape.calls.iter().filter(|call| !call.id.0.is_empty()) {
                by_call
                    .entry((call.id.0.as_str(), call.name.as_str()))
                    .or_default()
                    .push(index);
            }
        }
        Self { by_digest, by_call }
    }

    /// Where a record's visible response stands at or after `from`: by its digest, or by a call
    /// id that stands once, which holds only if the record before it was tied too.
    fn find(
        &self,
        record: &TurnRecord,
        from: usize,
        follows: bool,
        shapes: &[Arc<Shape>],
    ) -> Option<usize> {
        let at_or_after =
            |found: &Vec<usize>| found.iter().copied().find(|position| *position >= from);
        let by_call = record.calls.iter().find_map(|(id, name)| {
            let found = self.by_call.get(&(id.0.as_str(), name.as_str()))?;
            (found.len() == 1).then(|| at_or_after(found)).flatten()
        });
        match by_call {
            Some(position) => {
                let same = shapes
                    .get(position)
                    .is_some_and(|shape| shape.canonical == record.visible);
                (same || follows).then_some(position)
            }
            // Without a call to tie it, text alone is weak: it must follow what was tied before.
            None => {
                let found = self.by_digest.get(&record.visible)?;
                let position = at_or_after(found)?;
                let next = (from..position).all(|index| {
                    shapes
                        .get(index)
                        .is_some_and(|shape| shape.role != Role::Assistant)
                });
                (next || found.len() == 1).then_some(position)
            }
        }
    }
}
