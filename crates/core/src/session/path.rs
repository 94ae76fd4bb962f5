//! The path: the turn records behind a request in order, folded into marks and item numbers. A path
//! is immutable; each turn makes a new one. Never reads the store: the records are arguments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_model::caches::Shared;
use plimsoll_model::weight::{list, shared, text};
use plimsoll_model::{
    CacheFacts, Choice, Guide, ItemNo, Kept, Marks, Pins, RecordId, Snapshot, SnapshotEntry,
    StoredHop, TurnRecord, TurnSums, Usage,
};

/// Item numbers that an assistant message takes beside those of its calls: one for reasoning and
/// one for text, even if it has neither, so that a client that drops either shifts no number.
pub const ASSISTANT_ITEMS: u32 = 2;

/// Of how many histories that the client dropped it is known that there is something to recall: the newest ones.
const MOST_DROPPED: usize = 8;

/// How many of the newest turns are searched for a usage report.
pub const REPORTS: usize = 8;

/// One record on the path, and the position of its visible response.
#[derive(Clone, Debug)]
pub struct PathEntry {
    /// The record's id.
    pub id: RecordId,
    /// The record.
    pub record: Arc<TurnRecord>,
    /// The index of its visible response among the client's messages.
    pub position: u32,
    /// The number of the first item of the messages before it that no earlier record covers.
    pub base: ItemNo,
}

impl PathEntry {
    /// What the provider reported, and the estimate that was made for the prompt, of the newest hop with a report. A hop
    /// that broke off has no report.
    #[must_use]
    pub fn told(&self) -> Option<(Usage, u64)> {
        let hops = self.record.hops.iter().rev();
        let mut told = hops.filter_map(|hop| Some((hop.usage?, hop.estimate)));
        told.find(|(usage, _)| usage.prompt > 0)
    }

    /// Until when the provider keeps what the turn's request asked it to keep or what it reports to keep, in
    /// milliseconds since 1970. `None` if neither says anything.
    #[must_use]
    pub fn cached_until(&self) -> Option<u64> {
        let hourly = |usage: Usage| usage.hour_write.is_some_and(|tokens| tokens > 0);
        let reported = if self.reports().any(hourly) { 3_600 } else { 0 };
        let seconds = self.record.cached_for.max(reported);
        let kept = u64::from(seconds) * 1_000;
        (kept > 0).then(|| self.record.ended.saturating_add(kept))
    }

    /// How many tokens of its first prompt the provider read anew although the turn before had left them in its cache, and
    /// what is known of that. `None` if there are none, or if that is not reported.
    #[must_use]
    pub fn missed(&self) -> Option<(u64, &CacheFacts)> {
        let facts = &self.record.facts;
        let usage = match facts.watched {
            true => self.watched()?,
            false => self.record.hops.first()?.usage?,
        };
        Some((facts.cache.missed(&usage)?, &facts.cache))
    }

    /// What the provider reported for the client's own request of a watched turn: the prompt, and what of it was cached.
    /// Elsewhere such a record has the usage that a managed turn would have had.
    #[must_use]
    pub fn watched(&self) -> Option<Usage> {
        let (prompt, cached) = self.record.facts.account?.client;
        Some(Usage {
            prompt,
            cached,
            ..Usage::default()
        })
    }

    /// Whether the provider reported that it read any of the turn's prompts from its cache or wrote any to it.
    #[must_use]
    pub fn caches(&self) -> bool {
        self.reports()
            .any(|usage| usage.cached > 0 || usage.cache_write > 0)
    }

    /// Whether the provider reported that it read any of the turn's prompts from its cache.
    #[must_use]
    pub fn has_cached(&self) -> bool {
        self.reports().any(|usage| usage.cached > 0)
    }

    fn reports(&self) -> impl Iterator<Item = Usage> {
        self.record.hops.iter().filter_map(|hop| hop.usage)
    }
}

