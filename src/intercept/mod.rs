//! The hidden tools: what their calls mean, whether they are valid, and what their results read.
//! Never sees a stream; reading those is `dialect`'s.

pub(crate) mod bounds;
pub(crate) mod delimiter;
pub(crate) mod recall;
