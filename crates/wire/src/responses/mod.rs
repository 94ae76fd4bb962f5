//! The Responses wire format: reading requests and their units, and editing units by bytes. Nothing
//! outside this module knows a field name of it; it never sends anything and never decides what is
//! shown.

pub(crate) mod edit;
pub(crate) mod form;
pub(crate) mod hops;
pub(crate) mod item;
pub(crate) mod message;
pub(crate) mod original;
pub(crate) mod references;
pub(crate) mod request;
pub(crate) mod stream;
mod tools;

pub use stream::Echo;

#[cfg(test)]
mod tests;
