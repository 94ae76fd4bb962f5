//! The tokens of a view by what they belong to. Never decides what is shown.

use plimsoll_model::{ItemKind, LabelSet, Role, ToolClass, label_set};

use super::{View, own_note};
use crate::session::index::ItemIndex;
use crate::session::note::Note;
use crate::session::transcript::{Item, Source, TranscriptEntry};

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
pub struct Parts {
    parts: [u64; Part::ALL.len()],
    /// Those of the results once more, by what their tool is for.
    classes: [u64; ToolClass::ALL.len()],
}

impl Parts {
    /// The tokens of a part.
    #[must_use]
    pub fn get(&self, part: Part) -> u64 {
        count(&self.parts, part)
    }

    /// The tokens of the results of tools of a class.
    #[must_use]
    pub fn of_class(&self, class: ToolClass) -> u64 {
        count(&self.classes, class)
    }

    /// Adds tokens to a part.
    pub fn add(&mut self, part: Part, tokens: u64) {
        raise(&mut self.parts, part, tokens);
    }

    /// Adds tokens of a result to those of its tool's class.
    pub fn add_class(&mut self, class: ToolClass, tokens: u64) {
        raise(&mut self.classes, class, tokens);
    }

    /// Moves tokens from a part to another, as many as the part has.
    pub fn shift(&mut self, from: Part, to: Part, tokens: u64) {
        let tokens = tokens.min(self.get(from));
        if let Some(slot) = self.parts.get_mut(from as usize) {
            *slot -= tokens;
        }
        self.add(to, tokens);
    }

    /// All parts with another count each.
    #[must_use]
    pub fn map(self, count: impl Fn(u64) -> u64) -> Self {
        Self {
            parts: self.parts.map(&count),
            classes: self.classes.map(count),
        }
    }
}

/// What is counted of a member of a closed set.
fn count<L: LabelSet>(counts: &[u64], member: L) -> u64 {
    counts.get(member.place()).copied().unwrap_or_default()
}

fn raise<L: LabelSet>(counts: &mut [u64], member: L, by: u64) {
    if let Some(slot) = counts.get_mut(member.place()) {
        *slot = slot.saturating_add(by);
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
            match part {
                Part::Calls => parts.shift(Part::Calls, Part::Own, self.hidden(entry)),
                Part::Results => parts.add_class(self.class(entry), u64::from(whole)),
                Part::System | Part::Tools | Part::User | Part::Own => {}
            }
        }
        parts
    }

    /// What the tool of a result is for.
    fn class(&self, entry: &TranscriptEntry) -> ToolClass {
        let mut pairs = self.transcript.items_of(entry).iter();
        let call = pairs.find_map(|item| item.pair);
        let call = call.and_then(|call| self.transcript.items.get(call));
        call.map_or(ToolClass::Unknown, |call| call.class)
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
