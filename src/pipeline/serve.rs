//! The response half of a turn: sends its first hop and hands what is accepted to the half that reads its
//! form. Where that can't be read, or ours was refused, it serves the client's own request, once. Never
//! reads a body that was accepted.

use std::sync::Arc;

use axum::body::Body;
use http::header::CONTENT_ENCODING;
use http::{HeaderValue, Response, StatusCode};

use super::app::App;
use super::error::ProxyError;
use super::incoming::{Incoming, Served};
use super::managed::Turn;
use super::send::{is_too_long, mended, refusal_of, send, settled};
use super::windows::Question;
use super::{drive, unary};
use crate::dialect::Purpose;
use crate::record::{FAIL_OPEN, Stage};
use crate::upstream::{Payload, ResponseBody};

/// Sends the first hop and answers the client with what comes of it.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn first(app: &Arc<App>, mut turn: Turn) -> Result<Response<Body>, ProxyError> {
    let response = match send(app, &mut turn).await {
        Ok(response) => response,
        Err(error) => return Err(turn.failed(error)),
    };
    turn.report.answered(response.status());
    if response.status().is_success() {
        return accepted(app, turn, response).await;
    }
    refused(app, turn, response).await
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
        return Ok(turn.forward(response));
    }
    turn.note_accepted(app);
    ask_for_window(app, &turn);
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

/// Asks the upstream beside a turn that it has just accepted, with the credentials that it accepted,
/// where nothing is known of how much the turn's model takes.
fn ask_for_window(app: &App, turn: &Turn) {
    let model = &turn.state.request.model;
    if !app.models.family(model).is_unmeasured() {
        return;
    }
    let Ok(url) = app.upstream.target(&turn.request.asked) else {
        return;
    };
    let question = Question {
        url,
        headers: turn.request.headers.clone(),
        tenant: turn.request.identity.tenant,
        model: model.clone(),
        now: app.now(),
    };
    app.windows.ask(&app.upstream, question);
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
        Err(error) => return Err(turn.failed(error)),
    };
    let too_long = is_too_long(app, head.status, &body);
    let own_may_do = if too_long {
        turn.is_shorter()
    } else {
        is_ours(head.status) && !turn.prepared.body.is(turn.own())
    };
    if own_may_do {
        return original(app, turn, Because::Refused { too_long }).await;
    }
    Ok(turn.reply(head.status, head.headers, body))
}

/// Statuses that may be about how a body is made.
fn is_ours(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 404 | 413 | 422)
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
    let mut request = turn.request.untouched();
    let body = turn.own();
    if *body != turn.request.body {
        request.headers.remove(CONTENT_ENCODING);
        request.payload = Payload::Whole(body.clone().into());
    }
    let mut response = match super::pass::pass(app, request, &mut turn.report).await {
        Ok(response) => response,
        Err(error) => return Err(turn.failed(error)),
    };
    if let Because::Refused { too_long } = because
        && is_ours(response.status())
    {
        let (head, body) = response.into_parts();
        let body = match refusal_of(body).await {
            Ok(body) => body,
            Err(error) => return Err(turn.failed(error)),
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
        let (edits, whose) = (turn.prepared.edits, turn.whose());
        let learned = app.learned.unexplained(&whose, edits);
        turn.teach(learned);
    }
    turn.report.failed_open(stage);
    turn.report.unshortened(response.status());
    let stage = HeaderValue::from_static(stage.name());
    response.headers_mut().insert(FAIL_OPEN, stage);
    turn.report.finish(Some(response.status()));
    Ok(response)
}
