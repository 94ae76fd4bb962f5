//! The shapes of Chat Completions responses: where in a chunk (or an unstreamed body) the text, the
//! calls, the usage and the end stand, how a chunk is written anew without some of them, and the
//! chunks of the proxy's own. Everything here is one chunk at a time.

mod call_part;
mod chunk;
mod logprobs;
mod proxy_events;
mod rewrite;
mod texts;
mod usage;

pub use call_part::{Arguments, Body, CallPart};
pub use chunk::{Chunk, DONE, ReasoningPart};
pub use proxy_events::{Origin, details_event, error_event, finish_event, text_event, usage_event};
pub use rewrite::{CallPlan, ChunkSigns, RewritePlan, Seam, UsagePlan};
