//! The request half of a turn: from the client's bytes to those of the first hop. If anything of
//! the proxy's own fails here, a slow store included, the client's bytes are sent instead. Never
//! sends anything itself, and never waits on an async worker.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use plimsoll_core::session::align::stand;
use plimsoll_core::session::chain::{self, RecordKey};
use plimsoll_core::session::path::Path;
use plimsoll_core::turn::Mode;
use plimsoll_core::turn::state::{MiddleError, Prepared, TurnState};
use plimsoll_model::{EditKind, Role, Shape};
use plimsoll_tokens::Family;
use plimsoll_wire::Purpose;
use plimsoll_wire::request::{Lost, Unmanaged};

use super::app::App;
use super::branch::{self, Branching};
use super::counted::CountedRequest;
use super::decoded::{self, DecodedRequest};
use super::error::ProxyError;
use super::find::remembered;
use super::learned::TenantModel;
use super::managed_turn::{ManagedTurn, over_budget};
use super::opening::{Opening, Stop, Trust, is_long, look_up, stage, to_read};
use super::proven::Fact;
use super::record_place::{self, RecordPlace};
use super::refer::{LookedUp, Referred};
use super::reporter::Reporter;
use super::request::{TurnRequest, Untouched};
use super::standing::{is_proven, trust};
use super::while_down::Failing;
use crate::history::Patience;
use crate::record::{FailedStage, Phase};

/// What becomes of a request.
pub(super) enum Opened {
    /// It is held under its ceiling.
    Managed(Box<ManagedTurn>),
    /// It is forwarded as it came, and what it would have been as a managed request is known.
    Watched(Box<ManagedTurn>),
    /// It is forwarded as it came.
    Untouched {
        /// The client's request.
        request: Box<Untouched>,
        /// What is known of it.
        reporter: Box<Reporter>,
    },
}

/// How far a request came without waiting for the disk.
enum OpeningStep {
    /// To its first hop.
    Ready(Box<FirstHop>),
    /// It refers to what was said before, which must be read first.
    Refers(Box<DecodedRequest>),
    /// Its path must be looked up in the store.
    Cold(Box<CountedRequest>),
    /// Its path is known. There is more to be read than an async worker should, or the store is asked what its session is
    /// served under or had before. Whether another turn goes on from the path may be known, too.
    Known(Box<CountedRequest>, Arc<Path>, Option<bool>),
}

/// What a turn is made of.
type FirstHop = (TurnState, Prepared, RecordPlace, Family);

/// Reads a request and prepares its first hop.
///
/// # Errors
/// [`ProxyError`] if the request can't be served as the caller asks.
pub(super) async fn open(
    app: &Arc<App>,
    request: TurnRequest,
    mut reporter: Reporter,
) -> Result<Opened, ProxyError> {
    reporter.tenant(request.identity.tenant);
    let size = request.body.len();
    // If the caller leaves, this future is dropped. That drops `_waiting` and so ends the patience.
    let (_waiting, patience) = Patience::new();
    let mut opening = Opening {
        request,
        reporter,
        size,
        held: app.intercept.room.enter(),
        trust: Trust::Whole,
        patience,
        began: app.erasing.began(),
    };
    opening.trust = trust(app, &mut opening).await;
    let (mut opening, mut step) = stage(app, opening, begin).await?;
    if let Ok(OpeningStep::Refers(asked)) = step {
        (opening, step) = expand(app, opening, asked).await?;
    }
    // A request that needed no disk is ready by now.
    let (read, found) = match step {
        Ok(OpeningStep::Ready(ready)) => {
            let (opening, ready) = heed(app, opening, *ready).await?;
            return opening.resolve(app, ready);
        }
        Err(stop) => return opening.resolve(app, Err(stop)),
        // An expanded request cannot contain further references.
        Ok(OpeningStep::Refers(_)) => return opening.resolve(app, Err(Stop::Forward)),
        Ok(OpeningStep::Known(read, path, taken)) => (read, Some((path, taken))),
        Ok(OpeningStep::Cold(read)) => (read, None),
    };
    let (mut read, path, taken) = match found {
        Some((path, taken)) => (read, path, taken),
        None => {
            let find = move |app: &App, patience: &Patience| {
                let begun = Instant::now();
                let path = read.locate(app, patience)?;
                // On a disk this is one reading more, if there is time for it. A server is asked while the model
                // answers, so that nobody waits for the network twice.
                let here = !app.records(read.terms.mode).is_shared();
                // A session that begins is looked up in any case, and its turns with it.
                let early = here && begun.elapsed() < app.serving.read_wait / 2;
                let early = early && read.beginning(&path).is_none();
                let taken = early.then(|| read.is_taken(app, patience, &path));
                Ok((read, path, taken))
            };
            match look_up(app, &mut opening, find).await {
                Ok(found) => found,
                Err(stop) => return opening.resolve(app, Err(stop)),
            }
        }
    };
    let taken = read.find_choice(app, &mut opening, &path).await.or(taken);
    let path = read.behind(app, &mut opening, path).await;
    opening.size += to_read(&path);
    let go_on = move |app: &App, opening: &mut Opening| ready(app, opening, *read, path, taken);
    let (opening, ready) = match stage(app, opening, go_on).await? {
        (opening, Ok(ready)) => heed(app, opening, ready).await?,
        stopped => stopped,
    };
    opening.resolve(app, ready)
}

