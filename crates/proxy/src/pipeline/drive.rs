//! The response half of a streamed turn. Feeds the stream machine, hop after hop, and passes its
//! frames through one bounded channel to the client. Holds back status and headers until the first
//! byte that the client may see. Never edits a frame itself.

mod channel;
// The other half of `impl Driver`. It imports this module, and stands apart for its length alone.
mod failures;

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use plimsoll_wire::answer::{Answer, Verdict};
use plimsoll_wire::stream::Machine;
use plimsoll_wire::stream::unary::TurnEnd;
use tokio::sync::oneshot;

use channel::{ClientGone, Sender, channel};

use super::app::App;
use super::error::ProxyError;
use super::incoming::{Because, Beginning, Begun, Incoming, Served};
use super::later_hop::{LaterHop, Shown, send_later_hop};
use super::managed_turn::{ManagedTurn, at_hop_cap};
use crate::record::AbortSide;
use crate::upstream;

/// The shortest wait for a heartbeat that is overdue.
const LEAST_SILENCE: Duration = Duration::from_millis(1);
/// A comment that every reader of SSE skips. No blank line stands behind it: a reader that keeps the last
/// `id` would take that line for the end of an event, and choke on its missing data. So the comment is
/// a line of the next event.
pub(super) const HEARTBEAT: &[u8] = b": plimsoll\n";

/// How the client's response begins.
enum Begin {
    /// With the headers of the first hop. The body follows through the channel.
    Stream(Box<HeaderMap>),
    /// With the upstream's refusal of a later hop, read whole.
    Refusal(StatusCode, Box<HeaderMap>, Bytes),
    /// With an error of the proxy's own, as an unstreamed turn would.
    Error(ProxyError),
    /// With the answer to the client's own request, which the caller still has to send, for this
    /// reason.
    OwnRequest(Box<ManagedTurn>, Because),
    /// With a whole body, because the upstream did not send a stream, behind the answers of the hops
    /// before it.
    WholeBody(Box<ManagedTurn>, Box<HeaderMap>, Incoming, Vec<Answer>),
}

/// Streams a turn to the client.
///
/// # Errors
/// [`ProxyError`] if the proxy can't go on, or failed, before the client saw anything.
pub(super) async fn stream(
    app: &Arc<App>,
    turn: Box<ManagedTurn>,
    mut head: Parts,
    body: Incoming,
) -> Result<Served, ProxyError> {
    let (sender, receiver) = channel();
    let (begin, begun) = oneshot::channel();
    let client = sender.clone();
    // A task has room for its largest future as long as it lives, and twice for what that future is
    // given. The driver, and what seldom happens in it, are boxed to keep that small.
    let driver = Box::new(Driver {
        app: app.clone(),
        machine: Machine::new(app.intercept.clone(), &turn.spec()),
        turn: *turn,
        body,
        answers: Vec::new(),
        client: ClientSide {
            sender,
            begin: Some(begin),
            headers: Some(Box::new(std::mem::take(&mut head.headers))),
            held: Instant::now(),
        },
    });
    let run = AssertUnwindSafe(driver.run()).catch_unwind();
    app.streams.spawn(run.map(move |ended| {
        if ended.is_err() {
            tracing::error!("a stream was cut: the proxy made a mistake");
            // A stream that just ended would look complete, so the connection breaks instead.
            client.fail(io::Error::other("the turn failed"));
        }
    }));
    let answer = match begun.await {
        Ok(Begin::OwnRequest(turn, because)) => return Ok(Served::Own(turn, because)),
        Ok(Begin::WholeBody(turn, headers, body, answers)) => {
            head.headers = *headers;
            return Ok(Served::WholeBody(turn, Box::new(head), body, answers));
        }
        Ok(Begin::Stream(headers)) => {
            let frames = stream::unfold(receiver, |mut receiver| async move {
                let frame = receiver.recv().await?;
                Some((frame, receiver))
            });
            respond(head.status, *headers, Body::from_stream(frames))
        }
        Ok(Begin::Refusal(status, headers, body)) => respond(status, *headers, Body::from(body)),
        Ok(Begin::Error(error)) => return Err(error),
        // The driver ended without sending a beginning. Only a panic in it can do that.
        Err(_) => return Err(ProxyError::panicked()),
    };
    Ok(Served::Answer(answer))
}

