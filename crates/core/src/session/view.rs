//! The view: the transcript seen through its marks. It says what is shown of each message and how
//! many tokens that takes; the renderer turns it into bytes, and the policies measure it. Pure: the
//! same transcript and marks give the same view. Never chooses which mark moves.

mod calls;
mod edits;
mod left;
mod parts;
mod sizes;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use plimsoll_model::{EditKind, ItemKind, Kept, Mark, Marks, Role};

use calls::CallsShown;
pub use left::ShownText;
pub use parts::{Part, Parts};

use super::graph::Episode;
use super::index::{EntryIndex, Indexed, ItemIndex, indices};
use super::marked::{Marked, StandIn, fronted};
use super::measure::Measure;
use super::note::Note;
use super::transcript::{Item, Transcript, TranscriptEntry};
use super::{ids, stub, tombstone};

/// A transcript, the marks of its items, the texts of the proxy that the marks require, and the
/// size of what is shown.
#[derive(Clone, Debug, Default)]
pub struct View {
    transcript: Arc<Transcript>,
    marks: Arc<Marks>,
    notes: Notes,
    /// The size of every entry as shown, in tokens, without a thought that its provider drops.
    sizes: Indexed<EntryIndex, u32>,
    /// Their sum.
    size: u64,
    /// What is shown of the calls of every entry. One answer may have thousands, so they are never counted anew.
    calls: Indexed<EntryIndex, CallsShown>,
    /// The entries that are shown, where one may have to be kept apart from the one before it; else empty.
    shown: BTreeSet<EntryIndex>,
    /// The messages whose thoughts the provider drops by itself; empty if it drops none.
    dropped: Indexed<EntryIndex, bool>,
}

/// The texts of the proxy in a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Texts that replace a result, by its call, and texts that replace a text, by that.
    pub results: HashMap<ItemIndex, Note>,
    /// Texts that replace the arguments of a call, by the call.
    pub arguments: HashMap<ItemIndex, Note>,
    /// The call whose result holds the ledger.
    pub host: Option<ItemIndex>,
}

