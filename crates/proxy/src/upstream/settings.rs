//! Where the upstream is, and how long its parts may take. Owns the defaults. Never reads a
//! configuration.

use std::time::Duration;

use super::target::BaseUrl;

/// Where requests go, and how long they may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The base URL for which the proxy's `/v1` stands.
    pub base_url: BaseUrl,
    /// How long connecting may take, including TLS.
    pub connect_timeout: Duration,
    /// How long the upstream may take from the last byte sent to the first byte received.
    pub first_byte_timeout: Duration,
    /// How long a response may be silent.
    pub idle_timeout: Duration,
    /// How often a call is tried again before its first byte.
    pub retries: u32,
    /// Statuses that are retried as well. None by default.
    pub retry_statuses: Vec<u16>,
    /// How long an upstream that is down or overloaded is tried again. `None` if `retries` alone counts.
    pub retry_for: Option<Duration>,
    /// How many idle connections are kept per host.
    pub pool_idle: usize,
    /// How long an idle connection is kept.
    pub pool_idle_timeout: Duration,
    /// Whether the upstream is asked about models that no table lists.
    pub ask_models: bool,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            base_url: BaseUrl::default(),
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(15 * 60),
            idle_timeout: Duration::from_secs(5 * 60),
            retries: 2,
            retry_statuses: Vec::new(),
            retry_for: None,
            pool_idle: 256,
            pool_idle_timeout: Duration::from_secs(90),
            ask_models: true,
        }
    }
}
