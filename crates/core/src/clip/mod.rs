//! Clips tool results that are over a limit, once, when they enter a conversation. What stays is
//! chosen by the shape of the result; what is missing, and how much, stands at each cut. Pure
//! functions of the text. Never keeps a result and never does any IO.

mod brackets;
mod cut;
mod fit;
mod json;
mod lines;
mod log;
mod pick;
mod scan;
mod search;
mod severity;
mod shape;
mod write;

pub use fit::{Clip, ClipLimits, clip};
pub use shape::is_reading;
pub use write::written;