/// What is shown of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    /// Nothing.
    Gone,
    /// The message as it stands in the transcript.
    Whole,
    /// An assistant message without some of its items.
    Less {
        /// Whether its text stays.
        text: bool,
        /// What stands in place of its text.
        line: Option<&'a str>,
        /// Whether its reasoning stays.
        reasoning: bool,
        /// Which of its calls stay, hidden calls included.
        calls: Vec<bool>,
        /// The trimmed arguments of calls, by the place of the call among all.
        arguments: Vec<(usize, &'a str)>,
    },
    /// A result whose text is replaced.
    Note(&'a str),
}

impl View {
    /// The view of a transcript under these marks, its notes written and its entries counted.
    #[must_use]
    pub fn new(transcript: Arc<Transcript>, marks: Arc<Marks>, measure: Measure<'_>) -> Self {
        let mut view = Self {
            transcript,
            marks,
            ..Self::default()
        };
        view.write(measure);
        view.count();
        view
    }

    /// The view of a transcript of which nothing is evicted.
    #[must_use]
    pub fn live(transcript: Arc<Transcript>) -> Self {
        let mut view = Self {
            transcript,
            ..Self::default()
        };
        view.count();
        view
    }

    /// The transcript.
    #[must_use]
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// The transcript, shared with the caller.
    #[must_use]
    pub fn shared(&self) -> Arc<Transcript> {
        Arc::clone(&self.transcript)
    }

    /// How its items are shown.
    #[must_use]
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The texts of the proxy's own.
    #[must_use]
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// The marks, shared with the caller.
    #[must_use]
    pub fn shared_marks(&self) -> Arc<Marks> {
        Arc::clone(&self.marks)
    }

    /// The transcript with its marks.
    #[must_use]
    pub fn marked(&self) -> Marked<'_> {
        Marked::new(&self.transcript, &self.marks)
    }

    /// The size of every entry as its provider reads it, in tokens.
    #[must_use]
    pub fn sizes(&self) -> &Indexed<EntryIndex, u32> {
        &self.sizes
    }

    /// The *read* size of all entries: what their provider reads and bills of them, in tokens.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes all notes that the marks require.
    fn write(&mut self, measure: Measure<'_>) {
        if self.marks.is_empty() {
            return;
        }
        let transcript = Arc::clone(&self.transcript);
        // Tombstones replace the stubs of their carriers, and the ledger is added to the newest
        // tombstone, so this order matters.
        for index in indices(ItemIndex(0)..transcript.items.end()) {
            self.write_left(index, measure);
        }
        for episode in &transcript.graph.episodes {
            self.note_episode(episode, measure);
        }
        self.note_strays(measure);
        self.note_ledger(measure);
    }

    /// Moves the mark of an item right, records what is left of it, and writes its own note again.
    /// The caller has to recount what this changes.
    pub fn shrink(
        &mut self,
        index: ItemIndex,
        mark: Mark,
        kept: Option<Arc<Kept>>,
        measure: Measure<'_>,
    ) {
        let transcript = Arc::clone(&self.transcript);
        let Some(item) = transcript.items.get(index) else {
            return;
        };
        let before = self.call_of(item, index);
        let marks = Arc::make_mut(&mut self.marks);
        marks.raise(item.no, mark);
        if let Some(kept) = kept {
            marks.keep(item.no, kept);
        }
        self.note_left(index, measure);
        let now = self.call_of(item, index);
        if let Some(calls) = self.calls.get_mut(item.entry) {
            calls.replace(before, now);
        }
    }

    /// Writes what is left of one call or text again, or removes the note if nothing is left.
    fn note_left(&mut self, index: ItemIndex, measure: Measure<'_>) {
        let item = self.transcript.items.get(index).filter(is_lasting);
        if item.is_some_and(|item| self.marks.get(item.no) == Mark::Removed) {
            self.notes.results.remove(&index);
            self.notes.arguments.remove(&index);
        }
        self.write_left(index, measure);
    }

    /// Writes what is left of one call or text that has no note yet.
    fn write_left(&mut self, index: ItemIndex, measure: Measure<'_>) {
        let seen = Marked::new(&self.transcript, &self.marks);
        let Some(item) = seen.transcript.items.get(index).filter(is_lasting) else {
            return;
        };
        let mark = seen.marks.get(item.no);
        match mark {
            Mark::Live => {}
            Mark::Removed => {
                // The text is removed, but something has to stay between two user messages.
                if seen.parts_users(item) {
                    let id = ids::id(item);
                    let text = stub::result(&id, item.tokens, Mark::Masked, &Kept::default(), "");
                    let note = (measure.note)(text);
                    // A text that is not longer than the line stays itself.
                    if note.tokens() < item.tokens {
                        self.notes.results.insert(index, note);
                    }
                }
            }
            Mark::Clipped | Mark::Masked | Mark::Tombstone | Mark::Trimmed => {
                let Some(kept) = seen.marks.kept(item.no) else {
                    return;
                };
                if seen.is_bared(item) {
                    return;
                }
                let left = (measure.left)(index, mark, kept);
                if let Some(note) = left.result {
                    self.notes.results.insert(index, note);
                }
                let note = left.arguments;
                if let Some(note) =
                    note.filter(|_| !seen.transcript.without.has(EditKind::Arguments))
                {
                    self.notes.arguments.insert(index, note);
                }
            }
        }
    }

    /// Writes the note of one episode again, or removes it if none is due.
    pub fn note_episode(&mut self, episode: &Episode, measure: Measure<'_>) {
        let seen = Marked::new(&self.transcript, &self.marks);
        let notes = &mut self.notes.results;
        let mut next = None;
        if let StandIn::Nothing(carrier) | StandIn::Tombstone(carrier) = seen.stand_in(episode) {
            // A line stands at the end of an episode, and a tombstone at its start: no line outlives it.
            for place in [Some(carrier), episode.end].into_iter().flatten() {
                notes.remove(&place);
            }
            // The call that closed it may have opened the next one, which has its own note there.
            let opened = episode
                .end
                .and_then(|end| seen.transcript.items.get(end)?.episode);
            let opened = opened.and_then(|opened| seen.transcript.graph.episodes.get(opened));
            let opened = opened.filter(|opened| opened.carrier == episode.end);
            let note = opened.and_then(|opened| note_of(seen, opened));
            next = note.filter(|(at, _)| Some(*at) == episode.end);
        }
        for (at, text) in [next, note_of(seen, episode)].into_iter().flatten() {
            let text = fronted(seen.transcript, at, text);
            notes.insert(at, (measure.note)(text));
        }
    }

    /// Writes notes for calls that carried a tombstone before an edit of the client moved the
    /// bounds of their episode: what was evicted stays evicted.
    fn note_strays(&mut self, measure: Measure<'_>) {
        let seen = Marked::new(&self.transcript, &self.marks);
        let carried =
            |item: &Item| item.kind == ItemKind::Call && seen.marks.get(item.no) == Mark::Tombstone;
        for (index, item) in seen.transcript.items.indexed() {
            // If an earlier pass left a stub, that is shown again. A pointer is not, once what it points to has gone.
            if carried(item) && !self.notes.results.contains_key(&index) {
                let text = fronted(&self.transcript, index, tombstone::stray(item));
                let note = (measure.note)(text);
                self.notes.results.insert(index, note);
            }
        }
    }

    /// Writes the ledger into the newest tombstone once an episode was merged into it, and
    /// remembers the call whose result holds it.
    pub fn note_ledger(&mut self, measure: Measure<'_>) {
        let seen = Marked::new(&self.transcript, &self.marks);
        let ledger = seen.ledger();
        self.notes.host = ledger.as_ref().map(|(host, _)| *host);
        if let Some((host, gone)) = ledger {
            let own = tombstone::ledger(seen, &gone, measure);
            let own = fronted(&self.transcript, host, own);
            self.notes.results.insert(host, (measure.note)(own));
        }
    }

    /// The lines of the ledger that did not fit into the view, newest first.
    #[must_use]
    pub fn ledger_rest(&self, measure: Measure<'_>) -> Vec<String> {
        let seen = self.marked();
        seen.ledger().map_or_else(Vec::new, |(_, gone)| {
            tombstone::ledger_rest(seen, &gone, measure)
        })
    }

    /// What is shown of an entry.
    #[must_use]
    pub fn shown_of(&self, entry: &TranscriptEntry) -> Shown<'_> {
        let seen = Marked::new(&self.transcript, &self.marks);
        let items = seen.transcript.items_of(entry);
        match entry.role {
            Role::System | Role::User | Role::Other => Shown::Whole,
            Role::Tool => match items.first().and_then(|item| item.pair) {
                None => Shown::Whole,
                Some(call) if !seen.call_shown(call) => Shown::Gone,
                Some(call) => self
                    .notes
                    .results
                    .get(&call)
                    .map_or(Shown::Whole, |note| Shown::Note(note.text())),
            },
            Role::Assistant => self.assistant(entry),
        }
    }

    /// Whether the view shows the original of an item: for a call, its arguments and its result.
    #[must_use]
    pub fn is_whole(&self, index: ItemIndex) -> bool {
        let seen = Marked::new(&self.transcript, &self.marks);
        let Some(item) = seen.transcript.items.get(index) else {
            return false;
        };
        let call = item.holder(index);
        if matches!(item.kind, ItemKind::Text | ItemKind::Reasoning) {
            return own_note(&self.notes, index, item).is_none() && self.is_shown(item);
        }
        let noted =
            self.notes.results.contains_key(&call) || self.notes.arguments.contains_key(&call);
        !noted && seen.call_shown(call)
    }

    /// What an assistant message shows. Its bytes and its size both follow from this.
    fn said(&self, entry: &TranscriptEntry) -> Said {
        let seen = self.marked();
        let calls = self.calls_of(entry);
        let called = seen.transcript.without.has(EditKind::Text) && calls.shown > 0;
        let mut said = Said {
            called,
            shown: calls.shown > 0,
            whole: calls.less == 0,
            ..Said::default()
        };
        let mut parted = calls.parted > 0;
        for (at, item) in seen.transcript.spoken_of(entry) {
            let stays = seen.stays(item, called);
            if item.kind == ItemKind::Reasoning {
                said.thought = stays;
                said.whole &= stays;
                continue;
            }
            said.shown |= stays && !item.blank;
            said.whole &= stays && own_note(&self.notes, at, item).is_none();
            parted |= !stays;
        }
        // In some formats a thought is valid only beside all that was said with it. What the upstream refuses to
        // miss stays all the same.
        let without = seen.transcript.without;
        let demanded = without.has(EditKind::Reasoning) && !without.has(EditKind::Thoughts);
        if parted && seen.transcript.thoughts.whole && !demanded {
            said.thought = false;
        }
        // Reasoning alone is no message, unless the client said nothing else.
        said.shown |= said.whole;
        said
    }

    /// Whether an item of an assistant message is shown, whole or as a note.
    fn says(&self, said: &Said, item: &Item) -> bool {
        said.shown
            && match item.kind {
                ItemKind::Reasoning => said.thought,
                ItemKind::Text
                | ItemKind::Call
                | ItemKind::Opaque
                | ItemKind::Result
                | ItemKind::System
                | ItemKind::User => self.marked().stays(item, said.called),
            }
    }

    /// Whether a text or a thought is shown, whole or as a note.
    fn is_shown(&self, item: &Item) -> bool {
        let entry = self.transcript.entries.get(item.entry);
        entry.is_some_and(|entry| self.says(&self.said(entry), item))
    }

    fn assistant(&self, entry: &TranscriptEntry) -> Shown<'_> {
        let seen = self.marked();
        let said = self.said(entry);
        // Most messages are whole; only the others are taken apart.
        if said.whole {
            return Shown::Whole;
        }
        if !said.shown {
            return Shown::Gone;
        }
        let items = seen.transcript.items_of(entry);
        let kept = |item: &Item| self.says(&said, item);
        let trimmed = |at: ItemIndex| self.notes.arguments.get(&at);
        // A call that was written as text is its message's text, and no call of the message.
        let called = |(_, item): &(ItemIndex, &Item)| item.kind == ItemKind::Call && !item.said;
        let all = || seen.transcript.indexed_items_of(entry).filter(called);
        let calls: Vec<bool> = all().map(|(_, item)| kept(item)).collect();
        let arguments = all()
            .enumerate()
            .filter(|(_, (_, item))| kept(item))
            .filter_map(|(place, (at, _))| Some((place, trimmed(at)?.text())))
            .collect();
        let has = |kind| items.iter().any(|item| item.kind == kind && kept(item));
        let spoken = items.iter().any(|item| item.said && kept(item));
        let mut texts = seen.transcript.indexed_items_of(entry);
        let line = texts.find(|(_, item)| item.kind == ItemKind::Text && kept(item));
        let line = line.and_then(|(at, item)| own_note(&self.notes, at, item));
        Shown::Less {
            text: spoken || has(ItemKind::Text) || has(ItemKind::Opaque),
            line: line.map(Note::text),
            reasoning: has(ItemKind::Reasoning),
            calls,
            arguments,
        }
    }
}

