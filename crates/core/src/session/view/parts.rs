//! The tokens of a view by what they belong to. Never decides what is shown.

use super::{View, own_note};
use crate::session::index::ItemIndex;
use crate::session::note::Note;
use crate::session::transcript::{Item, Source, TranscriptEntry};
use plimsoll_model::{ItemKind, Role, label_set};

label_set!(
    /// A part of what the upstream is sent.
    Part {
        /// The client's system and developer messages.
        System => "system",
        /// The client's tools.
        Tools => "tools",
        /// What the user says.
        User => "user",
        /// The model's calls, texts and reasoning.
        Calls => "calls",
        /// The results of the client's tools, or what is left of them.
        Results => "results",
        /// What the proxy adds: schemas, guidance, and hidden calls with their results. The
        /// tombstones of explicit episodes are in these.
        Own => "own",
    }
);

/// Tokens by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts([u64; Part::ALL.len()]);

impl Parts {
    /// The tokens of a part.
    #[must_use]
    pub fn get(&self, part: Part) -> u64 {
        self.0.get(part as usize).copied().unwrap_or_default()
    }

    /// Adds tokens to a part.
    pub fn add(&mut self, part: Part, tokens: u64) {
        if let Some(slot) = self.0.get_mut(part as usize) {
            *slot = slot.saturating_add(tokens);
        }
    }

    /// Moves tokens from a part to another, as many as the part has.
    pub fn shift(&mut self, from: Part, to: Part, tokens: u64) {
        let tokens = tokens.min(self.get(from));
        if let Some(slot) = self.0.get_mut(from as usize) {
            *slot -= tokens;
        }
        self.add(to, tokens);
    }

    /// All parts with another count each.
    #[must_use]
    pub fn map(self, count: impl Fn(u64) -> u64) -> Self {
        Self(self.0.map(count))
    }
}

impl View {
    /// The parts of the messages of a view.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let mut parts = Parts::default();
        for (at, entry) in self.transcript.entries.indexed() {
            let whole = self.tokens(at, entry);
            if whole == 0 {
                continue;
            }
            let part = part(entry);
            parts.add(part, u64::from(whole));
            parts.shift(part, Part::Own, u64::from(self.apart(at, entry)));
            if part == Part::Calls {
                let hidden = self.hidden(entry);
                parts.shift(Part::Calls, Part::Own, hidden);
            }
        }
        parts
    }

    /// The tokens of the hidden calls of a message.
    fn hidden(&self, entry: &TranscriptEntry) -> u64 {
        let ours = |(at, item): &(ItemIndex, &Item)| {
            item.hidden && item.kind == ItemKind::Call && self.marked().call_shown(*at)
        };
        let all = self.transcript.indexed_items_of(entry);
        let sizes = all
            .filter(ours)
            .map(|(at, item)| own_note(&self.notes, at, item).map_or(item.tokens, Note::tokens));
        sizes.map(u64::from).sum()
    }
}

fn part(entry: &TranscriptEntry) -> Part {
    match entry.role {
        Role::System if entry.source == Source::Guidance => Part::Own,
        Role::System => Part::System,
        Role::User | Role::Other => Part::User,
        Role::Assistant => Part::Calls,
        Role::Tool => match entry.source {
            Source::HiddenResult { .. } => Part::Own,
            Source::Client(_) | Source::LastHop { .. } | Source::Hop { .. } | Source::Guidance => {
                Part::Results
            }
        },
    }
}
