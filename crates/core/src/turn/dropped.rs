//! Histories that the client has dropped after something was evicted from them, as an agent does that compacts its own:
//! what `recall` reads beside what the client still sends. Owns what is taken of such a history. Never finds one, and
//! never puts anything of it into a view by itself.

use std::collections::BTreeMap;

use plimsoll_model::{HiddenTool, ItemKind, ItemNo};
use plimsoll_wire::answer::Answer;

use super::state::{HopContext, TurnState};
use crate::session::transcript::Transcript;
use crate::session::{ids, tombstone};

/// Characters of a call that tell which one it is.
const CALL_CHARS: usize = 80;
/// How many items a line about dropped histories names.
const NAMED: usize = 8;

/// What there is of the histories that a client has dropped.
#[derive(Debug, Default)]
pub struct Dropped(BTreeMap<ItemNo, DroppedItem>);

/// An item of a history that the client has dropped.
#[derive(Debug)]
pub struct DroppedItem {
    /// Its id, as a view showed it.
    pub id: String,
    /// A call's name and arguments; empty for any other item.
    pub call: String,
    /// The name of its episode; empty if it was in none.
    pub episode: String,
    /// The result of a call, or else its own text.
    pub original: String,
    /// The parts of a result that are no text, as JSON.
    pub pictures: Vec<String>,
}

impl TurnState {
    /// Whether a result of this conversation says what can be recalled of the histories that its client has dropped.
    #[must_use]
    pub fn has_told(&self) -> bool {
        let before = self
            .path
            .entries
            .iter()
            .flat_map(|entry| &entry.record.hops);
        let mut calls = before.chain(&self.pending).flat_map(|hop| &hop.calls);
        calls.any(|call| call.tells)
    }

    /// Whether the histories that the client has dropped are needed to answer the hidden calls of an answer: one of them is
    /// a recall, or the conversation was not told of them yet.
    #[must_use]
    pub fn needs_dropped(&self, answer: &Answer) -> bool {
        let recalls =
            self.terms.recalls_dropped() && self.injected.name(HiddenTool::Recall).is_some();
        if self.path.dropped.is_empty() || !self.dropped.is_empty() || !recalls {
            return false;
        }
        let mut tools = answer
            .hidden_calls()
            .map(|(_, call)| self.injected.of(&call.name));
        tools.any(|tool| tool == Some(HiddenTool::Recall) || !self.has_told())
    }

    /// Adds what a recall could bring back of this turn's request. A later history has the newest form of an item that
    /// both have.
    pub fn add_to(&self, dropped: &mut Dropped, tools: &HopContext<'_>) {
        let transcript = self.transcript(tools);
        let originals = self.originals(&transcript, None);
        for (at, item) in transcript.items.indexed() {
            let is_said = matches!(
                item.kind,
                ItemKind::Call | ItemKind::Text | ItemKind::User | ItemKind::Reasoning
            );
            if !is_said || item.hidden || item.delimiter.is_some() {
                continue;
            }
            // A call whose result has not come yet has none to bring back.
            let Some(original) = originals.whole(at) else {
                continue;
            };
            let call = (item.kind == ItemKind::Call).then(|| originals.call(at));
            let episode = item
                .episode
                .and_then(|at| transcript.graph.episodes.get(at));
            let held = DroppedItem {
                id: ids::id(item),
                call: call.flatten().unwrap_or_default(),
                episode: episode
                    .map(|episode| tombstone::name(&transcript, episode))
                    .unwrap_or_default(),
                original: original.into_owned(),
                pictures: originals.pictures(at),
            };
            dropped.0.insert(item.no, held);
        }
    }
}

impl Dropped {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its items, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (ItemNo, &DroppedItem)> {
        self.0.iter().map(|(no, item)| (*no, item))
    }

    /// The items that an id stands for: those of one tool, or of an episode.
    #[must_use]
    pub fn find(&self, id: &str) -> Vec<(ItemNo, &DroppedItem)> {
        if let Some((of, numbers)) = ids::numbered(id) {
            let named = |item: &DroppedItem| {
                let kind = item.id.rsplit_once(':').map(|(kind, _)| kind);
                kind.is_some_and(|kind| kind.eq_ignore_ascii_case(of))
            };
            let found = numbers.iter().map(|no| ItemNo(*no));
            let found = found.filter_map(|no| Some((no, self.0.get(&no)?)));
            let found: Vec<_> = found.filter(|(_, item)| named(item)).collect();
            if !found.is_empty() {
                return found;
            }
        }
        let of_it = self.iter().filter(|(_, item)| item.episode == id);
        of_it.collect()
    }

    /// Leaves out what the client still sends.
    pub fn leave_out(&mut self, transcript: &Transcript) {
        for item in transcript.items.iter() {
            self.0.remove(&item.no);
        }
    }

    /// The newest results, each by its id and the beginning of its call, and how many there are. `None` if there are none.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let calls = || self.0.values().rev().filter(|item| !item.call.is_empty());
        let named = calls().take(NAMED).map(|item| {
            let call: String = item.call.chars().take(CALL_CHARS).collect();
            let call = call.replace('\n', " ");
            format!("{} ({call})", item.id)
        });
        let named: Vec<String> = named.collect();
        let all = calls().count();
        (all > 0).then(|| {
            format!(
                "{all} results of the history before, the newest {}",
                named.join(", ")
            )
        })
    }
}
