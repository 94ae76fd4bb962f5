//! An answer that passes as it came and is read along: how its bytes become what was said, and a body that tells a
//! listener of them. Owns how much of an answer is read. Never changes a byte and never holds one back; what goes wrong
//! in reading costs the reading alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use plimsoll_wire::answer::{Answer, Verdict};
use plimsoll_wire::stream::{Machine, Spec, unary};

use super::app::App;
use super::incoming::{Beginning, Begun, is_events};
use super::unpack::Unpack;

/// The most bytes of one answer that are read.
const ANSWER_BYTES: usize = 32 << 20;

/// How an answer ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerEnd {
    /// Completely.
    Whole,
    /// The upstream broke off.
    Cut,
    /// The client left.
    Left,
}

/// Who listens to an answer.
pub(super) trait Listener: Send + 'static {
    /// Takes in what passes.
    fn hear(&mut self, data: &Bytes);
    /// Takes in how the answer ended.
    fn end(&mut self, end: AnswerEnd);
    /// Takes in that the reading is lost, because the proxy made a mistake.
    fn lost(&mut self);
    /// Nothing more follows.
    fn finish(self);
}

/// An answer on its way to the client.
pub(super) struct HeardBody<L: Listener> {
    body: Body,
    /// Reads along until the answer has ended.
    listener: Option<Box<L>>,
    /// Whether the reading failed.
    lost: bool,
}

impl<L: Listener + Unpin> HeardBody<L> {
    /// A body that tells a listener what passes.
    pub(super) fn of(body: Body, listener: L) -> Body {
        Body::new(Self {
            body,
            listener: Some(Box::new(listener)),
            lost: false,
        })
    }
}

impl<L: Listener> HeardBody<L> {
    /// Runs something on the listener. A panic in it costs the reading alone.
    fn guarded(&mut self, run: impl FnOnce(&mut L)) {
        let Some(listener) = self.listener.as_mut().filter(|_| !self.lost) else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| run(listener))).is_err() {
            self.lost = true;
            listener.lost();
        }
    }

    /// Ends the listening. What follows the end does not matter.
    fn end(&mut self, end: AnswerEnd) {
        self.guarded(|listener| listener.end(end));
        if let Some(listener) = self.listener.take() {
            listener.finish();
        }
    }
}

impl<L: Listener + Unpin> http_body::Body for HeardBody<L> {
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

impl<L: Listener> Drop for HeardBody<L> {
    /// The client left, or has read all that it wants.
    fn drop(&mut self) {
        self.end(AnswerEnd::Left);
    }
}

/// Turns the bytes of an answer into what was said.
pub(super) struct AnswerReader {
    app: Arc<App>,
    spec: Spec,
    unpack: Unpack,
    /// Whether the headers call the answer a stream of events.
    events: bool,
    reading: AnswerReading,
    /// How many more bytes may be read.
    room: usize,
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

impl AnswerReader {
    /// A reader of an answer with these headers.
    pub(super) fn new(app: &Arc<App>, spec: Spec, headers: &HeaderMap) -> Self {
        Self {
            app: Arc::clone(app),
            spec,
            unpack: Unpack::of(headers),
            events: is_events(headers),
            reading: AnswerReading::Begins(Beginning::default()),
            room: ANSWER_BYTES,
        }
    }

    /// Reads what passes. Returns what was said, each time that it may be all.
    pub(super) fn hear(&mut self, data: &Bytes) -> Option<Answer> {
        if matches!(self.reading, AnswerReading::Unread) {
            return None;
        }
        let plain = self.unpack.push(data, self.room);
        // A long answer is no longer read when it exceeds the limit, but it still passes.
        let room = plain
            .as_ref()
            .and_then(|plain| self.room.checked_sub(plain.len()));
        let (Some(plain), Some(room)) = (plain, room) else {
            self.reading = AnswerReading::Unread;
            return None;
        };
        self.room = room;
        let begun = match &mut self.reading {
            AnswerReading::Begins(beginning) => beginning.take(plain, self.events),
            AnswerReading::Events(_) => return self.push(plain),
            AnswerReading::Whole(held) => {
                held.extend_from_slice(&plain);
                return None;
            }
            AnswerReading::Unread => return None,
        };
        self.begin(begun)
    }

    fn begin(&mut self, begun: Begun) -> Option<Answer> {
        match begun {
            Begun::Waits => None,
            Begun::Other(begun) => {
                self.reading = AnswerReading::Whole(BytesMut::from(begun.as_ref()));
                None
            }
            Begun::Events(begun) => {
                let machine = Machine::new(self.app.intercept.clone(), &self.spec);
                self.reading = AnswerReading::Events(Box::new(machine));
                self.push(begun)
            }
        }
    }

    fn push(&mut self, piece: Bytes) -> Option<Answer> {
        let AnswerReading::Events(machine) = &mut self.reading else {
            return None;
        };
        if machine.push(piece, &mut Vec::new()).is_err() {
            self.reading = AnswerReading::Unread;
            return None;
        }
        machine.said()
    }

    /// What was said, when nothing more comes. `None` if that can't be read.
    pub(super) fn end(&mut self) -> Option<Answer> {
        if let AnswerReading::Begins(beginning) = &mut self.reading {
            let begun = beginning.end(self.events);
            self.begin(begun);
        }
        match std::mem::replace(&mut self.reading, AnswerReading::Unread) {
            AnswerReading::Events(mut machine) => Some(machine.end_hop(&mut Vec::new())),
            // Half of a whole body says nothing.
            AnswerReading::Whole(held) => unary::read(&held.freeze(), &self.spec)
                .filter(|answer| answer.verdict() != Verdict::Broken),
            AnswerReading::Begins(_) | AnswerReading::Unread => None,
        }
    }
}
