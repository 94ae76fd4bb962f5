//! How a streamed turn ends when it fails: the upstream refused a later hop, broke off or sent what
//! can't be read, the proxy can't go on, or the client left. Tells the client in the way that is
//! true for what it has seen, and records what was sent. Never sends a hop.

use std::io;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use plimsoll_wire::answer::{Answer, BlockKind};
use plimsoll_wire::stream::StreamError;
use plimsoll_wire::stream::unary::TurnEnd;

use super::{Begin, Driver, HopEnd};
use crate::pipeline::error::ProxyError;
use crate::pipeline::incoming::Because;
use crate::pipeline::later_hop::is_refused;
use crate::pipeline::managed_turn::at_hop_cap;
use crate::pipeline::send::{Refusal, may_pass};
use crate::record::AbortSide;
use crate::upstream;

/// The message for a body that is not a stream.
const NO_STREAM: &str = "the upstream's answer is no stream of events";

impl Driver {
    /// Ends a turn of which a later hop is refused. The upstream's answer goes to the client if that has seen nothing
    /// yet. For a client that has read a part of an answer, the answer ends there, because its own request would have
    /// passed. One that has not gets an error event. Where asking again may help, the connection breaks, because some
    /// agents only retry after that.
    pub(super) async fn refused(&mut self, (head, body): Refusal) {
        let mut headers = head.headers;
        upstream::to_client(&mut headers);
        self.turn.reporter.cause().refused(&body);
        if let Err(body) = self.answer_unless_begun(head.status, headers, body) {
            let cause = format!("a later hop was answered {}", head.status);
            if may_pass(head.status) {
                self.cut(&cause).await;
            } else if is_refused(head.status) && self.has_said() {
                self.end_here(&cause).await;
            } else {
                self.tell(&body, &cause).await;
            }
        }
    }

    /// Whether an answer has said something.
    pub(super) fn has_said(&self) -> bool {
        self.answers.iter().any(says)
    }

    /// Ends the answer with what the hops before have said, as if the model had ended it there.
    async fn end_here(&mut self, cause: &str) {
        tracing::warn!(cause, "an answer ends with what was said so far");
        self.turn.reporter.cause().because(cause);
        self.turn.reporter.aborted(AbortSide::Upstream);
        let end = at_hop_cap(&self.answers);
        self.turn.branch.learn().await;
        let committed = self.turn.commit_settled(&self.app, &self.answers, end);
        if let Some(committed) = committed {
            self.turn.durable(&self.app, committed).await;
        }
        let mut out = Vec::new();
        self.machine.close(end.line(), &mut out);
        self.end(out).await;
    }

