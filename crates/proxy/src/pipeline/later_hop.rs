//! Sends the hops behind a turn's first one. Where one fails, tries it again, because the client can't; where one is
//! refused, sends the same hop with the client's whole token limit, another view, or the client's own request. Never
//! tells the client anything, and never reads a body that was accepted.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::Response;
use http::StatusCode;
use plimsoll_model::Edits;
use tokio::time::Instant;

use super::app::App;
use super::error::ProxyError;
use super::incoming::Incoming;
use super::managed_turn::ManagedTurn;
use super::send::{
    HopAnswer, Refusal, is_refusal, is_too_long, may_pass, refusal_body, send, send_anew,
    send_another_view,
};
use crate::record::{FailedStage, RetryReason};
use crate::upstream::{self, ResponseBody, UpstreamError};

/// How often a later hop is tried again.
const HOP_RETRIES: u32 = 4;
/// As how many tries of a call, each of which waits longer, the first try of a later hop counts.
const HOP_TRIES: u32 = 2;

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

/// What the client has of the turn while a later hop is sent, for the hop and for the wait for it. The wait may send
/// a head, until a refusal may become the client's answer. Both are in one task; atomics make the hop `Send`.
pub(super) struct Shown {
    /// Whether an earlier hop has said something.
    words: bool,
    /// Whether the client has a head.
    head: AtomicBool,
    /// Whether a head can still be sent.
    open: AtomicBool,
}

impl Shown {
    pub(super) fn new(head: bool, words: bool) -> Self {
        Self {
            words,
            head: head.into(),
            open: true.into(),
        }
    }

    fn seen(&self) -> Seen {
        match self.head.load(Relaxed) {
            false => Seen::Nothing,
            true if self.words => Seen::Words,
            true => Seen::Head,
        }
    }

    /// Whether the client may be sent a heartbeat: it has a head, or can still get one.
    pub(super) fn may_beat(&self) -> bool {
        self.head.load(Relaxed) || self.open.load(Relaxed)
    }

    /// Notes that the client has a head.
    pub(super) fn headed(&self) {
        self.head.store(true, Relaxed);
    }

    /// Forbids a head from now on, unless the client has one. Returns what it has.
    fn forbid_head(&self) -> Seen {
        self.open.store(false, Relaxed);
        self.seen()
    }
}

/// What became of a later hop.
pub(super) enum LaterHop {
    /// The upstream accepted it, or something in its place, which goes on with the turn.
    Accepted(Response<ResponseBody>),
    /// The client's own request has to be served in the turn's place.
    Own,
    /// It is refused.
    Refused(Refusal),
}

impl LaterHop {
    fn of(answer: HopAnswer) -> Self {
        match answer {
            HopAnswer::Accepted(response) => Self::Accepted(response),
            HopAnswer::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

/// Sends the later hop that is prepared.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn send_later_hop(
    app: &App,
    turn: &mut ManagedTurn,
    shown: &Shown,
) -> Result<LaterHop, ProxyError> {
    // The hop, its retries and what takes its place share the time that is given to retries.
    turn.retry_until = app.upstream.retry_until();
    let response = send_with_retries(app, turn, shown).await?;
    if response.status().is_success() {
        return Ok(accepted(app, turn, response));
    }
    let seen = shown.forbid_head();
    let (head, body) = Incoming::of(response);
    // The body is empty if the refusal breaks off or never ends: the status says what may be done.
    let refusal = (head, refusal_body(body).await.unwrap_or_default());
    retry_refused(app, turn, refusal, seen).await
}

/// Sends a later hop, and again where it failed in a way that may pass. A client that has seen nothing can do that by
/// itself, and gets the failure.
async fn send_with_retries(
    app: &App,
    turn: &mut ManagedTurn,
    shown: &Shown,
) -> Result<Response<ResponseBody>, ProxyError> {
    let until = turn.retry_until;
    let mut retries = 0;
    loop {
        let sent = send(app, turn).await;
        let (passes, asked) = match &sent {
            Ok(response) => (
                may_pass(response.status()),
                upstream::retry_after(response.headers()),
            ),
            // A timeout of the first byte was long enough. The client does not wait for another.
            Err(ProxyError::Upstream(UpstreamError::FirstByteTimeout)) => (false, None),
            Err(_) => (true, None),
        };
        let wait = upstream::wait_before(asked, HOP_TRIES + retries).min(upstream::LONGEST_WAIT);
        let late = until.is_some_and(|until| Instant::now() + wait >= until);
        if !passes || late || retries == HOP_RETRIES || shown.seen() == Seen::Nothing {
            return sent;
        }
        retries += 1;
        turn.reporter.retried(RetryReason::Hop);
        tokio::time::sleep(wait).await;
    }
}

/// Tries a later hop again that was refused, if that can help. The earlier hops do not make the client's
/// own request longer or wrong, so that may pass where no view does. Once the client has read a part of
/// an answer, it would be a second one.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
async fn retry_refused(
    app: &App,
    turn: &mut ManagedTurn,
    refusal: Refusal,
    seen: Seen,
) -> Result<LaterHop, ProxyError> {
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
            return Ok(LaterHop::Refused(refusal));
        }
        return Ok(LaterHop::of(send_own(app, turn).await?));
    }
    if !is_refused(head.status) || turn.prepared.body.is(turn.own()) {
        return Ok(LaterHop::Refused(refusal));
    }
    match seen {
        Seen::Nothing => Ok(LaterHop::Own),
        Seen::Head => {
            turn.state.give_up_hops();
            Ok(LaterHop::of(send_own(app, turn).await?))
        }
        Seen::Words => Ok(LaterHop::Refused(refusal)),
    }
}

fn accepted(app: &App, turn: &mut ManagedTurn, response: Response<ResponseBody>) -> LaterHop {
    turn.note_accepted(app);
    LaterHop::Accepted(response)
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
    HopAnswer::of(response).await
}
