//! One request at the edge: limits, which way it goes, and errors in the caller's shape. Owns the
//! choice between a turn and a pass; never reads what a body means.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use http::header::UPGRADE;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::Config;
use super::auth::{self, Credential};
use super::body::{self, Coding};
use super::errors;
use super::headers;
use super::limit::{Counted, Limit};
use super::origin::Guard;
use crate::dialect::Purpose;
use crate::model::{Dialect, Rope};
use crate::pipeline::{self, App, ProxyError, Report, Side, TurnRequest, Untouched};
use crate::record::{Route, Stage};
use crate::upstream::Payload;

/// What every request at the edge shares.
pub struct Edge {
    config: Config,
    app: Arc<App>,
    tenant_key: [u8; 32],
    limit: Limit,
    guard: Guard,
}

impl Edge {
    /// Ties limits, the application and the tenant key together.
    #[must_use]
    pub fn new(config: Config, app: Arc<App>, tenant_key: [u8; 32]) -> Self {
        let limit = Limit::new(config.max_in_flight);
        let guard = Guard::new(config.listen.ip(), &config.hosts, &config.origins);
        Self {
            config,
            app,
            tenant_key,
            limit,
            guard,
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }
}

/// Answers a request. Whatever goes wrong becomes a response, and each response is counted once; a
/// body that breaks later breaks the connection, so that no cut stream looks like an end.
pub(super) async fn handle(
    edge: &Edge,
    peer: Option<IpAddr>,
    request: Request<Incoming>,
) -> Response<Body> {
    let managed = managed(&request);
    let dialect = managed.map(|(dialect, _)| dialect);
    let report = Report::begin(&edge.app, route(managed), request.method().clone());
    let Some(place) = edge.limit.enter() else {
        return refuse(report, dialect, &ProxyError::Overloaded);
    };
    let flight = edge.app.metrics.in_flight();
    let response = match admit(edge, peer, request).await {
        Ok(admitted) => serve(&edge.app, dialect, admitted, report).await,
        Err(error) => refuse(report, dialect, &error),
    };
    response.map(|body| Body::new(Counted::new(body, place, flight)))
}

/// Counts what the connection answered by itself, because it was no request.
pub(super) fn malformed(edge: &Edge, error: &hyper::Error) {
    let status = if error.is_parse_too_large() {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    } else if error.is_parse() && !error.is_parse_version_h2() {
        StatusCode::BAD_REQUEST
    } else {
        return;
    };
    // What its method was meant to be is not known; any that is no standard one is `other`.
    let unknown = Method::from_bytes(b"UNKNOWN").unwrap_or_default();
    Report::begin(&edge.app, Route::Forward, unknown).refuse(status);
}

/// A request that may enter.
enum Admitted {
    /// It is managed.
    Turn(Box<TurnRequest>),
    /// It is passed through.
    Forward(Untouched),
    /// It would be managed if its coding were one that we can read.
    Unreadable(Untouched),
}

async fn serve(
    app: &Arc<App>,
    dialect: Option<Dialect>,
    admitted: Admitted,
    mut report: Report,
) -> Response<Body> {
    let answer = match admitted {
        Admitted::Turn(turn) => pipeline::turn(app, *turn, report).await,
        Admitted::Forward(request) => pipeline::forward(app, request, report).await,
        Admitted::Unreadable(request) => {
            report.failed_open(Stage::Ingress);
            pipeline::forward(app, request, report).await
        }
    };
    answer.unwrap_or_else(|error| {
        if error.class().side != Side::Caller {
            tracing::warn!(%error, "no response from the upstream");
        }
        errors::respond(dialect, &error)
    })
}

fn refuse(report: Report, dialect: Option<Dialect>, error: &ProxyError) -> Response<Body> {
    report.refuse(error.status());
    errors::respond(dialect, error)
}

async fn admit(
    edge: &Edge,
    peer: Option<IpAddr>,
    request: Request<Incoming>,
) -> Result<Admitted, ProxyError> {
    edge.guard.admit(&request)?;
    let managed = managed(&request);
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
    let coding = Coding::of(&headers);
    let Some((dialect, purpose)) = managed else {
        return Ok(Admitted::Forward(pass(method, asked, headers, body)));
    };
    if coding == Coding::Unknown {
        return Ok(Admitted::Unreadable(pass(method, asked, headers, body)));
    }
    let overrides = headers::overrides(&headers, &edge.config.profiles)?;
    let session = headers::session(&headers)?;
    let credential = Credential::of(&edge.config.sources, &headers, asked.query());
    let identity = auth::identity(&edge.tenant_key, &credential, peer);
    let raw = body::read(body, &headers, edge.config.body_cap).await?;
    let body = body::decompress(coding, &raw, edge.config.body_cap).await?;
    Ok(Admitted::Turn(Box::new(TurnRequest {
        dialect,
        purpose,
        method,
        asked,
        headers,
        raw,
        body,
        identity,
        session,
        overrides,
    })))
}

fn pass(method: Method, asked: PathAndQuery, headers: HeaderMap, body: Incoming) -> Untouched {
    let payload = if http_body::Body::is_end_stream(&body) {
        Payload::Whole(Rope::default())
    } else {
        Payload::Streamed(body.map_err(Into::into).boxed())
    };
    Untouched {
        method,
        asked,
        headers,
        payload,
    }
}

/// The route of a request by what it asks for.
fn route(managed: Option<(Dialect, Purpose)>) -> Route {
    match managed {
        Some((_, Purpose::Count)) => Route::CountTokens,
        Some((Dialect::Chat, Purpose::Answer)) => Route::Chat,
        Some((Dialect::Responses, Purpose::Answer)) => Route::Responses,
        Some((Dialect::Messages, Purpose::Answer)) => Route::Messages,
        None => Route::Forward,
    }
}

/// What a request that is managed asks for; none of one that is passed through.
fn managed(request: &Request<Incoming>) -> Option<(Dialect, Purpose)> {
    Dialect::of_path(request.uri().path()).filter(|_| request.method() == Method::POST)
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
