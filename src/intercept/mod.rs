//! Reading an upstream's response while it is handed to the client: what is said, what is called,
//! and what the client must not see of it. It owns the stream machine, its unstreamed equal, and
//! the form in which a hop's message goes back upstream.
//!
//! It is sans-IO: bytes and ends of hops go in, bytes for the client and [`Answer`]s come out. It
//! never runs a hidden call, never decides about hops, never sees a clock or a socket, and never
//! invents an id. Everything that knows the shapes of Chat Completions is in `wire`.
//!
//! A driver's loop:
//!
//! ```text
//! per hop:  push(chunk)…  end_hop() -> Answer
//!   Done, Mixed, Cut   record, then release()
//!   HiddenOnly         answer the calls, next_hop(), send the next request; at the cap close()
//!   Broken             fail(), unless the upstream's own error event was passed on
//! ```

mod answer;
mod calls;
pub mod delimiter;
mod hop;
mod machine;
pub mod recall;
mod shape;
pub mod unary;
mod usage;
mod wire;

pub use answer::{Answer, Call, Reasoning, Verdict, join, seam};
pub use machine::{Machine, StreamError};
pub use usage::told;

/// Settings of the stream machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Cap on one event's bytes.
    pub event_cap: usize,
    /// Which usage the client is told when a turn had several hops.
    pub usage: UsageMode,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            event_cap: crate::dialect::sse::EVENT_CAP,
            usage: UsageMode::default(),
        }
    }
}

/// Which usage the client is told when a turn had several hops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsageMode {
    /// Prompt and cached tokens of the last hop, completion tokens summed: agents read usage as
    /// the fill of their context and compact by it.
    #[default]
    Last,
    /// Everything summed, for those who bill by it.
    Sum,
}

/// What became of `stream_options.include_usage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageWish {
    /// The client asked for the usage chunk.
    Asked,
    /// The client left it open and the proxy asked: the chunk is dropped again.
    Added,
    /// The client refused it, or nobody asked: what the upstream sends all the same is passed on.
    Refused,
}

/// What a turn's request says about its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The names of the hidden tools as this conversation knows them.
    pub hidden: Vec<String>,
    /// Whether the client wants to see usage.
    pub usage_wish: UsageWish,
}

#[cfg(test)]
mod tests;
