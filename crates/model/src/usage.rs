//! What a provider reports for one hop, in tokens. Never an estimate of ours.

/// Token counts as the provider reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Prompt tokens, the cached ones included.
    pub prompt: u64,
    /// Prompt tokens read from the provider's cache.
    pub cached: u64,
    /// Prompt tokens written to the provider's cache, where it says so.
    pub cache_write: u64,
    /// Those of the written tokens that are kept for an hour; `None` where the provider does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hour_write: Option<u64>,
    /// Completion tokens, the reasoning ones included.
    pub completion: u64,
    /// Reasoning tokens among the completion.
    pub reasoning: u64,
}

impl Usage {
    /// The tokens of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let hour = self.hour_write.or(other.hour_write);
        let (one, more) = (self.hour_write.unwrap_or(0), other.hour_write.unwrap_or(0));
        Self {
            prompt: self.prompt.saturating_add(other.prompt),
            cached: self.cached.saturating_add(other.cached),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            hour_write: hour.map(|_| one.saturating_add(more)),
            completion: self.completion.saturating_add(other.completion),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}
