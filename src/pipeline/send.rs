//! Sends the hops of a turn and deals with what an upstream refuses: one more view without the edits
//! that it may have been refused for, one emergency pass where the view was too long, once the
//! client's own request where ours was not accepted, or is too long still and the client's is shorter.
//! Never reads a body that was accepted.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Limited};

use super::app::App;
use super::error::ProxyError;
use super::incoming::Incoming;
use super::learned::Whose;
use super::open::Turn;
use super::{drive, unary, untouched, windows};
use crate::dialect::Purpose;
use crate::dialect::stream::Spec;
use crate::model::{EditKind, Edits};
use crate::record::{FAIL_OPEN, RetryReason, Stage};
use crate::turn::hop::{MiddleError, Prepared};
use crate::upstream::{self, Outbound, Payload, ResponseBody};

/// Bytes of a refusal that are read to find out why.
const REFUSAL: usize = 1 << 20;

/// Sends the first hop and answers the client with what comes of it.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn first(app: &Arc<App>, mut turn: Turn) -> Result<Response<Body>, ProxyError> {
    let response = match send(app, &mut turn).await {
        Ok(response) => response,
        Err(error) => return Err(failed(turn, error)),
    };
    turn.report.answered(response.status());
    if response.status().is_success() {
        return accepted(app, turn, response).await;
    }
    refused(app, turn, response).await
}

/// What a reader made of an accepted answer.
pub(super) enum Served {
    /// The client's answer.
    Answer(Response<Body>),
    /// Nothing that may be handed on: it can't be read, and may hold calls that the client must not
    /// see. That has seen nothing yet.
    Own(Box<Turn>),
    /// Nothing yet: what came where a stream was expected is none.
    Whole(Box<Turn>, Box<Parts>, Incoming),
}

/// Hands an accepted response to the half that reads its form. That is told by what was asked and by
/// the bytes; the header counts only where those say nothing. Where it can't be read and may hold
/// hidden calls, the client's own request is served instead.
async fn accepted(
    app: &Arc<App>,
    turn: Turn,
    response: Response<ResponseBody>,
) -> Result<Response<Body>, ProxyError> {
    if turn.request.purpose == Purpose::Count {
        // Nothing was said, so there is nothing to read and nothing to record. What counts a view may
        // refuse less than what reads it, so that this teaches nothing either.
        return Ok(forward(turn, response));
    }
    note_accepted(app, &turn);
    windows::ask(app, &turn);
    let (head, body) = Incoming::of(response);
    if body.coded {
        return original(app, turn, Because::Unread).await;
    }
    let served = if body.events || turn.state.request.stream {
        drive::stream(app, turn, head, body).await?
    } else {
        unary::answer(app, turn, head, body).await?
    };
    let served = match served {
        Served::Whole(turn, head, body) => unary::answer(app, *turn, *head, body).await?,
        Served::Answer(_) | Served::Own(_) => served,
    };
    match served {
        Served::Answer(answer) => Ok(answer),
        Served::Own(turn) | Served::Whole(turn, ..) => original(app, *turn, Because::Unread).await,
    }
}

/// Deals with a refusal of the first hop.
async fn refused(
    app: &Arc<App>,
    mut turn: Turn,
    response: Response<ResponseBody>,
) -> Result<Response<Body>, ProxyError> {
    let mended = match settled(response).await {
        Ok(Err(refusal)) => mended(app, &mut turn, refusal).await,
        settled => settled,
    };
    let (head, body) = match mended {
        Ok(Ok(response)) => return accepted(app, turn, response).await,
        Ok(Err(refusal)) => refusal,
        Err(error) => return Err(failed(turn, error)),
    };
    let too_long = is_too_long(app, head.status, &body);
    let own_may_do = if too_long {
        is_shorter(&turn)
    } else {
        is_ours(head.status) && !turn.prepared.body.is(own(&turn))
    };
    if own_may_do {
        return original(app, turn, Because::Refused { too_long }).await;
    }
    Ok(reply(turn, head.status, head.headers, body))
}

/// Whether a refusal says that the prompt was too long for the model.
fn is_too_long(app: &App, status: StatusCode, refusal: &[u8]) -> bool {
    let text = String::from_utf8_lossy(refusal);
    let error = app.models.context_length_error(status.as_u16(), &text);
    error.is_some()
}

