//! A streamed turn whose first hop waits for an upstream that is down: begins the client's response with
//! heartbeats, and goes on with the answer when it comes. Owns this beginning. Never sends a request, and
//! never begins a response while no call has failed, because that settles the status.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use plimsoll_wire::Dialect;
use plimsoll_wire::stream::{Machine, Spec};
use tokio::sync::Notify;

use super::app::App;
use super::drive::HEARTBEAT;
use super::error::{Fault, ProxyError};
use super::send::{may_pass, refusal_body};

/// The content type of a stream of events.
const EVENTS: &str = "text/event-stream";

/// What a turn is answered with.
type Answer = Result<Response<Body>, ProxyError>;

/// A turn under way.
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Told when a call of a turn has failed and is tried again.
#[derive(Clone, Debug, Default)]
pub(super) struct Failing(Arc<Notify>);

impl Failing {
    pub(super) fn note(&self) {
        self.0.notify_one();
    }
}

/// Waits for an answer. If a call has failed and the client has heard nothing for as long as a heartbeat
/// takes, its response begins.
pub(super) async fn answer(
    app: &Arc<App>,
    failing: Failing,
    dialect: Dialect,
    mut answering: Answering,
) -> Answer {
    let every = app.serving.streams.heartbeat;
    let silent = async {
        failing.0.notified().await;
        tokio::time::sleep(every).await;
    };
    tokio::select! {
        answer = &mut answering => return answer,
        () = silent => {}
    }
    let waiting = Stage::Waiting(Box::new(Waiting {
        app: Arc::clone(app),
        dialect,
        every,
        answering,
        due: true,
    }));
    let frames = stream::unfold(waiting, Stage::next);
    let mut response = Response::new(Body::from_stream(frames));
    let events = HeaderValue::from_static(EVENTS);
    response.headers_mut().insert(CONTENT_TYPE, events);
    Ok(response)
}

/// Where a response is that began with heartbeats.
enum Stage {
    /// Its answer is waited for.
    Waiting(Box<Waiting>),
    /// Its answer passes.
    Passing(BodyDataStream),
    /// It has ended.
    Ended,
}

struct Waiting {
    app: Arc<App>,
    dialect: Dialect,
    every: Duration,
    answering: Answering,
    /// Whether a heartbeat is due now.
    due: bool,
}

/// A piece of a body, or why it breaks off.
type Piece = Result<Bytes, axum::Error>;

impl Stage {
    async fn next(self) -> Option<(Piece, Self)> {
        match self {
            Self::Waiting(waiting) => waiting.next().await,
            Self::Passing(mut body) => {
                let piece = body.next().await?;
                Some((piece, Self::Passing(body)))
            }
            Self::Ended => None,
        }
    }
}

impl Waiting {
    async fn next(mut self: Box<Self>) -> Option<(Piece, Stage)> {
        let wait = if self.due { Duration::ZERO } else { self.every };
        self.due = false;
        let answer = tokio::select! {
            biased;
            answer = &mut self.answering => answer,
            () = tokio::time::sleep(wait) => {
                let beat = Ok(Bytes::from_static(HEARTBEAT));
                return Some((beat, Stage::Waiting(self)));
            }
        };
        match told(&self.app, self.dialect, answer).await {
            Told::Answer(body) => {
                let mut body = body.into_data_stream();
                let piece = body.next().await?;
                Some((piece, Stage::Passing(body)))
            }
            Told::Event(event) => Some((Ok(event), Stage::Ended)),
            Told::Break(cause) => {
                tracing::warn!(cause, "a stream broke behind its heartbeats");
                let broken = axum::Error::new(io::Error::other(cause));
                Some((Err(broken), Stage::Ended))
            }
        }
    }
}

/// What the client is told of an answer whose status it can't be told. As behind a later hop, the connection
/// breaks where asking again may help, because some agents only retry after that.
async fn told(app: &App, dialect: Dialect, answer: Answer) -> Told {
    let response = match answer {
        Ok(response) => response,
        Err(error) if error.fault() == Fault::Upstream => return Told::Break(error.to_string()),
        Err(error) => return event(app, dialect, &error.body(dialect)),
    };
    let status = response.status();
    if status.is_success() {
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        return if kind.starts_with(EVENTS) {
            Told::Answer(response.into_body())
        } else {
            Told::Break("the upstream's answer is no stream of events".to_owned())
        };
    }
    if may_pass(status) {
        return Told::Break(format!("the upstream still answered {status}"));
    }
    match refusal_body(response.into_body()).await {
        Ok(body) => event(app, dialect, &body),
        Err(error) => Told::Break(error.to_string()),
    }
}

/// An error event.
fn event(app: &App, dialect: Dialect, error: &[u8]) -> Told {
    let spec = Spec::untouched(dialect);
    let mut out = Vec::new();
    Machine::new(app.intercept.clone(), &spec).fail(error, &mut out);
    Told::Event(Bytes::from(out.concat()))
}

/// How a response goes on that began with heartbeats.
enum Told {
    /// With a stream.
    Answer(Body),
    /// With an error event, which ends it.
    Event(Bytes),
    /// It breaks off.
    Break(String),
}
