//! Messages responses: their events, and their unstreamed equal.

pub mod unary;