/// Whether the client's own request is shorter than ours: then what was added to it may be all that
/// makes it too long.
fn is_shorter(turn: &Turn) -> bool {
    let fewer_tokens = turn.state.client_tokens < turn.prepared.estimate;
    fewer_tokens || own(turn).len() < turn.prepared.body.len()
}

/// The body of a refusal. One that breaks off, or never ends, says nothing that could be acted on.
pub(super) async fn refusal_of<B>(body: B) -> Result<Bytes, ProxyError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, REFUSAL).collect().await;
    let body = body.map_err(|_| upstream::Error::Broken {
        cause: "its error response was cut".to_owned(),
    })?;
    Ok(body.to_bytes())
}

/// Ends the report of a turn that gets an answer of ours.
pub(super) fn failed(turn: Turn, error: ProxyError) -> ProxyError {
    turn.report.refuse(error.status());
    error
}

/// The client's own request: as it came, or where it names a turn with hidden calls in it, with what
/// it refers to in its place. The provider has kept those calls, and nothing answers them there.
fn own(turn: &Turn) -> &Bytes {
    let hops = turn
        .state
        .path
        .entries
        .iter()
        .map(|entry| &entry.record.hops);
    if hops.flatten().any(|hop| !hop.calls.is_empty()) {
        &turn.state.request.body
    } else {
        &turn.request.body
    }
}

/// Statuses that may be about how a body is made.
fn is_ours(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 404 | 413 | 422)
}

/// A response that refuses a hop, read whole.
pub(super) type Refusal = (Parts, Bytes);

/// Tries a later hop that was refused again, where that is of use: as another view, or as the client's
/// own request where ours is too long, which the hops before it don't make any longer. What is refused
/// still is handed back.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn again(
    app: &App,
    turn: &mut Turn,
    refusal: Refusal,
) -> Result<Result<Response<ResponseBody>, Refusal>, ProxyError> {
    let (head, body) = match mended(app, turn, refusal).await? {
        Ok(response) => {
            note_accepted(app, turn);
            return Ok(Ok(response));
        }
        Err(refusal) => refusal,
    };
    if !is_too_long(app, head.status, &body) || !is_shorter(turn) {
        return Ok(Err((head, body)));
    }
    turn.prepared.body = own(turn).clone().into();
    // The answer's usage tells of what was sent.
    turn.prepared.estimate = turn.state.client_tokens;
    turn.prepared.breakpoints = None;
    turn.prepared.edits = Edits::default();
    turn.report.failed_open(Stage::Refused);
    turn.report.own();
    let response = send(app, turn).await?;
    turn.report.answered(response.status());
    settled(response).await
}

/// A response: where it is a refusal, that is read whole.
///
/// # Errors
/// [`ProxyError`] if the refusal breaks off.
async fn settled(
    response: Response<ResponseBody>,
) -> Result<Result<Response<ResponseBody>, Refusal>, ProxyError> {
    if response.status().is_success() {
        return Ok(Ok(response));
    }
    let (head, body) = response.into_parts();
    Ok(Err((head, refusal_of(body).await?)))
}

/// Sends another view in place of one that was refused: without the edits that it may have been
/// refused for, then a shorter one where it was too long. What is refused still is handed back.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
async fn mended(
    app: &App,
    turn: &mut Turn,
    refusal: Refusal,
) -> Result<Result<Response<ResponseBody>, Refusal>, ProxyError> {
    let refusal = match differently(app, turn, &refusal).await {
        None => refusal,
        Some(answer) => match settled(answer?).await? {
            Ok(response) => return Ok(Ok(response)),
            Err(refusal) => refusal,
        },
    };
    match emergency(app, turn, refusal.0.status, &refusal.1).await {
        None => Ok(Err(refusal)),
        Some(answer) => settled(answer?).await,
    }
}

