//! A request before its first hop: what is known of it, and how a part of its way runs that takes
//! long or waits for a disk. Owns where such a part runs and how long it is waited for. Never
//! decides what becomes of a request.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_core::session::path::Path;
use plimsoll_core::turn::Mode;
use plimsoll_model::TenantId;
use plimsoll_model::caches::Shared;
use plimsoll_model::room::Held;
use plimsoll_wire::request::Unmanaged;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::app::App;
use super::erasing::Began;
use super::error::{Interruption, ProxyError, ServingLimit};
use super::reporter::Reporter;
use super::request::TurnRequest;
use crate::history::{FindError, Patience};
use crate::record::{FailedStage, Phase};

/// A request with more to be read, its own bytes and the records behind it, is worked on off the async workers.
const OFF_WORKER_BYTES: usize = 64 * 1024;
/// So many bytes of records count as one byte of a request. A session of two dozen turns would else leave the worker with
/// each request, and a change of threads takes longer than such a session does.
const RECORD_BYTES: usize = 16;
/// A request with more to be read has to wait for others like it, so that they leave processors to all others.
const LARGE_BYTES: usize = 4 << 20;
/// What is made of one object in the messages (a message, a call, a result, a part) takes so many bytes, however short it
/// is.
const MADE_OF_OBJECT: usize = 650;

/// A request on its way to its first hop.
pub(super) struct Opening {
    /// The client's request.
    pub request: TurnRequest,
    /// The report so far.
    pub reporter: Reporter,
    /// How many bytes have to be read: the client's, those that the request refers to, and the records behind it.
    pub size: usize,
    /// The room that what is made of its messages takes.
    pub held: Held,
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

impl Opening {
    /// Makes room for what is made of messages that hold so many objects.
    ///
    /// # Errors
    /// [`Stop`] if there is no room for them now, or if there never is.
    pub(super) fn make_room(&mut self, app: &App, objects: usize, mode: Mode) -> Result<(), Stop> {
        let needed = objects.saturating_mul(MADE_OF_OBJECT);
        let most = app.intercept.room.most();
        // Half of the room is left to others. The body itself may be held packed and unpacked.
        let fits = needed <= most / 2 && needed.saturating_add(2 * self.size) <= most;
        if fits && self.held.try_grow(needed) {
            return Ok(());
        }
        // What never fits goes up as it came, and so does whatever is only watched.
        if !fits || mode != Mode::Manage {
            self.reporter.unmanaged(Unmanaged::Messages);
            return Err(Stop::Forward);
        }
        Err(Stop::Error(ProxyError::Overloaded(ServingLimit::Bodies)))
    }
}

/// How much has to be read of the records behind a request.
pub(super) fn to_read(path: &Path) -> usize {
    path.weight() / RECORD_BYTES
}

/// Whether so much has to be read that an async worker must not do it.
pub(super) fn is_long(bytes: usize) -> bool {
    bytes > OFF_WORKER_BYTES
}

/// Does a later part of a turn that reads so many bytes. A worker that does it for long hands its other tasks to
/// another one first.
pub(super) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let workers = Handle::try_current().map(|handle| handle.runtime_flavor());
    match workers {
        Ok(RuntimeFlavor::MultiThread) if is_long(bytes) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Runs a part of the middle, off the async workers if there is much to be read. A panic in that part does
/// not take the request with it.
pub(super) async fn stage<T: Send + 'static>(
    app: &Arc<App>,
    mut opening: Opening,
    part: impl FnOnce(&App, &mut Opening) -> Result<T, Stop> + Send + 'static,
) -> Result<(Opening, Result<T, Stop>), ProxyError> {
    let size = opening.size;
    let turn = match size > LARGE_BYTES {
        true => Arc::clone(&app.large).acquire_owned().await.ok(),
        false => None,
    };
    let app = app.clone();
    let run = move || {
        // It goes on if the caller leaves, so it keeps its turn by itself.
        let _turn = turn;
        let outcome = guarded(|| part(&app, &mut opening));
        (opening, outcome)
    };
    if !is_long(size) {
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
    let credential = opening.request.identity.credential;
    let found = app.readers.run(credential, &opening.patience, limit, find);
    let found = found.await;
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

/// What a failed look-up means for the request. Whoever waited reports that it was given up.
pub(super) fn unfound(error: FindError) -> Stop {
    if let FindError::Late = error {
        return Stop::Gone;
    }
    tracing::warn!(%error, "the store did not answer");
    Stop::Fail(FailedStage::Store)
}