/// Prepares a hop again whose view has thoughts that lost their place, if another process or an earlier one
/// has seen the upstream refuse such thoughts of its model.
async fn heed(
    app: &Arc<App>,
    mut opening: Opening,
    ready: FirstHop,
) -> Result<(Opening, Result<FirstHop, Stop>), ProxyError> {
    let (state, prepared, place, _) = &ready;
    let whose = TenantModel::new(place.tenant, state.request.dialect, &state.request.model);
    let risks = prepared.edits.has(EditKind::Thoughts) && state.terms.mode == Mode::Manage;
    if !risks || app.learned.has_accepted(&whose, EditKind::Thoughts) {
        return Ok((opening, Ok(ready)));
    }
    let key = app.proven.key(Fact::Binds(&whose));
    if !is_proven(app, &mut opening, key).await {
        return Ok((opening, Ok(ready)));
    }
    let thoughts = app.learned.binds(&whose);
    let again = move |app: &App, opening: &mut Opening| {
        let (mut state, _, place, family) = ready;
        state.know(thoughts);
        let (dialect, profile) = (state.request.dialect, state.terms.choice.profile.clone());
        let tools = app.tools(&family, place.tenant, dialect, profile.as_deref());
        let reporter = &mut opening.reporter;
        let prepared = reporter.prepare(&mut state, &tools, None);
        let prepared = prepared.map_err(|error| Stop::Fail(FailedStage::of(&error)))?;
        reporter.prepared(&state, &prepared);
        decide(&mut opening.reporter, (&state, &prepared), &opening.request)?;
        Ok((state, prepared, place, family))
    };
    stage(app, opening, again).await
}

/// Puts what a request refers to into it. The request then goes on as if it had come that way. If
/// anything that it refers to is not known, the client's own bytes are forwarded.
async fn expand(
    app: &Arc<App>,
    mut opening: Opening,
    asked: Box<DecodedRequest>,
) -> Result<(Opening, Result<OpeningStep, Stop>), ProxyError> {
    let tenant = opening.request.identity.tenant;
    let scope = opening.request.session.scope(asked.request.hint.as_deref());
    // The look-up may read the disk, so it runs off the async workers.
    let find = move |app: &App, patience: &Patience| {
        let known = asked.look_up(app, tenant, &scope, patience)?;
        Ok((asked, known))
    };
    let (mut asked, referred) = match look_up(app, &mut opening, find).await {
        Ok((asked, LookedUp::Found(referred))) => (asked, referred),
        Ok((_, LookedUp::Lost(lost))) => {
            opening.reporter.unmanaged(lost.word());
            return Ok((opening, Err(Stop::Forward)));
        }
        Err(stop) => return Ok((opening, Err(stop))),
    };
    let Referred { found, path } = *referred;
    asked.known = path;
    let parts = found.before.iter().chain(&found.items);
    // An expanded request may be large although the client's was small.
    opening.size += parts.map(Bytes::len).sum::<usize>();
    let go_on = move |app: &App, opening: &mut Opening| {
        let whole = opening
            .reporter
            .timed(Phase::Parse, || asked.request.expand(&found));
        asked.request = whole.ok_or(Stop::Fail(FailedStage::Dialect))?;
        place(app, opening, *asked)
    };
    stage(app, opening, go_on).await
}

