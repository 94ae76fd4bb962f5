//! The response half of an unstreamed turn: reads whole bodies, hop after hop, until one holds
//! nothing hidden. Never handles a stream.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use plimsoll_model::room::{Full, HeldAnswer};
use plimsoll_wire::answer::{Answer, Verdict};
use plimsoll_wire::stream::Spec;
use plimsoll_wire::stream::unary::{self, TurnEnd, Unstreamed};

use super::app::App;
use super::error::ProxyError;
use super::incoming::{Because, Incoming, Served};
use super::later_hop::{LaterHop, Shown, send_later_hop};
use super::managed_turn::{ManagedTurn, at_hop_cap};
use super::opening::aside;
use crate::record::AbortSide;
use crate::upstream::{self, ResponseBody};

/// An answer that is taken apart takes so many times its bytes: what it says, and what is made for the client.
const MADE_OF_IT: usize = 3;

/// Reads the answer of a hop and goes on until the turn is whole. `answers` are those of the hops
/// before it.
///
/// # Errors
/// [`ProxyError`] if an answer of the upstream was cut.
pub(super) async fn answer(
    app: &Arc<App>,
    mut turn: Box<ManagedTurn>,
    head: Parts,
    body: Incoming,
    answers: Vec<Answer>,
) -> Result<Served, ProxyError> {
    match hops(app, &mut turn, head, body, answers).await {
        Ok(Ok((status, headers, body))) => Ok(Served::Answer(turn.reply(status, headers, body))),
        Ok(Err(because)) => Ok(Served::Own(turn, because)),
        Err(error) => Err(turn.failed(error)),
    }
}

/// The client's answer.
type WholeAnswer = (StatusCode, HeaderMap, Bytes);

/// Goes from hop to hop until one is the client's answer, or finds out why the client's own request
/// has to be served.
async fn hops(
    app: &Arc<App>,
    turn: &mut ManagedTurn,
    head: Parts,
    body: Incoming,
    mut answers: Vec<Answer>,
) -> Result<Result<WholeAnswer, Because>, ProxyError> {
    let spec = turn.spec();
    let (status, mut headers) = (head.status, head.headers);
    let mut held = app.intercept.room.enter_answer();
    let Some(last) = collect((&mut held, 0), turn, body).await? else {
        return Ok(Err(Because::Unread));
    };
    let (mut last, mut diagnosis) = unary::diagnosed(&last, &spec);
    // The body of the first hop that the client is shown, and which hop that is.
    let (mut first, mut shown) = (last.clone(), turn.first_shown(&answers));
    // The bytes of the answers before it, which are kept until the turn ends.
    let mut before = 0;
    loop {
        let long = last.len() > app.intercept.answer_cap;
        let made = held.take(before + last.len().saturating_mul(MADE_OF_IT));
        // A large one is taken apart where there is room for that, or where it may hold a hidden call.
        if long && made.is_err() {
            let hides = aside(last.len(), || unary::may_hide(&last, &spec));
            if hides || !answers.is_empty() {
                return Err(Full.into());
            }
            answers.push(Answer {
                forgotten: true,
                complete: true,
                ..Answer::default()
            });
            let composed = compose(app, turn, &spec, (&answers, 0), (&first, &last)).await;
            return Ok(composed.map(|body| (status, headers, held.hold(body))));
        }
        let Some(mut answer) = aside(last.len(), || unary::read(&last, &spec)) else {
            // The body holds no message. If it hides nothing, it is the upstream's own answer.
            let own = !aside(last.len(), || unary::may_hide(&last, &spec));
            return Ok(own
                .then_some((status, headers, held.hold(last)))
                .ok_or(Because::Unread));
        };
        answer.diagnosis = diagnosis;
        answer.forgotten = long;
        turn.heard(app, &answer);
        let verdict = answer.verdict();
        answers.push(answer);
        let now = turn.first_shown(&answers);
        if now > shown {
            (first, shown) = (last.clone(), now);
        }
        if verdict != Verdict::HiddenOnly || turn.is_last(&answers) {
            let bodies = (&first, &last);
            let composed = compose(app, turn, &spec, (&answers, shown), bodies).await;
            return Ok(composed.map(|body| (status, headers, held.hold(body))));
        }
        before += last.len();
        match next(app, turn, &answers, (&mut held, before)).await? {
            NextHop::Body(new, body) => {
                headers = *new;
                (last, diagnosis) = unary::diagnosed(&body, &spec);
            }
            NextHop::Refused(status, headers, body) => {
                return Ok(Ok((status, *headers, body)));
            }
            NextHop::Own(because) => return Ok(Err(because)),
        }
    }
}

