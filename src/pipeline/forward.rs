//! Forwards requests as they came, and answers as they come back. Reads one kind of refusal: that of thoughts
//! which something changed before. The proxy may have made that change in an earlier turn, so the request
//! goes up once more without thoughts. Never reads anything else.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method, Response, StatusCode};
use reqwest::Url;

use super::app::App;
use super::error::ProxyError;
use super::learned::refuses_thoughts;
use super::reporter::Reporter;
use super::request::Untouched;
use super::send::{REFUSAL_BYTES, refusal_body};
use super::unpack::Unpack;
use crate::model::{Dialect, Rope};
use crate::record::RetryReason;
use crate::upstream::{self, Outbound, Payload, ResponseBody};

/// Serves a request that is not managed.
///
/// # Errors
/// [`ProxyError`] if the upstream gave no response.
pub async fn forward(
    app: &Arc<App>,
    request: Untouched,
    mut reporter: Reporter,
) -> Result<Response<Body>, ProxyError> {
    match pass_on(app, request, &mut reporter).await {
        Ok(mut response) => {
            response.headers_mut().extend(reporter.headers());
            reporter.answered(response.status(), response.headers());
            reporter.finish(Some(response.status()));
            Ok(response)
        }
        Err(error) => {
            reporter.refuse(error.status());
            Err(error)
        }
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
    let response = app.upstream.send(outbound, told).await?;
    let mut response = match again {
        Some(again) if response.status() == StatusCode::BAD_REQUEST => {
            Box::pin(without_thoughts(app, again, response, reporter)).await?
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
    reporter: &mut Reporter,
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
    let response = app.upstream.send(outbound, told).await?;
    Ok(response.map(Body::new))
}
