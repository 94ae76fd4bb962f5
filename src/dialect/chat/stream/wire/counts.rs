//! The counts in a usage object, under the names that providers give them. It reads and replaces
//! numbers; fields that it doesn't know, and those that are absent, stay as they are.

use bytes::Bytes;

use super::Node;
use crate::model::Usage;
use crate::model::raw::Edit;

/// The top-level names under which counts are found, in the order in which they are believed.
const CACHED: [&str; 3] = [
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "cache_read_input_tokens",
];
const WRITTEN: [&str; 2] = ["cache_creation_input_tokens", "cache_write_tokens"];

/// The counts that a usage object reports; what it leaves out is zero.
pub(super) fn read(data: &[u8], node: &Node<'_>) -> Usage {
    let prompt = node.child(data, "prompt_tokens_details");
    let completion = node.child(data, "completion_tokens_details");
    let detail = |of: &Option<Node<'_>>, keys: &[&str]| {
        let of = of.as_ref()?;
        keys.iter().find_map(|key| of.object.number(key))
    };
    let own = |keys: &[&str]| keys.iter().find_map(|key| node.object.number(key));
    Usage {
        prompt: own(&["prompt_tokens"]).unwrap_or(0),
        cached: detail(&prompt, &["cached_tokens"])
            .or_else(|| own(&CACHED))
            .unwrap_or(0),
        cache_write: detail(&prompt, &WRITTEN)
            .or_else(|| own(&WRITTEN))
            .unwrap_or(0),
        completion: own(&["completion_tokens"]).unwrap_or(0),
        reasoning: detail(&completion, &["reasoning_tokens"]).unwrap_or(0),
    }
}

/// The edits that put these counts in the place of those that a usage object has.
pub(super) fn write(data: &[u8], node: &Node<'_>, usage: &Usage) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut put = |node: &Node<'_>, key: &str, count: u64| {
        let old = node.object.number(key);
        if let (Some(span), true) = (node.span(key), old.is_some_and(|old| old != count)) {
            edits.push((span, Bytes::from(count.to_string())));
        }
    };
    put(node, "prompt_tokens", usage.prompt);
    put(node, "completion_tokens", usage.completion);
    put(
        node,
        "total_tokens",
        usage.prompt.saturating_add(usage.completion),
    );
    put(
        node,
        "prompt_cache_miss_tokens",
        usage.prompt.saturating_sub(usage.cached),
    );
    CACHED.iter().for_each(|key| put(node, key, usage.cached));
    WRITTEN
        .iter()
        .for_each(|key| put(node, key, usage.cache_write));
    if let Some(prompt) = node.child(data, "prompt_tokens_details") {
        put(&prompt, "cached_tokens", usage.cached);
        WRITTEN
            .iter()
            .for_each(|key| put(&prompt, key, usage.cache_write));
    }
    if let Some(completion) = node.child(data, "completion_tokens_details") {
        put(&completion, "reasoning_tokens", usage.reasoning);
    }
    edits
}
