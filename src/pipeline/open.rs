//! The request half of a turn: from the client's bytes to the first hop's. Whatever fails in here
//! for the proxy's own sake sends the client's bytes on. Never sends anything itself.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use super::app::App;
use super::error::ProxyError;
use super::find::{self, locate};
use super::finish::Place;
use super::hop::{self, MiddleError, Prepared, State, Tools};
use super::report::Report;
use super::request::{Mode, TurnRequest, Untouched};
use super::settings::{Terms, Unmet};
use super::untouched;
use crate::dialect::chat::request::{Request, RequestError};
use crate::model::{Digest, Shape};
use crate::record::{Label, Phase, StoreOp};
use crate::session::chain;
use crate::tokens::Family;

/// Bodies above this are read and counted off the async workers.
const OFF_WORKER: usize = 64 * 1024;

/// What a request turned out to be.
pub(super) enum Opened {
    /// Held under its ceiling.
    Managed(Box<Turn>),
    /// Forwarded as it came.
    Untouched {
        /// The client's request.
        request: Box<Untouched>,
        /// What is known of it.
        report: Box<Report>,
        /// The stage that failed, where one did.
        fail_open: Option<Label>,
    },
}

/// A turn whose first hop is ready.
pub(super) struct Turn {
    /// What it keeps between hops.
    pub state: State,
    /// Its first hop.
    pub prepared: Prepared,
    /// The client's request.
    pub request: TurnRequest,
    /// Where its record belongs.
    pub place: Place,
    /// What is known of its model.
    pub family: Family,
    /// The report so far.
    pub report: Report,
}

/// Why a request is not managed.
enum Stop {
    /// It is forwarded, by right.
    Forward,
    /// A stage failed.
    Fail(Label),
    /// The caller gets an error.
    Error(ProxyError),
}

/// Reads a request and prepares its first hop.
///
/// # Errors
/// [`ProxyError`] where the caller's request can't be served as it asks.
pub(super) async fn open(app: &Arc<App>, request: TurnRequest) -> Result<Opened, ProxyError> {
    if request.body.len() <= OFF_WORKER {
        return guarded(app, request);
    }
    let worker = app.clone();
    let forward = untouched(&request);
    let report = Report::new(app, &request);
    let run = tokio::task::spawn_blocking(move || guarded(&worker, request));
    match run.await {
        Ok(opened) => opened,
        // The runtime is going down: forwarding is all that is left.
        Err(_) => Ok(fail(forward, report, "panic")),
    }
}

/// Nothing that panics in the middle may take the request with it.
fn guarded(app: &App, request: TurnRequest) -> Result<Opened, ProxyError> {
    let forward = untouched(&request);
    let spare = Report::new(app, &request);
    match std::panic::catch_unwind(AssertUnwindSafe(|| middle(app, request))) {
        Ok(opened) => opened,
        Err(_) => Ok(fail(forward, spare, "panic")),
    }
}

fn fail(request: Untouched, report: Report, stage: Label) -> Opened {
    tracing::warn!(stage, "forwarding the client's own bytes");
    Opened::Untouched {
        request: Box::new(request),
        report: Box::new(report),
        fail_open: Some(stage),
    }
}

fn middle(app: &App, request: TurnRequest) -> Result<Opened, ProxyError> {
    let mut report = Report::new(app, &request);
    match managed(app, &request, &mut report) {
        Ok((state, prepared, place, family)) => Ok(Opened::Managed(Box::new(Turn {
            state,
            prepared,
            request,
            place,
            family,
            report,
        }))),
        Err(Stop::Forward) => Ok(Opened::Untouched {
            request: Box::new(untouched(&request)),
            report: Box::new(report),
            fail_open: None,
        }),
        Err(Stop::Fail(stage)) => Ok(fail(untouched(&request), report, stage)),
        Err(Stop::Error(error)) => {
            report.finish(app, Some(error.status()));
            Err(error)
        }
    }
}

