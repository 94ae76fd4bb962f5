//! The response half of an unstreamed turn: reads whole bodies, hop after hop, until one holds
//! nothing hidden. Never handles a stream.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};

use super::app::App;
use super::error::ProxyError;
use super::incoming::{Incoming, Served};
use super::managed_turn::{ManagedTurn, at_hop_cap};
use super::send::{HopAnswer, retry_refused, send};
use crate::dialect::answer::{Answer, Verdict};
use crate::dialect::stream::unary::{self, TurnEnd, Unstreamed};
use crate::record::AbortSide;
use crate::upstream::{self, ResponseBody};

/// The most bytes of one answer that are held.
const ANSWER_BYTES: usize = 256 << 20;

/// Reads the answer of the first hop and goes on until the turn is whole.
///
/// # Errors
/// [`ProxyError`] if an answer of the upstream was cut.
pub(super) async fn answer(
    app: &Arc<App>,
    mut turn: Box<ManagedTurn>,
    head: Parts,
    body: Incoming,
) -> Result<Served, ProxyError> {
    match hops(app, &mut turn, head, body).await {
        Ok(Some((status, headers, body))) => Ok(Served::Answer(turn.reply(status, headers, body))),
        Ok(None) => Ok(Served::Unreadable(turn)),
        Err(error) => Err(turn.failed(error)),
    }
}

/// The client's answer.
type WholeAnswer = (StatusCode, HeaderMap, Bytes);

/// Goes from hop to hop until one is the client's answer. Returns `None` if an answer can't be read
/// and may hold hidden calls.
async fn hops(
    app: &Arc<App>,
    turn: &mut ManagedTurn,
    head: Parts,
    body: Incoming,
) -> Result<Option<WholeAnswer>, ProxyError> {
    let spec = turn.spec();
    let (status, mut headers) = (head.status, head.headers);
    let mut last = collect(turn, body).await?;
    let first = last.clone();
    let mut answers: Vec<Answer> = Vec::new();
    loop {
        let Some(answer) = unary::read(&last, &spec) else {
            // The body holds no message. If it hides nothing, it is the upstream's own answer.
            let own = !unary::may_hide(&last, &spec);
            return Ok(own.then_some((status, headers, last)));
        };
        turn.heard(app, &answer);
        let verdict = answer.verdict();
        answers.push(answer);
        let capped = turn.state.pending.len() + 1 >= turn.state.terms.hops;
        if verdict != Verdict::HiddenOnly || capped {
            let end = if verdict == Verdict::HiddenOnly {
                at_hop_cap(&answers)
            } else {
                TurnEnd::Upstream
            };
            let ended = Unstreamed {
                usage: app.intercept.usage,
                hidden: &spec.hidden,
                first: &first,
                last: &last,
                hops: &answers,
                end,
            };
            // The body is composed before the turn is recorded, because it may have to be withheld.
            let composed = unary::compose(&ended, &spec);
            if unary::still_hides(&composed, &spec) {
                return Ok(None);
            }
            // A failed answer holds nothing that a client could send back.
            if verdict != Verdict::Broken {
                turn.settle(app, &answers, end).await;
            }
            return Ok(Some((status, headers, composed)));
        }
        match next(app, turn, &answers).await? {
            NextHop::Body(new, body) => (headers, last) = (*new, body),
            NextHop::Refused(status, headers, body) => {
                return Ok(Some((status, *headers, body)));
            }
            NextHop::Coded => return Ok(None),
        }
    }
}

enum NextHop {
    Body(Box<HeaderMap>, Bytes),
    Refused(StatusCode, Box<HeaderMap>, Bytes),
    /// The answer is in a coding that can't be read.
    Coded,
}

/// Answers the hidden calls of the newest hop and sends the next one. The client has seen nothing
/// yet, so a refusal becomes its answer.
async fn next(
    app: &Arc<App>,
    turn: &mut ManagedTurn,
    answers: &[Answer],
) -> Result<NextHop, ProxyError> {
    if let Some(answer) = answers.last() {
        turn.pend(app, answer);
    }
    turn.next_hop(app)?;
    let response = send(app, turn).await?;
    turn.reporter
        .answered(response.status(), response.headers());
    if response.status().is_success() {
        turn.note_accepted(app);
        return whole(turn, response).await;
    }
    let (head, body) = Incoming::of(response);
    // A refusal may name what was wrong with the view. It can then be built without that.
    let body = collect(turn, body).await?;
    match retry_refused(app, turn, (head, body)).await? {
        HopAnswer::Accepted(response) => whole(turn, response).await,
        HopAnswer::Refused((head, body)) => {
            Ok(NextHop::Refused(head.status, Box::new(head.headers), body))
        }
    }
}

/// Reads the answer of a later hop that was accepted.
async fn whole(
    turn: &mut ManagedTurn,
    response: Response<ResponseBody>,
) -> Result<NextHop, ProxyError> {
    let (head, body) = Incoming::of(response);
    Ok(if body.coded {
        NextHop::Coded
    } else {
        let body = collect(turn, body).await?;
        NextHop::Body(Box::new(head.headers), body)
    })
}

/// Reads an answer whole, into memory of its own. Each of its pieces is a slice of a read buffer,
/// which may be hundreds of times as long.
async fn collect(turn: &mut ManagedTurn, body: Incoming) -> Result<Bytes, ProxyError> {
    let mut body = Limited::new(body, ANSWER_BYTES);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => whole.extend_from_slice(&data),
            // Trailers say nothing that a client needs.
            Ok(Err(_)) => {}
            Err(error) => {
                tracing::warn!(%error, "the upstream's answer was cut");
                turn.reporter.aborted(AbortSide::Upstream);
                return Err(ProxyError::Upstream(upstream::UpstreamError::Broken {
                    cause: error.to_string(),
                }));
            }
        }
    }
    Ok(whole.freeze())
}
