//! How many tokens a view takes. What a message shows and what that takes both follow from `said`. Never decides what
//! is shown.

use plimsoll_model::{ItemKind, MESSAGE_TOKENS, ReasoningRead, Role};

use super::{View, own_note};
use crate::session::index::{EntryIndex, Indexed, ItemIndex};
use crate::session::marked::Marked;
use crate::session::note::Note;
use crate::session::transcript::{Item, Source, TranscriptEntry};
use std::sync::Arc;

impl View {
    /// The *body* size of an entry: all that is sent of it, in tokens.
    #[must_use]
    pub fn body_size(&self, entry: &TranscriptEntry) -> u32 {
        self.weigh(entry).0
    }

    /// This view, of which the provider drops these thoughts too.
    #[must_use]
    pub fn dropping(mut self, thoughts: &[ItemIndex]) -> Self {
        let items = thoughts
            .iter()
            .filter_map(|at| self.transcript.items.get(*at));
        let entries: Vec<EntryIndex> = items.map(|item| item.entry).collect();
        if !entries.is_empty() && self.dropped.is_empty() {
            self.dropped = self.transcript.entries.iter().map(|_| false).collect();
        }
        for at in entries {
            if let Some(slot) = self.dropped.get_mut(at) {
                *slot = true;
            }
            self.recount(at);
        }
        self
    }

    /// Counts all entries.
    pub(super) fn count(&mut self) {
        let transcript = Arc::clone(&self.transcript);
        self.calls = transcript
            .entries
            .iter()
            .map(|entry| self.calls_now(entry))
            .collect();
        self.dropped = self.dropped_now();
        self.sizes = transcript.entries.iter().map(|_| 0).collect();
        self.size = 0;
        self.shown.clear();
        // In order, because what stands before an entry decides whether it has to be kept apart.
        for (at, _) in transcript.entries.indexed() {
            self.resize(at);
        }
    }

    /// Counts one entry again, and as long as one is shown no longer or again, the one behind it, which may need to be
    /// kept apart from another now.
    pub fn recount(&mut self, at: EntryIndex) {
        let mut next = Some(at);
        while let Some(at) = next {
            let before = self.shown.contains(&at);
            self.resize(at);
            let turned = before != self.shown.contains(&at);
            next = self.shown.range(EntryIndex(at.0 + 1)..).next().copied();
            next = next.filter(|_| turned);
        }
        // Behind what the guidance stands depends on what follows it.
        let before = self.shown.range(..at).next_back().copied();
        let guides = |at: &EntryIndex| {
            let entry = self.transcript.entries.get(*at);
            entry.is_some_and(|entry| entry.source == Source::Guidance)
        };
        if let Some(guidance) = before.filter(guides) {
            self.resize(guidance);
        }
    }

    fn resize(&mut self, at: EntryIndex) {
        let Some(entry) = self.transcript.entries.get(at) else {
            return;
        };
        let size = self.tokens(at, entry);
        if self.transcript.apart > 0 {
            match size {
                0 => self.shown.remove(&at),
                _ => self.shown.insert(at),
            };
        }
        if let Some(slot) = self.sizes.get_mut(at) {
            self.size = self.size + u64::from(size) - u64::from(*slot);
            *slot = size;
        }
    }

    /// The tokens of the message before an entry that keeps it apart from the answer before it, because what stood
    /// between them is gone. Most formats need none.
    pub(super) fn apart(&self, at: EntryIndex, entry: &TranscriptEntry) -> u32 {
        // The guidance, too, never stands right behind an answer.
        let ours = entry.source == Source::Guidance;
        if entry.role != Role::Assistant && !ours {
            return 0;
        }
        let Some(before) = self.shown.range(..at).next_back() else {
            return 0;
        };
        let follows = before.0 + 1 == at.0;
        let joins = |other: &TranscriptEntry| {
            // What the client itself put side by side stays so.
            let clients = matches!(other.source, Source::Client(_) | Source::LastHop { .. });
            other.role == Role::Assistant && (ours || !(clients && follows))
        };
        let stands = self.transcript.entries.get(*before).is_some_and(joins);
        match stands && !(ours && self.user_follows(at)) {
            true => self.transcript.apart,
            false => 0,
        }
    }

    /// Whether the user speaks next behind an entry. A system message waits for that.
    fn user_follows(&self, at: EntryIndex) -> bool {
        let mut behind = self.transcript.entries.iter().skip(at.0 + 1);
        let next = behind.find(|entry| self.weigh(entry).0 > 0);
        next.is_some_and(|next| !matches!(next.role, Role::Assistant | Role::System))
    }

    /// The messages whose thoughts the provider drops as they are shown now. A pass doesn't ask again: what it
    /// evicts may have more of them dropped.
    fn dropped_now(&self) -> Indexed<EntryIndex, bool> {
        let read = self.transcript.thoughts.read;
        if read == ReasoningRead::All {
            return Indexed::default();
        }
        let message = |entry: &TranscriptEntry| (entry.role, self.calls_of(entry).shown > 0);
        let messages: Vec<_> = self.transcript.entries.iter().map(message).collect();
        read.dropped(&messages).into_iter().collect()
    }

    /// The read size of an entry, in tokens.
    pub(super) fn tokens(&self, at: EntryIndex, entry: &TranscriptEntry) -> u32 {
        let (body, thought) = self.weigh(entry);
        if body == 0 {
            return 0;
        }
        let drops = self.dropped.get(at).copied().unwrap_or_default();
        body + self.apart(at, entry) - if drops { thought } else { 0 }
    }

    /// The size of an entry as shown and of its thought in it, in tokens.
    fn weigh(&self, entry: &TranscriptEntry) -> (u32, u32) {
        let seen = Marked::new(&self.transcript, &self.marks);
        let items = seen.transcript.items_of(entry);
        match entry.role {
            Role::System | Role::User | Role::Other => (sum(items.iter()), 0),
            Role::Tool => match items.first().and_then(|item| item.pair) {
                None => (sum(items.iter()), 0),
                Some(call) if !seen.call_shown(call) => (0, 0),
                Some(call) => {
                    let note = self.notes.results.get(&call);
                    let noted = note.map(|note| MESSAGE_TOKENS + note.tokens());
                    (noted.unwrap_or_else(|| sum(items.iter())), 0)
                }
            },
            Role::Assistant => {
                let said = self.said(entry);
                if !said.shown {
                    return (0, 0);
                }
                let (mut body, mut thought) = (MESSAGE_TOKENS + self.calls_of(entry).tokens, 0);
                let all = seen.transcript.spoken_of(entry);
                for (at, item) in all.filter(|(_, item)| self.says(&said, item)) {
                    body += own_note(&self.notes, at, item).map_or(item.tokens, Note::tokens);
                    if item.kind == ItemKind::Reasoning {
                        thought += item.tokens;
                    }
                }
                (body, thought)
            }
        }
    }
}

fn sum<'a>(items: impl Iterator<Item = &'a Item>) -> u32 {
    MESSAGE_TOKENS + items.map(|item| item.tokens).sum::<u32>()
}
