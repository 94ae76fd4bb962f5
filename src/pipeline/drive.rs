//! The response half of a streamed turn: feeds the stream machine, hop after hop, into one bounded
//! channel to the client. Status and headers wait for the first byte that the client may see.
//! Never edits a frame itself.

mod channel;
mod lost;

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt, stream};
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::oneshot;

use channel::{Sender, channel};
use lost::may_pass;

use super::app::App;
use super::error::ProxyError;
use super::finish::Committed;
use super::incoming::{Beginning, Begun, Incoming, Served};
use super::managed::{Turn, cap_line};
use crate::dialect::answer::{Answer, Verdict};
use crate::dialect::stream::Machine;
use crate::record::{RetryReason, Side};
use crate::upstream;

/// Further tries of a later hop, which the client can't retry.
const HOP_RETRIES: u32 = 4;
/// The wait before the first of them, where the upstream names none; before each further one it is
/// twice as long.
const HOP_WAIT: Duration = Duration::from_millis(250);
/// The shortest wait for a heartbeat that is overdue.
const LEAST_SILENCE: Duration = Duration::from_millis(1);
/// A comment that every SSE reader skips.
const HEARTBEAT: &[u8] = b": plimsoll\n\n";

/// How the client's response begins.
enum Begin {
    /// With the first hop's headers; the body follows through the channel.
    Stream(Box<HeaderMap>),
    /// With an upstream's refusal of a later hop, whole.
    Refusal(StatusCode, Box<HeaderMap>, Bytes),
    /// With an error of ours, as an unstreamed turn does.
    Error(ProxyError),
    /// With what the client's own request is answered.
    Own(Box<Turn>),
    /// As an unstreamed turn does, because this is the body of one.
    Whole(Box<Turn>, HeaderMap, Incoming),
}

/// Streams a turn to the client.
///
/// # Errors
/// [`ProxyError`] if the proxy can't go on, or failed, before the client saw anything.
pub(super) async fn stream(
    app: &Arc<App>,
    turn: Turn,
    mut head: Parts,
    body: Incoming,
) -> Result<Served, ProxyError> {
    let (sender, receiver) = channel();
    let (begin, begun) = oneshot::channel();
    let client = sender.clone();
    // The driver is boxed, and so is what seldom happens in it, because a task has room for its largest
    // future as long as the stream lasts.
    let driver = Box::new(Driver {
        app: app.clone(),
        machine: Machine::new(app.intercept.clone(), &turn.spec()),
        turn,
        answers: Vec::new(),
        early: None,
        client: Client {
            sender,
            begin: Some(begin),
            headers: std::mem::take(&mut head.headers),
            held: Instant::now(),
        },
    });
    app.streams.spawn(async move {
        if AssertUnwindSafe(driver.run(body))
            .catch_unwind()
            .await
            .is_err()
        {
            tracing::error!("a stream was cut: the proxy made a mistake");
            // The connection breaks, because a stream that just ends would look whole.
            client.fail(io::Error::other("the turn failed"));
        }
    });
    let answer = match begun.await {
        Ok(Begin::Own(turn)) => return Ok(Served::Own(turn)),
        Ok(Begin::Whole(turn, headers, body)) => {
            head.headers = headers;
            return Ok(Served::Whole(turn, Box::new(head), body));
        }
        Ok(Begin::Stream(headers)) => {
            let frames = stream::unfold(receiver, |mut receiver| async move {
                let frame = receiver.recv().await?;
                if frame.is_err() {
                    // The server drops what it has not written when a body breaks, and writes when
                    // the body keeps it waiting.
                    tokio::task::yield_now().await;
                }
                Some((frame, receiver))
            });
            respond(head.status, *headers, Body::from_stream(frames.boxed()))
        }
        Ok(Begin::Refusal(status, headers, body)) => respond(status, *headers, Body::from(body)),
        Ok(Begin::Error(error)) => return Err(error),
        // The driver ended without a word, which only a panic in it can do.
        Err(_) => return Err(ProxyError::Middle("panic")),
    };
    Ok(Served::Answer(answer))
}