/// What an assistant message shows.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// Whether it is shown at all.
    shown: bool,
    /// Whether it is shown as it came.
    whole: bool,
    /// Whether its thought is shown with it.
    thought: bool,
    /// Whether evicted text of it is shown again beside its calls.
    called: bool,
}

/// The note of an episode, and the call whose result holds it. `None` if none is due.
fn note_of(seen: Marked<'_>, episode: &Episode) -> Option<(ItemIndex, String)> {
    match seen.stand_in(episode) {
        StandIn::Items | StandIn::Nothing(_) => None,
        StandIn::Tombstone(carrier) => Some((carrier, tombstone::tombstone(seen, episode))),
        StandIn::Line(call) => {
            let state = if episode.end == Some(call) {
                "closed"
            } else {
                "opened"
            };
            Some((call, tombstone::stripped(seen, episode, state)?))
        }
    }
}

/// Whether a part of an item may be left: it is a call of the client or a text.
fn is_lasting(item: &&Item) -> bool {
    match item.kind {
        ItemKind::Call => item.delimiter.is_none(),
        ItemKind::Text => true,
        ItemKind::System
        | ItemKind::User
        | ItemKind::Reasoning
        | ItemKind::Result
        | ItemKind::Opaque => false,
    }
}

/// What replaces a part of an assistant message: the arguments of a call, or a text.
fn own_note<'a>(notes: &'a Notes, at: ItemIndex, item: &Item) -> Option<&'a Note> {
    match item.kind {
        ItemKind::Call => notes.arguments.get(&at),
        ItemKind::Text => notes.results.get(&at),
        ItemKind::System
        | ItemKind::User
        | ItemKind::Reasoning
        | ItemKind::Result
        | ItemKind::Opaque => None,
    }
}