fn managed(
    app: &App,
    asked: &TurnRequest,
    report: &mut Report,
) -> Result<(State, Prepared, Place, Family), Stop> {
    let wanted = app.settings.mode(&asked.overrides);
    if wanted == Mode::Off {
        return Err(Stop::Forward);
    }
    let request = report.timed(Phase::Parse, || Request::decode(asked.body.clone()));
    let request = match (request, wanted) {
        (Ok(request), _) => request,
        // What is only watched is never refused.
        (Err(_), Mode::Observe | Mode::Off) => return Err(Stop::Forward),
        (Err(error), Mode::Manage) => return Err(unreadable(error)),
    };
    let family = app.models.family(&request.model).clone();
    let terms = Terms::of(&app.settings, &asked.overrides, &family, &request.model)
        .map_err(|error| Stop::Error(error.into()))?;
    report.asked(&request.model, request.stream, terms.mode);
    // Guidance on top of no message at all would make a request of what is none.
    if request.n > 1 || request.messages.is_empty() {
        return Err(Stop::Forward);
    }
    let place = Place {
        tenant: asked.identity.tenant,
        scope: asked.session.scope(request.cache_key.as_deref()),
    };
    let reader = app.memo.reader(&app.counter, family.encoding, place.tenant);
    let shapes = report.timed(Phase::Tokens, || {
        (0..request.messages.len())
            .map(|at| reader.shape(request.message(at)))
            .collect::<Result<Vec<Arc<Shape>>, _>>()
    });
    let shapes = shapes.map_err(|error| Stop::Fail(MiddleError::from(error).stage()))?;
    let mut state = locate_state(app, &place, request, shapes, terms, report)?;
    let tools = Tools {
        reader,
        classes: &app.settings.classes,
        family: &family,
        now: app.now(),
    };
    let prepared = report.timed(Phase::Policy, || {
        state.inject(&tools)?;
        state.prepare(&tools, None)
    });
    let prepared = prepared.map_err(|error: MiddleError| Stop::Fail(error.stage()))?;
    report.prepared(&state, &prepared);
    report.turn.session = session(&place, &state);
    decide(&state, &prepared)?;
    Ok((state, prepared, place, family))
}

/// What can't be read is the caller's mistake where no upstream could read it either; what only
/// the proxy can't edit safely goes on as it came.
fn unreadable(error: RequestError) -> Stop {
    match error {
        RequestError::DuplicateKey => Stop::Fail("dialect"),
        RequestError::Body(_) | RequestError::Messages => Stop::Error(ProxyError::Request(error)),
    }
}

fn locate_state(
    app: &App,
    place: &Place,
    request: Request,
    shapes: Vec<Arc<Shape>>,
    terms: Terms,
    report: &mut Report,
) -> Result<State, Stop> {
    let heads = chain::heads(place.tenant, &shapes);
    let trimmed = |at: usize| hop::assistant_text(request.message(at)).map(|t| hop::trimmed(&t));
    let begun = std::time::Instant::now();
    let path = report.timed(Phase::Session, || {
        locate(
            &app.store,
            &app.paths,
            &find::Request {
                tenant: place.tenant,
                scope: &place.scope,
                shapes: &shapes,
                heads: &heads,
                trimmed: &trimmed,
            },
        )
    });
    app.metrics.observe_store(StoreOp::Links, begun.elapsed());
    let path = path.map_err(|error| {
        tracing::warn!(%error, "the store did not answer");
        Stop::Fail("store")
    })?;
    Ok(State::new(request, shapes, heads, path, terms))
}

/// Whether the prepared hop is sent, or what happens instead.
fn decide(state: &State, prepared: &Prepared) -> Result<(), Stop> {
    if state.terms.mode == Mode::Observe {
        return Err(Stop::Forward);
    }
    if let Some(error) = over_budget(state, prepared) {
        return Err(Stop::Error(error));
    }
    // Off every known path there is nothing to manage without tools, and nothing to remember.
    if state.is_managed() {
        Ok(())
    } else {
        Err(Stop::Forward)
    }
}

/// The refusal of a hop that can't be brought under its ceiling, where the operator refuses such.
pub(super) fn over_budget(state: &State, prepared: &Prepared) -> Option<ProxyError> {
    let pinned = prepared
        .pinned
        .filter(|_| state.terms.unmet == Unmet::Refuse)?;
    Some(ProxyError::Budget {
        ceiling: u64::from(state.terms.ceiling),
        size: prepared.calibrated(prepared.estimate),
        pinned,
    })
}

/// The session's name towards the client: its scope, else the root of its chain, hashed.
fn session(place: &Place, state: &State) -> String {
    let tenant = place.tenant.0;
    if place.scope.0.is_empty() {
        let first = state
            .shapes
            .iter()
            .position(|shape| shape.role == crate::model::Role::User);
        let root = first.and_then(|at| state.heads.get(at + 1)).copied();
        let root = root.map_or(Digest([0; 32]), |head| head.0);
        return Digest::of(&[b"session", tenant.as_bytes(), root.as_bytes()]).short();
    }
    Digest::of(&[b"session", tenant.as_bytes(), place.scope.0.as_bytes()]).short()
}
