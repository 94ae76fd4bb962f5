//! The Chat Completions wire format: reading requests and messages, and editing messages by
//! bytes. Nothing outside this module knows a field name of it; it never sends anything and
//! never decides what is shown.

mod content;
pub mod edit;
pub mod form;
pub mod message;
pub mod original;
pub mod request;
mod signature;
pub mod stream;
