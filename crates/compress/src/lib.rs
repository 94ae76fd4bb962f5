//! The engine for other gateways, on a listener of its own: what LiteLLM's, Portkey's and other guardrails send
//! to `POST /v1/compress` comes back with old results of tools replaced, and `GET /v1/retrieve/ID` brings an
//! original back. Owns that form, its callers and what is kept for them. Never calls a model, never adds a tool,
//! never changes what a user, the system or the model said, and shares nothing with the sessions of the proxy.
//!
//! | module | what |
//! |---|---|
//! | [`settings`] | `[compress]` |
//! | `callers` | who calls, by key and header, and the ids of what is theirs |
//! | `rows` | a body as rows with roles, sizes and texts |
//! | `passes` | which results are replaced: a pure function of the rows |
//! | `stub` | the words in their place |
//! | `memory` | where sessions stand, and the originals |
//! | `engine` | a call from its body to its answer |
//! | `listener` | the paths, and the limits of what is read |

mod callers;
mod engine;
mod listener;
mod memory;
mod passes;
mod rows;
pub mod settings;
mod stub;

pub use engine::{Engine, Sizing};
pub use listener::{Limits, router};
pub use settings::{CompressKeys, CompressSettings};
