//! The counts in a usage object of Chat Completions, under the names that providers give them. A
//! table and nothing else.

use crate::usage::CountNames;

const WRITTEN: &[&str] = &["cache_creation_input_tokens", "cache_write_tokens"];

pub const COUNTS: CountNames = CountNames {
    prompt: "prompt_tokens",
    missed: Some("prompt_cache_miss_tokens"),
    cached: &[
        "prompt_cache_hit_tokens",
        "cached_tokens",
        "cache_read_input_tokens",
    ],
    written: [WRITTEN, WRITTEN],
    // LiteLLM tells written tokens by how long they are kept.
    hour: Some(["cache_creation_token_details", "ephemeral_1h_input_tokens"]),
    completion: "completion_tokens",
    details: ["prompt_tokens_details", "completion_tokens_details"],
};
