//! What becomes of a later hop that the upstream refuses, although it answered the hop before: the same
//! hop with the client's whole token limit, another view, or the client's own request. Never tells the
//! client anything, and never reads a body that was accepted.

use http::Response;
use http::StatusCode;
use plimsoll_model::Edits;

use super::app::App;
use super::error::ProxyError;
use super::managed_turn::ManagedTurn;
use super::send::{
    HopAnswer, Refusal, is_refusal, is_too_long, send, send_anew, send_another_view,
};
use crate::record::{FailedStage, RetryReason};
use crate::upstream::ResponseBody;

/// What the client has of the turn so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Not even a head. Another answer may take this one's place.
    Nothing,
    /// A head, and nothing that the model said. An answer may still begin.
    Head,
    /// A part of an answer.
    Words,
}

/// What became of a later hop that was refused.
pub(super) enum Retried {
    /// The upstream accepted something in its place, which goes on with the turn.
    Accepted(Response<ResponseBody>),
    /// The client's own request has to be served in the turn's place.
    Own,
    /// It stays refused.
    Refused(Refusal),
}

impl Retried {
    fn of(answer: HopAnswer) -> Self {
        match answer {
            HopAnswer::Accepted(response) => Self::Accepted(response),
            HopAnswer::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

/// Tries a later hop again that was refused, if that can help. The earlier hops do not make the client's
/// own request longer or wrong, so that may pass where no view does. Once the client has read a part of
/// an answer, it would be a second one.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn retry_refused(
    app: &App,
    turn: &mut ManagedTurn,
    refusal: Refusal,
    seen: Seen,
) -> Result<Retried, ProxyError> {
    let refusal = match send_with_whole_limit(app, turn, refusal).await? {
        HopAnswer::Accepted(response) => return Ok(accepted(app, turn, response)),
        HopAnswer::Refused(refusal) => refusal,
    };
    let refusal = match send_another_view(app, turn, refusal).await? {
        HopAnswer::Accepted(response) => return Ok(accepted(app, turn, response)),
        HopAnswer::Refused(refusal) => refusal,
    };
    let (head, body) = &refusal;
    if is_too_long(app, head.status, body) {
        if !turn.is_shorter() {
            return Ok(Retried::Refused(refusal));
        }
        return Ok(Retried::of(send_own(app, turn).await?));
    }
    if !is_refused(head.status) || turn.prepared.body.is(turn.own()) {
        return Ok(Retried::Refused(refusal));
    }
    match seen {
        Seen::Nothing => Ok(Retried::Own),
        Seen::Head => {
            turn.state.give_up_hops();
            Ok(Retried::of(send_own(app, turn).await?))
        }
        Seen::Words => Ok(Retried::Refused(refusal)),
    }
}

fn accepted(app: &App, turn: &mut ManagedTurn, response: Response<ResponseBody>) -> Retried {
    turn.note_accepted(app);
    Retried::Accepted(response)
}

/// Whether a status refuses a later hop for what it says. A conflict may be about the hop before, and the
/// client can't retry a later hop by itself.
pub(super) fn is_refused(status: StatusCode) -> bool {
    is_refusal(status) || status == StatusCode::CONFLICT
}

/// Sends a later hop again with the client's token limit as it is, if the refusal may be about the part
/// of it that was left. No table knows all that a limit has to fit.
async fn send_with_whole_limit(
    app: &App,
    turn: &mut ManagedTurn,
    refusal: Refusal,
) -> Result<HopAnswer, ProxyError> {
    let (head, body) = &refusal;
    let made = matches!(head.status.as_u16(), 400 | 422);
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    let named = ["token", "budget", "limit"]
        .iter()
        .any(|word| text.contains(word));
    if !made || !named || is_too_long(app, head.status, body) || !turn.state.lift_limit() {
        return Ok(HopAnswer::Refused(refusal));
    }
    let Ok(whole) = turn.prepare(app, None) else {
        return Ok(HopAnswer::Refused(refusal));
    };
    turn.reporter.retried(RetryReason::Edits);
    HopAnswer::of(send_anew(app, turn, whole).await?).await
}

/// Sends the client's own request as the hop.
async fn send_own(app: &App, turn: &mut ManagedTurn) -> Result<HopAnswer, ProxyError> {
    turn.prepared.body = turn.own().clone().into();
    // The reported usage will be about what was sent.
    turn.prepared.estimate = turn.state.client_tokens;
    turn.prepared.breakpoints = None;
    turn.prepared.edits = Edits::default();
    turn.reporter.failed_open(FailedStage::Refused);
    turn.reporter.own();
    let response = send(app, turn).await?;
    turn.reporter
        .answered(response.status(), response.headers());
    HopAnswer::of(response).await
}
