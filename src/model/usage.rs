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
    /// Completion tokens, the reasoning ones included.
    pub completion: u64,
    /// Reasoning tokens among the completion.
    pub reasoning: u64,
}
