//! A turn that is only watched: the client's bytes go up as they came, and its answer is read on its
//! way down, for what it cost and for what follows from it for the next view. What it would have come to
//! as a managed turn is recorded in memory alone. Never sends a byte of its own, never holds one
//! back, and whatever fails in here costs the projection and nothing else.

mod unpack;

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
use super::incoming::{Beginning, Begun, is_events};
use super::managed::Turn;
use super::pass::pass;
use crate::dialect::answer::{Answer, Verdict};
use crate::dialect::names::Names;
use crate::dialect::stream::{Machine, Spec, unary};
use crate::model::{Role, Rope};
use crate::record::{Projection, Side};
use crate::turn::state::TurnState;
use unpack::Unpack;

/// The most of one answer that is read.
const ANSWER: usize = 32 << 20;

/// Forwards a turn as it came, and its answer as it comes.
///
/// # Errors
/// If the upstream gave no response.
pub(super) async fn forward(app: &Arc<App>, mut turn: Turn) -> Result<Response<Body>, ProxyError> {
    let projection = known(&turn.state);
    turn.report.watched(&turn.state, projection);
    turn.prepared.body = Rope::default();
    let mut response = match pass(app, turn.request.untouched(), &mut turn.report).await {
        Ok(response) => response,
        Err(error) => return Err(turn.failed(error)),
    };
    let status = response.status();
    turn.report.answered(status);
    let told = turn.report.headers();
    response.headers_mut().extend(told);
    if !status.is_success() {
        turn.report.finish(Some(status));
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let ear = Ear {
        app: Arc::clone(app),
        // Nothing is hidden in its answer.
        spec: Spec {
            hidden: Names::default(),
            ..turn.spec()
        },
        status,
        unpack: Unpack::of(&head.headers),
        events: is_events(&head.headers),
        reading: Reading::Begins(Beginning::default()),
        room: ANSWER,
        recorded: None,
        turn,
    };
    let ear = Some(Box::new(ear));
    Ok(Response::from_parts(head, Body::new(Tap { body, ear })))
}

/// Whether what went before a turn is known.
fn known(state: &TurnState) -> Projection {
    let spoken = state.shapes.iter().any(|one| one.role == Role::Assistant);
    if spoken && state.path.entries.is_empty() {
        Projection::Anew
    } else {
        Projection::Whole
    }
}

/// An answer on its way to the client.
struct Tap {
    body: Body,
    /// Who listens, until the end was heard.
    ear: Option<Box<Ear>>,
}

impl Tap {
    /// Has the answer's listener do something, whose mistakes are its own.
    fn guarded(&mut self, run: impl FnOnce(&mut Ear)) {
        let Some(ear) = &mut self.ear else { return };
        if catch_unwind(AssertUnwindSafe(|| run(ear))).is_err() {
            tracing::error!("an answer that was only watched was lost: the proxy made a mistake");
            ear.reading = Reading::Unread;
            ear.turn.report.turn.projection = Some(Projection::Failed);
        }
    }

    /// The answer has ended; what comes behind that is nothing to listen to.
    fn end(&mut self, end: End) {
        self.guarded(|ear| ear.end(end));
        if let Some(mut ear) = self.ear.take() {
            ear.turn.report.finish(Some(ear.status));
        }
    }
}

impl http_body::Body for Tap {
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
                    self.guarded(|ear| ear.hear(data));
                }
                // Behind its last frame a body of known length may not be asked again.
                if self.body.is_end_stream() {
                    self.end(End::Whole);
                }
            }
            Some(Err(_)) => self.end(End::Cut),
            None => self.end(End::Whole),
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

impl Drop for Tap {
    /// The client has left, or has heard all that it wants to.
    fn drop(&mut self) {
        self.end(End::Left);
    }
}

/// How an answer came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// By itself.
    Whole,
    /// The upstream broke off.
    Cut,
    /// The client is gone.
    Left,
}

/// Who reads along.
struct Ear {
    app: Arc<App>,
    turn: Turn,
    spec: Spec,
    status: StatusCode,
    unpack: Unpack,
    /// Whether its headers call the answer a stream of events.
    events: bool,
    reading: Reading,
    /// Bytes that may still be read.
    room: usize,
    /// The record, and what it was made of.
    recorded: Option<(Answer, Committed)>,
}

