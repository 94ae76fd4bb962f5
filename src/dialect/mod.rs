//! Wire formats, one module each, and the framing that they share. Nothing outside may know one.

pub mod chat;
pub mod sse;
