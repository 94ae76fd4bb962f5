//! The wired dependencies of all requests. Owns nothing that changes with a request; never reads
//! a configuration.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::find::Paths;
use super::known::Memo;
use super::settings::Settings;
use crate::intercept;
use crate::record::{Label, Metrics};
use crate::store::Store;
use crate::tokens::{Counter, Models};
use crate::upstream;

/// What every request may use.
pub struct App {
    /// The connections to the upstream.
    pub upstream: upstream::Client,
    /// The upstream's name in metrics.
    pub provider: Label,
    /// How requests are served.
    pub settings: Settings,
    /// The stream machine's settings.
    pub intercept: intercept::Config,
    /// Turn records.
    pub store: Arc<Store>,
    /// Folded paths.
    pub paths: Paths,
    /// Shapes of messages.
    pub memo: Memo,
    /// The tokeniser.
    pub counter: Counter,
    /// What is known of models.
    pub models: Models,
    /// Where turns are counted.
    pub metrics: Metrics,
    /// The time in milliseconds since 1970: [`App::system_clock`], or a test's.
    pub clock: fn() -> u64,
}

impl App {
    /// Now, in milliseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// What the system's clock says, in milliseconds since 1970. A clock before that reads as
    /// zero, which only makes a cache look warm.
    #[must_use]
    pub fn system_clock() -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
