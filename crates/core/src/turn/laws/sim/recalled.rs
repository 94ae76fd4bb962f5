//! The laws of what is recalled: it is the original byte for byte, a turn brings back no more than
//! its share, and the hop that shows it keeps its budget. Never runs a recall itself.

use plimsoll_model::{Effect, HiddenTool, ItemKind, ItemNo, Mark, StoredHop};
use serde_json::Value;

use super::Sim;
use crate::session::ids;
use crate::session::tombstone;
use crate::session::transcript::{Item, Source};
use crate::turn::state::{Prepared, TurnState};

impl Sim {
    /// What may be asked for: what is gone, then names of episodes, then what nobody should.
    pub fn ids(&self) -> Vec<String> {
        let marks = &self.path.marks;
        let items = self.transcript.items.iter();
        let gone =
            items.filter(|item| item.kind != ItemKind::Result && marks.get(item.no) > Mark::Live);
        let mut all: Vec<String> = gone.map(ids::id).collect();
        let episodes = self.transcript.graph.episodes.iter();
        all.extend(episodes.map(|episode| tombstone::name(&self.transcript, episode)));
        all.extend(["ledger:1", "ledger:2", "read:7", "nobody", "text:900"].map(str::to_owned));
        all
    }

    /// The ids of all calls, in view or not.
    pub fn calls(&self) -> Vec<String> {
        let items = self.transcript.items.iter();
        let calls = items.filter(|item| item.kind == ItemKind::Call);
        calls.map(ids::id).collect()
    }

    /// Holds the recalls of a hop to their laws.
    pub(super) fn recalled(
        &mut self,
        state: &TurnState,
        prepared: &Prepared,
        hop: &StoredHop,
        last: bool,
    ) {
        let mut used = 0;
        for call in state.pending.iter().chain([hop]).flat_map(|hop| &hop.calls) {
            if let Effect::Recalled { tokens, .. } = call.effect {
                assert_eq!(tokens, call.result_tokens, "{}", call.result);
                used += u64::from(tokens);
            }
        }
        assert!(
            used <= prepared.ceiling / 4,
            "{used} of {}",
            prepared.ceiling
        );
        let mut found = Vec::new();
        for call in hop
            .calls
            .iter()
            .filter(|call| call.tool == HiddenTool::Recall)
        {
            let Effect::Recalled { originals, .. } = &call.effect else {
                continue;
            };
            // What the client adds behind a last hop is not the proxy's to foresee.
            self.room |= prepared.pinned.is_none() && !last;
            for original in originals {
                let text = &call.result[original.start as usize..original.end as usize];
                self.exact(state, prepared, original.item, text);
                found.push((original.item, text.to_owned()));
            }
        }
        self.brought.extend(found);
    }

    /// A recall never makes a view that can't be brought under its ceiling.
    pub(super) fn room_was_there(&mut self, prepared: &Prepared, context: &str) {
        if std::mem::take(&mut self.room) {
            assert!(prepared.pinned.is_none(), "no room was left: {context}");
        }
    }

    /// The text is the item's original, or what an earlier recall found before the client changed
    /// its copy.
    fn exact(&self, state: &TurnState, prepared: &Prepared, no: ItemNo, text: &str) {
        let mut items = prepared.view.transcript().items.iter();
        let item = items.find(|item| item.no == no && item.kind != ItemKind::Result);
        let before = self.brought.iter().rev().find(|(item, _)| *item == no);
        let now = item.map(|item| self.original(state, prepared, item));
        let want = before.map(|(_, text)| text.clone()).or(now);
        assert_eq!(Some(text), want.as_deref(), "item {no}");
    }

    /// An original as the client or the record has it, read without the proxy's own code.
    fn original(&self, state: &TurnState, prepared: &Prepared, item: &Item) -> String {
        let transcript = prepared.view.transcript();
        let entry = |item: &Item| &transcript.entries[item.entry];
        let source = match item.kind {
            ItemKind::Call => item.pair.map(|pair| entry(&transcript.items[pair]).source),
            _ => Some(entry(item).source),
        };
        let field = match item.kind {
            ItemKind::Reasoning => "reasoning_content",
            _ => "content",
        };
        let hop = |step: usize, hop: usize| match state.path.entries.get(step) {
            Some(entry) => &entry.record.hops[hop],
            None => &state.pending[hop],
        };
        let (message, handed) = match source {
            None | Some(Source::Guidance) => return String::new(),
            Some(Source::Client(message)) => (self.messages[message].clone(), ""),
            Some(Source::LastHop { message, step }) => {
                let handed = state.path.entries[step].record.handed.as_str();
                (self.messages[message].clone(), handed)
            }
            Some(Source::Hop { step, hop: at }) => (hop(step, at).message.clone().unwrap(), ""),
            Some(Source::HiddenResult {
                step,
                hop: at,
                call,
            }) => {
                return hop(step, at).calls[call].result.clone();
            }
        };
        let message: Value = serde_json::from_str(&message).unwrap();
        let text = message[field].as_str().unwrap_or_default();
        let rest = text.strip_prefix(handed).filter(|_| field == "content");
        rest.unwrap_or(text).to_owned()
    }
}
