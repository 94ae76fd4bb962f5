//! A turn that is only watched: sends the client's bytes as they came, and reads the answer as it
//! passes, for its cost and for what the next view builds on. Records in memory alone what the turn
//! would have been as a managed one. Never sends a byte of its own and never holds one back. A
//! failure in here costs the projection and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};

use super::app::App;
use super::drive::same_but_usage;
use super::error::ProxyError;
use super::finish::Committed;
use super::forward::pass_on;
use super::incoming::{Beginning, Begun, is_events};
use super::managed_turn::ManagedTurn;
use super::unpack::Unpack;
use crate::dialect::answer::{Answer, Verdict};
use crate::dialect::names::Names;
use crate::dialect::stream::unary::TurnEnd;
use crate::dialect::stream::{Machine, Spec, unary};
use crate::model::{Role, Rope};
use crate::record::{AbortSide, Projection};
use crate::turn::state::TurnState;

/// The most bytes of one answer that are read.
const ANSWER_BYTES: usize = 32 << 20;

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
    let mut response = match pass_on(app, turn.request.untouched(), &mut turn.reporter).await {
        Ok(response) => response,
        Err(error) => return Err(turn.failed(error)),
    };
    let status = response.status();
    turn.reporter.answered(status, response.headers());
    let told = turn.reporter.headers();
    response.headers_mut().extend(told);
    if !status.is_success() {
        turn.reporter.finish(Some(status));
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let listener = Listener {
        app: Arc::clone(app),
        // The model was offered no hidden tools, so its answer hides nothing.
        spec: Spec {
            hidden: Names::default(),
            ..turn.spec()
        },
        status,
        unpack: Unpack::of(&head.headers),
        events: is_events(&head.headers),
        reading: AnswerReading::Begins(Beginning::default()),
        room: ANSWER_BYTES,
        recorded: None,
        turn,
    };
    let listener = Some(Box::new(listener));
    Ok(Response::from_parts(
        head,
        Body::new(WatchedBody { body, listener }),
    ))
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

/// An answer on its way to the client.
struct WatchedBody {
    body: Body,
    /// Reads along until the answer has ended.
    listener: Option<Box<Listener>>,
}

impl WatchedBody {
    /// Runs something on the listener. A panic in it costs the projection alone.
    fn guarded(&mut self, run: impl FnOnce(&mut Listener)) {
        let Some(listener) = &mut self.listener else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| run(listener))).is_err() {
            tracing::error!("an answer that was only watched was lost: the proxy made a mistake");
            listener.reading = AnswerReading::Unread;
            listener.turn.reporter.projection(Projection::Failed);
        }
    }

    /// Ends the listening. What follows the end does not matter.
    fn end(&mut self, end: AnswerEnd) {
        self.guarded(|listener| listener.end(end));
        if let Some(mut listener) = self.listener.take() {
            listener.turn.reporter.finish(Some(listener.status));
        }
    }
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.guarded(|listener| listener.hear(data));
                }
                // A body of known length may not be polled again after its last frame.
                if self.body.is_end_stream() {
                    self.end(AnswerEnd::Whole);
                }
            }
            Some(Err(_)) => self.end(AnswerEnd::Cut),
            None => self.end(AnswerEnd::Whole),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    /// The client left, or has read all that it wants.
    fn drop(&mut self) {
        self.end(AnswerEnd::Left);
    }
}

/// How an answer ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerEnd {
    /// Completely.
    Whole,
    /// The upstream broke off.
    Cut,
    /// The client left.
    Left,
}

/// Reads an answer along.
struct Listener {
    app: Arc<App>,
    turn: Box<ManagedTurn>,
    spec: Spec,
    status: StatusCode,
    unpack: Unpack,
    /// Whether the headers call the answer a stream of events.
    events: bool,
    reading: AnswerReading,
    /// How many more bytes may be read.
    room: usize,
    /// The record, and the answer that it was made of.
    recorded: Option<(Answer, Committed)>,
}

/// How an answer is being read.
enum AnswerReading {
    /// Its form is not known yet.
    Begins(Beginning),
    /// As a stream of events.
    Events(Box<Machine>),
    /// As a whole body.
    Whole(BytesMut),
    /// Not at all, because it can't be read.
    Unread,
}

