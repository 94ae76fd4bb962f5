//! Which members of a chat request hold for which hops of a turn. A table and nothing else.
//!
//! For each hop as the client set them, and therefore not named here: `tool_choice` (a client that forces
//! a call still wants it behind a hidden one), `prediction` and `stop` (the text is still to come),
//! `prompt_cache_key`, `user`, `safety_identifier`, `metadata`, `seed`, `service_tier`, `store`,
//! `response_format`, `reasoning_effort`, `verbosity`, `web_search_options`, and what nobody knows here.

use crate::hop_fields::{BelowLimit, HopFields};

pub const HOPS: HopFields = HopFields {
    first_only: &[
        // The name of one request: vLLM and GLM ask that it be unique, and SGLang calls it `rid`.
        "request_id",
        "rid",
        // They have the model go on with the last message instead of beginning one. That is the client's
        // own words in the first hop, and the result of a hidden call in all others (vLLM, SGLang).
        "continue_final_message",
        "add_generation_prompt",
        // Where another server has put what it computed of the first prompt (vLLM, SGLang).
        "kv_transfer_params",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
    ],
    least_limit: 1,
    below_limit: &[
        // Claude, through LiteLLM and other gateways: "`max_tokens` must be greater than
        // `thinking.budget_tokens`".
        BelowLimit::Number(&["thinking", "budget_tokens"], 1),
        // As a client of Python wrote it that did not unfold it.
        BelowLimit::Number(&["extra_body", "thinking", "budget_tokens"], 1),
        BelowLimit::Number(&["extra_body", "reasoning", "max_tokens"], 1),
        // OpenRouter asks that the limit be strictly higher than the budget of reasoning.
        BelowLimit::Number(&["reasoning", "max_tokens"], 1),
        // For Claude it makes a budget of an effort: a share of the limit, and 1,024 at least.
        BelowLimit::Word(&["reasoning", "effort"], "minimal", 1025),
        BelowLimit::Word(&["reasoning", "effort"], "low", 1025),
        BelowLimit::Word(&["reasoning", "effort"], "medium", 1025),
        BelowLimit::Word(&["reasoning", "effort"], "high", 1025),
        BelowLimit::Word(&["reasoning", "effort"], "xhigh", 1025),
        // LiteLLM makes fixed budgets of them.
        BelowLimit::Word(&["reasoning_effort"], "low", 1025),
        BelowLimit::Word(&["reasoning_effort"], "medium", 2049),
        BelowLimit::Word(&["reasoning_effort"], "high", 4097),
        // vLLM and SGLang: an answer can't be longer than its limit and shorter than this.
        BelowLimit::Number(&["min_tokens"], 0),
        BelowLimit::Number(&["min_completion_tokens"], 0),
    ],
    handle: None,
};
