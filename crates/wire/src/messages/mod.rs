//! The Messages wire format: reading requests and their units, and editing units by bytes. Nothing
//! outside this module knows a field name of it; it never sends anything and never decides what is
//! shown.
//!
//! The wire's messages are called hosts here, because a unit may be less than one: a user message
//! with tool results is a unit for each result and one for each run of other blocks. The text at
//! the top of the request, `system`, is the first unit, wherever it stands in the body.

mod block;
pub(crate) mod breakpoint;
pub(crate) mod edit;
pub(crate) mod form;
pub(crate) mod hops;
pub(crate) mod message;
pub(crate) mod message_list;
pub(crate) mod original;
pub(crate) mod request;
pub(crate) mod stream;
mod tool_references;

#[cfg(test)]
mod tests;
