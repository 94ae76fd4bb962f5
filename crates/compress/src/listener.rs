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
#[must_use]
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
    let (caller, place) = match shared.admit(&headers) {
        Ok(admitted) => admitted,
        Err(refusal) => {
            let _late = tokio::time::timeout(DISCARD_TIME, discard(&mut body, shared.limits.cap));
            let _late = _late.await;
            return refusal;
        }
    };
    if headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| coding != "identity")
    {
        return refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send the body without a content-encoding",
        );
    }
    let body = match tokio::time::timeout(BODY_TIME, shared.limits.read(&mut body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(refusal)) => {
            let _late = tokio::time::timeout(DISCARD_TIME, discard(&mut body, shared.limits.cap));
            let _late = _late.await;
            return refusal;
        }
        Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "send the body faster"),
    };
    let _turn = shared.limits.work.acquire().await;
    let engine = Arc::clone(&shared.engine);
    let work = tokio::task::spawn_blocking(move || {
        let answer = engine.compress(&caller, &body);
        drop((body, place));
        answer
    });
    match work.await {
        Ok(Ok(answer)) => answered(StatusCode::OK, answer),
        Ok(Err(error)) => refused(StatusCode::BAD_REQUEST, &error.to_string()),
        Err(_) => {
            tracing::error!("a call to compress failed; its rows are not logged");
            refused(
                StatusCode::INTERNAL_SERVER_ERROR,
                "this call can't be answered",
            )
        }
    }
}

async fn retrieve(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let (caller, _place) = match shared.admit(&headers) {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    let told = match shared.engine.retrieve(&caller, &id) {
        Ok(answer) => return answered(StatusCode::OK, answer.into()),
        Err(Gone::NotKept) => "originals are not kept: set compress.keep = true",
        Err(Gone::Unknown) => {
            "no original is kept under this id: originals are kept in memory (compress.keep) as long as \
             server.cache_memory has room; send the rows to /v1/compress again"
        }
    };
    refused(StatusCode::NOT_FOUND, told)
}

async fn unknown() -> Response {
    refused(
        StatusCode::NOT_FOUND,
        "this listener has POST /v1/compress, POST /compact and GET /v1/retrieve/ID",
    )
}

impl Shared {
    /// Who calls, with a place; or why not.
    fn admit(&self, headers: &HeaderMap) -> Result<(Caller, RequestPlace), Response> {
        let settings = self.engine.settings();
        let caller = match Caller::of(settings, self.engine.secret(), headers) {
            Ok(caller) => caller,
            Err(Stranger::Key) => {
                let mut response = refused(
                    StatusCode::UNAUTHORIZED,
                    "send the key of this listener as `authorization: Bearer KEY`: it is compress.key, or one of compress.keys",
                );
                let scheme = HeaderValue::from_static("Bearer realm=\"plimsoll\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
                return Err(response);
            }
            Err(Stranger::Tenant) => {
                let header = &settings.tenant_header;
                let told = format!(
                    "send the header `{header}`, which names the tenant of these rows; where a caller can't, give it a key of its own in compress.keys"
                );
                return Err(refused(StatusCode::BAD_REQUEST, &told));
            }
        };
        match self.limits.calls.enter(caller.tenant) {
            Some(place) => Ok((caller, place)),
            None => Err(busy()),
        }
    }
}

impl Limits {
    /// Reads a body whole.
    async fn read(&self, body: &mut Body) -> Result<Bytes, Response> {
        let long = || {
            let told = format!(
                "the body is longer than {} bytes (server.body_cap)",
                self.cap
            );
            refused(StatusCode::PAYLOAD_TOO_LARGE, &told)
        };
        if body.size_hint().lower() > self.cap as u64 {
            return Err(long());
        }
        let (mut held, mut whole) = (self.room.enter(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Err(refused(StatusCode::BAD_REQUEST, "the body breaks off"));
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if whole.len() + data.len() > self.cap {
                return Err(long());
            }
            if !held.try_grow(data.len()) {
                return Err(busy());
            }
            whole.extend_from_slice(&data);
        }
        Ok(held.hold(whole.freeze()))
    }
}

/// Reads on and drops what comes: many clients read only after they have written.
async fn discard(body: &mut Body, most: usize) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > most {
            return;
        }
    }
}

fn busy() -> Response {
    let mut response = refused(
        StatusCode::SERVICE_UNAVAILABLE,
        "too much is asked at once; try again in a second",
    );
    let second = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, second);
    response
}

/// A refusal, under both names by which callers look for the reason.
fn refused(status: StatusCode, told: &str) -> Response {
    let kind = status.canonical_reason().unwrap_or("error");
    let kind = kind.to_ascii_lowercase().replace(' ', "_");
    let body = json!({"error": {"type": kind, "message": told}, "detail": told});
    answered(status, body.to_string().into())
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
