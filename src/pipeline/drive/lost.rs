//! The ends of a streamed turn that is not whole: the upstream refused a later hop, broke off, or
//! can't be read, the proxy can't go on, or the client left. Each is told in the one way that
//! stays true for the client, and what that was handed is recorded. Never sends a hop.

use std::io;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use super::{Begin, Driver, End};
use crate::dialect::stream::StreamError;
use crate::pipeline::error::ProxyError;
use crate::pipeline::incoming::Incoming;
use crate::pipeline::send::{again, refusal_of};
use crate::record::Side;
use crate::upstream::{self, ResponseBody};

/// Why a body is not handed on that does not look like a stream.
const NO_STREAM: &str = "the upstream's answer is no stream of events";

impl Driver {
    /// The upstream refused a later hop. One that was too long, or was refused for a breakpoint of
    /// ours, is tried again; else the upstream's own answer is the client's where that has seen
    /// nothing yet. Otherwise it is an error event, or where asking again may help a cut, because
    /// some agents ask again behind that alone.
    pub(super) async fn refused(&mut self, response: Response<ResponseBody>) -> Option<Incoming> {
        let (head, body) = response.into_parts();
        // Empty where it breaks off or never ends.
        let body = refusal_of(body).await.unwrap_or_default();
        let (head, body) = match again(&self.app, &mut self.turn, (head, body)).await {
            Ok(Ok(again)) => return Some(Incoming::of(again).1),
            Ok(Err(refusal)) => refusal,
            Err(error) => {
                self.cut(&error.to_string()).await;
                return None;
            }
        };
        let mut headers = head.headers;
        upstream::to_client(&mut headers);
        if let Err(body) = self.unheard(head.status, headers, body) {
            if may_pass(head.status) {
                self.cut(&format!("a later hop was answered {}", head.status))
                    .await;
            } else {
                self.tell(&body, "a later hop was refused").await;
            }
        }
        None
    }

    /// Answers a client that has seen nothing yet, and so ends the turn; to one that has the body
    /// can't be an answer any more, and is handed back.
    fn unheard(
        &mut self,
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<(), Bytes> {
        let Some(begin) = self.client.begin.take() else {
            return Err(body);
        };
        headers.extend(self.turn.report.headers());
        let _ = begin.send(Begin::Refusal(status, Box::new(headers), body));
        self.turn.report.turn.status = Some(status);
        self.close_report();
        Ok(())
    }

    /// The same with an error of ours.
    fn unheard_error(&mut self, cause: &str) -> Result<(), Bytes> {
        if self.client.begin.is_some() {
            tracing::warn!(cause, "a stream broke before it began");
            self.turn.report.aborted(Side::Upstream);
        }
        let mut headers = HeaderMap::new();
        let json = http::HeaderValue::from_static("application/json");
        headers.insert(http::header::CONTENT_TYPE, json);
        let body = self.turn.upstream_error(cause);
        self.unheard(StatusCode::BAD_GATEWAY, headers, body)
    }

    /// The stream ended without an end.
    pub(super) async fn broken(&mut self, end: End) {
        let last = self.answers.last();
        if last.is_some_and(|answer| answer.error.is_some()) {
            // The upstream has told of it itself.
            let mut out = Vec::new();
            self.machine.release(&mut out);
            let _ = self.say(out).await;
            return self.lost("the upstream sent an error event");
        }
        match end {
            End::Whole => self.cut("the stream ended early").await,
            End::Cut(cause) => self.cut(&cause).await,
            End::Unreadable(cause) => self.refuse(&cause).await,
            End::Other(_) => self.cut(NO_STREAM).await,
        }
    }

    /// What came can't be read, and may hold calls that the client must not see: its own request is
    /// served where it has heard nothing yet, else the stream breaks off.
    pub(super) async fn withhold(mut self: Box<Self>) {
        match self.client.begin.take() {
            Some(begin) => {
                tracing::warn!("the client's own request is served: the answer can't be read");
                // The client may have left.
                let _ = begin.send(Begin::Own(Box::new(self.turn)));
            }
            None => self.cut(&StreamError::Withheld.to_string()).await,
        }
    }

    /// What came is no stream: a first hop is read as a whole body where the client has heard
    /// nothing yet. Behind what was streamed nothing else can stand.
    pub(super) async fn other(mut self: Box<Self>, body: Incoming) {
        let first = self.answers.is_empty() && !body.coded;
        match self.client.begin.take() {
            Some(begin) if first => {
                let turn = Box::new(self.turn);
                let _ = begin.send(Begin::Whole(turn, self.client.headers, body));
            }
            Some(begin) => {
                let _ = begin.send(Begin::Own(Box::new(self.turn)));
            }
            None => self.cut(NO_STREAM).await,
        }
    }

    /// The upstream broke off, and so does the client's connection: each agent then does what it
    /// does without the proxy, where an event of ours would be the end for some.
    pub(super) async fn cut(&mut self, cause: &str) {
        if self.unheard_error(cause).is_err() {
            // A client that left meanwhile has its own end.
            let broken = io::Error::other(cause.to_owned());
            self.client.sender.fail(broken);
            self.lost(cause);
        }
    }

    /// The proxy can't read on, and says so.
    pub(super) async fn refuse(&mut self, cause: &str) {
        if let Err(body) = self.unheard_error(cause) {
            self.tell(&body, cause).await;
        }
    }

    /// The next hop can't be sent: the client's answer, as it is an unstreamed turn's, where that has
    /// heard nothing yet, else an event that says the same.
    pub(super) async fn stop(&mut self, error: ProxyError) {
        let Some(begin) = self.client.begin.take() else {
            let body = error.body(self.turn.state.request.dialect);
            return self.tell(&body, &error.to_string()).await;
        };
        self.turn.report.turn.status = Some(error.status());
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

    /// The turn did not come to its end: what was handed out is recorded.
    fn lost(&mut self, cause: &str) {
        tracing::warn!(cause, "a stream broke");
        self.turn.report.aborted(Side::Upstream);
        self.keep();
        self.close_report();
    }

    /// The client went away: what it was handed is recorded.
    pub(super) fn gone(&mut self) {
        self.turn.report.aborted(Side::Client);
        self.keep();
        self.close_report();
    }

    /// Records what was handed out of a turn that did not come to its end, without waiting.
    fn keep(&mut self) {
        if self.early.is_some() {
            return;
        }
        let said = self.answers.iter().any(|answer| !answer.text.is_empty())
            || self
                .answers
                .last()
                .is_some_and(|answer| answer.visible_calls().next().is_some());
        if !said {
            return;
        }
        // Nobody waits for it to be durable.
        if self.answers.len() > self.turn.state.pending.len() {
            drop(self.turn.commit(&self.app, &self.answers, None));
        } else {
            drop(self.turn.commit_settled(&self.app, &self.answers));
        }
    }
}

/// Whether a refusal may pass, so that asking again makes sense.
pub(super) fn may_pass(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}
