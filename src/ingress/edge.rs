//! One request at the edge: limits, which way it goes, and errors in the caller's shape. Owns the
//! choice between a turn and a pass; never reads what a body means.

use std::sync::Arc;

use axum::body::Body;
use http::header::UPGRADE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::Config;
use super::auth::{self, Credential};
use super::body::{self, Coding};
use super::errors;
use super::headers;
use super::limit::{Counted, Limit};
use crate::model::Rope;
use crate::pipeline::{self, App, ProxyError, Side, TurnRequest, Untouched};
use crate::record::FAIL_OPEN;
use crate::upstream::Payload;

/// What every request at the edge shares.
pub struct Edge {
    config: Config,
    app: Arc<App>,
    tenant_key: [u8; 32],
    limit: Limit,
}

impl Edge {
    /// Ties limits, the application and the tenant key together.
    #[must_use]
    pub fn new(config: Config, app: Arc<App>, tenant_key: [u8; 32]) -> Self {
        let limit = Limit::new(config.max_in_flight);
        Self {
            config,
            app,
            tenant_key,
            limit,
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }
}

/// Answers a request. Whatever goes wrong becomes a response; a body that breaks later breaks the
/// connection, so that no cut stream looks like an end.
pub(super) async fn handle(edge: &Edge, request: Request<Incoming>) -> Response<Body> {
    let Some(place) = edge.limit.enter() else {
        return errors::respond(&ProxyError::Overloaded);
    };
    let flight = edge.app.metrics.in_flight();
    let response = route(edge, request).await.unwrap_or_else(|error| {
        if error.class().side != Side::Caller {
            tracing::warn!(%error, "no response from the upstream");
        }
        errors::respond(&error)
    });
    response.map(|body| Body::new(Counted::new(body, place, flight)))
}

async fn route(edge: &Edge, request: Request<Incoming>) -> Result<Response<Body>, ProxyError> {
    let (parts, body) = request.into_parts();
    let asked = parts
        .uri
        .path_and_query()
        .cloned()
        .ok_or(ProxyError::Method)?;
    if parts.method == Method::CONNECT {
        return Err(ProxyError::Method);
    }
    if wants_websocket(&parts.headers) {
        return Err(ProxyError::Upgrade);
    }
    let (method, headers) = (parts.method, parts.headers);
    if !is_managed(&method, &asked) {
        return pass(edge, method, asked, headers, body).await;
    }
    let coding = Coding::of(&headers);
    if coding == Coding::Unknown {
        let mut response = pass(edge, method, asked, headers, body).await?;
        response
            .headers_mut()
            .insert(FAIL_OPEN, HeaderValue::from_static("ingress"));
        return Ok(response);
    }
    let overrides = headers::overrides(&headers, &edge.config.profiles)?;
    let session = headers::session(&headers)?;
    let identity = auth::identity(&edge.tenant_key, &Credential::of(&headers));
    let raw = body::read(body, &headers, edge.config.body_cap).await?;
    let body = body::decompress(coding, &raw, edge.config.body_cap).await?;
    let turn = TurnRequest {
        method,
        asked,
        headers,
        raw,
        body,
        identity,
        session,
        overrides,
    };
    pipeline::turn(&edge.app, turn).await
}

async fn pass(
    edge: &Edge,
    method: Method,
    asked: PathAndQuery,
    headers: HeaderMap,
    body: Incoming,
) -> Result<Response<Body>, ProxyError> {
    let payload = if http_body::Body::is_end_stream(&body) {
        Payload::Whole(Rope::default())
    } else {
        Payload::Streamed(body.map_err(Into::into).boxed())
    };
    pipeline::forward(
        &edge.app,
        Untouched {
            method,
            asked,
            headers,
            payload,
        },
    )
    .await
}

/// `POST …/chat/completions`, whatever stands before it (`/v1`, `/openai/deployments/NAME`, …);
/// compared on the path as it was sent, so `chat%2Fcompletions` or a slash at the end is another.
fn is_managed(method: &Method, asked: &PathAndQuery) -> bool {
    *method == Method::POST && asked.path().ends_with("/chat/completions")
}

fn wants_websocket(headers: &HeaderMap) -> bool {
    let values = headers
        .get_all(UPGRADE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_posts_to_chat_completions_are_managed() {
        let table = [
            ("POST", "/v1/chat/completions", true),
            ("POST", "/chat/completions", true),
            ("POST", "/v1/chat/completions?api-version=1", true),
            (
                "POST",
                "/openai/deployments/gpt/chat/completions?api-version=1",
                true,
            ),
            ("GET", "/v1/chat/completions", false),
            ("DELETE", "/v1/chat/completions", false),
            ("POST", "/v1/chat/completions/", false),
            ("POST", "/v1/chat/completions/chatcmpl-1", false),
            ("POST", "/v1/chat%2Fcompletions", false),
            ("POST", "/v1/xchat/completions", false),
            ("POST", "/v1/completions", false),
            ("POST", "/v1/responses", false),
            ("POST", "/v1/models?x=/chat/completions", false),
        ];
        for (method, path, wanted) in table {
            let asked = PathAndQuery::from_static(path);
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(is_managed(&method, &asked), wanted, "{method} {path}");
        }
    }
}
