//! Chat Completions responses: the stream machine, its unstreamed equal, and the shapes of chunks.
//! Never sends anything and never invents an id.

mod calls;
mod hop;
mod machine;
mod owed;
pub(crate) mod unary;
mod wire;

pub use machine::Machine;

use crate::dialect::answer;
use crate::dialect::shape;
use crate::dialect::stream::{Config, Spec, StreamError, UsageWish};
use crate::dialect::usage::told;

#[cfg(test)]
pub(in crate::dialect) mod tests;
