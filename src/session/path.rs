//! The path: the turn records behind a request in order, folded into marks and item numbers.
//! Immutable; a turn makes a new one. Never reads the store: it is given the records.

use std::sync::Arc;

use crate::model::weight::{list, shared};
use crate::model::{Guide, Hop, ItemNo, Kept, Marks, RecordId, Snapshot, Step, TurnRecord, Usage};

/// Item numbers that an assistant message takes beside its calls: one for reasoning, one for
/// text, whether it has them or not, so that a client that drops either shifts no number.
pub const ASSISTANT_ITEMS: u32 = 2;

/// How many of the newest turns are asked for what the provider reported.
pub const REPORTS: usize = 8;

/// One record on the path and where its visible response stands.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record's id.
    pub id: RecordId,
    /// The record.
    pub record: Arc<TurnRecord>,
    /// The index of its visible response among the client's messages.
    pub position: u32,
    /// The number of the first item of the messages before it that no earlier record covers.
    pub base: ItemNo,
    /// What the provider reported for its last hop, which may have come after it was written.
    pub reported: Option<Usage>,
}

impl Entry {
    /// The prompt tokens that the provider reported of its newest hop with a report, and what had
    /// been estimated of them. A hop that broke off has none.
    #[must_use]
    pub fn told(&self) -> Option<(u64, u64)> {
        let (last, earlier) = self.record.hops.split_last()?;
        let earlier = earlier.iter().rev().map(|hop| (hop.usage, hop.estimate));
        let hops = std::iter::once((self.reported, last.estimate)).chain(earlier);
        let mut told = hops.filter_map(|(usage, estimate)| Some((usage?.prompt, estimate)));
        told.find(|(prompt, _)| *prompt > 0)
    }

    /// Whether the provider reported that it read anything of the turn from its cache.
    #[must_use]
    pub fn has_cached(&self) -> bool {
        let hops = self.record.hops.iter().map(|hop| hop.usage);
        let mut reports = hops.chain([self.reported]).flatten();
        reports.any(|usage| usage.cached > 0)
    }
}

/// The records behind a request, and what they fold to.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// The records in order of their positions.
    pub entries: Vec<Entry>,
    /// Every mark that was moved so far.
    pub marks: Marks,
    /// The first item number that is free.
    pub next: ItemNo,
    /// Whether an edit of the client's was aligned: then the next record stands on a snapshot.
    pub aligned: bool,
    /// What the conversation was told of its hidden tools; none where it had tools in no request.
    /// Like a mark it stays, whatever edits drop.
    pub guide: Option<Guide>,
    /// Bytes of memory that the records take.
    records: usize,
}

impl Path {
    /// A path of these entries, marks and next number.
    #[must_use]
    pub fn new(entries: Vec<Entry>, marks: Marks, next: ItemNo) -> Self {
        let records = entries.iter().map(|entry| entry.record.weight()).sum();
        let guide = entries
            .iter()
            .fold(None, |guide, entry| guided(guide, &entry.record));
        Self {
            entries,
            marks,
            next,
            aligned: false,
            guide,
            records,
        }
    }

    /// Bytes of memory that it takes with all of its records, whoever else holds these.
    #[must_use]
    pub fn weight(&self) -> usize {
        shared::<Self>() + list(&self.entries) + self.marks.weight() + self.records
    }

    /// The path after one more turn that stands on this one.
    #[must_use]
    pub fn extend(&self, id: RecordId, record: Arc<TurnRecord>) -> Self {
        // Room for one more and no further: each turn has a path of its own.
        let mut entries = Vec::with_capacity(self.entries.len() + 1);
        entries.extend_from_slice(&self.entries);
        let mut path = Self {
            entries,
            marks: self.marks.clone(),
            ..*self
        };
        path.push(id, record);
        path
    }

