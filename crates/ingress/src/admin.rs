//! The admin listener: health, metrics, the store, and the console with what an operator asks of a session
//! (`console`). Owns its paths. Never shares a port with agents.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use plimsoll_console::Console;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::access::{self, AccessGuard};
use super::console;
use super::errors;
use super::origin::OriginGuard;
use super::store_work::{self, CountStore, EraseFromStore, OneAtATime, SnapshotStore, SweepStore};

/// The content type of Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The largest body of a question, in bytes.
const ASKED_BYTES: usize = 16 << 10;

/// What the admin listener asks other parts.
#[derive(Clone)]
pub struct Probes {
    /// Returns the metrics in Prometheus' text format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Returns whether requests can be served, including by the store.
    pub ready: Arc<dyn Fn() -> Readiness + Send + Sync>,
    /// Counts what the store holds. May take minutes.
    pub stats: Arc<CountStore>,
    /// Removes what is too old from the store. May take minutes.
    pub gc: Arc<SweepStore>,
    /// Writes a snapshot of the store. May take minutes.
    pub snapshot: Arc<SnapshotStore>,
    /// Erases a session or a tenant. May take minutes.
    pub erase: Arc<EraseFromStore>,
    /// What a person sees in a browser.
    pub console: Arc<Console>,
}

/// What `/readyz` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether requests can be served.
    pub ready: bool,
    /// What an operator must know in any case, one line each.
    pub notes: Vec<String>,
}

impl Default for Readiness {
    /// Ready, without notes.
    fn default() -> Self {
        Self {
            ready: true,
            notes: Vec::new(),
        }
    }
}

/// What the paths share.
#[derive(Clone)]
pub(super) struct Admin {
    /// What other parts are asked.
    pub probes: Probes,
    /// Cancelled when the server begins to stop.
    pub draining: CancellationToken,
    /// Taken by whoever has the whole store read.
    store: OneAtATime,
    /// Taken by whoever has a session played.
    pub lab: OneAtATime,
}

/// All paths, behind what a request must prove. From `draining` on, `/readyz` answers 503.
pub(super) fn router(
    guard: OriginGuard,
    access: Arc<AccessGuard>,
    probes: Probes,
    draining: CancellationToken,
) -> Router {
    let proven = Arc::clone(&probes.console);
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/store", get(store))
        .route("/api/store/gc", post(gc))
        .route("/api/store/snapshot", post(snapshot))
        .route("/api/store/erase", post(erase))
        .merge(console::routes())
        .with_state(Admin {
            probes,
            draining,
            store: OneAtATime::default(),
            lab: OneAtATime::default(),
        })
        .layer(middleware::from_fn_with_state(proven, console::proven))
        .layer(middleware::from_fn_with_state(access, access::checked))
        .layer(middleware::from_fn_with_state(guard, guarded))
        .layer(middleware::from_fn(console::kept_apart))
}

/// Checks every request, even for paths that do not exist.
async fn guarded(State(guard): State<OriginGuard>, request: Request, next: Next) -> Response {
    match guard.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => errors::respond(None, &error),
    }
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, String) {
    if admin.draining.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned());
    }
    let Readiness { ready, notes } = (admin.probes.ready)();
    let (status, word) = if ready {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    };
    let mut text = format!("{word}\n");
    for note in notes {
        text.push_str(&note);
        text.push('\n');
    }
    (status, text)
}

async fn metrics(State(admin): State<Admin>) -> ([(http::HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, METRICS_TYPE)], (admin.probes.metrics)())
}

async fn store(State(admin): State<Admin>) -> Response {
    let (status, value) = store_work::stats(&admin.store, Arc::clone(&admin.probes.stats)).await;
    answer(status, &value)
}

async fn gc(State(admin): State<Admin>) -> Response {
    let (status, value) = store_work::sweep(&admin.store, Arc::clone(&admin.probes.gc)).await;
    answer(status, &value)
}

async fn snapshot(State(admin): State<Admin>, body: Body) -> Response {
    let Ok(body) = to_bytes(body, ASKED_BYTES).await else {
        return too_large();
    };
    let write = Arc::clone(&admin.probes.snapshot);
    let (status, value) = store_work::snapshot(&admin.store, &body, write).await;
    answer(status, &value)
}

async fn erase(State(admin): State<Admin>, body: Body) -> Response {
    let Ok(body) = to_bytes(body, ASKED_BYTES).await else {
        return too_large();
    };
    let erase = Arc::clone(&admin.probes.erase);
    let (status, value) = store_work::erase(&admin.store, &body, erase).await;
    answer(status, &value)
}

fn too_large() -> Response {
    let told = json!({"error": {"message": "send at most 16 KiB"}});
    answer(StatusCode::PAYLOAD_TOO_LARGE, &told)
}

pub(super) fn answer(status: StatusCode, value: &serde_json::Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
