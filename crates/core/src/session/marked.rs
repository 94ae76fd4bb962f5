//! A transcript with its marks: what is shown of items and what stands for episodes, before any
//! text of the proxy is written. Never writes a text and never moves a mark.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_model::{EditKind, ItemKind, ItemNo, Kept, Mark, Marks, Role};

use super::graph::{DelimiterRole, Episode, EpisodeKind};
use super::index::{EntryIndex, EpisodeIndex, ItemIndex};
use super::transcript::{Item, Source, Transcript, TranscriptEntry};

/// What stands for an episode in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// Its own items, or what is left of them.
    Items,
    /// The items that are left, and a line in the result of this call that says what is gone.
    Line(ItemIndex),
    /// Its tombstone, in the result of this call, which is the first of the episode.
    Tombstone(ItemIndex),
    /// Nothing: this call, which is the first of the episode, is not shown.
    Nothing(ItemIndex),
}

/// A transcript and how its items are shown.
#[derive(Clone, Copy, Debug)]
pub struct Marked<'a> {
    /// The transcript.
    pub transcript: &'a Transcript,
    /// The marks of its items.
    pub marks: &'a Marks,
}

impl<'a> Marked<'a> {
    /// A transcript under these marks.
    #[must_use]
    pub fn new(transcript: &'a Transcript, marks: &'a Marks) -> Self {
        Self { transcript, marks }
    }

    /// The mark of an item.
    #[must_use]
    pub fn mark_of(self, item: ItemIndex) -> Mark {
        self.transcript
            .items
            .get(item)
            .map_or(Mark::Live, |item| self.marks.get(item.no))
    }

    /// The calls whose results others point to, each with the calls that do, oldest first. A pointer
    /// counts until a pass evicts it, even where a client's edit has it shown whole.
    #[must_use]
    pub fn pointers(self) -> BTreeMap<ItemIndex, Vec<ItemIndex>> {
        let shown = |(no, kept): (ItemNo, &Arc<Kept>)| {
            let same = kept.same?;
            (self.marks.get(no) == Mark::Clipped).then_some((no, same))
        };
        let pairs = self.marks.iter_kept().filter_map(shown);
        let mut out: BTreeMap<ItemIndex, Vec<ItemIndex>> = BTreeMap::new();
        let call = |no| self.transcript.call(no);
        for (from, to) in pairs {
            if let (Some(from), Some(to)) = (call(from), call(to)) {
                out.entry(to).or_default().push(from);
            }
        }
        out
    }

    /// The call that carries the tombstone of an episode, or would. Which call of an implicit episode it is, the
    /// pass chooses that makes the tombstone; the call's mark says so ever after. Else it is the first: no other one
    /// that carries a tombstone is trimmed.
    #[must_use]
    pub fn carrier(self, episode: &Episode) -> Option<ItemIndex> {
        let first = episode.carrier?;
        if episode.kind != EpisodeKind::Implicit || self.mark_of(first) == Mark::Tombstone {
            return Some(first);
        }
        let mut items = episode.items.iter().copied();
        let chosen = items.find(|at| self.mark_of(*at) == Mark::Tombstone);
        chosen.or(Some(first))
    }

    /// What stands for an episode.
    #[must_use]
    pub fn stand_in(self, episode: &Episode) -> StandIn {
        let Some(carrier) = self.carrier(episode) else {
            return StandIn::Items;
        };
        match (self.mark_of(carrier), episode.kind) {
            (Mark::Removed, _) => StandIn::Nothing(carrier),
            // A trimmed carrier has a tombstone: no pass trims a carrier before it has one.
            (Mark::Tombstone | Mark::Trimmed, EpisodeKind::Expl | EpisodeKind::Implicit) => {
                StandIn::Tombstone(carrier)
            }
            (_, EpisodeKind::Implicit) => StandIn::Items,
            // A pass marks the call whose result has the line.
            (_, EpisodeKind::Expl | EpisodeKind::Act) => {
                let mut places = [episode.end, Some(carrier)].into_iter().flatten();
                let place = places.find(|at| self.mark_of(*at) == Mark::Masked);
                place.map_or(StandIn::Items, StandIn::Line)
            }
        }
    }

