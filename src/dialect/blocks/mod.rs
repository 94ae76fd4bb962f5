//! The stream machine of the dialects whose messages are made of blocks.

mod machine;

pub use machine::Machine;
