//! Which members of a Responses request hold for which hops of a turn. A table and nothing else.
//!
//! For no hop: `previous_response_id`, where the conversation behind it is known and written out
//! (`references.rs`). For each hop as the client set them, and therefore not named here: `tool_choice`
//! and `max_tool_calls`, `prompt_cache_key`, `include`, `store`, `metadata`, `reasoning`, `text`,
//! `truncation`, `context_management`, and what nobody knows here. The containers of code interpreters
//! are named in tools and in items, and go along with them.

use crate::hop_fields::{BelowLimit, HopFields};

pub const HOPS: HopFields = HopFields {
    first_only: &[
        // The name of one request: vLLM makes the id of the response of it, and asks that it be unique.
        "request_id",
        // Where another server has put what it computed of the first prompt (vLLM).
        "kv_transfer_params",
    ],
    // "Expected a value >= 16".
    least_limit: 16,
    below_limit: &[
        // As in Chat: OpenRouter, and gateways in front of Claude.
        BelowLimit::Number(&["reasoning", "max_tokens"], 1),
        BelowLimit::Number(&["thinking", "budget_tokens"], 1),
        BelowLimit::Number(&["min_tokens"], 0),
    ],
    handle: None,
};
