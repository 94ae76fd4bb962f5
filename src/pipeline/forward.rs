//! Forwards requests as they came, and answers as they come back. Never reads either.

use std::sync::Arc;

use axum::body::Body;
use http::Response;

use super::app::App;
use super::error::ProxyError;
use super::reporter::Reporter;
use super::request::Untouched;
use crate::upstream::{self, Outbound};

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

/// Forwards a request as it came and the response as it comes.
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
    } = request;
    let url = app.upstream.target(&asked)?;
    // Headers of this connection and of Plimsoll itself go no further.
    upstream::to_upstream(&mut headers);
    let outbound = Outbound {
        method,
        url,
        headers,
        payload,
    };
    let told = |cause| reporter.retried(cause);
    let mut response = app.upstream.send(outbound, told).await?;
    upstream::to_client(response.headers_mut());
    Ok(response.map(Body::new))
}
