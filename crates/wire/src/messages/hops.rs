//! Which members of a Messages request hold for which hops of a turn. A table and nothing else.
//!
//! For each hop as the client set them, and therefore not named here: `tool_choice` (a client that forces
//! a call still wants it behind a hidden one), `thinking`, `output_config`, `context_management`,
//! `mcp_servers`, `metadata`, `service_tier`, `stop_sequences`, `system`, and what nobody knows here. A
//! last message of the client's that begins the answer needs no care: the API joins it with the answer of
//! the first hop, which is the assistant's too.

use crate::hop_fields::{BelowLimit, HopFields};

pub const HOPS: HopFields = HopFields {
    first_only: &[
        // The name of one request, for servers that take one.
        "request_id",
    ],
    least_limit: 1,
    below_limit: &[
        // "`max_tokens` must be greater than `thinking.budget_tokens`". With interleaved thinking the
        // budget may be more than the client's own limit, which then holds for each hop.
        BelowLimit::Number(&["thinking", "budget_tokens"], 1),
        // Gateways that take the fields of other formats here as well.
        BelowLimit::Number(&["reasoning", "max_tokens"], 1),
        BelowLimit::Number(&["min_tokens"], 0),
    ],
    // Code that an answer ran, and files that it made, are in the container that the answer names. Behind
    // code that still runs, a request without it is refused.
    handle: Some("container"),
};
