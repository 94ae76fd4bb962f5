//! The hidden tools: what their calls mean, whether they are valid, and what their results read.
//! Never sees a stream; reading those is `dialect`'s.

pub mod bounds;
pub mod delimiter;
pub mod recall;