fn respond(status: StatusCode, mut headers: HeaderMap, body: Body) -> Response<Body> {
    // Frames may be added or left out, so the length is not the upstream's.
    headers.remove(http::header::CONTENT_LENGTH);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The client's side of the stream.
struct Client {
    sender: Sender,
    begin: Option<oneshot::Sender<Begin>>,
    headers: HeaderMap,
    held: Instant,
}

/// The client went away.
struct Gone;

struct Driver {
    app: Arc<App>,
    machine: Machine,
    turn: Turn,
    answers: Vec<Answer>,
    /// The record that was begun at the finish reason, and what it was made of.
    early: Option<(Answer, Committed)>,
    client: Client,
}

/// How a hop's body ended.
enum End {
    /// It came to its end.
    Whole,
    /// The upstream broke off or fell silent.
    Cut(String),
    /// The upstream sent what can't be read.
    Unreadable(String),
    /// It is no stream of events.
    Other(Incoming),
}

impl Driver {
    async fn run(mut self: Box<Self>, first: Incoming) {
        let mut body = first;
        loop {
            let read = match self.read(body).await {
                Ok(End::Other(body)) => return Box::pin(self.other(body)).await,
                read => read,
            };
            let mut out = Vec::new();
            let answer = self.machine.end_hop(&mut out);
            self.turn.heard(&self.app, &answer);
            let verdict = answer.verdict();
            self.answers.push(answer);
            let end = match read {
                Ok(end) => end,
                Err(Gone) => return self.gone(),
            };
            if self.machine.withheld() {
                return Box::pin(self.withhold()).await;
            }
            if self.say(out).await.is_err() {
                return self.gone();
            }
            let capped = self.turn.state.pending.len() + 1 >= self.turn.state.terms.hops;
            match (verdict, end) {
                // What was cut off behind a finish reason is the end, which is dropped anyway.
                (Verdict::HiddenOnly, _) if !capped => match Box::pin(self.next()).await {
                    Some(next) => body = next,
                    None => return,
                },
                (Verdict::HiddenOnly, _) => return Box::pin(self.cap()).await,
                (Verdict::Broken, end) => return Box::pin(self.broken(end)).await,
                (Verdict::Done | Verdict::Mixed | Verdict::Cut, _) => {
                    return Box::pin(self.done()).await;
                }
            }
        }
    }

    /// Passes one hop's frames on until its body ends.
    async fn read(&mut self, mut body: Incoming) -> Result<End, Gone> {
        if body.coded {
            return Ok(End::Other(body));
        }
        let mut beginning = Beginning::default();
        let every = self.app.serving.streams.heartbeat;
        loop {
            let silence = every.saturating_sub(self.client.held.elapsed());
            // What may turn out to be no stream gets no head before that is known.
            let beats = body.events || beginning.is_known() || self.client.begin.is_none();
            tokio::select! {
                frame = body.frame() => {
                    let (begun, end) = match frame {
                        None => (beginning.end(body.events), Some(End::Whole)),
                        Some(Err(error)) => {
                            (beginning.end(body.events), Some(End::Cut(error.to_string())))
                        }
                        Some(Ok(frame)) => {
                            let Ok(data) = frame.into_data() else { continue };
                            (beginning.take(data, body.events), None)
                        }
                    };
                    match (begun, end) {
                        (Begun::Other(_), Some(End::Cut(cause))) => return Ok(End::Cut(cause)),
                        (Begun::Other(begun), _) => return Ok(End::Other(body.unread(begun))),
                        (Begun::Waits, None) => {}
                        (Begun::Events(data), end) => match (self.take(data).await?, end) {
                            (None, None) => {}
                            (None, Some(end)) | (Some(end), _) => return Ok(end),
                        },
                        (Begun::Waits, Some(end)) => return Ok(end),
                    }
                },
                () = tokio::time::sleep(silence.max(LEAST_SILENCE)), if beats => {
                    self.heartbeat().await?;
                }
                () = self.client.sender.closed() => {
                    if !self.app.serving.streams.finish_cancelled {
                        return Err(Gone);
                    }
                    self.swallow(&mut body).await;
                    return Err(Gone);
                }
            }
        }
    }

    /// Passes on what one read says; how the hop ends where it can't be read on.
    async fn take(&mut self, read: Bytes) -> Result<Option<End>, Gone> {
        let mut out = Vec::new();
        match self.machine.push(read, &mut out) {
            Ok(()) => {
                self.record_early();
                self.say(out).await?;
                Ok(None)
            }
            Err(error) => {
                // A client that has heard nothing is served something else where that is due.
                if self.client.begin.is_none() {
                    self.say(out).await?;
                }
                Ok(Some(End::Unreadable(error.to_string())))
            }
        }
    }

    /// Reads a hop to its end for a client that has gone.
    async fn swallow(&mut self, body: &mut Incoming) {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if self.machine.push(data, &mut Vec::new()).is_err() {
                return;
            }
        }
    }

    /// Hands bytes to the client, the response's head before the first of them.
    async fn say(&mut self, frames: Vec<Bytes>) -> Result<(), Gone> {
        for frame in frames {
            self.open();
            self.client.held = Instant::now();
            self.client.sender.send(&frame).await?;
        }
        Ok(())
    }

    fn open(&mut self) {
        let Some(begin) = self.client.begin.take() else {
            return;
        };
        self.turn.report.spoken();
        let mut headers = std::mem::take(&mut self.client.headers);
        upstream::to_client(&mut headers);
        headers.extend(self.turn.report.headers());
        // A client that left meanwhile is noticed at the next frame.
        let _ = begin.send(Begin::Stream(Box::new(headers)));
    }

    /// Keeps the client while frames are held back: the head first, and a comment where it hears
    /// nothing else.
    async fn heartbeat(&mut self) -> Result<(), Gone> {
        self.client.held = Instant::now();
        let hiding = !self.turn.state.pending.is_empty() || self.machine.waits();
        self.open();
        if hiding {
            self.client.sender.send(HEARTBEAT).await?;
        }
        Ok(())
    }

    /// Answers the hidden calls and sends the next hop; `None` where the turn has ended instead.
    async fn next(&mut self) -> Option<Incoming> {
        if let Some(answer) = self.answers.last() {
            self.turn.pend(&self.app, answer);
        }
        let mut out = Vec::new();
        self.machine.next_hop(&mut out);
        if self.say(out).await.is_err() {
            self.gone();
            return None;
        }
        if let Err(error) = self.turn.next_hop(&self.app) {
            self.stop(error).await;
            return None;
        }
        self.send_hop().await
    }

    /// Sends a later hop, and again while it fails where the client can't retry any longer.
    async fn send_hop(&mut self) -> Option<Incoming> {
        let app = self.app.clone();
        let mut tries = 0;
        loop {
            let mut retried = Vec::new();
            let told = |retry| retried.push(retry);
            let sent = match self.turn.outbound(&app) {
                Ok(outbound) => self.beating(app.upstream.send(outbound, told)).await?,
                Err(error) => {
                    self.stop(error).await;
                    return None;
                }
            };
            for retry in retried {
                self.turn.report.retried(retry);
            }
            let (retry, wait) = match &sent {
                Ok(response) => {
                    self.turn.report.answered(response.status());
                    let wait = upstream::retry_after(response.headers());
                    (may_pass(response.status()), wait)
                }
                // Whoever waited so long has waited long enough.
                Err(error) => (!matches!(error, upstream::Error::FirstByteTimeout), None),
            };
            let spoken = self.client.begin.is_none();
            if retry && spoken && tries < HOP_RETRIES {
                let wait = wait.unwrap_or(HOP_WAIT * 2_u32.pow(tries));
                let wait = wait.min(upstream::LONGEST_WAIT);
                tries += 1;
                self.turn.report.turn.retries.push(RetryReason::Hop);
                self.beating(tokio::time::sleep(wait)).await?;
                continue;
            }
            return match sent {
                Ok(response) if response.status().is_success() => {
                    self.turn.note_accepted(&app);
                    Some(Incoming::of(response).1)
                }
                Ok(response) => self.refused(response).await,
                Err(error) => {
                    self.cut(&error.to_string()).await;
                    None
                }
            };
        }
    }

    /// Waits for something while keeping the client; `None` where it has gone, and then the turn
    /// has ended.
    async fn beating<T>(&mut self, wait: impl Future<Output = T>) -> Option<T> {
        let mut wait = std::pin::pin!(wait);
        let closed = self.client.sender.clone();
        let every = self.app.serving.streams.heartbeat;
        loop {
            let silence = every.saturating_sub(self.client.held.elapsed());
            let stays = tokio::select! {
                done = &mut wait => return Some(done),
                () = tokio::time::sleep(silence.max(LEAST_SILENCE)) => self.heartbeat().await.is_ok(),
                () = closed.closed() => false,
            };
            if !stays {
                self.gone();
                return None;
            }
        }
    }

    /// Begins to record the turn as soon as its finish reason was seen, so that the wait for the
    /// disk overlaps what the upstream still has to send.
    fn record_early(&mut self) {
        if self.early.is_some() || !self.machine.finish_seen() {
            return;
        }
        let Some(answer) = self.machine.said() else {
            return;
        };
        // Hidden calls alone bring another hop; a broken stream is recorded when it has ended.
        if matches!(answer.verdict(), Verdict::HiddenOnly | Verdict::Broken) {
            return;
        }
        self.answers.push(answer.clone());
        let committed = self.turn.commit(&self.app, &self.answers, None);
        self.answers.pop();
        self.early = committed.map(|committed| (answer, committed));
    }

    /// The turn ends with what the last hop said: recorded first, then released.
    async fn done(&mut self) {
        let last = self.answers.last().cloned();
        match (self.early.take(), last) {
            (Some((said, committed)), Some(last)) if same_but_usage(&said, &last) => {
                if let (None, Some(usage)) = (said.usage, last.usage) {
                    committed.reported(&self.app, usage);
                }
                self.turn.durable(&self.app, committed).await;
            }
            _ => self.record(None).await,
        }
        let mut out = Vec::new();
        self.machine.release(&mut out);
        self.end(out).await;
    }

    /// The turn ends at the hop cap.
    async fn cap(&mut self) {
        let line = cap_line(&self.answers);
        self.record(Some(line)).await;
        let mut out = Vec::new();
        self.machine.close(line, &mut out);
        self.end(out).await;
    }

    /// Records the turn and waits until it is durable.
    async fn record(&mut self, closed: Option<Option<&'static str>>) {
        self.turn.settle(&self.app, &self.answers, closed).await;
    }

    async fn end(&mut self, out: Vec<Bytes>) {
        if self.say(out).await.is_err() {
            self.turn.report.aborted(Side::Client);
        }
        // A stream without a single frame still has a head.
        self.open();
        self.close_report();
    }

    fn close_report(&mut self) {
        // A client that left before it had a head was never answered.
        let answered = self.client.begin.is_none().then_some(StatusCode::OK);
        let report = &mut self.turn.report;
        report.finish(report.turn.status.or(answered));
    }
}

/// Whether two readings of a hop differ in nothing but usage that came late.
pub(super) fn same_but_usage(said: &Answer, ended: &Answer) -> bool {
    *ended
        == Answer {
            usage: ended.usage,
            complete: ended.complete,
            ..said.clone()
        }
}
