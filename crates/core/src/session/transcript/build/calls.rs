//! The calls of an assistant message, visible and hidden: the tool and the episode of each. Never
//! judges a hidden call again: its recorded effect says what it did.

use std::sync::Arc;

use plimsoll_model::{Effect, HiddenTool, ItemKind, ItemNo, ToolClass};

use super::{Builder, Call};
use crate::session::graph::{DelimiterRole, EpisodeKind};
use crate::session::index::{EntryIndex, EpisodeIndex, ItemIndex};

impl<'a> Builder<'a> {
    /// Adds one call, and returns the episode that it opened. A call of a message that must never
    /// be edited is not among the items of its episode, so that nothing evicts it.
    pub(super) fn call(
        &mut self,
        call: &Call<'a>,
        entry: EntryIndex,
        (number, place): (ItemNo, u32),
        opaque: bool,
    ) -> Option<EpisodeIndex> {
        match call {
            Call::Visible {
                id,
                name,
                tokens,
                digest,
            } => {
                let index = self.item(number, ItemKind::Call, entry, *tokens);
                let (class, name) = self.tool(name);
                if let Some(item) = self.transcript.items.get_mut(index) {
                    (item.class, item.name, item.digest) = (class, name, *digest);
                    item.place = place;
                }
                self.waiting.entry(id).or_default().push_back(index);
                // A call that may not be removed is no item of an episode, but its result may be
                // shortened.
                if opaque {
                    self.bind(index);
                } else {
                    self.join_work(index);
                }
                None
            }
            Call::Hidden(call, tokens) => {
                let index = self.item(number, ItemKind::Call, entry, *tokens);
                if let Some(item) = self.transcript.items.get_mut(index) {
                    (item.hidden, item.place) = (true, place);
                }
                let id = call.id.0.as_str();
                self.waiting.entry(id).or_default().push_back(index);
                // A `delimiter` call changes the graph; a recall is content of the episode that is
                // open.
                match call.tool {
                    HiddenTool::Delimiter => self.delimiter(index, &call.effect),
                    HiddenTool::Recall => {
                        self.recall(index, &call.effect);
                        None
                    }
                }
            }
        }
    }

    fn delimiter(&mut self, index: ItemIndex, effect: &Effect) -> Option<EpisodeIndex> {
        let Some(outcome) = self.transcript.graph.take(effect) else {
            // What was refused is as good as a read of its result: it goes when that would.
            let name = self.delimiter.clone();
            self.read(index, name);
            return None;
        };
        if let Some(item) = self.transcript.items.get_mut(index) {
            (item.delimiter, item.name) = (Some(outcome), self.delimiter.clone());
        }
        self.join_delimiter(index, outcome)
    }

    /// Adds a recall. What it brought back is content of the open episode, like any other read.
    fn recall(&mut self, index: ItemIndex, effect: &Effect) {
        if let Some(item) = self.transcript.items.get_mut(index) {
            item.pinned = matches!(effect, Effect::Recalled { pinned: true, .. });
        }
        let name = self.recall.clone();
        self.read(index, name);
    }

    /// Adds a hidden call that marks nothing.
    fn read(&mut self, index: ItemIndex, name: Arc<str>) {
        if let Some(item) = self.transcript.items.get_mut(index) {
            (item.class, item.name) = (ToolClass::Read, name);
        }
        self.join_work(index);
    }

    /// Adds a call to the items of the episode that is open.
    fn join_work(&mut self, index: ItemIndex) {
        let episode = self.transcript.graph.place();
        self.join(index, episode);
        let episode = self.transcript.graph.episodes.get_mut(episode);
        if let Some(episode) = episode.filter(|episode| episode.kind == EpisodeKind::Implicit) {
            episode.carrier.get_or_insert(index);
        }
    }

    /// Adds a call of a message that is never edited to the bound calls of the episode that is
    /// open.
    fn bind(&mut self, index: ItemIndex) {
        let episode = self.transcript.graph.place();
        if let Some(item) = self.transcript.items.get_mut(index) {
            (item.episode, item.bound) = (Some(episode), true);
        }
        if let Some(episode) = self.transcript.graph.episodes.get_mut(episode) {
            episode.bound.push(index);
        }
    }

    fn tool(&mut self, name: &'a str) -> (ToolClass, Arc<str>) {
        let class = self.input.class;
        self.tools
            .entry(name)
            .or_insert_with(|| (class(name), Arc::from(name)))
            .clone()
    }

    fn join_delimiter(&mut self, index: ItemIndex, outcome: DelimiterRole) -> Option<EpisodeIndex> {
        let episode = match outcome {
            DelimiterRole::Start(episode) | DelimiterRole::End(episode) => episode,
            DelimiterRole::Stray => return None,
        };
        self.join(index, episode);
        let vertex = self.transcript.graph.episodes.get_mut(episode)?;
        match outcome {
            DelimiterRole::Start(_) => vertex.carrier = Some(index),
            DelimiterRole::End(_) => vertex.end = Some(index),
            DelimiterRole::Stray => {}
        }
        matches!(outcome, DelimiterRole::Start(_)).then_some(episode)
    }
}
