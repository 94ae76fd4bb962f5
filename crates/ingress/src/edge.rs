//! One request at the edge: checks its limits, chooses its way, and answers errors in the caller's
//! shape. Owns the choice whether a request is managed or forwarded. Never reads what a body means.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use http::header::{EXPECT, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use plimsoll_model::Rope;
use plimsoll_proxy::pipeline::{
    self, App, Fault, Identity, ProxyError, Reporter, ServingLimit, TurnRequest, Untouched,
};
use plimsoll_proxy::record::{FailedStage, Metrics, Route};
use plimsoll_proxy::upstream::Payload;
use plimsoll_wire::Dialect;
use plimsoll_wire::Purpose;

use super::auth::{self, Credential};
use super::body::{self, Coding};
use super::connections::Busy;
use super::descriptors;
use super::detach;
use super::errors;
use super::headers;
use super::inflate::Unpackers;
use super::leftover::Leftover;
use super::limit::{HeldBody, RequestLimit};
use super::origin::OriginGuard;
use super::pace::Paced;
use super::settings::ServerSettings;
use super::waiting::BodyRoom;

/// Of how many unknown headers the log tells. Clients choose their names.
const MOST_TOLD: usize = 32;

/// What all requests at the edge share.
pub struct Edge {
    settings: ServerSettings,
    app: Arc<App>,
    tenant_key: [u8; 32],
    limit: RequestLimit,
    guard: OriginGuard,
    /// The unknown headers of which the log has told.
    told: Mutex<BTreeSet<String>>,
    unpackers: Unpackers,
    room: BodyRoom,
}

impl Edge {
    /// Combines limits, the application and the tenant key.
    #[must_use]
    pub fn new(settings: ServerSettings, app: Arc<App>, tenant_key: [u8; 32]) -> Self {
        // More requests than the process has descriptors for would fail at the upstream.
        let affordable = descriptors::places(descriptors::connections());
        if affordable < settings.max_in_flight {
            tracing::warn!(
                affordable,
                "server.max_in_flight is more than the process may open files for; start it with a higher `ulimit -n`"
            );
        }
        let limit = RequestLimit::new(settings.max_in_flight.min(affordable));
        let guard = OriginGuard::new(settings.listen.ip(), &settings.hosts, &settings.origins);
        Self {
            room: BodyRoom::new(&app.intercept.room),
            unpackers: Unpackers::new(),
            settings,
            app,
            tenant_key,
            limit,
            guard,
            told: Mutex::default(),
        }
    }

    pub(super) fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Tells of a header that nobody reads: in the log once for each name, as far as names fit.
    fn tell(&self, name: &HeaderName) {
        let mut told = self.told.lock();
        if told.len() < MOST_TOLD && told.insert(name.to_string()) {
            tracing::warn!(
                "the header {name} is not read; did you mean {}?",
                headers::meant(name.as_str())
            );
        }
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.app.metrics
    }
}

/// Answers a request. Every failure becomes a response, and each response is counted once. A body
/// that fails later breaks the connection, so that a cut stream never looks complete.
pub(super) async fn handle(
    edge: &Edge,
    peer: Option<IpAddr>,
    request: Request<Incoming>,
    busy: Busy,
) -> Response<Body> {
    let managed = managed(&request);
    let dialect = managed.map(|(dialect, _)| dialect);
    let mut reporter = Reporter::begin(&edge.app, route(managed), request.method().clone());
    reporter.arrived(request.uri().path(), request.headers());
    // This comes before the check of the host, which never fits a CONNECT. A client that takes
    // Plimsoll for another kind of proxy should be told so.
    if request.method() == Method::CONNECT {
        return refuse(reporter, dialect, &ProxyError::Method);
    }
    if let Err(error) = edge.guard.admit(&request) {
        return turn_away(edge, request, reporter, &error).await;
    }
    if edge.app.upstream.is_misled(request.headers()) {
        return turn_away(edge, request, reporter, &ProxyError::Login).await;
    }
    // Credentials come before the limit, because each tenant has its own share of the places.
    let sources = &edge.settings.sources;
    let credential = Credential::of(sources, request.headers(), request.uri().query());
    let identity = auth::identity(&edge.tenant_key, &credential, peer);
    let Some(place) = edge.limit.enter(identity.tenant) else {
        let full = ProxyError::Overloaded(ServingLimit::Requests);
        return turn_away(edge, request, reporter, &full).await;
    };
    if let Some(unknown) = headers::unknown(request.headers()).filter(|_| managed.is_some()) {
        edge.tell(unknown);
        reporter.unknown_header(unknown.clone());
    }
    // The place is held until the last byte of the response, so it goes with the body.
    let flight = edge.app.metrics.in_flight();
    let response = match admit(edge, request, identity).await {
        Ok(admitted) => serve(&edge.app, dialect, admitted, reporter).await,
        Err(error) => refuse(reporter, dialect, &error),
    };
    response.map(|body| Body::new(HeldBody::new(body, (place, flight, busy))))
}