/// Makes the client's answer of those of all hops, the last of which ends the turn, and records the turn. Gets the
/// bodies of the first hop that is shown and of the last one.
async fn compose(
    app: &Arc<App>,
    turn: &mut ManagedTurn,
    spec: &Spec,
    (answers, shown): (&[Answer], usize),
    (first, last): (&Bytes, &Bytes),
) -> Result<Bytes, Because> {
    let verdict = answers.last().map(Answer::verdict);
    let end = match verdict {
        Some(Verdict::HiddenOnly) => at_hop_cap(answers),
        _ => TurnEnd::Upstream,
    };
    let ended = Unstreamed {
        skipped: answers.get(..shown).unwrap_or_default(),
        usage: app.intercept.usage,
        hidden: &spec.hidden,
        first,
        last,
        hops: answers.get(shown..).unwrap_or_default(),
        end,
    };
    // The body is composed before the turn is recorded, because it may have to be withheld.
    let made = || {
        let composed = unary::compose(&ended, spec);
        (!unary::still_hides(&composed, spec)).then_some(composed)
    };
    let composed = aside(last.len(), made).ok_or(Because::Unread)?;
    // A failed answer holds nothing that a client could send back.
    if verdict != Some(Verdict::Broken) {
        turn.settle(app, answers, end).await;
    }
    Ok(composed)
}

enum NextHop {
    Body(Box<HeaderMap>, Bytes),
    Refused(StatusCode, Box<HeaderMap>, Bytes),
    /// There is none, and the client's own request has to be served.
    Own(Because),
}

/// Answers the hidden calls of the newest hop and sends the next one. The client has seen nothing
/// yet, so its own request may take the place of a hop that is refused, and a refusal that stands
/// becomes its answer.
async fn next(
    app: &Arc<App>,
    turn: &mut ManagedTurn,
    answers: &[Answer],
    held: (&mut HeldAnswer, usize),
) -> Result<NextHop, ProxyError> {
    if let Some(answer) = answers.last() {
        turn.pend(app, answer).await;
    }
    turn.next_hop(app)?;
    match send_later_hop(app, turn, &Shown::new(false, false)).await? {
        LaterHop::Accepted(response) => whole(held, turn, response).await,
        LaterHop::Own => Ok(NextHop::Own(Because::Refused { too_long: false })),
        LaterHop::Refused((head, body)) => {
            Ok(NextHop::Refused(head.status, Box::new(head.headers), body))
        }
    }
}

/// Reads the answer of a later hop that was accepted.
async fn whole(
    held: (&mut HeldAnswer, usize),
    turn: &mut ManagedTurn,
    response: Response<ResponseBody>,
) -> Result<NextHop, ProxyError> {
    let (head, body) = Incoming::of(response);
    let body = collect(held, turn, body).await?;
    Ok(body.map_or(NextHop::Own(Because::Unread), |body| {
        NextHop::Body(Box::new(head.headers), body)
    }))
}

/// Reads an answer whole, into memory of its own. Each of its pieces is a slice of a read buffer,
/// which may be hundreds of times as long. So many bytes of answers before it are held beside it. Returns `None` if
/// it is in a coding that can't be read.
async fn collect(
    (held, before): (&mut HeldAnswer, usize),
    turn: &mut ManagedTurn,
    mut body: Incoming,
) -> Result<Option<Bytes>, ProxyError> {
    if body.coded {
        return Ok(None);
    }
    let mut whole = BytesMut::new();
    let error = loop {
        match body.frame().await.map(|frame| frame.map(Frame::into_data)) {
            None => return Ok(Some(whole.freeze())),
            Some(Ok(Ok(data))) => {
                whole.extend_from_slice(&data);
                held.take(before + whole.len())?;
            }
            // Trailers say nothing that a client needs.
            Some(Ok(Err(_))) => {}
            Some(Err(error)) => break error.to_string(),
        }
    };
    if body.coded {
        return Ok(None);
    }
    tracing::warn!(%error, "the upstream's answer was cut");
    turn.reporter.aborted(AbortSide::Upstream);
    Err(ProxyError::Upstream(upstream::UpstreamError::Broken {
        cause: error,
    }))
}
