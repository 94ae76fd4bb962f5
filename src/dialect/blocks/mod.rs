//! The stream machine of the formats whose messages are made of blocks.

pub mod events;
mod machine;

pub use machine::BlockMachine;
