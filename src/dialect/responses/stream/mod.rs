//! Responses responses: their events, and their unstreamed equal. Never sends anything, and never
//! makes up an id.

pub(in crate::dialect) mod events;
mod item;
mod node;
mod own;
mod response;
pub(crate) mod unary;
mod usage;

pub(super) use own::Line;

#[cfg(test)]
pub(in crate::dialect) mod tests;