/// The records behind a request, and what they fold to.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// The records in order of their positions.
    pub entries: Vec<PathEntry>,
    /// Every mark that was moved so far.
    pub marks: Marks,
    /// The first item number that is free.
    pub next: ItemNo,
    /// Whether the path was aligned to an edit of the client. The next record then builds on a
    /// snapshot.
    pub aligned: bool,
    /// What the conversation was told of its hidden tools; none if no request had tools. Like a
    /// mark it is kept when an edit drops its record.
    pub guide: Option<Guide>,
    /// What somebody asked to keep in view. It is kept like a mark, too.
    pub pins: Pins,
    /// The histories that the client has dropped: of each the newest record, oldest first. Like a mark this is
    /// kept when an edit drops a record.
    pub dropped: Vec<RecordId>,
    /// What the conversation is served under. Each of its records says so; it is kept when an edit drops all of them.
    pub choice: Choice,
    /// Whether a turn of this process has gone on from its newest record. All copies share it.
    followed: Arc<AtomicBool>,
    /// Bytes of memory that the records take.
    records: usize,
}

impl Shared for Path {
    /// With all of its records, which others may share.
    fn weight(&self) -> usize {
        let tried = self.choice.split.as_ref().map(|split| &split.profile);
        let names = [self.choice.profile.as_ref(), tried];
        let names: usize = names.into_iter().flatten().map(text).sum();
        let small = names + self.pins.weight() + list(&self.dropped);
        let flag = shared::<AtomicBool>();
        shared::<Self>() + list(&self.entries) + self.marks.weight() + small + flag + self.records
    }
}

impl Path {
    /// A path of these entries, marks and next number.
    #[must_use]
    pub fn new(entries: Vec<PathEntry>, marks: Marks, next: ItemNo) -> Self {
        let records = entries.iter().map(|entry| entry.record.weight()).sum();
        let guide = entries
            .iter()
            .fold(None, |guide, entry| guided(guide, &entry.record));
        let choice = entries.first().map(|entry| entry.record.choice());
        Self {
            entries,
            marks,
            next,
            aligned: false,
            guide,
            pins: Pins::default(),
            dropped: Vec::new(),
            choice: choice.unwrap_or_default(),
            followed: Arc::default(),
            records,
        }
    }

    /// This path with one more turn.
    #[must_use]
    pub fn extend(&self, id: RecordId, record: Arc<TurnRecord>) -> Self {
        // Room for exactly one more: the next turn makes a path of its own.
        let mut entries = Vec::with_capacity(self.entries.len() + 1);
        entries.extend_from_slice(&self.entries);
        let mut path = Self {
            entries,
            marks: self.marks.clone(),
            pins: self.pins.clone(),
            dropped: self.dropped.clone(),
            choice: self.choice.clone(),
            followed: Arc::default(),
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
        if !self.has_begun() {
            self.choice = record.choice();
        }
        self.records += record.weight();
        self.pins.apply(&record.pins);
        for history in &record.dropped {
            self.drop_history(*history);
        }
        self.guide = guided(self.guide, &record);
        self.next = self
            .next
            .max(record.first_item.plus(response_items(&record)));
        // The record stands on a snapshot now, which has the alignment.
        self.aligned = false;
        let (position, base) = (record.position, record.base);
        self.entries.push(PathEntry {
            id,
            record,
            position,
            base,
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
            .map(|(step, record)| PathEntry {
                id: step.record,
                record,
                position: step.position,
                base: step.base,
            })
            .collect();
        let mut path = Self::new(entries, marks, snapshot.next);
        path.told_before(snapshot.guide);
        path.pins = Pins::new(snapshot.pins.clone());
        path.dropped.clone_from(&snapshot.dropped);
        path
    }

    /// The snapshot of this path.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let step = |entry: &PathEntry| SnapshotEntry {
            record: entry.id,
            position: entry.position,
            base: entry.base,
        };
        Snapshot {
            steps: self.entries.iter().map(step).collect(),
            marks: self.marks.stored().collect(),
            kept: self
                .marks
                .iter_kept()
                .map(|(item, kept)| (item, Kept::clone(kept)))
                .collect(),
            next: self.next,
            guide: self.guide.filter(|guide| !guide.is_default()),
            pins: self.pins.items().to_vec(),
            dropped: self.dropped.clone(),
        }
    }

    /// Where a conversation stands that begins anew behind a history that its client has dropped. Its numbers go on from
    /// that one's, so that no number means two items.
    #[must_use]
    pub fn behind(history: &Self, newest: RecordId) -> Self {
        let mut path = Self {
            next: history.next,
            dropped: history.dropped.clone(),
            ..Self::default()
        };
        path.drop_history(newest);
        path
    }

    /// Where its first record began, for a client that sends that request again.
    #[must_use]
    pub fn beginning(&self) -> Self {
        let first = self.entries.first();
        Self {
            next: first.map_or(self.next, |first| first.base),
            dropped: first.map_or_else(Vec::new, |first| first.record.dropped.clone()),
            ..Self::default()
        }
    }

    /// Notes that the client has dropped the history that ends with this record.
    pub fn drop_history(&mut self, newest: RecordId) {
        self.dropped.retain(|history| *history != newest);
        self.dropped.push(newest);
        let over = self.dropped.len().saturating_sub(MOST_DROPPED);
        self.dropped.drain(..over);
    }

    /// Its newest record, if anything was evicted up to there.
    #[must_use]
    pub fn evicted(&self) -> Option<RecordId> {
        let newest = self
            .entries
            .last()
            .filter(|_| self.marks != Marks::default());
        newest.map(|entry| entry.id)
    }

    /// Adds what the conversation was told by records that are no longer on its path.
    pub fn told_before(&mut self, guide: Option<Guide>) {
        if let Some(now) = self.guide {
            self.guide = Some(Guide::after(guide, now));
        } else {
            self.guide = guide;
        }
    }

    /// Notes that a turn goes on from the newest record. Returns whether another of this process has done so before.
    #[must_use]
    pub fn follow(&self) -> bool {
        self.followed.swap(true, Ordering::Relaxed)
    }

    /// Whether any turn of the conversation is known, even if an edit dropped all records.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.aligned || !self.entries.is_empty()
    }

