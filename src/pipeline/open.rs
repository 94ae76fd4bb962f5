//! The request half of a turn: from the client's bytes to the first hop's. Whatever fails in here
//! for the proxy's own sake sends the client's bytes on, a store that is slow or stuck included.
//! Never sends anything itself, and never waits on an async worker.

use std::sync::Arc;

use bytes::Bytes;

use super::app::App;
use super::error::ProxyError;
use super::find::{self, locate, remembered};
use super::learned::Whose;
use super::managed::{Turn, over_budget};
use super::opening::{Opening, Stop, Trust, look_up, stage};
use super::place::{self, Place};
use super::refer::{self, Known};
use super::report::Report;
use super::request::{TurnRequest, Untouched};
use super::standing::trust;
use crate::dialect::Purpose;
use crate::dialect::edit::bare;
use crate::dialect::request::{Lost, Request, RequestError};
use crate::history::{FindError, Patience, Reads};
use crate::model::{Head, Role, Scope, Shape, TenantId};
use crate::record::{Phase, Stage};
use crate::session::align::stand;
use crate::session::chain;
use crate::session::path::Path;
use crate::tokens::Family;
use crate::turn::state::{MiddleError, Prepared, TurnState};
use crate::turn::{Mode, SetBreakpoints, Terms};

/// What a request turned out to be.
pub(super) enum Opened {
    /// Held under its ceiling.
    Managed(Box<Turn>),
    /// Forwarded as it came, and watched: what it would have been as a managed one is known.
    Watched(Box<Turn>),
    /// Forwarded as it came.
    Untouched {
        /// The client's request.
        request: Box<Untouched>,
        /// What is known of it.
        report: Box<Report>,
    },
}

/// What a request says of itself.
struct Asked {
    request: Request,
    /// The path to the response that it goes on from, where it names one.
    known: Option<Path>,
    terms: Terms,
    family: Family,
}

/// What was read of a request before it is known where it stands.
struct Read {
    request: Request,
    shapes: Vec<Arc<Shape>>,
    heads: Vec<Head>,
    terms: Terms,
    place: Place,
    family: Family,
}

/// How far a request came without waiting.
enum Step {
    /// To its first hop.
    Ready(Box<Ready>),
    /// It refers to what was said before.
    Refers(Box<Asked>),
    /// It has to be looked up on disk.
    Cold(Box<Read>),
}

/// What a turn is made of.
type Ready = (TurnState, Prepared, Place, Family);

/// Reads a request and prepares its first hop.
///
/// # Errors
/// [`ProxyError`] where the caller's request can't be served as it asks.
pub(super) async fn open(
    app: &Arc<App>,
    request: TurnRequest,
    mut report: Report,
) -> Result<Opened, ProxyError> {
    report.turn.tenant = request.identity.tenant.0.short();
    let size = request.body.len();
    // Dropped with this future, which a caller who leaves drops.
    let (_waiting, patience) = Patience::new();
    let mut opening = Opening {
        request,
        report,
        size,
        trust: Trust::Whole,
        patience,
    };
    opening.trust = trust(app, &mut opening).await;
    let (mut opening, mut step) = stage(app, opening, begin).await?;
    if let Ok(Step::Refers(asked)) = step {
        (opening, step) = expand(app, opening, asked).await?;
    }
    let read = match step {
        Ok(Step::Ready(ready)) => return opening.resolve(Ok(*ready)),
        Err(stop) => return opening.resolve(Err(stop)),
        // An expanded request cannot contain further references.
        Ok(Step::Refers(_)) => return opening.resolve(Err(Stop::Forward)),
        Ok(Step::Cold(read)) => read,
    };
    let find = move |app: &App, patience: &Patience| {
        let path = read.locate(app, patience)?;
        Ok((read, path))
    };
    let (read, path) = match look_up(app, &mut opening, find).await {
        Ok(found) => found,
        Err(stop) => return opening.resolve(Err(stop)),
    };
    let go_on = move |app: &App, opening: &mut Opening| ready(app, opening, *read, path);
    let (opening, ready) = stage(app, opening, go_on).await?;
    opening.resolve(ready)
}

/// Puts what a request refers to into it, and goes on as if it had stood there. The client's own
/// bytes stay what is forwarded where anything of it is not known.
async fn expand(
    app: &Arc<App>,
    mut opening: Opening,
    asked: Box<Asked>,
) -> Result<(Opening, Result<Step, Stop>), ProxyError> {
    let tenant = opening.request.identity.tenant;
    let scope = opening.request.session.scope(asked.request.hint.as_deref());
    let find = move |app: &App, patience: &Patience| {
        let known = asked.look_up(app, tenant, &scope, patience)?;
        Ok((asked, known))
    };
    let (mut asked, known) = match look_up(app, &mut opening, find).await {
        Ok((asked, Ok(known))) => (asked, known),
        Ok((_, Err(lost))) => {
            opening.report.turn.unmanaged = Some(lost.word());
            return Ok((opening, Err(Stop::Forward)));
        }
        Err(stop) => return Ok((opening, Err(stop))),
    };
    let Known { found, path } = known;
    asked.known = path;
    let parts = found.before.iter().chain(&found.items);
    opening.size += parts.map(Bytes::len).sum::<usize>();
    let go_on = move |app: &App, opening: &mut Opening| {
        let whole = opening.report.timed(Phase::Parse, || {
            asked.request.dialect.expand(&asked.request, &found)
        });
        asked.request = whole.ok_or(Stop::Fail(Stage::Dialect))?;
        place(app, opening, *asked)
    };
    stage(app, opening, go_on).await
}

