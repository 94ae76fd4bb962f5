//! Forwards requests as they came, and answers as they come back. Reads one kind of refusal: that of thoughts
//! which something changed before. The proxy may have made that change in an earlier turn, so the request
//! goes up once more without thoughts. Of an answer that says what it cost, that is read as it passes. Never reads
//! anything else.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method, Response, StatusCode};
use plimsoll_model::Rope;
use plimsoll_wire::Dialect;
use plimsoll_wire::stream::Spec;
use reqwest::Url;

use super::app::App;
use super::error::ProxyError;
use super::failures::pass_refusal;
use super::learned::refuses_thoughts;
use super::listen::{AnswerEnd, AnswerReader, HeardBody, Listener};
use super::reporter::Reporter;
use super::request::Untouched;
use super::send::{REFUSAL_BYTES, refusal_body};
use super::unpack::Unpack;
use crate::record::RetryReason;
use crate::upstream::{self, Outbound, Payload, ResponseBody, RetryUntil};

/// Serves a request that is not managed.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub async fn forward(
    app: &Arc<App>,
    request: Untouched,
    mut reporter: Reporter,
) -> Result<Response<Body>, ProxyError> {
    let until = app.upstream.retry_until();
    match pass_on(app, request, until, &mut reporter).await {
        Ok(mut response) => {
            response.headers_mut().extend(reporter.headers());
            reporter.answered(response.status(), response.headers());
            Ok(heard(app, response, reporter))
        }
        Err(error) => {
            reporter.fail(&error);
            Err(error)
        }
    }
}

/// Has the usage read as the answer passes, if it is one of a model. The report ends with the answer.
fn heard(app: &Arc<App>, response: Response<Body>, mut reporter: Reporter) -> Response<Body> {
    let status = response.status();
    if !status.is_success() {
        reporter.cause().passed(status, response.headers());
        return pass_refusal(response, reporter);
    }
    let Some(dialect) = reporter.hears() else {
        reporter.finish(Some(status));
        return response;
    };
    let (head, body) = response.into_parts();
    let spec = Spec::untouched(dialect);
    let meter = UsageMeter {
        reader: AnswerReader::new(app, spec, &head.headers),
        app: Arc::clone(app),
        reporter,
        status,
    };
    Response::from_parts(head, HeardBody::of(body, meter))
}

/// Reads what a forwarded answer cost.
struct UsageMeter {
    app: Arc<App>,
    reporter: Reporter,
    reader: AnswerReader,
    status: StatusCode,
}

impl Listener for UsageMeter {
    fn hear(&mut self, data: &Bytes) {
        self.reporter.spoken(Instant::now());
        self.reader.hear(data);
    }

    fn end(&mut self, end: AnswerEnd) {
        let answer = self.reader.end();
        self.reporter.left(end, answer.as_ref());
        match answer {
            Some(answer) => self.reporter.told(&self.app, self.status, &answer),
            None => self.reporter.unread(),
        }
    }

    fn lost(&mut self) {
        tracing::error!("the usage of a forwarded answer was lost: the proxy made a mistake");
        self.reporter.unread();
    }

    fn finish(mut self) {
        self.reporter.finish(Some(self.status));
    }
}

/// Forwards a request as it came and the response as it comes. If its thoughts are refused because something
/// before them has changed, it goes up once more without thoughts.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub(super) async fn pass_on(
    app: &App,
    request: Untouched,
    until: RetryUntil,
    reporter: &mut Reporter,
) -> Result<Response<Body>, ProxyError> {
    let Untouched {
        method,
        asked,
        mut headers,
        payload,
        conversation,
    } = request;
    let url = app.upstream.target(&asked)?;
    // Headers of this connection and of Plimsoll itself go no further.
    upstream::to_upstream(&mut headers);
    let again = conversation.map(|said| (said, method.clone(), url.clone(), headers.clone()));
    let outbound = Outbound {
        method,
        url,
        headers,
        payload,
    };
    let told = |cause| reporter.retried(cause);
    let response = app.upstream.send(outbound, until, told).await?;
    let mut response = match again {
        Some(again) if response.status() == StatusCode::BAD_REQUEST => {
            Box::pin(without_thoughts(app, again, response, (until, reporter))).await?
        }
        Some(_) | None => response.map(Body::new),
    };
    upstream::to_client(response.headers_mut());
    Ok(response)
}

/// What it takes to send a request again: its conversation, its method, its address and its headers.
type Again = ((Dialect, Bytes), Method, Url, HeaderMap);

/// Sends a request once more without thoughts, if it was refused for these and has any. Any other refusal is
/// handed on as it came.
async fn without_thoughts(
    app: &App,
    again: Again,
    response: Response<ResponseBody>,
    (until, reporter): (RetryUntil, &mut Reporter),
) -> Result<Response<Body>, ProxyError> {
    let ((dialect, body), method, url, mut headers) = again;
    let (head, refusal) = response.into_parts();
    let refusal = refusal_body(refusal).await?;
    let told = Unpack::whole(&head.headers, &refusal, REFUSAL_BYTES);
    let bound = told.is_some_and(|told| refuses_thoughts(&told));
    let thoughtless = || -> Option<Rope> { dialect.decode(body).ok()?.without_thoughts() };
    let Some(thoughtless) = bound.then(thoughtless).flatten() else {
        return Ok(Response::from_parts(head, Body::from(refusal)));
    };
    tracing::warn!(
        "the upstream refused thoughts because something before them has changed: the request goes up without \
         thoughts"
    );
    reporter.retried(RetryReason::Thoughts);
    upstream::to_next_call(&mut headers);
    upstream::to_view(&mut headers);
    headers.remove(CONTENT_ENCODING);
    let outbound = Outbound {
        method,
        url,
        headers,
        payload: Payload::Whole(thoughtless),
    };
    let told = |cause| reporter.retried(cause);
    let response = app.upstream.send(outbound, until, told).await?;
    Ok(response.map(Body::new))
}
