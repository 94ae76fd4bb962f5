//! Results that come as text: a user message that answers what the model wrote just before it, which
//! is the call. Never decides which message is one: it is given.

use std::sync::Arc;

use super::{Builder, Entry, Source};
use crate::model::{Handed, ItemKind, MESSAGE_TOKENS, Role, Shape};
use crate::session::graph::Kind;

/// What a call that was written as text is called.
const NAME: &str = "step";

impl Builder<'_> {
    /// Takes in a message as the result of the text before it; whether there is one that can have a
    /// result.
    pub(super) fn said(&mut self, source: Source, shape: &Shape, front: &Arc<str>) -> bool {
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
            (item.pair, item.episode) = (Some(call), episode);
            item.front = Some(front.clone());
        }
        if let Some(item) = self.transcript.items.get_mut(call) {
            (item.kind, item.pair, item.said) = (ItemKind::Call, Some(index), true);
            (item.name, item.stays) = (Arc::from(NAME), shape.opaque);
        }
        if let Some(episode) = episode.and_then(|at| self.transcript.graph.episodes.get_mut(at)) {
            episode.tokens += tokens + MESSAGE_TOKENS;
            if episode.kind == Kind::Implicit {
                episode.carrier.get_or_insert(call);
            }
        }
        self.transcript.entries.push(Entry {
            source,
            role: Role::Tool,
            items: index..self.transcript.items.end(),
            handed: Handed::Nothing,
        });
        true
    }
}
