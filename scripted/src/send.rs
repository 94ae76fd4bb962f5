//! Sends what was composed: bodies step by step, and the faults that strike before a body.
//!
//! Owns the waiting and the breaking off. It never composes a byte of a completion.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::link::Link;
use crate::received::Watch;
use crate::rules::Form;
use crate::script::{ErrorReply, Fault, Reply};
use crate::validate::Refusal;
use crate::wire::Step;

/// How long what was written is given to leave before a connection breaks: an aborted body drops
/// what the server still buffers, and a test wants those bytes to arrive.
const LINGER: Duration = Duration::from_millis(15);

/// Sends the steps of a body.
pub(crate) fn steps(steps: VecDeque<Step>, streamed: bool, index: usize, watch: Watch) -> Response {
    let whole = match steps.front() {
        Some(Step::Send(bytes)) if !streamed && steps.len() == 1 => Some(bytes.clone()),
        _ => None,
    };
    let body = match whole {
        Some(bytes) => {
            watch.finish();
            Body::from(bytes)
        }
        None => Body::from_stream(unfold((steps, watch), next)),
    };
    let mut response = Response::new(body);
    let kind = if streamed {
        "text/event-stream; charset=utf-8"
    } else {
        "application/json"
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert("openai-processing-ms", HeaderValue::from_static("1"));
    if let Ok(id) = HeaderValue::try_from(format!("req_scripted{index:06}")) {
        headers.insert("x-request-id", id);
    }
    response
}

type Sending = (VecDeque<Step>, Watch);

async fn next((mut steps, watch): Sending) -> Option<(io::Result<Bytes>, Sending)> {
    loop {
        match steps.pop_front() {
            None => {
                watch.finish();
                return None;
            }
            Some(Step::Send(bytes)) => return Some((Ok(bytes), (steps, watch))),
            Some(Step::Wait(time)) => tokio::time::sleep(time).await,
            Some(Step::Stall) => std::future::pending().await,
            Some(Step::Break) => {
                tokio::time::sleep(LINGER).await;
                watch.finish();
                let broken = io::Error::from(io::ErrorKind::ConnectionAborted);
                return Some((Err(broken), (VecDeque::new(), watch)));
            }
        }
    }
}

/// Answers a reply that never comes to a completion, or hands the reply back.
///
/// # Errors
/// The response that stands in the completion's place. For a closed connection it is one that
/// nobody will read.
pub(crate) async fn early(
    form: Form,
    mut reply: Reply,
    size: usize,
    link: &Link,
    watch: &Watch,
) -> Result<Reply, Box<Response>> {
    if let Some(error) = reply.error.take() {
        watch.finish();
        return Err(Box::new(error_reply(error)));
    }
    let response = match reply.fault {
        Some(Fault::CloseBeforeHeaders) => {
            link.close();
            Response::new(Body::empty())
        }
        Some(Fault::NeverAnswer) => std::future::pending().await,
        Some(Fault::ContextLength { window }) => {
            let refusal = Refusal::context_length(window, size);
            json(refusal.status, refusal.body(form).into())
        }
        Some(Fault::Status {
            status,
            retry_after,
            retry_after_ms,
        }) => {
            let mut response = json(status, error(status_text(status)).into());
            let headers = response.headers_mut();
            if let Some(seconds) = retry_after {
                headers.insert("retry-after", HeaderValue::from(seconds));
            }
            if let Some(milliseconds) = retry_after_ms {
                headers.insert("retry-after-ms", HeaderValue::from(milliseconds));
            }
            response
        }
        Some(
            Fault::CloseAfter { .. }
            | Fault::CloseAt { .. }
            | Fault::StallAt { .. }
            | Fault::EndAt { .. }
            | Fault::ErrorEventAt { .. }
            | Fault::GarbageAt { .. }
            | Fault::HalfUtf8At { .. },
        )
        | None => return Ok(reply),
    };
    watch.finish();
    Err(Box::new(response))
}

fn status_text(status: u16) -> &'static str {
    match status {
        429 => "Rate limit reached for requests. Please try again later.",
        503 | 529 => "The server is currently overloaded with other requests.",
        _ => "The server had an error while processing your request.",
    }
}

fn error_reply(error: ErrorReply) -> Response {
    let mut response = json(error.status, error.body);
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in error.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    response
}

/// A JSON body with a status.
pub(crate) fn json(status: u16, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A text in the provider's error shape.
pub(crate) fn error(message: &str) -> String {
    let kind = "invalid_request_error";
    serde_json::json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
        .to_string()
}
