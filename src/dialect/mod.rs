//! Wire formats, one module each. Nothing outside may know one.

pub mod chat;
