//! A request on its way to its first hop: what is known of it, and how a part of that way runs where it may
//! take long or wait for a disk. Owns who waits and for how long; never decides what a request is.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use super::app::App;
use super::error::ProxyError;
use super::report::Report;
use super::request::TurnRequest;
use crate::history::Patience;
use crate::model::TenantId;
use crate::record::{Phase, Stage};

/// Bodies above this are read and counted off the async workers.
const OFF_WORKER: usize = 64 * 1024;

/// A request on its way through the middle.
pub(super) struct Opening {
    /// The client's request.
    pub request: TurnRequest,
    /// The report so far.
    pub report: Report,
    /// The bytes that are read: the client's, and those that it refers to.
    pub size: usize,
    /// How far the caller is trusted.
    pub trust: Trust,
    /// Whether the caller still waits.
    pub patience: Patience,
}

/// Why a request is not managed.
pub(super) enum Stop {
    /// It is forwarded, by right.
    Forward,
    /// A stage failed.
    Fail(Stage),
    /// The caller gets an error.
    Error(ProxyError),
    /// The caller has gone.
    Gone,
}

/// How far a caller is trusted with what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// With all that is the tenant's.
    Whole,
    /// Not with what needs a name alone to be found.
    Unnamed,
    /// With nothing: what has a past is served as the token's own, which has none.
    Nothing(TenantId),
}

/// Runs a part of the middle, off the async workers where the body is large. Nothing that panics
/// in there may take the request with it.
pub(super) async fn stage<T: Send + 'static>(
    app: &Arc<App>,
    mut opening: Opening,
    part: impl FnOnce(&App, &mut Opening) -> Result<T, Stop> + Send + 'static,
) -> Result<(Opening, Result<T, Stop>), ProxyError> {
    let large = opening.size > OFF_WORKER;
    let app = app.clone();
    let run = move || {
        let outcome = guarded(|| part(&app, &mut opening));
        (opening, outcome)
    };
    if !large {
        return Ok(run());
    }
    // A task that never ran: the runtime is going down.
    let stopped = |_| ProxyError::Middle("stopped");
    tokio::task::spawn_blocking(run).await.map_err(stopped)
}

fn guarded<T>(part: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
    std::panic::catch_unwind(AssertUnwindSafe(part)).unwrap_or(Err(Stop::Fail(Stage::Panic)))
}

/// Looks something up in a store that may make it wait, as long as the settings allow.
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
    let report = &mut opening.report;
    report.turn.overhead.add(Phase::Store, begun.elapsed());
    // The look-up may notice that it is late before the clock here does.
    let found = found.filter(|found| !matches!(found, Err(Stop::Gone)));
    found.unwrap_or_else(|| {
        tracing::warn!(?limit, "the store did not answer in time");
        Err(Stop::Fail(Stage::Store))
    })
}