/// Where a view was refused for how it is made, and some of its edits may be why: the same without
/// those. Whether that is accepted says what the upstream refuses. `None` where nothing is suspected.
async fn differently(
    app: &App,
    turn: &mut Turn,
    (head, refusal): &Refusal,
) -> Option<Result<Response<ResponseBody>, ProxyError>> {
    // A model that is not there, or a body that is too large, has nothing to do with edits.
    let made = matches!(head.status.as_u16(), 400 | 422);
    let counts = turn.request.purpose == Purpose::Count;
    if !made || counts || is_too_long(app, head.status, refusal) {
        return None;
    }
    let (edits, whose) = (turn.prepared.edits, whose(turn));
    // Behind a hop that the client never saw its own request is none of the turn's any longer.
    let own_may_do = turn.state.pending.is_empty();
    let suspects = app.learned.suspects(&whose, edits, refusal, own_may_do)?;
    let without = prepare_without(app, turn, suspects.edits).ok()?;
    if without.body.is(&turn.prepared.body.to_bytes()) {
        // Such edits as the client makes itself.
        return None;
    }
    let breaks = suspects.edits.has(EditKind::Breakpoints);
    turn.report.turn.retries.push(if breaks {
        RetryReason::Breakpoints
    } else {
        RetryReason::Edits
    });
    turn.report.prepared(&turn.state, &without);
    turn.prepared = without;
    let answer = send(app, turn).await;
    let Ok(response) = &answer else {
        return Some(answer);
    };
    turn.report.answered(response.status());
    // Beside breakpoints of the client's own ours may only have been too many.
    let sole = !turn.state.is_marked();
    if response.status().is_success() && (sole || !breaks) {
        let learned = app.learned.explained(&whose, suspects);
        teach(turn, learned);
    }
    Some(answer)
}

/// Notes what a turn found out of its upstream.
fn teach(turn: &mut Turn, learned: Edits) {
    let new = learned.without(turn.state.known);
    if new.is_empty() {
        return;
    }
    turn.state.known = turn.state.known.or(new);
    turn.report.turn.learned = turn.report.turn.learned.or(new);
    let kinds: Vec<&str> = new.iter().map(EditKind::name).collect();
    tracing::warn!(
        model = turn.state.request.model,
        kinds = kinds.join(","),
        "the upstream refuses these edits; views for the model go without them: in sessions that know \
         it for good, in others until the next start"
    );
}

/// Notes that the upstream accepted the view in hand.
pub(super) fn note_accepted(app: &App, turn: &Turn) {
    app.learned.accepted(&whose(turn), turn.prepared.edits);
}

/// Whose habits a turn meets.
fn whose(turn: &Turn) -> Whose {
    let request = &turn.state.request;
    Whose::new(turn.place.tenant, request.dialect, &request.model)
}

/// Where a hop was refused as too long: one pass to four fifths of the size that the upstream
/// named or refused, and one more try. `None` where it was refused for something else, or the
/// pass frees nothing.
async fn emergency(
    app: &App,
    turn: &mut Turn,
    status: StatusCode,
    refusal: &[u8],
) -> Option<Result<Response<ResponseBody>, ProxyError>> {
    let text = String::from_utf8_lossy(refusal);
    let error = app.models.context_length_error(status.as_u16(), &text)?;
    let before = turn.prepared.estimate;
    let size = turn.prepared.calibrated(before);
    let limit = turn.state.request.limit.map(|limit| limit.tokens);
    let window = error.window.or_else(|| turn.family.prompt(limit));
    let refused = window.map_or(size, |window| size.min(u64::from(window)));
    let prepared = prepare(app, turn, Some(refused)).ok()?;
    if prepared.estimate >= before {
        return None;
    }
    // The pass before the refused try has moved marks too, and marks never move back.
    turn.report.prepared(&turn.state, &prepared);
    turn.prepared = prepared;
    let answer = send(app, turn).await;
    if let Ok(response) = &answer {
        turn.report.answered(response.status());
    }
    Some(answer)
}

/// Prepares the next hop of a turn.
///
/// # Errors
/// [`MiddleError`] where the middle fails.
pub(super) fn prepare(
    app: &App,
    turn: &mut Turn,
    refused: Option<u64>,
) -> Result<Prepared, MiddleError> {
    let dialect = turn.state.request.dialect;
    let tools = app.tools(&turn.family, turn.place.tenant, dialect);
    turn.report.prepare(&mut turn.state, &tools, refused)
}

/// Prepares the hop in hand anew, without some edits.
///
/// # Errors
/// [`MiddleError`] where the middle fails.
fn prepare_without(app: &App, turn: &mut Turn, edits: Edits) -> Result<Prepared, MiddleError> {
    let dialect = turn.state.request.dialect;
    let tools = app.tools(&turn.family, turn.place.tenant, dialect);
    turn.state.go_without(edits, &tools)?;
    turn.report.prepare(&mut turn.state, &tools, None)
}

