//! The settings of what waits around a turn: the store, the client, bodies. What decides a turn is
//! in [`plimsoll_core::turn::Settings`]. Never reads a file or a variable.

use std::time::Duration;

use plimsoll_wire::stream::UsageMode;

/// How long the pipeline waits, and how much it takes in.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServingSettings {
    /// How responses are streamed.
    pub streams: StreamSettings,
    /// How long a final frame waits for its record.
    pub store_wait: Duration,
    /// How long a request waits to be found in the store.
    pub read_wait: Duration,
    /// The largest body that is read whole, in bytes. A conversation that is put together for a
    /// request that refers to it may be as long.
    pub body_cap: usize,
    /// Bytes that all caches together may take.
    pub cache_memory: usize,
    /// Which content may be shown to those who look on.
    pub shown: ShownContent,
}

/// Which content the console may show. Titles, findings and labels are content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownContent {
    /// The newest requests of live sessions, and what is stored.
    Live,
    /// What is stored.
    Stored,
    /// None.
    #[default]
    Off,
}

impl ShownContent {
    /// Its word in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stored => "stored",
            Self::Off => "off",
        }
    }
}

/// How responses are streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// How long nothing is sent to the client before a comment is.
    pub heartbeat: Duration,
    /// Which usage the client reads.
    pub usage: UsageMode,
    /// Whether a stream whose client has gone is read to the end of its hop.
    pub finish_cancelled: bool,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(10),
            usage: UsageMode::Last,
            finish_cancelled: false,
        }
    }
}