    /// The call that carries the tombstone of an episode; none where no tombstone stands for it.
    #[must_use]
    pub fn tombstone(self, episode: &Episode) -> Option<ItemIndex> {
        match self.stand_in(episode) {
            StandIn::Tombstone(carrier) => Some(carrier),
            StandIn::Items | StandIn::Line(_) | StandIn::Nothing(_) => None,
        }
    }

    /// Whether an episode is evicted: all of an act, or all of an expl but its tombstone.
    #[must_use]
    pub fn is_removed(self, episode: &Episode) -> bool {
        // An episode that can still grow is never evicted, even if an edit of the client opened it
        // again.
        episode.closed && {
            let tombstone = self.tombstone(episode);
            episode.items.iter().rev().all(|item| {
                self.mark_of(*item) == Mark::Removed
                    || tombstone == Some(*item)
                    || self.is_reasoning(*item)
            })
        }
    }

    /// Whether an act that depends on the episode is in view (paper 000 §4.4).
    #[must_use]
    pub fn has_dependents(self, episode: &Episode) -> bool {
        let acts = episode.dependents.iter();
        let mut acts = acts.filter_map(|act| self.transcript.graph.episodes.get(*act));
        acts.any(|act| !self.is_removed(act))
    }

    /// Whether nothing in the view names an episode: its start is gone, or it is implicit, has no
    /// tombstone, and its first item is gone.
    pub(super) fn leaves_nothing(self, episode: &Episode) -> bool {
        let stand_in = self.stand_in(episode);
        match episode.kind {
            EpisodeKind::Expl | EpisodeKind::Act => matches!(stand_in, StandIn::Nothing(_)),
            EpisodeKind::Implicit => {
                let mut lasting = episode.items.iter();
                let first = lasting.find(|at| !self.is_reasoning(**at));
                first.is_some_and(|at| self.mark_of(*at) == Mark::Removed)
                    && !matches!(stand_in, StandIn::Tombstone(_))
            }
        }
    }

    /// The call that would hold the ledger: the carrier of the newest tombstone. The ledger changes
    /// with each pass that removes something, and what comes before it stays in the provider's
    /// cache.
    #[must_use]
    pub fn ledger_host(self) -> Option<ItemIndex> {
        let mut newest_first = self.transcript.graph.episodes.iter().rev();
        newest_first.find_map(|episode| self.tombstone(episode))
    }

    /// The call that holds the ledger, and the episodes that the ledger names, oldest first. `None`
    /// before anything was merged, or if no tombstone is left. This depends only on marks, which
    /// move in passes alone, and not on which episodes are closed: the ledger must not change
    /// between passes.
    pub(super) fn ledger(self) -> Option<(ItemIndex, Vec<EpisodeIndex>)> {
        let host = self.ledger_host()?;
        let mut merged = false;
        let mut gone = Vec::new();
        for (index, episode) in self.transcript.graph.episodes.indexed() {
            if self.carrier(episode) == Some(host) {
                gone.push(index);
            } else if self.leaves_nothing(episode) {
                merged |= episode.is_expl();
                gone.push(index);
            }
        }
        merged.then_some((host, gone))
    }

    /// Whether an item is shown. Only text, reasoning and calls have marks; a result is shown with
    /// its call. A `delimiter` call whose episode is not on the path is left out. If the upstream
    /// refuses edited results, calls that have one are left out, unless the result was edited only
    /// when it came in: then it is shown as it came. So is a call whose result has a form of its own. If it refuses hidden calls, all of them are left
    /// out.
    pub(super) fn shown(self, item: &Item) -> bool {
        let mark = self.marks.get(item.no);
        match item.kind {
            ItemKind::Text | ItemKind::Reasoning => mark != Mark::Removed,
            ItemKind::Call => {
                let refused = if item.hidden {
                    self.transcript.without.has(EditKind::Hidden)
                } else {
                    let entered = self.entered(item).is_some();
                    let unedited = self.transcript.without.has(EditKind::Results) && !entered;
                    mark != Mark::Live && !item.bound && (unedited || item.whole)
                };
                item.delimiter != Some(DelimiterRole::Stray) && mark != Mark::Removed && !refused
            }
            ItemKind::Result | ItemKind::System | ItemKind::User | ItemKind::Opaque => true,
        }
    }