impl Opening {
    /// What becomes of a request after the middle.
    fn resolve(
        self,
        app: &Arc<App>,
        outcome: Result<FirstHop, Stop>,
    ) -> Result<Opened, ProxyError> {
        let Self {
            request,
            mut reporter,
            size,
            held,
            ..
        } = self;
        match outcome {
            Ok((state, prepared, place, family)) => {
                let watched = state.terms.mode == Mode::Observe;
                let credential = request.identity.credential;
                let branch = Branching::new(app, credential, &place, &state);
                let turn = Box::new(ManagedTurn {
                    state,
                    prepared,
                    request,
                    place,
                    family: Box::new(family),
                    reporter,
                    sent: false,
                    branch,
                    size,
                    held,
                    searched: false,
                    failing: Failing::default(),
                    retry_until: None,
                });
                return Ok(if watched {
                    Opened::Watched(turn)
                } else {
                    Opened::Managed(turn)
                });
            }
            Err(Stop::Error(error)) => {
                reporter.fail(&error);
                return Err(error);
            }
            // Nothing went wrong, so nothing is reported. A client that left gets no answer in any
            // case.
            Err(Stop::Forward | Stop::Gone) => {}
            Err(Stop::Fail(stage)) => {
                tracing::warn!(stage = stage.name(), "forwarding the client's own bytes");
                reporter.failed_open(stage);
            }
        }
        reporter.own();
        Ok(Opened::Untouched {
            request: Box::new(request.untouched()),
            reporter: Box::new(reporter),
        })
    }
}

/// Decodes a request and finds its place, as far as that needs no disk.
fn begin(app: &App, opening: &mut Opening) -> Result<OpeningStep, Stop> {
    let asked = DecodedRequest::of(app, &opening.request, &mut opening.reporter)?;
    // A caller whose name is not proven may not read by an id what another caller said.
    if !asked.request.refers() {
        place(app, opening, asked)
    } else if opening.trust != Trust::Whole {
        let lost = match asked.request.previous_response() {
            Some(_) => Lost::Response,
            None => Lost::Item,
        };
        opening.reporter.unmanaged(lost.word());
        Err(Stop::Forward)
    } else {
        Ok(OpeningStep::Refers(Box::new(asked)))
    }
}

