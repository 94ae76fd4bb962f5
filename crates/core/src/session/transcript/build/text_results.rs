//! Results that come as text: a user message that answers what the model wrote just before it,
//! which is the call. Which messages are results is an argument.

use std::sync::Arc;

use plimsoll_model::{Handed, ItemKind, MESSAGE_TOKENS, Role, Shape};

use super::{Builder, Source, TranscriptEntry};
use crate::session::graph::EpisodeKind;

/// The tool name of a call that was written as text.
const NAME: &str = "step";

impl Builder<'_> {
    /// Adds a message as the result of the text before it. Returns whether there is a text that can
    /// have a result.
    pub(super) fn text_result(&mut self, source: Source, shape: &Shape, front: &Arc<str>) -> bool {
        let Some(call) = self.spoken.take() else {
            return false;
        };
        let entry = self.transcript.entries.end();
        let Some(item) = self.transcript.items.get(call) else {
            return false;
        };
        let (no, episode) = (item.no, item.episode);
        let tokens = shape.tokens() - MESSAGE_TOKENS;
        let index = self.item(no, ItemKind::Result, entry, tokens);
        if let Some(item) = self.transcript.items.get_mut(index) {
            // The message becomes a result: it belongs to the episode of its call.
            (item.pair, item.episode) = (Some(call), episode);
            item.front = Some(front.clone());
        }
        if let Some(item) = self.transcript.items.get_mut(call) {
            // The text becomes a call: from now on both are shown or evicted together.
            (item.kind, item.pair, item.said) = (ItemKind::Call, Some(index), true);
            (item.name, item.stays) = (Arc::from(NAME), shape.opaque);
        }
        if let Some(episode) = episode.and_then(|at| self.transcript.graph.episodes.get_mut(at)) {
            // As for any result, and the call may carry the tombstone of an unannotated span.
            episode.tokens += tokens + MESSAGE_TOKENS;
            if episode.kind == EpisodeKind::Implicit {
                episode.carrier.get_or_insert(call);
            }
        }
        self.transcript.entries.push(TranscriptEntry {
            source,
            role: Role::Tool,
            items: index..self.transcript.items.end(),
            handed: Handed::Nothing,
        });
        true
    }
}