    /// Answers a client that has seen nothing yet, which ends the turn. Gives the body back if the
    /// client has seen something, because then it can't be an answer.
    fn answer_unless_begun(
        &mut self,
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<(), Bytes> {
        let Some(begin) = self.client.begin.take() else {
            return Err(body);
        };
        headers.extend(self.turn.reporter.headers());
        let _ = begin.send(Begin::Refusal(status, Box::new(headers), body));
        self.turn.reporter.replied(status);
        self.close_report();
        Ok(())
    }

    /// Does the same with an error of the proxy's own.
    fn answer_with_error(&mut self, cause: &str) -> Result<(), Bytes> {
        self.turn.reporter.cause().because(cause);
        if self.client.begin.is_some() {
            tracing::warn!(cause, "a stream broke before it began");
            self.turn.reporter.aborted(AbortSide::Upstream);
        }
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(CONTENT_TYPE, json);
        let body = self.turn.upstream_error(cause);
        self.answer_unless_begun(StatusCode::BAD_GATEWAY, headers, body)
    }

    /// Handles a stream that stopped without its end.
    pub(super) async fn broken(&mut self, end: HopEnd) {
        let last = self.answers.last();
        if last.is_some_and(|answer| answer.error.is_some()) {
            // The upstream sent an error event itself. The client gets that one.
            let mut out = Vec::new();
            self.machine.release(&mut out);
            let _ = self.say(out).await;
            return self.lost("the upstream sent an error event");
        }
        match end {
            HopEnd::Whole => self.cut("the stream ended early").await,
            HopEnd::Cut(cause) => self.cut(&cause).await,
            HopEnd::Unreadable(cause) => self.refuse(&cause).await,
            HopEnd::NoStream => self.cut(NO_STREAM).await,
        }
    }

    /// Handles an answer that can't be read and may hold calls that the client must not see. If the
    /// client has seen nothing yet, its own request is served. Otherwise the stream breaks off.
    pub(super) async fn withhold(mut self: Box<Self>) {
        if self.client.begin.is_some() {
            return self.own(Because::Unread).await;
        }
        self.cut(&StreamError::Withheld.to_string()).await;
    }

    /// Has the client's own request served. The client has seen nothing yet.
    pub(super) async fn own(mut self: Box<Self>, because: Because) {
        let Some(begin) = self.client.begin.take() else {
            return self.cut("the client's own request can't be served").await;
        };
        tracing::warn!(?because, "the client's own request is served");
        // The receiver is gone if the client left.
        let _ = begin.send(Begin::OwnRequest(Box::new(self.turn), because));
    }

    /// Handles a body that is not a stream. If the client has seen nothing yet, it is read as a whole
    /// body. Nothing else can follow what was streamed.
    pub(super) async fn other(mut self: Box<Self>) {
        match self.client.begin.take() {
            Some(begin) if !self.body.coded => {
                let Self {
                    turn,
                    client,
                    body,
                    answers,
                    ..
                } = *self;
                let mut headers = client.headers.unwrap_or_default();
                if !answers.is_empty() {
                    // The headers are those of the first hop, which was a stream.
                    let json = HeaderValue::from_static("application/json");
                    headers.insert(CONTENT_TYPE, json);
                }
                let _ = begin.send(Begin::WholeBody(Box::new(turn), headers, body, answers));
            }
            Some(begin) => {
                let turn = Box::new(self.turn);
                let _ = begin.send(Begin::OwnRequest(turn, Because::Unread));
            }
            None => self.cut(NO_STREAM).await,
        }
    }

    /// Breaks the client's connection off, as the upstream broke off. Each agent then does what it
    /// would do without the proxy. Some would take an error event as the end.
    pub(super) async fn cut(&mut self, cause: &str) {
        if self.answer_with_error(cause).is_err() {
            // A client that left meanwhile does not need the error.
            let broken = io::Error::other(cause.to_owned());
            self.client.sender.fail(broken);
            self.lost(cause);
        }
    }

    /// Refuses to read on, and tells the client why.
    pub(super) async fn refuse(&mut self, cause: &str) {
        if let Err(body) = self.answer_with_error(cause) {
            self.tell(&body, cause).await;
        }
    }

    /// Ends the turn because the next hop can't be sent. A client that has seen nothing yet is
    /// answered as in an unstreamed turn. Otherwise it gets an error event.
    pub(super) async fn stop(&mut self, error: ProxyError) {
        self.turn.reporter.cause().stopped(&error);
        let Some(begin) = self.client.begin.take() else {
            let body = error.body(self.turn.state.request.dialect);
            return self.tell(&body, &error.to_string()).await;
        };
        self.turn.reporter.replied(error.status());
        let _ = begin.send(Begin::Error(error));
        self.close_report();
    }

    /// Ends the client's stream with an error event.
    async fn tell(&mut self, error: &[u8], cause: &str) {
        let mut out = Vec::new();
        self.machine.fail(error, &mut out);
        let _ = self.say(out).await;
        self.lost(cause);
    }

    /// Ends a turn that failed. Records what was sent to the client.
    fn lost(&mut self, cause: &str) {
        tracing::warn!(cause, "a stream broke");
        self.turn.reporter.cause().because(cause);
        self.turn.reporter.aborted(AbortSide::Upstream);
        self.keep();
        self.close_report();
    }

    /// Ends a turn whose client left. Records what it was sent.
    pub(super) fn gone(&mut self) {
        self.turn.reporter.aborted(AbortSide::Client);
        self.keep();
        self.close_report();
    }

    /// Records what was sent of a turn that did not reach its end. Does not wait for the disk.
    fn keep(&mut self) {
        // A turn of which the client saw nothing leaves no trace, so that a retry begins where it
        // began.
        let said = self.answers.iter().any(|answer| !answer.text.is_empty())
            || self
                .answers
                .last()
                .is_some_and(|answer| answer.visible_calls().next().is_some());
        // A client that reads one text is told nothing before the turn has ended.
        let told = self.machine.spoken() || !self.turn.state.says_one_text();
        if !said || !told {
            return;
        }
        // Nobody waits until the record is durable.
        if self.answers.len() > self.turn.state.settled() {
            drop(
                self.turn
                    .commit(&self.app, &self.answers, TurnEnd::Upstream),
            );
        } else {
            let end = TurnEnd::Upstream;
            drop(self.turn.commit_settled(&self.app, &self.answers, end));
        }
    }
}

/// Whether an answer says something that a second one would repeat.
fn says(answer: &Answer) -> bool {
    let deeds = answer.blocks.iter();
    let mut deeds = deeds.filter(|block| block.kind == BlockKind::Other);
    let texts = [&answer.text, &answer.refusal];
    texts.iter().any(|text| !text.is_empty())
        || answer.audio.is_some()
        || answer.visible_calls().next().is_some()
        || deeds.next().is_some()
}
