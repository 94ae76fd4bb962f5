//! Messages responses: their events, and their unstreamed equal. Never sends anything and never
//! invents an id.

mod answer_builder;
mod events;
pub(crate) mod unary;
mod usage;

pub use events::MessagesEvents;

#[cfg(test)]
pub(crate) mod tests;