    /// Adds the record of the next turn.
    pub fn push(&mut self, id: RecordId, record: Arc<TurnRecord>) {
        for hop in &record.hops {
            self.marks.apply(&hop.marks, &hop.kept);
        }
        self.records += record.weight();
        self.guide = guided(self.guide, &record);
        self.next = self
            .next
            .max(record.first_item.plus(response_items(&record)));
        self.aligned = false;
        let (position, base) = (record.position, record.base);
        let reported = record.hops.last().and_then(|hop| hop.usage);
        self.entries.push(Entry {
            id,
            record,
            position,
            base,
            reported,
        });
    }

    /// The path of a snapshot, whose records are given in order.
    #[must_use]
    pub fn from_snapshot(snapshot: &Snapshot, records: Vec<Arc<TurnRecord>>) -> Self {
        let mut marks = Marks::default();
        marks.apply(&snapshot.marks, &snapshot.kept);
        let entries = snapshot
            .steps
            .iter()
            .zip(records)
            .map(|(step, record)| Entry {
                id: step.record,
                reported: record.hops.last().and_then(|hop| hop.usage),
                record,
                position: step.position,
                base: step.base,
            })
            .collect();
        let mut path = Self::new(entries, marks, snapshot.next);
        path.told_before(snapshot.guide);
        path
    }

    /// The snapshot of this path.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let step = |entry: &Entry| Step {
            record: entry.id,
            position: entry.position,
            base: entry.base,
        };
        Snapshot {
            steps: self.entries.iter().map(step).collect(),
            marks: self
                .marks
                .iter()
                .map(|(item, mark)| (item, mark.into()))
                .collect(),
            kept: self
                .marks
                .iter_kept()
                .map(|(item, kept)| (item, Kept::clone(kept)))
                .collect(),
            next: self.next,
            guide: self.guide.filter(|guide| !guide.is_default()),
        }
    }

    /// Takes in what the conversation was told before, by records that are none of its path any
    /// longer.
    pub fn told_before(&mut self, guide: Option<Guide>) {
        if let Some(now) = self.guide {
            self.guide = Some(Guide::after(guide, now));
        } else {
            self.guide = guide;
        }
    }

    /// The newest record.
    #[must_use]
    pub fn newest(&self) -> Option<&TurnRecord> {
        self.entries.last().map(|entry| entry.record.as_ref())
    }

    /// A hop by its step and place; the step behind the last is the turn in hand, whose hops are
    /// given.
    #[must_use]
    pub fn hop<'a>(&'a self, pending: &'a [Hop], step: usize, hop: usize) -> Option<&'a Hop> {
        match self.entries.get(step) {
            Some(entry) => entry.record.hops.get(hop),
            None => pending.get(hop),
        }
    }

    /// How many of the client's messages the path covers: up to its newest visible response.
    #[must_use]
    pub fn covered(&self) -> usize {
        self.entries
            .last()
            .map_or(0, |entry| entry.position as usize + 1)
    }

    /// The number of the next turn.
    #[must_use]
    pub fn next_turn(&self) -> u32 {
        self.newest().map_or(1, |record| record.turn + 1)
    }
}

/// What a conversation was told of its hidden tools after a turn more. A request without tools says
/// nothing of them: a title or a compaction is a side branch.
fn guided(before: Option<Guide>, record: &TurnRecord) -> Option<Guide> {
    if record.tooled {
        Some(Guide::after(before, record.guide))
    } else {
        before
    }
}

/// How many item numbers the response of a record takes.
fn response_items(record: &TurnRecord) -> u32 {
    let hidden: usize = record.hops.iter().map(|hop| hop.calls.len()).sum();
    // Where the client changed the text of a turn cut at the hop cap, its message stands beside
    // all of the hops.
    let capped = record.hops.iter().all(|hop| hop.message.is_some());
    // A turn has at most a few hundred calls, so the counts fit.
    u32::try_from(record.hops.len() + usize::from(capped)).unwrap_or(u32::MAX) * ASSISTANT_ITEMS
        + u32::try_from(hidden + record.calls.len()).unwrap_or(u32::MAX)
}
