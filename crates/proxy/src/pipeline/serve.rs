//! The response half of a turn: sends the first hop and hands what the upstream accepts to the
//! reader of its form. If the answer can't be read, or the view was refused, sends the client's own
//! request once. Never reads a body that was accepted.

use std::sync::Arc;

use axum::body::Body;
use http::header::CONTENT_ENCODING;
use http::{HeaderValue, Response};
use plimsoll_wire::Purpose;

use super::app::App;
use super::error::ProxyError;
use super::failures::pass_refusal;
use super::incoming::{Because, Incoming, Served};
use super::managed_turn::ManagedTurn;
use super::send::{HopAnswer, is_refusal, is_too_long, refusal_body, send, send_another_view};
use super::unpack::Unpack;
use super::windows::Question;
use super::{drive, unary};
use crate::record::{FAIL_OPEN, FailedStage};
use crate::upstream::{self, Payload, ResponseBody};

/// Sends the first hop and answers the client with what comes of it.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn first(
    app: &Arc<App>,
    mut turn: Box<ManagedTurn>,
) -> Result<Response<Body>, ProxyError> {
    turn.retry_until = app.upstream.retry_until();
    let response = match send(app, &mut turn).await {
        Ok(response) => response,
        Err(error) => return Err(turn.failed(error)),
    };
    if response.status().is_success() {
        return accepted(app, turn, response).await;
    }
    Box::pin(refused(app, turn, response)).await
}

/// Hands an accepted response to the reader of its form. What was asked and the bytes decide the
/// form, and the header counts only if those say nothing. If the answer can't be read and may hold
/// hidden calls, the client's own request is sent.
async fn accepted(
    app: &Arc<App>,
    mut turn: Box<ManagedTurn>,
    response: Response<ResponseBody>,
) -> Result<Response<Body>, ProxyError> {
    if turn.request.purpose == Purpose::Count {
        // Nothing was said, so there is nothing to read or to record. The counting endpoint may
        // accept what the model's does not, so nothing is learned from it either.
        return Ok(turn.forward(response));
    }
    turn.note_accepted(app);
    // The credentials are proven now, so a question to the upstream can use them.
    ask_for_window(app, &turn);
    if Unpack::of(response.headers()).is_unknown() && turn.spec().hidden.is_empty() {
        // The model was offered nothing that the client must not see.
        return Ok(turn.forward(response));
    }
    let (head, body) = Incoming::of(response);
    if body.coded {
        return Box::pin(serve_own(app, turn, Because::Unread)).await;
    }
    let served = if body.events || turn.state.request.stream {
        drive::stream(app, turn, head, body).await?
    } else {
        unary::answer(app, turn, head, body, Vec::new()).await?
    };
    // The client asked for a stream and the upstream sent a whole body.
    let served = match served {
        Served::WholeBody(turn, head, body, answers) => {
            unary::answer(app, turn, *head, body, answers).await?
        }
        Served::Answer(_) | Served::Own(..) => served,
    };
    match served {
        Served::Answer(answer) => Ok(answer),
        Served::Own(turn, because) => Box::pin(serve_own(app, turn, because)).await,
        Served::WholeBody(turn, ..) => Box::pin(serve_own(app, turn, Because::Unread)).await,
    }
}

/// Asks the upstream how much the turn's model takes, unless a table knows better. Uses the
/// credentials that the upstream has just accepted.
fn ask_for_window(app: &App, turn: &ManagedTurn) {
    let model = &turn.state.request.model;
    if !app.windows.asks_about(app.models.family(model)) {
        return;
    }
    let Ok(url) = app.upstream.target(&turn.request.asked) else {
        return;
    };
    let question = Question {
        url,
        headers: turn.request.headers.to_map(),
        tenant: turn.request.identity.tenant,
        model: model.clone(),
        now: app.now(),
    };
    app.windows.ask(&app.upstream, question);
}

/// Handles a refusal of the first hop.
async fn refused(
    app: &Arc<App>,
    mut turn: Box<ManagedTurn>,
    response: Response<ResponseBody>,
) -> Result<Response<Body>, ProxyError> {
    let answer = match HopAnswer::of(response).await {
        Ok(HopAnswer::Refused(refusal)) => send_another_view(app, &mut turn, refusal).await,
        answer => answer,
    };
    let (head, body) = match answer {
        Ok(HopAnswer::Accepted(response)) => return accepted(app, turn, response).await,
        Ok(HopAnswer::Refused(refusal)) => refusal,
        Err(error) => return Err(turn.failed(error)),
    };
    // The client's own request may do if it differs from the view in what was refused.
    let too_long = is_too_long(app, head.status, &body);
    let own_may_do = if too_long {
        turn.is_shorter()
    } else {
        is_refusal(head.status) && !turn.prepared.body.is(turn.own())
    };
    if own_may_do {
        return Box::pin(serve_own(app, turn, Because::Refused { too_long })).await;
    }
    Ok(turn.reply(head.status, head.headers, body))
}

/// Sends the client's own request once and says so in a header. Its answer stands.
async fn serve_own(
    app: &Arc<App>,
    mut turn: Box<ManagedTurn>,
    because: Because,
) -> Result<Response<Body>, ProxyError> {
    let mut stage = match because {
        Because::Unread => FailedStage::Intercept,
        Because::Refused { .. } => FailedStage::Refused,
    };
    let mut request = turn.request.untouched();
    upstream::to_next_call(&mut request.headers);
    // An expanded request is not compressed, whatever the client's body was.
    let body = turn.own();
    if *body != turn.request.body {
        request.headers.remove(CONTENT_ENCODING);
        upstream::to_view(&mut request.headers);
        request.payload = Payload::Whole(body.clone().into());
        request.conversation = Some((turn.request.dialect, body.clone()));
    }
    // In place of a refused hop it shares that hop's time. Behind an accepted one it is a call of its own.
    let until = match because {
        Because::Refused { .. } => turn.retry_until,
        Because::Unread => app.upstream.retry_until(),
    };
    let mut response = match super::forward::pass_on(app, request, until, &mut turn.reporter).await
    {
        Ok(response) => response,
        Err(error) => return Err(turn.failed(error)),
    };
    if let Because::Refused { too_long } = because
        && is_refusal(response.status())
    {
        let (head, body) = response.into_parts();
        let body = match refusal_body(body).await {
            Ok(body) => body,
            Err(error) => return Err(turn.failed(error)),
        };
        // If both requests are refused, the agent most likely made a mistake, and not the proxy.
        // But if only the client's is too long, its refusal says nothing about the view.
        if too_long || !is_too_long(app, head.status, &body) {
            stage = FailedStage::RefusedTwice;
        }
        response = Response::from_parts(head, Body::from(body));
    } else if response.status().is_success()
        // The client's own request has no edits and was accepted, so an edit may be what was
        // refused. Behind a later hop there are other reasons, and the same is learned there.
        && let Because::Refused { too_long: false } = because
        && turn.state.pending.is_empty()
    {
        let (edits, whose) = (turn.prepared.edits, turn.whose());
        let learned = app.learned.unexplained(&whose, edits);
        turn.teach(learned);
    }
    turn.reporter.failed_open(stage);
    turn.reporter.unshortened(response.status());
    let stage = HeaderValue::from_static(stage.name());
    response.headers_mut().insert(FAIL_OPEN, stage);
    if !response.status().is_success() {
        turn.reporter
            .cause()
            .passed(response.status(), response.headers());
        return Ok(pass_refusal(response, turn.reporter));
    }
    turn.reporter.finish(Some(response.status()));
    Ok(response)
}
