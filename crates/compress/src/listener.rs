//! The paths of the listener, and the limits of what is read from it: who calls is asked before a byte of a body
//! is taken. Owns the answers to what goes wrong, which never hold anything that a row says: a gateway may show them
//! to its users.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use plimsoll_ingress::{RequestLimit, RequestPlace};
use plimsoll_model::room::Room;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::callers::{Caller, Stranger};
use crate::engine::{Engine, Gone};

/// How many calls are read and answered at once. A few more are kept for tenants that have none.
const PLACES: usize = 64;
/// So many bodies of the longest kind fit into memory at once.
const BODIES: usize = 2;
/// How long a body may take. Whoever calls is a gateway nearby.
const BODY_TIME: Duration = Duration::from_secs(60);
/// How long the body of a refused call is read, so that its sender gets to the answer.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// How much is taken at once.
pub struct Limits {
    cap: usize,
    room: Room,
    calls: RequestLimit,
    /// As many calls are worked on at once as there are cores, so that agents' turns get theirs.
    work: Semaphore,
}

impl Limits {
    /// Takes bodies of so many bytes.
    #[must_use]
    pub fn of(cap: usize) -> Self {
        Self {
            cap,
            room: Room::of(cap.saturating_mul(BODIES)),
            calls: RequestLimit::new(PLACES),
            work: Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }
}

#[derive(Clone)]
struct Shared {
    engine: Arc<Engine>,
    limits: Arc<Limits>,
}

/// All paths.
pub fn router(engine: Engine, limits: Limits) -> Router {
    Router::new()
        .route("/v1/compress", post(compress))
        .route("/compact", post(compress))
        .route("/v1/retrieve/{id}", get(retrieve))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .with_state(Shared {
            engine: Arc::new(engine),
            limits: Arc::new(limits),
        })
}

async fn compress(State(shared): State<Shared>, headers: HeaderMap, mut body: Body) -> Response {
    match shared.compressed(&headers, &mut body).await {
        Ok(answer) => answered(StatusCode::OK, answer),
        Err(refusal) => {
            // Many clients read only after they have written.
            let rest = discard(&mut body, shared.limits.cap);
            let _late = tokio::time::timeout(DISCARD_TIME, rest).await;
            refusal.response()
        }
    }
}

async fn retrieve(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = shared.admit(&headers).and_then(|(caller, _place)| {
        let told = match shared.engine.retrieve(&caller, &id) {
            Ok(answer) => return Ok(answer),
            Err(Gone::NotKept) => "originals are not kept: set compress.keep = true",
            Err(Gone::Unknown) => {
                "no original is kept under this id: originals are kept in memory (compress.keep) as long as \
                 server.cache_memory has room; send the rows to /v1/compress again"
            }
        };
        Err(Refusal::new(StatusCode::NOT_FOUND, told))
    });
    match found {
        Ok(answer) => answered(StatusCode::OK, answer.into()),
        Err(refusal) => refusal.response(),
    }
}

async fn unknown() -> Response {
    let told = "this listener has POST /v1/compress, POST /compact and GET /v1/retrieve/ID";
    Refusal::new(StatusCode::NOT_FOUND, told).response()
}

impl Shared {
    /// Who calls, with a place; or why not.
    fn admit(&self, headers: &HeaderMap) -> Result<(Caller, RequestPlace), Refusal> {
        let settings = self.engine.settings();
        let stranger = |stranger| match stranger {
            Stranger::Key => Refusal::new(
                StatusCode::UNAUTHORIZED,
                "send the key of this listener as `authorization: Bearer KEY`: it is compress.key, or one of compress.keys",
            ),
            Stranger::Tenant => {
                let header = &settings.tenant_header;
                let told = format!(
                    "send the header `{header}`, which names the tenant of these rows; where a caller can't, give it a key of its own in compress.keys"
                );
                Refusal::new(StatusCode::BAD_REQUEST, told)
            }
        };
        let caller = Caller::of(settings, self.engine.secret(), headers).map_err(stranger)?;
        let place = self.limits.calls.enter(caller.tenant);
        Ok((caller, place.ok_or_else(Refusal::busy)?))
    }

    /// The answer to a call.
    async fn compressed(&self, headers: &HeaderMap, body: &mut Body) -> Result<Bytes, Refusal> {
        let (caller, place) = self.admit(headers)?;
        let coding = headers.get(CONTENT_ENCODING);
        if coding.is_some_and(|coding| coding != "identity") {
            let told = "send the body without a content-encoding";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, told));
        }
        let read = tokio::time::timeout(BODY_TIME, self.limits.read(body)).await;
        let slow = |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "send the body faster");
        let body = read.map_err(slow)??;
        let _turn = self.limits.work.acquire().await;
        let engine = Arc::clone(&self.engine);
        let work = tokio::task::spawn_blocking(move || {
            let answer = engine.compress(&caller, &body);
            drop((body, place));
            answer
        });
        match work.await {
            Ok(answer) => {
                answer.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))
            }
            Err(_) => {
                tracing::error!("a call to compress failed; its rows are not logged");
                let told = "this call can't be answered";
                Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, told))
            }
        }
    }
}

impl Limits {
    /// Reads a body whole.
    async fn read(&self, body: &mut Body) -> Result<Bytes, Refusal> {
        let long = || {
            let told = format!(
                "the body is longer than {} bytes (server.body_cap)",
                self.cap
            );
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, told)
        };
        if body.size_hint().lower() > self.cap as u64 {
            return Err(long());
        }
        let (mut held, mut whole) = (self.room.enter(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let broken = |_| Refusal::new(StatusCode::BAD_REQUEST, "the body breaks off");
            let Ok(data) = frame.map_err(broken)?.into_data() else {
                continue;
            };
            if whole.len() + data.len() > self.cap {
                return Err(long());
            }
            if !held.try_grow(data.len()) {
                return Err(Refusal::busy());
            }
            whole.extend_from_slice(&data);
        }
        Ok(held.hold(whole.freeze()))
    }
}

/// Reads on and drops what comes.
async fn discard(body: &mut Body, most: usize) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > most {
            return;
        }
    }
}

/// Why a call has no answer.
struct Refusal {
    status: StatusCode,
    told: String,
}

impl Refusal {
    fn new(status: StatusCode, told: impl Into<String>) -> Self {
        Self {
            status,
            told: told.into(),
        }
    }

    fn busy() -> Self {
        let told = "too much is asked at once; try again in a second";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, told)
    }

    /// The refusal under both names by which callers look for the reason.
    fn response(self) -> Response {
        let kind = self.status.canonical_reason().unwrap_or("error");
        let kind = kind.to_ascii_lowercase().replace(' ', "_");
        let body = json!({"error": {"type": kind, "message": self.told}, "detail": self.told});
        let mut response = answered(self.status, body.to_string().into());
        let more = match self.status {
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer realm=\"plimsoll\"")),
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, "1")),
            _ => None,
        };
        if let Some((name, value)) = more {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }
}

fn answered(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let fixed = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fixed {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}
