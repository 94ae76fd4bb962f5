//! Messages responses: their events, and their unstreamed equal. Never sends anything and never
//! invents an id.

pub(in crate::dialect) mod events;
mod hop;
pub(crate) mod unary;
mod usage;

#[cfg(test)]
pub(in crate::dialect) mod tests;
