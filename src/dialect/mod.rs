//! Wire formats. Each owns the shapes of its own messages; none of them does IO or keeps state
//! of a conversation.

pub mod sse;
