//! Messages responses: their events, and their unstreamed equal.

pub(in crate::dialect) mod events;
pub mod unary;
