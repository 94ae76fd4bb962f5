//! Sends a hop and handles refusals: sends one more view without the edits that it may have been
//! refused for, or makes one emergency pass if the view was too long. Never reads a body that was
//! accepted, and never sends the client's own request.

use bytes::Bytes;
use http::response::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use plimsoll_core::turn::state::Prepared;
use plimsoll_model::EditKind;
use plimsoll_wire::Purpose;

use super::app::App;
use super::error::ProxyError;
use super::incoming::Incoming;
use super::learned::refuses_thoughts;
use super::managed_turn::ManagedTurn;
use crate::record::RetryReason;
use crate::upstream::{self, ResponseBody};

/// How many bytes of a refusal are read to find out why.
pub(super) const REFUSAL_BYTES: usize = 1 << 20;

/// Whether a refusal says that the prompt was too long for the model.
pub(super) fn is_too_long(app: &App, status: StatusCode, refusal: &[u8]) -> bool {
    let text = String::from_utf8_lossy(refusal);
    let error = app.models.context_length_error(status.as_u16(), &text);
    error.is_some()
}

/// Whether a status refuses a request for what it says. Another request may do.
pub(super) fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 404 | 413 | 422)
}

/// Whether a refusal may be temporary, so that a retry makes sense.
pub(super) fn may_pass(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// Reads the body of a refusal. One that breaks off or never ends can't be acted on.
pub(super) async fn refusal_body<B>(body: B) -> Result<Bytes, ProxyError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, REFUSAL_BYTES).collect().await;
    let body = body.map_err(|_| upstream::UpstreamError::Broken {
        cause: "its error response was cut".to_owned(),
    })?;
    Ok(body.to_bytes())
}

/// A response that refuses a hop, read whole.
pub(super) type Refusal = (Parts, Bytes);

/// How the upstream answered a hop.
pub(super) enum HopAnswer {
    /// It accepted the hop. The body is not read yet.
    Accepted(Response<ResponseBody>),
    /// It refused the hop.
    Refused(Refusal),
}

impl HopAnswer {
    /// Reads a response whole if it is a refusal.
    ///
    /// # Errors
    /// [`ProxyError`] if the refusal breaks off.
    pub(super) async fn of(response: Response<ResponseBody>) -> Result<Self, ProxyError> {
        if response.status().is_success() {
            return Ok(Self::Accepted(response));
        }
        let (head, body) = Incoming::of(response);
        Ok(Self::Refused((head, refusal_body(body).await?)))
    }
}

/// Sends another view in place of a refused one: first without the edits that it may have been
/// refused for, and then a shorter one if it was too long.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn send_another_view(
    app: &App,
    turn: &mut ManagedTurn,
    refusal: Refusal,
) -> Result<HopAnswer, ProxyError> {
    let refusal = match send_without_exchange(app, turn, &refusal).await {
        None => refusal,
        Some(answer) => match HopAnswer::of(answer?).await? {
            HopAnswer::Accepted(response) => return Ok(HopAnswer::Accepted(response)),
            HopAnswer::Refused(refusal) => refusal,
        },
    };
    let refusal = match send_without_thoughts(app, turn, refusal).await? {
        HopAnswer::Accepted(response) => return Ok(HopAnswer::Accepted(response)),
        HopAnswer::Refused(refusal) => refusal,
    };
    let refusal = match send_without_suspects(app, turn, &refusal).await {
        None => refusal,
        Some(answer) => match HopAnswer::of(answer?).await? {
            HopAnswer::Accepted(response) => return Ok(HopAnswer::Accepted(response)),
            HopAnswer::Refused(refusal) => refusal,
        },
    };
    // Without its suspects the view may still be too long, so the second refusal counts here.
    match send_after_emergency_pass(app, turn, refusal.0.status, &refusal.1).await {
        None => Ok(HopAnswer::Refused(refusal)),
        Some(answer) => HopAnswer::of(answer?).await,
    }
}

/// Sends a refused view without the exchange that an operator asked for, which the model did not have
/// itself. Nothing is learned from that, and what was asked for is given up. Returns `None` if there is none.
async fn send_without_exchange(
    app: &App,
    turn: &mut ManagedTurn,
    (head, refusal): &Refusal,
) -> Option<Result<Response<ResponseBody>, ProxyError>> {
    let made = matches!(head.status.as_u16(), 400 | 422);
    if !made || is_too_long(app, head.status, refusal) || !turn.state.take_back() {
        return None;
    }
    let session = &turn.place.session;
    tracing::warn!(%session, "the upstream refused a recall that an operator asked for: it is given up");
    app.asked.refused(session, &turn.state.path);
    let without = turn.prepare(app, None).ok()?;
    turn.reporter.retried(RetryReason::Edits);
    Some(send_anew(app, turn, without).await)
}