impl Opening {
    /// What becomes of a request behind the middle.
    fn resolve(self, outcome: Result<Ready, Stop>) -> Result<Opened, ProxyError> {
        let Self {
            request,
            mut report,
            ..
        } = self;
        match outcome {
            Ok((state, prepared, place, family)) => {
                let watched = state.terms.mode == Mode::Observe;
                let turn = Box::new(Turn {
                    state,
                    prepared,
                    request,
                    place,
                    family,
                    report,
                });
                return Ok(if watched {
                    Opened::Watched(turn)
                } else {
                    Opened::Managed(turn)
                });
            }
            Err(Stop::Error(error)) => {
                report.refuse(error.status());
                return Err(error);
            }
            Err(Stop::Forward | Stop::Gone) => {}
            Err(Stop::Fail(stage)) => {
                tracing::warn!(stage = stage.name(), "forwarding the client's own bytes");
                report.failed_open(stage);
            }
        }
        report.own();
        Ok(Opened::Untouched {
            request: Box::new(request.untouched()),
            report: Box::new(report),
        })
    }
}

/// Reads a request and finds it, as far as that needs no disk.
fn begin(app: &App, opening: &mut Opening) -> Result<Step, Stop> {
    let asked = asked(app, &opening.request, &mut opening.report)?;
    if asked.request.refers.is_empty() {
        place(app, opening, asked)
    } else if opening.trust != Trust::Whole {
        let lost = match asked.request.refers.response {
            Some(_) => Lost::Response,
            None => Lost::Item,
        };
        opening.report.turn.unmanaged = Some(lost.word());
        Err(Stop::Forward)
    } else {
        Ok(Step::Refers(Box::new(asked)))
    }
}

/// Finds a request that has all in it, as far as that needs no disk.
fn place(app: &App, opening: &mut Opening, asked: Asked) -> Result<Step, Stop> {
    let (read, known) = read(app, opening, asked)?;
    let (report, patience) = (&mut opening.report, &opening.patience);
    let known = report.timed(Phase::Session, || {
        let stands = known.and_then(|known| stand(known, &read.shapes));
        let remembered = || read.ask(|request| remembered(&app.paths, request));
        stands.map(Arc::new).or_else(remembered)
    });
    let path = match known {
        Some(path) => path,
        None if app.records(read.terms.mode).reads_wait() => return Ok(Step::Cold(Box::new(read))),
        None => report.timed(Phase::Store, || read.locate(app, patience))?,
    };
    Ok(Step::Ready(Box::new(ready(app, opening, read, path)?)))
}

fn asked(app: &App, asked: &TurnRequest, report: &mut Report) -> Result<Asked, Stop> {
    let wanted = app.settings.mode(&asked.overrides);
    if wanted == Mode::Off {
        return Err(Stop::Forward);
    }
    let request = report.timed(Phase::Parse, || asked.dialect.decode(asked.body.clone()));
    let request = match (request, wanted) {
        (Ok(request), _) => request,
        // What is only watched is never refused.
        (Err(_), Mode::Observe | Mode::Off) => return Err(Stop::Forward),
        (Err(error), Mode::Manage) => return Err(unreadable(error)),
    };
    let family = app.models.family(&request.model).clone();
    let family = app
        .windows
        .told(family, asked.identity.tenant, &request.model);
    let window = family.prompt(request.limit.map(|limit| limit.tokens));
    let mut terms = Terms::of(&app.settings, &asked.overrides, window, &request.model)
        .map_err(|error| Stop::Error(error.into()))?;
    // What is only counted is not kept either.
    if asked.purpose == Purpose::Count {
        terms.breakpoints = SetBreakpoints::Off;
    }
    report.asked(&request, terms.mode);
    Ok(Asked {
        request,
        known: None,
        terms,
        family,
    })
}