/// The prepared hop with the client's headers, ready to be sent.
///
/// # Errors
/// [`ProxyError`] if the client's path leaves the base.
pub(super) fn outbound(app: &App, turn: &Turn) -> Result<Outbound, ProxyError> {
    let url = app.upstream.target(&turn.request.asked)?;
    let mut headers = turn.request.headers.clone();
    upstream::to_upstream(&mut headers);
    // The body was decompressed, and the answer must be readable.
    headers.remove(CONTENT_ENCODING);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let method = turn.request.method.clone();
    Ok(Outbound {
        method,
        url,
        headers,
        payload: Payload::Whole(turn.prepared.body.clone()),
    })
}

/// Sends the prepared hop upstream.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn send(app: &App, turn: &mut Turn) -> Result<Response<ResponseBody>, ProxyError> {
    let outbound = outbound(app, turn)?;
    let told = |retry| turn.report.retried(retry);
    Ok(app.upstream.send(outbound, told).await?)
}

/// Why the client's own request is sent in place of ours.
#[derive(Clone, Copy)]
enum Because {
    /// The answer to ours can't be read, and may hold a hidden call.
    Unread,
    /// Ours was refused.
    Refused {
        /// For its length.
        too_long: bool,
    },
}

/// Sends the client's own request once, and says so; that answer stands.
async fn original(
    app: &Arc<App>,
    mut turn: Turn,
    because: Because,
) -> Result<Response<Body>, ProxyError> {
    let mut stage = match because {
        Because::Unread => Stage::Intercept,
        Because::Refused { .. } => Stage::Refused,
    };
    let mut request = untouched(&turn.request);
    let body = own(&turn);
    if *body != turn.request.body {
        request.headers.remove(CONTENT_ENCODING);
        request.payload = Payload::Whole(body.clone().into());
    }
    let mut response = match super::pass(app, request, &mut turn.report).await {
        Ok(response) => response,
        Err(error) => return Err(failed(turn, error)),
    };
    if let Because::Refused { too_long } = because
        && is_ours(response.status())
    {
        let (head, body) = response.into_parts();
        let body = match refusal_of(body).await {
            Ok(body) => body,
            Err(error) => return Err(failed(turn, error)),
        };
        // What is refused either way is most likely the agent's own mistake, not one of ours; but
        // what is too long where ours was not says nothing of it.
        if too_long || !is_too_long(app, head.status, &body) {
            stage = Stage::RefusedTwice;
        }
        response = Response::from_parts(head, Body::from(body));
    } else if response.status().is_success()
        && let Because::Refused { too_long: false } = because
    {
        let (edits, whose) = (turn.prepared.edits, whose(&turn));
        let learned = app.learned.unexplained(&whose, edits);
        teach(&mut turn, learned);
    }
    turn.report.failed_open(stage);
    turn.report.unshortened(response.status());
    let stage = HeaderValue::from_static(stage.name());
    response.headers_mut().insert(FAIL_OPEN, stage);
    turn.report.finish(Some(response.status()));
    Ok(response)
}

/// Passes a response on as it comes and ends the report.
pub(super) fn forward(turn: Turn, response: Response<ResponseBody>) -> Response<Body> {
    let mut report = turn.report;
    let mut response = response.map(Body::new);
    upstream::to_client(response.headers_mut());
    response.headers_mut().extend(report.headers());
    report.finish(Some(response.status()));
    response
}

/// Answers with bytes that were read whole, under the upstream's own status and headers.
pub(super) fn reply(
    mut turn: Turn,
    status: StatusCode,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    upstream::to_client(&mut headers);
    headers.extend(turn.report.headers());
    // The length is computed anew, because the body may not be the upstream's.
    headers.remove(http::header::CONTENT_LENGTH);
    turn.report.finish(Some(status));
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// What the interceptor must know of a turn.
pub(super) fn spec(turn: &Turn) -> Spec {
    Spec {
        dialect: turn.state.request.dialect,
        hidden: turn.state.hidden_names(),
        usage_wish: turn.state.request.usage_wish,
        echo: turn.state.request.echo.clone(),
    }
}