/// How far an answer was read.
enum Reading {
    /// It is not known yet what it is.
    Begins(Beginning),
    /// A stream of events.
    Events(Box<Machine>),
    /// A body that is read whole.
    Whole(BytesMut),
    /// It can't be read.
    Unread,
}

impl Ear {
    /// Reads what is on its way.
    fn hear(&mut self, data: &Bytes) {
        self.turn.report.spoken();
        if matches!(self.reading, Reading::Unread) {
            return;
        }
        let plain = self.unpack.push(data, self.room);
        let room = plain
            .as_ref()
            .and_then(|plain| self.room.checked_sub(plain.len()));
        let (Some(plain), Some(room)) = (plain, room) else {
            self.reading = Reading::Unread;
            return;
        };
        self.room = room;
        let begun = match &mut self.reading {
            Reading::Begins(beginning) => beginning.take(plain, self.events),
            Reading::Events(_) => return self.push(plain),
            Reading::Whole(held) => return held.extend_from_slice(&plain),
            Reading::Unread => return,
        };
        self.begin(begun);
    }

    fn begin(&mut self, begun: Begun) {
        match begun {
            Begun::Waits => {}
            Begun::Other(begun) => self.reading = Reading::Whole(BytesMut::from(begun.as_ref())),
            Begun::Events(begun) => {
                let machine = Machine::new(self.app.intercept.clone(), &self.spec);
                self.reading = Reading::Events(Box::new(machine));
                self.push(begun);
            }
        }
    }

    /// Reads a piece of a stream. Its record is made before the client can have heard the end, so
    /// that the next request finds it.
    fn push(&mut self, piece: Bytes) {
        let Reading::Events(machine) = &mut self.reading else {
            return;
        };
        if machine.push(piece, &mut Vec::new()).is_err() {
            self.reading = Reading::Unread;
        } else if let Some(said) = machine.said() {
            self.record(said);
        }
    }

    /// The answer has ended.
    fn end(&mut self, end: End) {
        if let Reading::Begins(beginning) = &mut self.reading {
            let begun = beginning.end(self.events);
            self.begin(begun);
        }
        let answer = match std::mem::replace(&mut self.reading, Reading::Unread) {
            Reading::Events(mut machine) => Some(machine.end_hop(&mut Vec::new())),
            // Of half a body nothing is known.
            Reading::Whole(held) => unary::read(&held.freeze(), &self.spec)
                .filter(|answer| answer.verdict() != Verdict::Broken),
            Reading::Begins(_) | Reading::Unread => None,
        };
        let report = &mut self.turn.report;
        let complete = answer.as_ref().is_some_and(|answer| answer.complete);
        match end {
            End::Cut => report.aborted(Side::Upstream),
            End::Left if !complete => report.aborted(Side::Client),
            End::Left | End::Whole => {}
        }
        match answer {
            Some(answer) => self.record(answer),
            None if self.recorded.is_none() => {
                report.turn.projection = Some(Projection::Unread);
            }
            None => {}
        }
    }

    /// Takes in what the model said, as far as that is known: for the ledger, and as the record of the
    /// turn that this would have been.
    fn record(&mut self, answer: Answer) {
        self.turn.heard(&self.app, &answer);
        match &mut self.recorded {
            Some((said, _)) if *said == answer => {}
            Some((said, record)) if same_but_usage(said, &answer) => {
                let usage = self.turn.report.projected().map(|account| account.sent);
                if let (None, Some(usage)) = (said.usage, usage) {
                    record.reported(&self.app, usage);
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
        // The view's own usage, because sizes are corrected by what was reported of them.
        let usage = answer.usage.and_then(|_| self.turn.report.projected());
        let shown = Answer {
            usage: usage.map(|account| account.sent),
            ..answer.clone()
        };
        let committed = self.turn.commit(&self.app, &[shown], None);
        self.recorded = committed.map(|committed| (answer, committed));
    }
}