    /// How the result of a call was edited when it came in, if it was, and by no pass since.
    pub(super) fn entered(self, call: &Item) -> Option<&'a Kept> {
        let kept = self.marks.kept(call.no)?;
        let mark = self.marks.get(call.no);
        kept.is_entered(mark).then_some(kept)
    }

    /// Whether a result that was edited when it came in is shown whole all the same: the upstream
    /// refuses edited results, or it is a pointer to what is not whole.
    pub(super) fn is_bared(self, call: &Item) -> bool {
        let Some(kept) = self.entered(call) else {
            return false;
        };
        let stands = |to: ItemNo| self.marks.get(to) == Mark::Live;
        self.transcript.without.has(EditKind::Results) || !kept.same.is_none_or(stands)
    }

    pub(super) fn call_shown(self, call: ItemIndex) -> bool {
        self.transcript
            .items
            .get(call)
            .is_some_and(|item| self.shown(item))
    }

    /// Whether an item of a message that is shown is shown itself. Its mark decides, unless the
    /// upstream refuses the message with it or without it. Evicted text that the upstream wants beside calls is shown
    /// again if a call of its message is (`called`): alone it would be the whole message.
    pub(super) fn stays(self, item: &Item, called: bool) -> bool {
        let demanded = match item.kind {
            ItemKind::Reasoning
                if self.transcript.without.has(EditKind::HopReasoning) && self.is_hop(item) =>
            {
                return false;
            }
            // A thought that something changed before is refused wherever it stands.
            ItemKind::Reasoning => {
                let without = self.transcript.without;
                without.has(EditKind::Reasoning) && !without.has(EditKind::Thoughts)
            }
            ItemKind::Text => called && self.transcript.without.has(EditKind::Text),
            ItemKind::Call
            | ItemKind::Result
            | ItemKind::System
            | ItemKind::User
            | ItemKind::Opaque => false,
        };
        // The mark is asked first: it decides for nearly all items, and the last question reads
        // neighbours.
        demanded || self.shown(item) || self.parts_users(item)
    }

    /// Whether a text is all that separates two messages of the user's role: a result that came as
    /// text, and what the user says next. Some providers require user and assistant to alternate,
    /// so some of the text has to stay.
    pub(super) fn parts_users(self, item: &Item) -> bool {
        let EntryIndex(at) = item.entry;
        let entry = |at: Option<usize>| self.transcript.entries.get(EntryIndex(at?));
        let (before, behind) = (at.checked_sub(1), at.checked_add(1));
        let said = |entry: &TranscriptEntry| {
            self.transcript
                .items_of(entry)
                .iter()
                .any(|item| item.front.is_some())
        };
        let calls = |entry: &TranscriptEntry| {
            self.transcript
                .items_of(entry)
                .iter()
                .any(|item| item.kind == ItemKind::Call)
        };
        item.kind == ItemKind::Text
            && item.tokens > 0
            && entry(before).is_some_and(said)
            && entry(behind).is_some_and(|entry| entry.role == Role::User)
            && entry(Some(at)).is_some_and(|entry| !calls(entry))
    }

    /// Whether an item is reasoning. Reasoning alone is no content: no message is kept for it.
    pub(super) fn is_reasoning(self, item: ItemIndex) -> bool {
        let item = self.transcript.items.get(item);
        item.is_some_and(|item| item.kind == ItemKind::Reasoning)
    }

    /// Whether an item stands in the message of a hop that the client never saw.
    pub(super) fn is_hop(self, item: &Item) -> bool {
        let entry = self.transcript.entries.get(item.entry);
        entry.is_some_and(|entry| matches!(entry.source, Source::Hop { .. }))
    }
}

/// A text that replaces the result of a call. A result that came as text still begins as it did.
#[must_use]
pub fn fronted(transcript: &Transcript, call: ItemIndex, text: String) -> String {
    let result = transcript.items.get(call).and_then(|item| item.pair);
    let result = result.and_then(|at| transcript.items.get(at));
    match result.and_then(|result| result.front.as_ref()) {
        Some(front) => format!("{front}\n{text}"),
        None => text,
    }
}
