//! The admin listener: health and metrics. Owns three paths. Never shares a port with agents.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::errors;
use super::origin::OriginGuard;

/// The content type of Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the admin listener asks other parts.
#[derive(Clone)]
pub struct Probes {
    /// Returns the metrics in Prometheus' text format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Returns whether requests can be served, including by the store.
    pub ready: Arc<dyn Fn() -> Readiness + Send + Sync>,
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

#[derive(Clone)]
struct Admin {
    probes: Probes,
    draining: CancellationToken,
}

/// Serves until `stop`. From `draining` on, `/readyz` answers 503.
pub(super) async fn serve(
    listener: TcpListener,
    guard: OriginGuard,
    probes: Probes,
    draining: CancellationToken,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Admin { probes, draining })
        .layer(middleware::from_fn_with_state(guard, guarded));
    tokio::select! {
        outcome = async { axum::serve(listener, router).await } => outcome,
        () = stop.cancelled() => Ok(()),
    }
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
