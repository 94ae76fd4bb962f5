//! A turn that is only watched: sends the client's bytes as they came, and reads the answer as it
//! passes, for its cost and for what the next view builds on. Records in memory alone what the turn
//! would have been as a managed one. Never sends a byte of its own and never holds one back. A
//! failure in here costs the projection and nothing else.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use plimsoll_core::turn::state::TurnState;
use plimsoll_model::{Role, Rope};
use plimsoll_wire::answer::{Answer, Verdict};
use plimsoll_wire::names::Names;
use plimsoll_wire::stream::Spec;
use plimsoll_wire::stream::unary::TurnEnd;

use super::app::App;
use super::error::ProxyError;
use super::failures::pass_refusal;
use super::forward::pass_on;
use super::listen::{AnswerEnd, AnswerReader, HeardBody, Listener};
use super::managed_turn::ManagedTurn;
use crate::record::Projection;

/// Forwards a turn as it came, and its answer as it comes.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn forward(
    app: &Arc<App>,
    mut turn: Box<ManagedTurn>,
) -> Result<Response<Body>, ProxyError> {
    let projection = known(&turn.state);
    turn.reporter.watched(&turn.state, projection);
    // The view is never sent, so its bytes need not stay in memory.
    turn.prepared.body = Rope::default();
    let until = app.upstream.retry_until();
    let untouched = turn.request.untouched();
    let mut response = match pass_on(app, untouched, until, &mut turn.reporter).await {
        Ok(response) => response,
        Err(error) => return Err(turn.failed(error)),
    };
    let status = response.status();
    turn.reporter.answered(status, response.headers());
    let told = turn.reporter.headers();
    response.headers_mut().extend(told);
    if !status.is_success() {
        return Ok(pass_refusal(response, turn.reporter));
    }
    let (head, body) = response.into_parts();
    // The model was offered no hidden tools, so its answer hides nothing.
    let spec = Spec {
        hidden: Names::default(),
        ..turn.spec()
    };
    let watcher = Watcher {
        app: Arc::clone(app),
        status,
        reader: AnswerReader::new(app, spec, &head.headers),
        recorded: false,
        turn,
    };
    Ok(Response::from_parts(head, HeardBody::of(body, watcher)))
}

/// Whether the past of a turn is known.
fn known(state: &TurnState) -> Projection {
    let spoken = state.shapes.iter().any(|one| one.role == Role::Assistant);
    if spoken && state.path.entries.is_empty() {
        Projection::Anew
    } else {
        Projection::Whole
    }
}

/// Reads the answer of a watched turn along.
struct Watcher {
    app: Arc<App>,
    turn: Box<ManagedTurn>,
    status: StatusCode,
    reader: AnswerReader,
    /// Whether the record was made.
    recorded: bool,
}

impl Listener for Watcher {
    /// The record is made before the client can see the end, so that the client's next request finds it.
    fn hear(&mut self, data: &Bytes) {
        self.turn.reporter.spoken(Instant::now());
        if let Some(said) = self.reader.hear(data) {
            self.record(said);
        }
    }

    fn end(&mut self, end: AnswerEnd) {
        let answer = self.reader.end();
        self.turn.reporter.left(end, answer.as_ref());
        match answer {
            Some(answer) => self.record(answer),
            None if !self.recorded => {
                self.turn.reporter.projection(Projection::Unread);
            }
            None => {}
        }
    }

    fn lost(&mut self) {
        tracing::error!("an answer that was only watched was lost: the proxy made a mistake");
        self.turn.reporter.projection(Projection::Failed);
    }

    fn finish(mut self) {
        self.turn.reporter.finish(Some(self.status));
    }
}

impl Watcher {
    /// Takes in what the model said, for the ledger and for the record of the turn that this would have been. What is
    /// heard behind the record concerns the ledger alone.
    fn record(&mut self, answer: Answer) {
        self.turn.heard(&self.app, &answer);
        let said = !answer.text.is_empty() || !answer.calls.is_empty();
        let ends = answer.verdict() != Verdict::Broken;
        if self.recorded || !(said || ends) || !self.turn.state.is_managed() {
            return;
        }
        self.recorded = true;
        // Later sizes are corrected by the reported usage, so the record gets that of the view.
        let usage = answer.usage.and_then(|_| self.turn.reporter.projected());
        let shown = Answer {
            usage: usage.map(|account| account.sent),
            ..answer
        };
        // Nobody waits until it is written: it is kept in memory.
        drop(self.turn.commit(&self.app, &[shown], TurnEnd::Upstream));
    }
}
