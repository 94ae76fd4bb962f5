//! The vocabulary of the whole crate: ids, items, marks, raw JSON, usage and turn records.
//! Rank 0: it imports nothing of the crate and does no IO.

mod ids;
pub mod raw;
mod usage;

pub use ids::{CallId, Digest, Head, RecordId, Scope, TenantId};
pub use usage::Usage;