/// Sends a refused view without thoughts, if it was refused for thoughts that something changed before: first
/// without those that lost their place as far as the records tell, then without any. The user pays nothing for
/// the refusal, and that one teaches the rule.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
async fn send_without_thoughts(
    app: &App,
    turn: &mut ManagedTurn,
    mut refusal: Refusal,
) -> Result<HopAnswer, ProxyError> {
    for all in [false, true] {
        if refusal.0.status != StatusCode::BAD_REQUEST || !refuses_thoughts(&refusal.1) {
            break;
        }
        let broken = turn.prepared.edits.has(EditKind::Thoughts);
        turn.teach_bound(app);
        if !all && !broken {
            continue;
        }
        let Ok(without) = turn.prepare_without_thoughts(app, all) else {
            break;
        };
        turn.reporter.retried(RetryReason::Thoughts);
        let response = send_anew(app, turn, without).await?;
        refusal = match HopAnswer::of(response).await? {
            HopAnswer::Accepted(response) => return Ok(HopAnswer::Accepted(response)),
            HopAnswer::Refused(refusal) => refusal,
        };
    }
    Ok(HopAnswer::Refused(refusal))
}

/// Sends a refused view without the edits that it may have been refused for. Whether that is
/// accepted shows what the upstream refuses. Returns `None` if nothing is suspected.
async fn send_without_suspects(
    app: &App,
    turn: &mut ManagedTurn,
    (head, refusal): &Refusal,
) -> Option<Result<Response<ResponseBody>, ProxyError>> {
    // Only these statuses are about how a body is made. An unknown model or a body that is too
    // large has nothing to do with edits.
    let made = matches!(head.status.as_u16(), 400 | 422);
    let counts = turn.request.purpose == Purpose::Count;
    if !made || counts || is_too_long(app, head.status, refusal) {
        return None;
    }
    let (edits, whose) = (turn.prepared.edits, turn.whose());
    // After a hidden hop, the client's own request can't replace the view.
    let own_may_do = turn.state.pending.is_empty();
    let suspects = app.learned.suspects(&whose, edits, refusal, own_may_do)?;
    let without = turn.prepare_without(app, suspects.edits).ok()?;
    if without.body.is(&turn.prepared.body.to_bytes()) {
        // The client made these edits itself.
        return None;
    }
    let breaks = suspects.edits.has(EditKind::Breakpoints);
    turn.reporter.retried(if breaks {
        RetryReason::Breakpoints
    } else {
        RetryReason::Edits
    });
    let answer = send_anew(app, turn, without).await;
    let Ok(response) = &answer else {
        return Some(answer);
    };
    // If the client set breakpoints of its own, there may only have been too many in total.
    let sole = !turn.state.request.sets_breakpoints();
    if response.status().is_success() && (sole || !breaks) {
        let learned = app.learned.explained(&whose, suspects);
        turn.teach(learned);
    }
    Some(answer)
}

/// Handles a hop that was refused as too long: makes one pass to four fifths of the size that the
/// upstream named or refused, and tries once more. Returns `None` if the hop was refused for
/// something else, or the pass frees nothing.
async fn send_after_emergency_pass(
    app: &App,
    turn: &mut ManagedTurn,
    status: StatusCode,
    refusal: &[u8],
) -> Option<Result<Response<ResponseBody>, ProxyError>> {
    let text = String::from_utf8_lossy(refusal);
    let error = app.models.context_length_error(status.as_u16(), &text)?;
    let before = turn.prepared.estimate;
    let size = turn.prepared.calibrated(before);
    let limit = turn.state.request.limit.map(|limit| limit.tokens);
    // The upstream's own number is trusted more than the window that a table names, from now on too.
    if let Some(window) = error.window {
        let model = &turn.state.request.model;
        // Some name what prompt and answer may have together, as the model's context.
        let whole = ["context", "n_ctx", "max_new_tokens"];
        let whole = whole.iter().any(|word| text.contains(word));
        app.windows.refused(turn.place.tenant, model, window, whole);
    }
    let window = error.window.or_else(|| turn.family.prompt(limit));
    let refused = window.map_or(size, |window| size.min(u64::from(window)));
    let prepared = turn.prepare(app, Some(refused)).ok()?;
    if prepared.estimate >= before {
        return None;
    }
    // The marks that the refused view moved stay where they are, because marks never move back. So
    // that pass is reported as well.
    Some(send_anew(app, turn, prepared).await)
}

/// Sends another hop in place of one that was refused, and reports it.
pub(super) async fn send_anew(
    app: &App,
    turn: &mut ManagedTurn,
    prepared: Prepared,
) -> Result<Response<ResponseBody>, ProxyError> {
    turn.reporter.prepared(&turn.state, &prepared);
    turn.prepared = prepared;
    send(app, turn).await
}

/// Sends the prepared hop, and reports what came of it. All calls of a hop share its time for retries.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn send(
    app: &App,
    turn: &mut ManagedTurn,
) -> Result<Response<ResponseBody>, ProxyError> {
    let outbound = turn.outbound(app)?;
    let until = turn.retry_until;
    turn.sent = true;
    let first = turn.state.settled() == 0;
    let told = |cause| {
        turn.reporter.retried(cause);
        // Behind the first hop the stream itself keeps its client waiting.
        if first {
            turn.failing.note();
        }
    };
    let response = app.upstream.send(outbound, until, told).await?;
    turn.reporter
        .answered(response.status(), response.headers());
    Ok(response)
}