/// Finds the place of a request that refers to nothing, as far as that needs no disk.
fn place(app: &App, opening: &mut Opening, asked: DecodedRequest) -> Result<OpeningStep, Stop> {
    let (mut read, known) = read(app, opening, asked)?;
    let (reporter, patience) = (&mut opening.reporter, &opening.patience);
    let store = app.records(read.terms.mode);
    let known = reporter.timed(Phase::Session, || {
        // The path to a response that the request names comes first: others may end with the same
        // words.
        let stands = known.and_then(|known| stand(known, &read.shapes));
        let stands = stands.map(|path| (Arc::new(path), false));
        let remembered = || {
            let path = read.ask(|request| remembered(&app.paths, request))?;
            let sure =
                read.forgets(&path) || branch::is_remembered(store, &path, &read.place.session);
            Some((path, sure))
        };
        stands.or_else(remembered)
    });
    // A store on disk may make the reader wait, which an async worker must not.
    let (path, taken) = match known {
        Some((path, true)) => (path, Some(false)),
        Some((path, _)) if store.reads_wait() && read.beginning(&path).is_some() => {
            return Ok(OpeningStep::Known(Box::new(read), path, None));
        }
        // It is asked while the model answers.
        Some((path, false)) if store.reads_wait() => (path, None),
        None if store.reads_wait() => return Ok(OpeningStep::Cold(Box::new(read))),
        known => reporter.timed(Phase::Store, || {
            let known = known.map(|(path, _)| path);
            let path = known.map_or_else(|| read.locate(app, patience), Ok)?;
            let taken = read.is_taken(app, patience, &path);
            let known = read
                .beginning(&path)
                .and_then(|one| one.find(app, patience));
            read.begins = known.and_then(|known| known.choice);
            Ok((path, Some(taken)))
        })?,
    };
    // A few bytes may stand on records that take long to read.
    let size = opening.size + to_read(&path);
    if read.begins_anew(opening, &path) || (!is_long(opening.size) && is_long(size)) {
        return Ok(OpeningStep::Known(Box::new(read), path, taken));
    }
    opening.size = size;
    let ready = ready(app, opening, read, path, taken)?;
    Ok(OpeningStep::Ready(Box::new(ready)))
}

fn read(
    app: &App,
    opening: &mut Opening,
    asked: DecodedRequest,
) -> Result<(CountedRequest, Option<Path>), Stop> {
    let DecodedRequest {
        request,
        known,
        mut terms,
        family,
    } = asked;
    if let Some(why) = request.unmanaged {
        opening.reporter.unmanaged(why);
        return Err(Stop::Forward);
    }
    opening.make_room(app, request.objects, terms.mode)?;
    let Opening {
        request: turn,
        reporter,
        patience,
        trust,
        began,
        ..
    } = opening;
    let reader = app.reader(&family, turn.identity.tenant, request.dialect);
    let shapes = reporter.timed(Phase::Tokens, || {
        (0..request.messages.len())
            .map(|at| {
                // Counting a long history takes a while. Nobody needs it once the caller has left.
                if patience.is_over() {
                    return Err(Stop::Gone);
                }
                let shape = reader.shape(request.message(at));
                shape.map_err(|error| Stop::Fail(FailedStage::of(&MiddleError::from(error))))
            })
            .collect::<Result<Vec<Arc<Shape>>, _>>()
    })?;
    let spoken = shapes.iter().any(|shape| shape.role == Role::Assistant);
    let (tenant, refers) = match *trust {
        Trust::Whole => (turn.identity.tenant, true),
        Trust::Unnamed => (turn.identity.tenant, false),
        Trust::Nothing(alone) if spoken => (alone, false),
        // A conversation that begins here has no past that could be given away.
        Trust::Nothing(_) => (turn.identity.tenant, true),
    };
    terms.refers = refers;
    let scope = turn.session.scope(request.hint.as_deref());
    let parent = turn.session.parent.as_ref().map(|given| {
        record_place::parent_session(tenant, given, |name| {
            let key = RecordKey::First(name).digest(tenant, given);
            app.paths.has_begun(&key)
        })
    });
    let place = RecordPlace::new(tenant, (scope, parent), request.dialect, *began);
    let place = place.asked_by(&turn.agent);
    let place = match terms.mode {
        Mode::Observe => place.watched(),
        Mode::Manage | Mode::Off => place,
    };
    // Heads are hashed with the tenant, so they need to know whose request it is.
    let heads = reporter.timed(Phase::Session, || chain::heads(place.tenant, &shapes));
    let place = place.named(&shapes, &heads);
    let (envelope, mode) = (turn.envelope(), terms.mode);
    let joins = app
        .settings
        .joins(&turn.overrides, envelope, &request.model, mode);
    let read = CountedRequest {
        request,
        shapes,
        heads,
        terms,
        place,
        family,
        joins,
        begins: None,
    };
    Ok((read, known))
}

