//! The counts in a usage object, under the names that providers give them. It reads and replaces
//! numbers; fields that it does not know, and those that are absent, stay as they are.

use crate::dialect::json::Node;
use crate::model::Usage;
use crate::model::raw::Edit;

/// The top-level names of the cached tokens, in the order in which they are believed.
const CACHED: [&str; 3] = [
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "cache_read_input_tokens",
];
/// The names of the tokens that were written to the cache, in the same order.
const WRITTEN: [&str; 2] = ["cache_creation_input_tokens", "cache_write_tokens"];

/// Where LiteLLM tells written tokens by how long they are kept, among the details of the prompt.
const CREATION: &str = "cache_creation_token_details";
const HOUR: &str = "ephemeral_1h_input_tokens";

/// The counts that a usage object reports; a count that it leaves out is zero.
pub fn read(usage: &Node<'_>) -> Usage {
    let prompt = usage.child("prompt_tokens_details");
    let completion = usage.child("completion_tokens_details");
    let first =
        |node: &Node<'_>, keys: &[&str]| keys.iter().find_map(|key| node.object.number(key));
    let detail = |node: &Option<Node<'_>>, keys: &[&str]| first(node.as_ref()?, keys);
    Usage {
        prompt: first(usage, &["prompt_tokens"]).unwrap_or(0),
        cached: detail(&prompt, &["cached_tokens"])
            .or_else(|| first(usage, &CACHED))
            .unwrap_or(0),
        cache_write: detail(&prompt, &WRITTEN)
            .or_else(|| first(usage, &WRITTEN))
            .unwrap_or(0),
        hour_write: prompt
            .as_ref()
            .and_then(|prompt| prompt.child(CREATION)?.object.number(HOUR)),
        completion: first(usage, &["completion_tokens"]).unwrap_or(0),
        reasoning: detail(&completion, &["reasoning_tokens"]).unwrap_or(0),
    }
}

/// The edits that replace the counts of a usage object.
pub fn write(usage: &Node<'_>, counts: &Usage) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut put = |node: &Node<'_>, keys: &[&str], count: u64| {
        edits.extend(
            keys.iter()
                .filter_map(|key| node.replace_number(key, count)),
        );
    };
    let total = counts.prompt.saturating_add(counts.completion);
    let missed = counts.prompt.saturating_sub(counts.cached);
    put(usage, &["prompt_tokens"], counts.prompt);
    put(usage, &["completion_tokens"], counts.completion);
    put(usage, &["total_tokens"], total);
    put(usage, &["prompt_cache_miss_tokens"], missed);
    put(usage, &CACHED, counts.cached);
    put(usage, &WRITTEN, counts.cache_write);
    if let Some(prompt) = usage.child("prompt_tokens_details") {
        put(&prompt, &["cached_tokens"], counts.cached);
        put(&prompt, &WRITTEN, counts.cache_write);
    }
    if let Some(completion) = usage.child("completion_tokens_details") {
        put(&completion, &["reasoning_tokens"], counts.reasoning);
    }
    edits
}
