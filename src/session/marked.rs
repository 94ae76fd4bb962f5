//! A transcript with its marks: what they say of items and episodes before any text of the proxy's own.
//! Never writes a text and never moves a mark.

use super::graph::{Delimiter, Episode, Kind};
use super::index::{EntryIndex, EpisodeIndex, ItemIndex};
use super::measure::Measure;
use super::transcript::{Entry, Item, Source, Transcript};
use crate::model::{EditKind, ItemKind, Mark, Marks, Role};

/// What stands for an episode in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// Its own items, or what is left of them.
    Items,
    /// Its items that are left, and a line that says what is gone, in the result of this call.
    Line(ItemIndex),
    /// Its tombstone, in the result of this call, which began it.
    Tombstone(ItemIndex),
    /// Nothing in its own place. An explicit episode began with this call, which is not shown.
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

    /// The mark of an item by its index.
    #[must_use]
    pub fn mark_of(self, item: ItemIndex) -> Mark {
        self.transcript
            .items
            .get(item)
            .map_or(Mark::Live, |item| self.marks.get(item.no))
    }

    /// What stands for an episode.
    #[must_use]
    pub fn stand_in(self, episode: &Episode) -> StandIn {
        let Some(carrier) = episode.carrier else {
            return StandIn::Items;
        };
        match (self.mark_of(carrier), episode.kind) {
            (Mark::Removed, _) => StandIn::Nothing(carrier),
            // No pass trims a call that can carry a tombstone before it carries one.
            (Mark::Tombstone | Mark::Trimmed, Kind::Expl | Kind::Implicit) => {
                StandIn::Tombstone(carrier)
            }
            (_, Kind::Implicit) => StandIn::Items,
            // The line stands where a pass marked its place.
            (_, Kind::Expl | Kind::Act) => {
                let mut places = [episode.end, episode.carrier].into_iter().flatten();
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

    /// Whether an episode is evicted: an act wholly, an expl up to its tombstone.
    #[must_use]
    pub fn is_removed(self, episode: &Episode) -> bool {
        // What can still grow is never removed, not even where a client's edit opened it again.
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

    /// Whether nothing in the view names an episode: its start is gone, or the first item of an
    /// implicit one that has no tombstone.
    pub(super) fn leaves_nothing(self, episode: &Episode) -> bool {
        let stand_in = self.stand_in(episode);
        match episode.kind {
            Kind::Expl | Kind::Act => matches!(stand_in, StandIn::Nothing(_)),
            Kind::Implicit => {
                let mut lasting = episode.items.iter();
                let first = lasting.find(|at| !self.is_reasoning(**at));
                first.is_some_and(|at| self.mark_of(*at) == Mark::Removed)
                    && !matches!(stand_in, StandIn::Tombstone(_))
            }
        }
    }

    /// The call that would hold the ledger: the carrier of the newest tombstone, because it changes with
    /// each pass that removes something, and what stands before it stays in the provider's cache.
    #[must_use]
    pub fn ledger_host(self) -> Option<ItemIndex> {
        let mut newest_first = self.transcript.graph.episodes.iter().rev();
        newest_first.find_map(|episode| self.tombstone(episode))
    }

    /// The call that holds the ledger and the episodes that it names, oldest first; `None` before
    /// anything was merged or where no tombstone survives. Told by marks that only a pass moves, never
    /// by what is closed: the ledger must not change between passes.
    pub(super) fn ledger(self) -> Option<(ItemIndex, Vec<EpisodeIndex>)> {
        let host = self.ledger_host()?;
        let mut merged = false;
        let mut gone = Vec::new();
        for (index, episode) in self.transcript.graph.episodes.indexed() {
            if episode.carrier == Some(host) {
                gone.push(index);
            } else if self.leaves_nothing(episode) {
                merged |= episode.is_expl();
                gone.push(index);
            }
        }
        merged.then_some((host, gone))
    }

    /// A line of what is gone, and under it the strings that stood nowhere else than in that.
    pub(super) fn with_names(
        self,
        mut text: String,
        episode: &Episode,
        measure: Measure<'_>,
    ) -> String {
        let name = |index: &ItemIndex| {
            let item = self.transcript.items.get(*index)?;
            let kept = self.marks.kept(item.no)?;
            let removed = self.marks.get(item.no) == Mark::Removed;
            let left = removed.then(|| (measure.left)(*index, Mark::Removed, kept))?;
            left.names
        };
        for (place, names) in episode.items.iter().filter_map(name).enumerate() {
            text.push(if place == 0 { '\n' } else { ' ' });
            text.push_str(&names);
        }
        text
    }

    /// Whether an item is shown. Only text, reasoning and calls have marks; a result follows its call,
    /// and a `delimiter` call whose episode is not on the path is left out. An upstream that refuses
    /// results of another text is shown no call that has one, and one that refuses hidden calls none of
    /// those.
    pub(super) fn shown(self, item: &Item) -> bool {
        let mark = self.marks.get(item.no);
        match item.kind {
            ItemKind::Text | ItemKind::Reasoning => mark != Mark::Removed,
            ItemKind::Call => {
                let refused = if item.hidden {
                    self.transcript.without.has(EditKind::Hidden)
                } else {
                    mark != Mark::Live
                        && !item.bound
                        && self.transcript.without.has(EditKind::Results)
                };
                item.delimiter != Some(Delimiter::Stray) && mark != Mark::Removed && !refused
            }
            ItemKind::Result | ItemKind::System | ItemKind::User | ItemKind::Opaque => true,
        }
    }

    pub(super) fn call_shown(self, call: ItemIndex) -> bool {
        self.transcript
            .items
            .get(call)
            .is_some_and(|item| self.shown(item))
    }

    /// Whether text that is gone of a message comes back beside any call of it that is shown.
    pub(super) fn is_called(self, items: &[Item]) -> bool {
        let mut calls = items.iter().filter(|item| item.kind == ItemKind::Call);
        self.transcript.without.has(EditKind::Text) && calls.any(|item| self.shown(item))
    }

    /// Whether an item of a message that stands is shown: by its mark, or because the upstream refuses
    /// the message without it, or with it. Text that is gone comes back beside calls only: alone it would
    /// be the whole message.
    pub(super) fn stays(self, item: &Item, called: bool) -> bool {
        let demanded = match item.kind {
            ItemKind::Reasoning
                if self.transcript.without.has(EditKind::HopReasoning) && self.is_hop(item) =>
            {
                return false;
            }
            ItemKind::Reasoning => self.transcript.without.has(EditKind::Reasoning),
            ItemKind::Text => called && self.transcript.without.has(EditKind::Text),
            ItemKind::Call
            | ItemKind::Result
            | ItemKind::System
            | ItemKind::User
            | ItemKind::Opaque => false,
        };
        // What is shown is asked first: nearly all is, and what parts users is told by its neighbours.
        demanded || self.shown(item) || self.parts_users(item)
    }

    /// Whether a text is all that stands between two messages of the user's role: the answer behind a result
    /// that came as text, and before what the user says next. Some providers take user and assistant in turns
    /// only, so something of it stays.
    pub(super) fn parts_users(self, item: &Item) -> bool {
        let EntryIndex(at) = item.entry;
        let entry = |at: Option<usize>| self.transcript.entries.get(EntryIndex(at?));
        let (before, behind) = (at.checked_sub(1), at.checked_add(1));
        let said = |entry: &Entry| {
            self.transcript
                .items_of(entry)
                .iter()
                .any(|item| item.front.is_some())
        };
        let calls = |entry: &Entry| {
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

    /// Reasoning alone is no content: a message never stands for it.
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

/// A text in place of the result of a call: one that came as text still begins as it did.
#[must_use]
pub fn fronted(transcript: &Transcript, call: ItemIndex, text: String) -> String {
    let result = transcript.items.get(call).and_then(|item| item.pair);
    let result = result.and_then(|at| transcript.items.get(at));
    match result.and_then(|result| result.front.as_ref()) {
        Some(front) => format!("{front}\n{text}"),
        None => text,
    }
}