/// Counts a response that the connection sent by itself, because the request was malformed.
pub(super) fn malformed(edge: &Edge, error: &hyper::Error) {
    let status = if error.is_parse_too_large() {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    } else if error.is_parse() && !error.is_parse_version_h2() {
        StatusCode::BAD_REQUEST
    } else {
        return;
    };
    // Its method is not known. A method that is not standard counts as `other`.
    let unknown = Method::from_bytes(b"UNKNOWN").unwrap_or_default();
    Reporter::begin(&edge.app, Route::Forward, unknown).refuse(status);
}

/// A request that was admitted.
enum Admitted {
    /// It is managed.
    Turn(Box<TurnRequest>),
    /// It is forwarded.
    Forward(Untouched),
    /// It would be managed if the proxy could read its coding.
    Unreadable(Untouched),
}

async fn serve(
    app: &Arc<App>,
    dialect: Option<Dialect>,
    admitted: Admitted,
    mut reporter: Reporter,
) -> Response<Body> {
    let answer = match admitted {
        Admitted::Turn(turn) => pipeline::turn(app, *turn, reporter).await,
        Admitted::Forward(request) => pipeline::forward(app, request, reporter).await,
        Admitted::Unreadable(request) => {
            reporter.failed_open(FailedStage::Ingress);
            pipeline::forward(app, request, reporter).await
        }
    };
    answer.unwrap_or_else(|error| {
        // Callers are told what they did wrong. In the log it would only hide other errors.
        if error.fault() != Fault::Caller {
            tracing::warn!("no response from the upstream: {error}");
        }
        errors::respond(dialect, &error)
    })
}

/// Refuses a request before its body was looked at.
async fn turn_away(
    edge: &Edge,
    request: Request<Incoming>,
    reporter: Reporter,
    error: &ProxyError,
) -> Response<Body> {
    let dialect = managed(&request).map(|(dialect, _)| dialect);
    let (Parts { headers, .. }, body) = request.into_parts();
    let body = Paced::new(body, edge.settings.pace);
    body::turn_away(body, &headers, edge.settings.body_cap).await;
    refuse(reporter, dialect, error)
}

fn refuse(reporter: Reporter, dialect: Option<Dialect>, error: &ProxyError) -> Response<Body> {
    reporter.fail(error);
    errors::respond(dialect, error)
}

async fn admit(
    edge: &Edge,
    request: Request<Incoming>,
    identity: Identity,
) -> Result<Admitted, ProxyError> {
    let managed = managed(&request);
    let (
        Parts {
            method,
            uri,
            headers,
            ..
        },
        body,
    ) = request.into_parts();
    let body = Paced::new(body, edge.settings.pace);
    if wants_websocket(&headers) {
        return Err(ProxyError::Upgrade);
    }
    let asked = detach::asked(uri.path_and_query().ok_or(ProxyError::Method)?);
    let headers = detach::headers(headers);
    drop(uri);
    let cap = edge.settings.body_cap;
    let coding = Coding::of(&headers);
    let Some((dialect, purpose)) = managed else {
        return Ok(Admitted::Forward(pass(method, asked, headers, body, cap)));
    };
    // A body that can't be read is not held either: it is streamed like any other.
    if coding == Coding::Unknown {
        return Ok(Admitted::Unreadable(pass(
            method, asked, headers, body, cap,
        )));
    }
    let wishes = headers::overrides(&headers, &edge.app.settings)
        .and_then(|overrides| Ok((overrides, headers::session(&headers)?)));
    let (overrides, session) = match wishes {
        Ok(wishes) => wishes,
        Err(error) => {
            body::turn_away(body, &headers, cap).await;
            return Err(error);
        }
    };
    let agent = headers::agent(&headers).to_owned();
    // Both bodies are kept: the raw one is forwarded if management fails.
    let raw = body::read(body, &headers, cap, &edge.room).await?;
    let unpacking = edge.unpackers.unpack(coding, &raw, cap, &edge.room);
    let body = unpacking.await?;
    Ok(Admitted::Turn(Box::new(TurnRequest {
        dialect,
        purpose,
        method,
        asked,
        headers: headers.into(),
        raw,
        agent,
        body,
        identity,
        session,
        overrides,
    })))
}

fn pass(
    method: Method,
    asked: PathAndQuery,
    headers: HeaderMap,
    body: Paced<Incoming>,
    cap: usize,
) -> Untouched {
    // A body that is known to be empty can be sent again, a streamed one can't.
    let payload = if http_body::Body::is_end_stream(&body) {
        Payload::Whole(Rope::default())
    } else if headers.contains_key(EXPECT) {
        // The client sends nothing before it is told to, and reading would tell it.
        Payload::Streamed(body.boxed())
    } else {
        Payload::Streamed(Leftover::new(body, cap).boxed())
    };
    Untouched {
        conversation: None,
        method,
        asked,
        headers,
        payload,
    }
}

/// The route of a request.
fn route(managed: Option<(Dialect, Purpose)>) -> Route {
    match managed {
        Some((_, Purpose::Count)) => Route::CountTokens,
        Some((Dialect::Chat, Purpose::Answer)) => Route::Chat,
        Some((Dialect::Responses, Purpose::Answer)) => Route::Responses,
        Some((Dialect::Messages, Purpose::Answer)) => Route::Messages,
        None => Route::Forward,
    }
}

/// The dialect and the purpose of a managed request. `None` for any other request.
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
