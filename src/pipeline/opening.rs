//! A request before its first hop: what is known of it, and how a part of its way runs that takes
//! long or waits for a disk. Owns where such a part runs and how long it is waited for. Never
//! decides what becomes of a request.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use super::app::App;
use super::erasing::Began;
use super::error::{Interruption, ProxyError};
use super::reporter::Reporter;
use super::request::TurnRequest;
use crate::history::Patience;
use crate::model::TenantId;
use crate::record::{FailedStage, Phase};

/// A body with more bytes is read and counted off the async workers.
const OFF_WORKER_BYTES: usize = 64 * 1024;

/// A request on its way to its first hop.
pub(super) struct Opening {
    /// The client's request.
    pub request: TurnRequest,
    /// The report so far.
    pub reporter: Reporter,
    /// How many bytes have to be read: the client's, and those that the request refers to.
    pub size: usize,
    /// How far the caller is trusted.
    pub trust: Trust,
    /// Whether the caller still waits.
    pub patience: Patience,
    /// When it began, before anything was read for it.
    pub began: Began,
}

/// Why a request is not managed.
pub(super) enum Stop {
    /// It is forwarded on purpose.
    Forward,
    /// A stage failed, so the client's bytes are forwarded.
    Fail(FailedStage),
    /// The caller gets an error.
    Error(ProxyError),
    /// The caller left.
    Gone,
}

/// How far a caller is trusted with what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// With everything that belongs to the tenant.
    Whole,
    /// With conversations that it shows, but not with what is found by an id alone.
    Unnamed,
    /// With nothing. A conversation that has a past is served under this tenant, which has none.
    Nothing(TenantId),
}

/// Runs a part of the middle, off the async workers if the body is large. A panic in that part does
/// not take the request with it.
pub(super) async fn stage<T: Send + 'static>(
    app: &Arc<App>,
    mut opening: Opening,
    part: impl FnOnce(&App, &mut Opening) -> Result<T, Stop> + Send + 'static,
) -> Result<(Opening, Result<T, Stop>), ProxyError> {
    let large = opening.size > OFF_WORKER_BYTES;
    let app = app.clone();
    let run = move || {
        let outcome = guarded(|| part(&app, &mut opening));
        (opening, outcome)
    };
    if !large {
        return Ok(run());
    }
    // The task never ran, because the runtime is shutting down.
    let stopped = |_| ProxyError::Interrupted(Interruption::Stopped);
    tokio::task::spawn_blocking(run).await.map_err(stopped)
}

fn guarded<T>(part: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
    std::panic::catch_unwind(AssertUnwindSafe(part)).unwrap_or(Err(Stop::Fail(FailedStage::Panic)))
}

/// Runs a look-up in a store that may make it wait, as long as the settings allow.
pub(super) async fn look_up<T: Send + 'static>(
    app: &Arc<App>,
    opening: &mut Opening,
    find: impl FnOnce(&App, &Patience) -> Result<T, Stop> + Send + 'static,
) -> Result<T, Stop> {
    let begun = Instant::now();
    let limit = app.serving.read_wait;
    let worker = app.clone();
    let find = move |patience: &Patience| guarded(|| find(&worker, patience));
    let found = app.readers.run(&opening.patience, limit, find).await;
    let reporter = &mut opening.reporter;
    reporter.took(Phase::Store, begun.elapsed());
    // The look-up may notice that it is late before this clock does.
    // The callers report the failure as the store's, and not as a caller that left.
    let found = found.filter(|found| !matches!(found, Err(Stop::Gone)));
    found.unwrap_or_else(|| {
        tracing::warn!(?limit, "the store did not answer in time");
        Err(Stop::Fail(FailedStage::Store))
    })
}
