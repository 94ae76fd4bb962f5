//! The wired dependencies of all requests. Owns nothing that changes with a request; never reads
//! a configuration.

use crate::upstream;

/// What every request may use.
#[derive(Debug)]
pub struct App {
    /// The connections to the upstream.
    pub upstream: upstream::Client,
}

impl App {
    /// Waits until what was handed out is durable: the last step of a shutdown.
    #[expect(
        clippy::unused_async,
        reason = "the store is awaited here once turns are recorded"
    )]
    pub async fn flush(&self) {}
}
