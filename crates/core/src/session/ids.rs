//! What the ids in a `recall` stand for: items, episodes and pages of the ledger. Only items on the
//! path have an id. Never reads content.

use plimsoll_model::{ItemKind, ItemNo};

use super::graph::EpisodeKind;
use super::index::{EpisodeIndex, ItemIndex};
use super::path::ASSISTANT_ITEMS;
use super::tombstone;
use super::transcript::{Item, Transcript, TranscriptEntry};

/// The most items that one id may list.
const LISTED: usize = 200;
/// How many ids, and how many names, an error offers.
const OFFERED: usize = 12;

/// What an id stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecallTarget {
    /// One item, or several of one tool: `read:3` and `read:3,5,7-9`.
    Items(Vec<ItemIndex>),
    /// An episode.
    Episode(EpisodeIndex),
    /// A page of what the ledger does not show, from 1.
    Ledger(usize),
}

/// The id of an item as the view shows it.
#[must_use]
pub fn id(item: &Item) -> String {
    format!("{}:{}", kind(item), item.no)
}

fn kind(item: &Item) -> &str {
    match item.kind {
        ItemKind::Call | ItemKind::Result => &item.name,
        ItemKind::Text => "text",
        ItemKind::Reasoning => "reasoning",
        ItemKind::User => "user",
        ItemKind::System => "system",
        ItemKind::Opaque => "item",
    }
}

/// What an id stands for on this path. `None` if the id is unknown.
#[must_use]
pub fn find(transcript: &Transcript, id: &str) -> Option<RecallTarget> {
    if let Some((of, numbers)) = numbered(id) {
        if let (true, [page]) = (of.eq_ignore_ascii_case("ledger"), numbers.as_slice()) {
            return (*page > 0).then_some(RecallTarget::Ledger(*page as usize));
        }
        let items: Vec<ItemIndex> = numbers
            .iter()
            .filter_map(|no| item(transcript, of, ItemNo(*no)))
            .collect();
        if !items.is_empty() {
            return Some(RecallTarget::Items(items));
        }
    }
    let episodes = &transcript.graph.episodes;
    let named = |implicit: bool| {
        let mut all = episodes.indexed();
        let found = all.find(|(_, episode)| {
            (episode.kind == EpisodeKind::Implicit) == implicit
                && tombstone::name(transcript, episode) == id
        });
        found.map(|(at, _)| at)
    };
    // The agent's own names win over names that the proxy makes.
    named(false)
        .or_else(|| named(true))
        .map(RecallTarget::Episode)
}

fn item(transcript: &Transcript, of: &str, no: ItemNo) -> Option<ItemIndex> {
    let named = |item: &Item| {
        let own = !matches!(item.kind, ItemKind::Result | ItemKind::Opaque);
        item.no == no && own && kind(item).eq_ignore_ascii_case(of)
    };
    let mut items = transcript.items.indexed();
    items.find(|(_, item)| named(item)).map(|(at, _)| at)
}

/// The kind and the numbers of an id such as `read:3,5,7-9`.
pub(crate) fn numbered(id: &str) -> Option<(&str, Vec<u32>)> {
    let (of, list) = id.rsplit_once(':')?;
    let mut numbers = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().ok()?;
        let last: u32 = last.trim().parse().ok()?;
        numbers.extend((first..=last).take(LISTED));
    }
    numbers.truncate(LISTED);
    Some((of, numbers))
}

/// The number in an id, if its item was on the path once and no longer is. `None` if an item with
/// that number is on the path, or never was.
#[must_use]
pub fn lost(transcript: &Transcript, id: &str) -> Option<ItemNo> {
    let (_, numbers) = numbered(id)?;
    let no = ItemNo(*numbers.first()?);
    let stands = transcript
        .entries
        .iter()
        .any(|entry| holds(transcript, entry, no));
    (numbers.len() == 1 && !stands && no < transcript.first_item).then_some(no)
}

/// Whether a number belongs to a message. An assistant message has a number for reasoning and one
/// for text, even if it has neither.
fn holds(transcript: &Transcript, entry: &TranscriptEntry, no: ItemNo) -> bool {
    let items = transcript.items_of(entry);
    let Some(item) = items.first() else {
        return false;
    };
    let before = match item.kind {
        ItemKind::Call if !item.said => ASSISTANT_ITEMS,
        ItemKind::Call | ItemKind::Text => 1,
        ItemKind::Reasoning
        | ItemKind::Result
        | ItemKind::User
        | ItemKind::System
        | ItemKind::Opaque => 0,
    };
    let last = items.last().map_or(item.no, |item| item.no);
    (item.no.0.saturating_sub(before)..=last.0).contains(&no.0)
}

/// What may be recalled instead of an id that is unknown: the ids of evicted items, nearest first,
/// each with the beginning of its call, and the names of episodes with evicted items, newest first.
#[must_use]
pub fn offer(
    transcript: &Transcript,
    id: &str,
    gone: &dyn Fn(ItemIndex) -> bool,
    call: &dyn Fn(ItemIndex) -> String,
) -> String {
    let asked = numbered(id).and_then(|(_, numbers)| numbers.first().copied());
    let near = asked.unwrap_or(u32::MAX);
    let items = transcript.items.indexed();
    let mut items: Vec<(ItemIndex, &Item)> = items
        .filter(|(at, item)| item.kind == ItemKind::Call && gone(*at))
        .collect();
    items.sort_by_key(|(_, item)| item.no.0.abs_diff(near));
    let items = items.into_iter().take(OFFERED);
    let ids: Vec<String> = items
        .map(|(at, item)| format!("{} ({})", self::id(item), call(at)))
        .collect();
    let episodes = transcript.graph.episodes.iter().rev();
    let names: Vec<String> = episodes
        .filter(|episode| episode.items.iter().any(|at| gone(*at)))
        .take(OFFERED)
        .map(|episode| tombstone::name(transcript, episode))
        .collect();
    match (ids.is_empty(), names.is_empty()) {
        (true, true) => "nothing was evicted".to_owned(),
        (false, true) => format!("evicted are {}", ids.join(", ")),
        (true, false) => format!("evicted are the episodes {}", names.join(", ")),
        (false, false) => format!(
            "evicted are {}; episodes: {}",
            ids.join(", "),
            names.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_as_the_view_writes_them() {
        let all = vec![3, 5, 7, 8, 9];
        assert_eq!(numbered("read:3"), Some(("read", vec![3])));
        assert_eq!(numbered("read:3,5,7-9"), Some(("read", all)));
        assert_eq!(numbered("mcp:fs:read:3"), Some(("mcp:fs:read", vec![3])));
        assert_eq!(numbered("read:9-7"), Some(("read", vec![])));
        for id in ["read", "read:", "read:x", "auth-flow"] {
            assert_eq!(numbered(id), None, "{id}");
        }
        let (_, many) = numbered("read:0-4000000000").unwrap();
        assert_eq!(many.len(), LISTED);
    }
}
