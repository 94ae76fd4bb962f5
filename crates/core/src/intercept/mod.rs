//! The hidden tools: what their calls mean, whether they are valid, and the texts of their results.
//! Never reads a stream; `dialect` does.

pub mod bounds;
pub mod delimiter;
pub mod recall;