    /// The newest record.
    #[must_use]
    pub fn newest(&self) -> Option<&TurnRecord> {
        self.entries.last().map(|entry| entry.record.as_ref())
    }

    /// A hop by the step of its turn and its place there. The step after the last is the turn in
    /// hand, whose hops are `pending`.
    #[must_use]
    pub fn hop<'a>(
        &'a self,
        pending: &'a [StoredHop],
        step: usize,
        hop: usize,
    ) -> Option<&'a StoredHop> {
        match self.entries.get(step) {
            Some(entry) => entry.record.hops.get(hop),
            None => pending.get(hop),
        }
    }

    /// What all turns of its newest branch came to.
    #[must_use]
    pub fn sums(&self) -> TurnSums {
        let newest = self.entries.last();
        newest
            .map(|newest| newest.record.sums())
            .unwrap_or_default()
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

/// What a conversation was told of its hidden tools after one more turn. A request without tools
/// changes nothing: a title or a compaction is a side branch.
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
    // A turn that ended at the hop cap has one more message if the client changed its text: the
    // client's stands behind all hops.
    let capped = record.hops.iter().all(|hop| hop.message.is_some());
    // A turn has at most a few hundred calls, so the counts fit.
    u32::try_from(record.hops.len() + usize::from(capped)).unwrap_or(u32::MAX) * ASSISTANT_ITEMS
        + u32::try_from(hidden + record.calls.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::Digest;

    fn record(number: u8) -> RecordId {
        RecordId(Digest([number; 32]))
    }

    #[test]
    fn a_conversation_behind_a_dropped_history_goes_on_with_its_numbers() {
        let mut history = Path::new(Vec::new(), Marks::default(), ItemNo(40));
        history.drop_history(record(1));
        let path = Path::behind(&history, record(2));
        assert_eq!((path.next, path.has_begun()), (ItemNo(40), false));
        assert_eq!(path.dropped, [record(1), record(2)]);
        // Its first record says so, and those that stand on that, or on a snapshot, know it.
        let first = TurnRecord {
            first_item: ItemNo(41),
            dropped: path.dropped.clone(),
            ..TurnRecord::default()
        };
        let mut read = Path::default();
        read.push(record(3), Arc::new(first));
        assert_eq!(read.dropped, path.dropped);
        let records = vec![Arc::clone(&read.entries[0].record)];
        let again = Path::from_snapshot(&read.snapshot(), records);
        assert_eq!(again.dropped, path.dropped);
    }

    #[test]
    fn the_newest_dropped_histories_are_known_each_once() {
        let mut path = Path::default();
        for number in 0..20 {
            path.drop_history(record(number));
            path.drop_history(record(19));
        }
        assert_eq!(path.dropped.len(), MOST_DROPPED);
        assert_eq!(path.dropped.last(), Some(&record(19)));
        assert_eq!(path.dropped.first(), Some(&record(12)));
    }
}