fn read(app: &App, opening: &mut Opening, asked: Asked) -> Result<(Read, Option<Path>), Stop> {
    let Asked {
        request,
        known,
        mut terms,
        family,
    } = asked;
    let Opening {
        request: turn,
        report,
        patience,
        trust,
        ..
    } = opening;
    if let Some(why) = request.unmanaged {
        report.turn.unmanaged = Some(why);
        return Err(Stop::Forward);
    }
    let reader = app.reader(&family, turn.identity.tenant, request.dialect);
    let shapes = report.timed(Phase::Tokens, || {
        (0..request.messages.len())
            .map(|at| {
                if patience.is_over() {
                    return Err(Stop::Gone);
                }
                let shape = reader.shape(request.message(at));
                shape.map_err(|error| Stop::Fail(Stage::of(&MiddleError::from(error))))
            })
            .collect::<Result<Vec<Arc<Shape>>, _>>()
    })?;
    let spoken = shapes.iter().any(|shape| shape.role == Role::Assistant);
    let (tenant, refers) = match *trust {
        Trust::Whole => (turn.identity.tenant, true),
        Trust::Unnamed => (turn.identity.tenant, false),
        Trust::Nothing(alone) if spoken => (alone, false),
        // What begins here has nothing behind it that could be put in.
        Trust::Nothing(_) => (turn.identity.tenant, true),
    };
    terms.refers = refers;
    let scope = turn.session.scope(request.hint.as_deref());
    let parent = turn.session.parent.clone();
    let place = Place::new(tenant, scope, parent, request.dialect);
    let place = match terms.mode {
        Mode::Observe => place.watched(),
        Mode::Manage | Mode::Off => place,
    };
    let heads = report.timed(Phase::Session, || chain::heads(place.tenant, &shapes));
    let read = Read {
        request,
        shapes,
        heads,
        terms,
        place,
        family,
    };
    Ok((read, known))
}

/// Prepares the first hop of a request that stands at the end of a path.
fn ready(app: &App, opening: &mut Opening, read: Read, path: Arc<Path>) -> Result<Ready, Stop> {
    let Read {
        request,
        shapes,
        heads,
        terms,
        place,
        family,
    } = read;
    if opening.patience.is_over() {
        return Err(Stop::Gone);
    }
    let report = &mut opening.report;
    let tools = app.tools(&family, place.tenant, request.dialect);
    let whose = Whose::new(place.tenant, request.dialect, &request.model);
    let known = app.learned.without(&whose);
    let mut state = TurnState::new(request, shapes, heads, path, terms, &tools.reader);
    state.know(known);
    let failed = |error: MiddleError| Stop::Fail(Stage::of(&error));
    let injected = report.timed(Phase::Policy, || state.inject(&tools));
    injected.map_err(failed)?;
    let prepared = report.prepare(&mut state, &tools, None).map_err(failed)?;
    report.account(state.ledger_terms(&tools));
    report.prepared(&state, &prepared);
    report.turn.session = place::session(&place, &state);
    report.turn.parent_session = place::parent_session(&place);
    decide(&state, &prepared, opening.request.purpose)?;
    Ok((state, prepared, place, family))
}

/// What a look-up that failed is to the request; that it was given up is told by who waited.
fn unfound(error: FindError) -> Stop {
    if let FindError::Late = error {
        return Stop::Gone;
    }
    tracing::warn!(%error, "the store did not answer");
    Stop::Fail(Stage::Store)
}

/// What can't be read is the caller's mistake where no upstream could read it either; what only
/// the proxy can't edit safely goes on as it came.
fn unreadable(error: RequestError) -> Stop {
    match error {
        RequestError::DuplicateKey => Stop::Fail(Stage::Dialect),
        RequestError::Body(_) | RequestError::Missing { .. } => {
            Stop::Error(ProxyError::Request(error))
        }
    }
}

impl Asked {
    /// What the request refers to, as far as our records have it.
    fn look_up(
        &self,
        app: &App,
        tenant: TenantId,
        scope: &Scope,
        patience: &Patience,
    ) -> Result<Result<Known, Lost>, Stop> {
        let told = |op, time| app.metrics.observe_store(op, time);
        let reads = Reads::new(&app.store, &told).while_waited_for(patience);
        let known = refer::look_up(&reads, (tenant, scope), &self.request, app.serving.body_cap);
        known.map_err(unfound)
    }
}

impl Read {
    /// Asks where the request stands.
    fn ask<T>(&self, ask: impl FnOnce(&find::Request<'_>) -> T) -> T {
        let text = |at| {
            self.request
                .dialect
                .assistant_text(self.request.message(at))
        };
        ask(&find::Request {
            tenant: self.place.tenant,
            scope: &self.place.keys,
            shapes: &self.shapes,
            heads: &self.heads,
            bare: &|at| text(at).map(|text| bare(&text)),
        })
    }

    /// The path behind the request, from the store where memory does not have it.
    fn locate(&self, app: &App, patience: &Patience) -> Result<Arc<Path>, Stop> {
        let told = |op, time| app.metrics.observe_store(op, time);
        let store = app.records(self.terms.mode);
        let reads = Reads::new(store, &told).while_waited_for(patience);
        let path = self.ask(|request| locate(&reads, &app.paths, request));
        path.map_err(unfound)
    }
}

/// Whether the prepared hop is sent, or what happens instead.
fn decide(state: &TurnState, prepared: &Prepared, purpose: Purpose) -> Result<(), Stop> {
    if state.terms.mode == Mode::Observe {
        // What is only counted costs nothing either way.
        return match purpose {
            Purpose::Count => Err(Stop::Forward),
            Purpose::Answer => Ok(()),
        };
    }
    if let Some(error) = over_budget(state, prepared) {
        return Err(Stop::Error(error));
    }
    // What is asked once and without tools has nothing to manage, and nothing to remember.
    if state.is_managed() {
        Ok(())
    } else {
        Err(Stop::Forward)
    }
}