impl Listener {
    /// Reads what passes.
    fn hear(&mut self, data: &Bytes) {
        self.turn.reporter.spoken();
        if matches!(self.reading, AnswerReading::Unread) {
            return;
        }
        let plain = self.unpack.push(data, self.room);
        // A long answer is no longer read when it exceeds the limit, but it still passes.
        let room = plain
            .as_ref()
            .and_then(|plain| self.room.checked_sub(plain.len()));
        let (Some(plain), Some(room)) = (plain, room) else {
            self.reading = AnswerReading::Unread;
            return;
        };
        self.room = room;
        let begun = match &mut self.reading {
            AnswerReading::Begins(beginning) => beginning.take(plain, self.events),
            AnswerReading::Events(_) => return self.push(plain),
            AnswerReading::Whole(held) => return held.extend_from_slice(&plain),
            AnswerReading::Unread => return,
        };
        self.begin(begun);
    }

    fn begin(&mut self, begun: Begun) {
        match begun {
            Begun::Waits => {}
            Begun::Other(begun) => {
                self.reading = AnswerReading::Whole(BytesMut::from(begun.as_ref()))
            }
            Begun::Events(begun) => {
                let machine = Machine::new(self.app.intercept.clone(), &self.spec);
                self.reading = AnswerReading::Events(Box::new(machine));
                self.push(begun);
            }
        }
    }

    /// Reads a piece of a stream. The record is made before the client can see the end, so that the
    /// client's next request finds it.
    fn push(&mut self, piece: Bytes) {
        let AnswerReading::Events(machine) = &mut self.reading else {
            return;
        };
        if machine.push(piece, &mut Vec::new()).is_err() {
            self.reading = AnswerReading::Unread;
        } else if let Some(said) = machine.said() {
            self.record(said);
        }
    }

    /// Handles the end of the answer.
    fn end(&mut self, end: AnswerEnd) {
        if let AnswerReading::Begins(beginning) = &mut self.reading {
            let begun = beginning.end(self.events);
            self.begin(begun);
        }
        let answer = match std::mem::replace(&mut self.reading, AnswerReading::Unread) {
            AnswerReading::Events(mut machine) => Some(machine.end_hop(&mut Vec::new())),
            // Half of a whole body says nothing.
            AnswerReading::Whole(held) => unary::read(&held.freeze(), &self.spec)
                .filter(|answer| answer.verdict() != Verdict::Broken),
            AnswerReading::Begins(_) | AnswerReading::Unread => None,
        };
        let reporter = &mut self.turn.reporter;
        let complete = answer.as_ref().is_some_and(|answer| answer.complete);
        match end {
            AnswerEnd::Cut => reporter.aborted(AbortSide::Upstream),
            AnswerEnd::Left if !complete => reporter.aborted(AbortSide::Client),
            AnswerEnd::Left | AnswerEnd::Whole => {}
        }
        match answer {
            Some(answer) => self.record(answer),
            None if self.recorded.is_none() => {
                reporter.projection(Projection::Unread);
            }
            None => {}
        }
    }

    /// Takes in what the model said so far, for the ledger and for the record of the turn that this
    /// would have been.
    fn record(&mut self, answer: Answer) {
        self.turn.heard(&self.app, &answer);
        match &mut self.recorded {
            Some((said, _)) if *said == answer => {}
            // Only usage came late, so the record stands.
            Some((said, record)) if same_but_usage(said, &answer) => {
                let usage = self.turn.reporter.projected().map(|account| account.sent);
                if let (None, Some(usage)) = (said.usage, usage) {
                    let cost = self.turn.reporter.cost();
                    record.reported(&self.app, Some(usage), cost);
                }
                *said = answer;
            }
            _ => self.commit(answer),
        }
    }

    fn commit(&mut self, answer: Answer) {
        let said = !answer.text.is_empty() || !answer.calls.is_empty();
        let ends = answer.verdict() != Verdict::Broken;
        if !(said || ends) || !self.turn.state.is_managed() {
            return;
        }
        // Later sizes are corrected by the reported usage, so the record gets that of the view.
        let usage = answer.usage.and_then(|_| self.turn.reporter.projected());
        let shown = Answer {
            usage: usage.map(|account| account.sent),
            ..answer.clone()
        };
        let committed = self.turn.commit(&self.app, &[shown], TurnEnd::Upstream);
        self.recorded = committed.map(|committed| (answer, committed));
    }
}
