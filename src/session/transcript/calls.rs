//! The calls of an assistant message, visible and hidden: which tool they are for and which episode
//! they belong to. Never judges a hidden call anew: its recorded effect says what it did.

use std::sync::Arc;

use super::{Builder, Call};
use crate::model::{Effect, Hidden, ItemKind, ItemNo, ToolClass};
use crate::session::graph::{Delimiter, Kind};
use crate::session::index::{EntryIndex, EpisodeIndex, ItemIndex};

impl<'a> Builder<'a> {
    /// Takes in one call; gives the episode that it opened. A call of a message that must never
    /// be edited is none of an episode's items, so that nothing takes it out.
    pub(super) fn call(
        &mut self,
        call: &Call<'a>,
        entry: EntryIndex,
        number: ItemNo,
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
                }
                self.waiting.push((id, index));
                if opaque {
                    self.bind(index);
                } else {
                    self.join_work(index);
                }
                None
            }
            Call::Hidden(call) => {
                let index = self.item(number, ItemKind::Call, entry, call.tokens);
                if let Some(item) = self.transcript.items.get_mut(index) {
                    item.hidden = true;
                }
                self.waiting.push((call.id.0.as_str(), index));
                match call.tool {
                    Hidden::Delimiter => self.delimiter(index, &call.effect),
                    Hidden::Recall => {
                        self.recall(index, &call.effect);
                        None
                    }
                }
            }
        }
    }

    fn delimiter(&mut self, index: ItemIndex, effect: &Effect) -> Option<EpisodeIndex> {
        let outcome = self.transcript.graph.take(effect);
        if let Some(item) = self.transcript.items.get_mut(index) {
            (item.delimiter, item.name) = (Some(outcome), self.delimiter.clone());
        }
        self.join_delimiter(index, outcome)
    }

    /// What was brought back is content of the episode that is open, like any other read.
    fn recall(&mut self, index: ItemIndex, effect: &Effect) {
        if let Some(item) = self.transcript.items.get_mut(index) {
            (item.class, item.name) = (ToolClass::Read, self.recall.clone());
            item.pinned = matches!(effect, Effect::Recalled { pinned: true, .. });
        }
        self.join_work(index);
    }

    /// Puts a call into the episode that is open at its place.
    fn join_work(&mut self, index: ItemIndex) {
        let episode = self.transcript.graph.place();
        self.join(index, episode);
        let episode = self.transcript.graph.episodes.get_mut(episode);
        if let Some(episode) = episode.filter(|episode| episode.kind == Kind::Implicit) {
            episode.carrier.get_or_insert(index);
        }
    }

    /// Puts a call whose message stays as it is beside the items of the episode at its place.
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

    fn join_delimiter(&mut self, index: ItemIndex, outcome: Delimiter) -> Option<EpisodeIndex> {
        let episode = match outcome {
            Delimiter::Start(episode) | Delimiter::End(episode) => episode,
            Delimiter::Refused => self.transcript.graph.place(),
            Delimiter::Stray => return None,
        };
        self.join(index, episode);
        let vertex = self.transcript.graph.episodes.get_mut(episode)?;
        match outcome {
            Delimiter::Start(_) => vertex.carrier = Some(index),
            Delimiter::End(_) => vertex.end = Some(index),
            Delimiter::Refused | Delimiter::Stray => {}
        }
        matches!(outcome, Delimiter::Start(_)).then_some(episode)
    }
}
