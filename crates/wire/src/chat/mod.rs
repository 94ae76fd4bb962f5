//! The Chat Completions wire format: reading requests and messages, and editing messages by
//! bytes. Nothing outside this module knows a field name of it; it never sends anything and
//! never decides what is shown.

mod content_parts;
pub(crate) mod edit;
pub(crate) mod form;
pub(crate) mod hops;
pub(crate) mod message;
pub mod original;
pub(crate) mod request;
mod signature;
pub(crate) mod stream;
mod thinking_blocks;
