//! The Responses wire format: reading requests and their units, and editing units by bytes. Nothing
//! outside this module knows a field name of it; it never sends anything and never decides what is
//! shown.

pub mod edit;
pub mod form;
pub mod item;
pub mod message;
pub mod original;
pub mod refer;
pub mod request;
pub mod splice;
pub mod stream;
mod tools;

#[cfg(test)]
mod tests;
