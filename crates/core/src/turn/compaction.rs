//! An agent's request for a summary of its own history: how one is recognised, and whether it goes up whole in place of
//! its view. Never reads the summary, and never asks for one.

use std::sync::Arc;

use super::settings::Unmet;
use super::state::{Prepared, TurnState};

/// How such requests begin, as agents write them in December 2026. A request that goes on from a known history is one if
/// the last text of its last message begins so.
pub const REQUESTS: [&str; 4] = [
    // Claude Code 2.1.332.
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
    // codex 0.171, with a provider that has no compaction of its own.
    "You are performing a CONTEXT CHECKPOINT COMPACTION.",
    // GitHub's Copilot CLI 1.0.102.
    "Please create a detailed summary of the conversation so far. The history is being compacted",
    // qwen-code 0.24.4.
    "You are the component that summarizes a conversation when its context window is about to overflow.",
];

/// What becomes of an agent's request for a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// What it summarises.
    pub view: CompactionView,
    /// How such a request begins.
    pub requests: Arc<[String]>,
}

/// What an agent's request for a summary is sent with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionView {
    /// The view, as any other request.
    #[default]
    Evicted,
    /// The client's own history, where that fits the model's window.
    Whole,
}

impl CompactionView {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] =
        &[("evicted", Self::Evicted), ("whole", Self::Whole)];
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            view: CompactionView::default(),
            requests: REQUESTS.map(str::to_owned).into(),
        }
    }
}

impl TurnState {
    /// Whether the client's own request goes up in place of its view: it asks for a summary of a history of which the view
    /// lacks something, the operator wants that to be whole, and it fits the window that is known of the model.
    #[must_use]
    pub fn goes_whole(&self, prepared: &Prepared) -> bool {
        let compaction = &self.terms.compaction;
        if compaction.view == CompactionView::Evicted || self.terms.unmet == Unmet::Refuse {
            return false;
        }
        let fits = |window: u32| prepared.calibrated(self.client_tokens) <= u64::from(window);
        let lacks = prepared.whole > prepared.estimate;
        lacks && self.terms.window.is_some_and(fits) && self.is_compaction()
    }

    /// Whether the client asks for a summary of its own history.
    fn is_compaction(&self) -> bool {
        let last = self.request.messages.len().checked_sub(1);
        let Some(last) = last.filter(|_| !self.path.entries.is_empty()) else {
            return false;
        };
        let texts = self.request.dialect.texts(self.request.message(last));
        let said = texts.last().map_or("", |text| text.trim_start());
        let requests = &self.terms.compaction.requests;
        requests
            .iter()
            .any(|begins| said.starts_with(begins.as_str()))
    }
}
