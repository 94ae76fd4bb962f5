//! Alignment: ties the records of a known path to a client's messages after the client changed or
//! dropped something in the middle (design §3, Anchors). Records that an anchor ties to a message
//! are kept, and all others are dropped. Never consults the store: the path that an anchor led to
//! is an argument.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_model::{Role, Shape, TurnRecord};

use super::path::{ASSISTANT_ITEMS, Path, PathEntry};

/// The records of `known` whose visible responses are still among the messages, at their new
/// positions. All marks are kept, also those of dropped records. Messages between two records get
/// fresh numbers unless they are the ones that the second record saw there.
#[must_use]
pub fn align(known: &Path, shapes: &[Arc<Shape>]) -> Path {
    let anchors = Anchors::of(shapes);
    let mut entries: Vec<PathEntry> = Vec::new();
    let mut next = known.next;
    let mut from = 0;
    let mut before: Option<usize> = None;
    for (index, entry) in known.entries.iter().enumerate() {
        // A record proves its successor: the next one on the path may be tied by a call id alone.
        let follows = before.is_some_and(|before| before + 1 == index) || index == 0;
        // A record whose response is gone is dropped, and its hidden exchanges with it.
        let Some(position) = anchors.find(&entry.record, from, follows, shapes) else {
            continue;
        };
        let length = entry.position.saturating_sub(covered(known, index));
        let now = u32::try_from(position - from).unwrap_or(u32::MAX);
        // Messages that the record saw as they are keep the numbers that it gave them.
        let base = if follows && length == now {
            entry.base
        } else {
            let fresh = next;
            next = next.plus(items(shapes.get(from..position).unwrap_or_default()));
            fresh
        };
        let position_now = u32::try_from(position).unwrap_or(u32::MAX);
        entries.push(PathEntry {
            position: position_now,
            base,
            ..entry.clone()
        });
        from = position + 1;
        before = Some(index);
    }
    let mut path = Path::new(entries, known.marks.clone(), next);
    path.aligned = true;
    // Guidance was given once, even if the record that says so is dropped.
    path.told_before(known.guide);
    path.pins = known.pins.clone();
    path.dropped.clone_from(&known.dropped);
    // What the dropped records had evicted is gone from the client's history, too.
    if let Some(history) = known
        .evicted()
        .filter(|_| path.entries.len() < known.entries.len())
    {
        path.drop_history(history);
    }
    path.choice.clone_from(&known.choice);
    path
}

/// The path to the response that a request continues, once the messages of the conversation have
/// been put together again. The path is returned as it is if every response is still at its
/// position, else it is aligned. `None` if the newest response is not among the messages.
#[must_use]
pub fn stand(known: Path, shapes: &[Arc<Shape>]) -> Option<Path> {
    let stands = |entry: &PathEntry| {
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

/// Positions of the assistant messages of a request, by digest and by call.
struct Anchors<'a> {
    by_digest: HashMap<plimsoll_model::Digest, Vec<usize>>,
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

    /// The position of a record's visible response at or after `from`. It is found by its digest,
    /// or by a call id that occurs once. A call id counts only if the record before was tied too.
    fn find(
        &self,
        record: &TurnRecord,
        from: usize,
        follows: bool,
        shapes: &[Arc<Shape>],
    ) -> Option<usize> {
        let at_or_after =
            |found: &Vec<usize>| found.iter().copied().find(|position| *position >= from);
        // A call id that occurs twice proves nothing: some providers number calls from 0 in each
        // response.
        let by_call = record.calls.iter().find_map(|(id, name)| {
            let found = self.by_call.get(&(id.0.as_str(), name.as_str()))?;
            (found.len() == 1).then(|| at_or_after(found)).flatten()
        });
        match by_call {
            Some(position) => {
                let same = shapes
                    .get(position)
                    .is_some_and(|shape| shape.canonical == record.visible);
                // The id is a hint. The digest proves it, or the record before that was tied.
                (same || follows).then_some(position)
            }
            // A text without calls may occur again, so it must be the only one, or follow directly
            // what was tied before.
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