fn respond(status: StatusCode, mut headers: HeaderMap, body: Body) -> Response<Body> {
    // The proxy adds and removes frames, so the length may differ from the upstream's.
    headers.remove(http::header::CONTENT_LENGTH);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The client's side of the stream.
struct ClientSide {
    sender: Sender,
    begin: Option<oneshot::Sender<Begin>>,
    /// The upstream's headers, until the response has begun.
    headers: Option<Box<HeaderMap>>,
    held: Instant,
}

impl ClientSide {
    /// Begins the response, if that was not done.
    fn open(&mut self, of_the_turn: HeaderMap) {
        let Some(begin) = self.begin.take() else {
            return;
        };
        let mut headers = self.headers.take().unwrap_or_default();
        upstream::to_client(&mut headers);
        headers.extend(of_the_turn);
        // The receiver is gone if the client left. The next frame notices that.
        let _ = begin.send(Begin::Stream(headers));
    }

    /// How long the client may still hear nothing until a heartbeat is due.
    fn silence(&self, every: Duration) -> Duration {
        every.saturating_sub(self.held.elapsed()).max(LEAST_SILENCE)
    }

    /// Sends a comment, so that the client hears something. Never waits: a client with frames to read needs none, and
    /// what it doesn't read must not keep a hop from being polled.
    fn beat(&mut self) -> Result<(), ClientGone> {
        self.held = Instant::now();
        self.sender.offer(HEARTBEAT)
    }
}

struct Driver {
    app: Arc<App>,
    machine: Machine,
    turn: ManagedTurn,
    /// The body of the hop in hand.
    body: Incoming,
    answers: Vec<Answer>,
    client: ClientSide,
}

/// How a hop's body ended.
enum HopEnd {
    /// It came to its end.
    Whole,
    /// The upstream broke off or fell silent.
    Cut(String),
    /// The bytes are not a valid stream.
    Unreadable(String),
    /// It is not a stream of events.
    NoStream,
}

impl Driver {
    async fn run(mut self: Box<Self>) {
        loop {
            let read = match self.read().await {
                Ok(HopEnd::NoStream) => return Box::pin(self.other()).await,
                read => read,
            };
            // Nothing more is read of it, so the upstream need not go on with it.
            self.body.close();
            // The machine ends the hop even if the body was cut, so that what was said so far is
            // known.
            let mut out = Vec::new();
            let answer = self.machine.end_hop(&mut out);
            self.turn.heard(&self.app, &answer);
            let verdict = answer.verdict();
            self.answers.push(answer);
            let end = match read {
                Ok(end) => end,
                Err(ClientGone) => return self.gone(),
            };
            // What the machine holds back may contain hidden calls. It must not be sent.
            if self.machine.withheld() {
                return Box::pin(self.withhold()).await;
            }
            if self.say(out).await.is_err() {
                return self.gone();
            }
            let capped = self.turn.is_last(&self.answers);
            match (verdict, end) {
                // Whatever follows a finish reason does not matter: a hop that holds only hidden
                // calls is not shown.
                (Verdict::HiddenOnly, _) if !capped => match Box::pin(self.next()).await {
                    Some(Ok(next)) => self.body = next,
                    Some(Err(because)) => return Box::pin(self.own(because)).await,
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

    /// Passes on the frames of one hop until its body ends.
    async fn read(&mut self) -> Result<HopEnd, ClientGone> {
        // The proxy asked for identity, so it can't read a compressed body.
        if self.body.coded {
            return Ok(HopEnd::NoStream);
        }
        let mut beginning = Beginning::default();
        let every = self.app.serving.streams.heartbeat;
        loop {
            let silence = self.client.silence(every);
            // A body that may not be a stream gets no response head before that is known.
            let events = self.body.events;
            let beats = events || beginning.is_known() || self.client.begin.is_none();
            tokio::select! {
                frame = self.body.frame() => {
                    // The first bytes decide whether the body is a stream. Until then they are held
                    // in `beginning`.
                    let (begun, end) = match frame {
                        None => (beginning.end(events), Some(HopEnd::Whole)),
                        // It turns out now that the body can't be unpacked.
                        Some(Err(_)) if self.body.coded => return Ok(HopEnd::NoStream),
                        Some(Err(error)) => {
                            (beginning.end(events), Some(HopEnd::Cut(error.to_string())))
                        }
                        Some(Ok(frame)) => {
                            let Ok(data) = frame.into_data() else { continue };
                            (beginning.take(data, events), None)
                        }
                    };
                    // A cut body that is no stream is reported as cut. A complete one is handed
                    // back unread.
                    match (begun, end) {
                        (Begun::Other(_), Some(HopEnd::Cut(cause))) => return Ok(HopEnd::Cut(cause)),
                        (Begun::Other(begun), _) => {
                            self.body.unread(begun);
                            return Ok(HopEnd::NoStream);
                        }
                        (Begun::Waits, None) => {}
                        (Begun::Events(data), end) => match (self.take(data).await?, end) {
                            (None, None) => {}
                            (None, Some(end)) | (Some(end), _) => return Ok(end),
                        },
                        (Begun::Waits, Some(end)) => return Ok(end),
                    }
                },
                () = tokio::time::sleep(silence), if beats => {
                    self.heartbeat()?;
                }
                () = self.client.sender.closed() => {
                    // Reading on costs money, so only the operator can ask for it.
                    if !self.app.serving.streams.finish_cancelled {
                        return Err(ClientGone);
                    }
                    self.swallow().await;
                    return Err(ClientGone);
                }
            }
        }
    }

    /// Passes on what one read contains. Returns how the hop ends if it can't be read on.
    async fn take(&mut self, read: Bytes) -> Result<Option<HopEnd>, ClientGone> {
        let mut out = Vec::new();
        match self.machine.push(read, &mut out) {
            Ok(()) => {
                self.say(out).await?;
                Ok(None)
            }
            Err(error) => {
                // A client that has seen nothing yet can still be served in another way, so nothing
                // is sent to it.
                if self.client.begin.is_none() {
                    self.say(out).await?;
                }
                Ok(Some(HopEnd::Unreadable(error.to_string())))
            }
        }
    }

    /// Reads a hop to its end after the client has gone.
    async fn swallow(&mut self) {
        while let Some(Ok(frame)) = self.body.frame().await {
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if self.machine.push(data, &mut Vec::new()).is_err() {
                return;
            }
        }
    }

    /// Sends frames to the client, after the head of the response if that was not sent yet.
    async fn say(&mut self, frames: Vec<Bytes>) -> Result<(), ClientGone> {
        for frame in frames {
            self.open();
            self.client.held = Instant::now();
            self.client.sender.send(&frame).await?;
        }
        Ok(())
    }

    fn open(&mut self) {
        if self.client.begin.is_some() {
            self.client.open(self.turn.reporter.headers());
            self.turn.reporter.spoken(Instant::now());
        }
    }

    /// Keeps the connection alive while frames are held back. Sends the head first, and then a
    /// comment if the client hears nothing else.
    fn heartbeat(&mut self) -> Result<(), ClientGone> {
        self.open();
        if self.turn.state.settled() > 0 || self.machine.waits() {
            return self.client.beat();
        }
        self.client.held = Instant::now();
        Ok(())
    }

    /// Answers the hidden calls and sends the next hop. Returns `None` if the turn ended instead, or
    /// why the client's own request has to be served.
    async fn next(&mut self) -> Option<Result<Incoming, Because>> {
        if let Some(answer) = self.answers.last() {
            self.turn.pend(&self.app, answer).await;
        }
        // The machine may owe the client the end of what the last hop began.
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
        match self.later_hop().await {
            None => self.gone(),
            Some(Ok(LaterHop::Accepted(response))) => return Some(Ok(Incoming::of(response).1)),
            Some(Ok(LaterHop::Own)) => return Some(Err(Because::Refused { too_long: false })),
            Some(Ok(LaterHop::Refused(refusal))) => self.refused(refusal).await,
            Some(Err(error)) => self.cut(&error.to_string()).await,
        }
        None
    }

    /// Sends a later hop, with heartbeats meanwhile. Returns `None` if the client left.
    async fn later_hop(&mut self) -> Option<Result<LaterHop, ProxyError>> {
        let shown = Shown::new(self.client.begin.is_none(), self.has_said());
        let Self {
            app, turn, client, ..
        } = self;
        let every = app.serving.streams.heartbeat;
        let left = client.sender.clone();
        // The hop has the turn for itself until it ends.
        let mut headers = client.begin.is_some().then(|| turn.reporter.headers());
        let mut opened = None;
        let mut hop = Box::pin(send_later_hop(app, turn, &shown));
        let sent = loop {
            let silence = client.silence(every);
            let stays = tokio::select! {
                sent = &mut hop => break Some(sent),
                // The hop may have forbidden a head while both were waited for.
                () = tokio::time::sleep(silence), if shown.may_beat() => {
                    !shown.may_beat() || {
                        if let Some(headers) = headers.take() {
                            client.open(headers);
                            opened = Some(Instant::now());
                            shown.headed();
                        }
                        client.beat().is_ok()
                    }
                }
                () = left.closed() => false,
            };
            if !stays {
                break None;
            }
        };
        drop(hop);
        if let Some(opened) = opened {
            turn.reporter.spoken(opened);
        }
        sent
    }

    /// Ends the turn with what the last hop said. Records it first, and then sends the end.
    async fn done(&mut self) {
        self.record(TurnEnd::Upstream).await;
        let mut out = Vec::new();
        self.machine.release(&mut out);
        self.end(out).await;
    }

    /// Ends the turn because it reached the bound on hops.
    async fn cap(&mut self) {
        let end = at_hop_cap(&self.answers);
        self.record(end).await;
        let mut out = Vec::new();
        self.machine.close(end.line(), &mut out);
        self.end(out).await;
    }

    /// Records the turn and waits until it is durable.
    async fn record(&mut self, end: TurnEnd<'_>) {
        self.turn.settle(&self.app, &self.answers, end).await;
    }

    async fn end(&mut self, out: Vec<Bytes>) {
        if self.say(out).await.is_err() {
            self.turn.reporter.aborted(AbortSide::Client);
        }
        // A stream without a single frame still needs a head.
        self.open();
        self.close_report();
    }

    fn close_report(&mut self) {
        // A client that left before it got a head was never answered.
        let answered = self.client.begin.is_none().then_some(StatusCode::OK);
        let reporter = &mut self.turn.reporter;
        reporter.close(answered);
    }
}
