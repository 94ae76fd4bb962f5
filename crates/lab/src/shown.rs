//! Whether a view names what it does not show: the item that held a string, by an id in a stub, a
//! tombstone or a ledger line, or its episode by name. Decided by the text that was sent, with the
//! transcript only to tell what an item is called.

use std::collections::HashSet;

use plimsoll_core::session::index::ItemIndex;
use plimsoll_core::session::tombstone;
use plimsoll_core::session::transcript::{Item, Source, Transcript};
use plimsoll_core::session::view::View;
use plimsoll_model::{ItemKind, ItemNo, Mark, Marks, Role};
use plimsoll_wire::Dialect;

use super::message_text::TextPart;
use super::named::{self, Ids};
use super::sent::{Pool, SentNote};

/// Tokens of the thoughts that a pass took out of view, which these marks showed before it.
#[must_use]
pub fn ended(view: &View, before: &Marks) -> u64 {
    let gone = |item: &&Item| {
        item.kind == ItemKind::Reasoning
            && before.get(item.no) != Mark::Removed
            && view.marks().get(item.no) == Mark::Removed
    };
    let gone = view.transcript().items.iter().filter(gone);
    gone.map(|item| u64::from(item.tokens)).sum()
}

/// One request's view.
pub struct SentView<'a> {
    /// The messages that were sent.
    pub pool: &'a Pool,
    /// Those of this view.
    pub ids: &'a [u32],
    /// The transcript behind it.
    pub transcript: &'a Transcript,
}

impl SentView<'_> {
    /// Whether any of some places is named: messages of the client's, and the parts of them.
    #[must_use]
    pub fn names_any(&self, mut places: impl Iterator<Item = (usize, TextPart)>) -> bool {
        places.any(|(message, part)| {
            let item = self.item(message, part);
            item.is_some_and(|item| self.names(item))
        })
    }

    /// The item at a part of a message of the client's; a call in place of its result.
    #[must_use]
    pub fn item(&self, message: usize, part: TextPart) -> Option<&Item> {
        let entries = &self.transcript.entries;
        // Entries stand in the order of the client's messages, with hidden ones between them.
        let entry = entries.iter().find(|entry| match entry.source {
            Source::Client(at) | Source::LastHop { message: at, .. } => at == message,
            Source::Hop { .. } | Source::HiddenResult { .. } | Source::Guidance => false,
        })?;
        let items = self.transcript.items_of(entry);
        if entry.role == Role::Tool {
            let call = items.first()?.pair?;
            return self.transcript.items.get(call);
        }
        let kind = |kind: ItemKind| items.iter().find(move |item| item.kind == kind);
        match part {
            TextPart::Text => kind(ItemKind::Text),
            TextPart::Reasoning => kind(ItemKind::Reasoning),
            TextPart::Call(place) => items
                .iter()
                .filter(|item| {
                    item.kind == ItemKind::Call && item.delimiter.is_none() && !item.said
                })
                .nth(place),
        }
    }

    /// The line that names an item by its id.
    #[must_use]
    pub fn line_of(&self, number: ItemNo) -> Option<String> {
        let items = self.transcript.items.iter();
        let item = items.clone().find(|item| item.no == number)?;
        let named = |note: &SentNote| note.ids.iter().any(|ids| is_named(item, ids));
        let note = self.notes().find(|note| named(note))?;
        let tells = |line: &&str| named::ids(line).iter().any(|ids| is_named(item, ids));
        note.text.lines().find(tells).map(str::to_owned)
    }

    fn names(&self, item: &Item) -> bool {
        let episode = item
            .episode
            .and_then(|at| self.transcript.graph.episodes.get(at))
            .map(|episode| tombstone::name(self.transcript, episode));
        self.notes().any(|note| {
            let by_id = note.ids.iter().any(|ids| is_named(item, ids));
            let tells = |episode: &String| note.result && named::names(&note.text, episode);
            by_id || episode.as_ref().is_some_and(tells)
        })
    }

    fn notes(&self) -> impl Iterator<Item = &SentNote> {
        let elements = self.ids.iter().filter_map(|id| self.pool.get(*id));
        elements.filter_map(|element| element.note.as_ref())
    }
}

fn is_named(item: &Item, ids: &Ids) -> bool {
    let named = *ids.name == *item.name || (item.name.is_empty() && is_text(&ids.name));
    named && (ids.first..=ids.last).contains(&item.no.0)
}

/// The names that items without a tool go by.
fn is_text(name: &str) -> bool {
    matches!(name, "text" | "assistant" | "reasoning")
}

/// The item of a number: the call where the number is a pair's.
pub fn item(transcript: &Transcript, number: ItemNo) -> Option<&Item> {
    let mut items = transcript.items.iter();
    items.find(|item| item.no == number && item.kind != ItemKind::Result)
}

/// The id of the call of an item, as the client's message tells it.
pub fn call_id(
    transcript: &Transcript,
    number: ItemNo,
    message: impl Fn(usize) -> Option<Vec<u8>>,
) -> Option<String> {
    let item = item(transcript, number)?;
    let result = transcript.items.get(item.pair?)?;
    let entry = transcript.entries.get(result.entry)?;
    let (Source::Client(at) | Source::LastHop { message: at, .. }) = entry.source else {
        return None;
    };
    let bytes = message(at)?;
    Some(Dialect::Chat.parse(&bytes).ok()?.result_of?.0)
}

/// The client's messages that are shown as pointers.
#[must_use]
pub fn pointing(view: &View) -> HashSet<usize> {
    let transcript = view.transcript();
    let pointers = view.marked().pointers().into_values().flatten();
    let message = |call: ItemIndex| {
        let result = transcript.items.get(transcript.items.get(call)?.pair?)?;
        match transcript.entries.get(result.entry)?.source {
            Source::Client(at) | Source::LastHop { message: at, .. } => Some(at),
            Source::Hop { .. } | Source::HiddenResult { .. } | Source::Guidance => None,
        }
    };
    pointers.filter_map(message).collect()
}
