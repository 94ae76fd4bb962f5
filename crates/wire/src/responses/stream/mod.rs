//! Responses responses: their events, and their unstreamed equal. Never sends anything, and never
//! makes up an id.

mod events;
mod output_item;
mod proxy_events;
mod response;
pub(crate) mod unary;
mod usage;

pub use events::ResponsesEvents;
pub use proxy_events::ProxyMessage;
pub use response::Echo;

#[cfg(test)]
pub(crate) mod tests;