/// Prepares the first hop of a request that goes on from a path.
fn ready(
    app: &App,
    opening: &mut Opening,
    read: CountedRequest,
    path: Arc<Path>,
    taken: Option<bool>,
) -> Result<FirstHop, Stop> {
    let CountedRequest {
        request,
        shapes,
        heads,
        mut terms,
        place,
        family,
        begins,
        ..
    } = read;
    if opening.patience.is_over() {
        return Err(Stop::Gone);
    }
    let asked = &opening.request;
    // Only now is it known which conversation the request belongs to, and with what that began.
    let begins = begins.unwrap_or_else(|| terms.choice.clone());
    let choice = app.settings.choice(&asked.overrides, &path, begins);
    if choice.profile != terms.choice.profile {
        let refers = terms.refers;
        terms = decoded::terms(app, asked, &request, &family, choice.profile.as_deref())?;
        terms.refers = refers;
    }
    terms.choice = choice;
    let reporter = &mut opening.reporter;
    let (dialect, profile) = (request.dialect, terms.choice.profile.clone());
    let tools = app.tools(&family, place.tenant, dialect, profile.as_deref());
    let whose = TenantModel::new(place.tenant, request.dialect, &request.model);
    // What the upstream refuses decides the first view, so it is looked up before injection.
    let known = app.learned.without(&whose, path.entries.is_empty());
    let mut state = TurnState::new(request, shapes, heads, path, terms, &tools.reader);
    state.know(known);
    state.strip_if_asked(&family);
    state.taken = taken;
    if opening.request.purpose == Purpose::Count {
        state.pin_nothing();
    } else if state.terms.mode == Mode::Manage {
        state.ask(app.asked.of(&place.session, &state.path));
    }
    let failed = |error: MiddleError| Stop::Fail(FailedStage::of(&error));
    let injected = reporter.timed(Phase::Policy, || state.inject(&tools));
    injected.map_err(failed)?;
    let mut prepared = reporter.prepare(&mut state, &tools, None).map_err(failed)?;
    reporter.account(state.ledger_terms(&tools));
    reporter.cached(state.cache_facts(&tools, &prepared));
    reporter.prepared(&state, &prepared);
    let brought = reporter.timed(Phase::Intercept, || state.bring_back(&prepared, &tools));
    if let Some(counted) = brought {
        reporter.hidden(counted);
        prepared = reporter.prepare(&mut state, &tools, None).map_err(failed)?;
        reporter.prepared(&state, &prepared);
    }
    reporter.session(place.session.clone(), place.parent.clone());
    // The report is complete by now, so that a request that is forwarded is still reported in full.
    decide(&mut opening.reporter, (&state, &prepared), &opening.request)?;
    Ok((state, prepared, place, family))
}

/// Whether the prepared hop is sent, or what happens instead.
fn decide(
    reporter: &mut Reporter,
    (state, prepared): (&TurnState, &Prepared),
    asked: &TurnRequest,
) -> Result<(), Stop> {
    let purpose = asked.purpose;
    if state.terms.mode == Mode::Observe {
        // A request that is only counted costs nothing, so there is nothing to compare.
        return match purpose {
            Purpose::Count => Err(Stop::Forward),
            Purpose::Answer => Ok(()),
        };
    }
    // What a request refers to may be, where it lies, what the provider was sent.
    let is_own = asked.body.as_ptr() == state.request.body.as_ptr();
    if purpose == Purpose::Answer && is_own && state.goes_whole(prepared) {
        tracing::info!(
            whole = prepared.calibrated(state.client_tokens),
            view = prepared.calibrated(prepared.estimate),
            "a request for a summary goes up whole: so many tokens in place of its view's, nearly all read anew"
        );
        reporter.unmanaged(Unmanaged::Compaction);
        return Err(Stop::Forward);
    }
    if let Some(error) = over_budget(state, prepared) {
        return Err(Stop::Error(error));
    }
    // A request that comes once and without tools has nothing to manage or to remember.
    if state.is_managed() {
        Ok(())
    } else {
        Err(Stop::Forward)
    }
}
