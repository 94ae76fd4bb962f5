//! The stream machine of the dialects whose messages are made of blocks.

pub(in crate::dialect) mod events;
mod machine;

pub use machine::Machine;
