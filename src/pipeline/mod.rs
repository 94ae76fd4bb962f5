//! The life of a request. [`turn`] names every stage of a managed one in order: `open` is the
//! request half up to the first hop, `drive` and `unary` are the response half. [`forward`] is for
//! everything else. Owns the order; never parses HTTP nor decides how an error looks.

mod active;
mod app;
mod books;
pub mod content;
mod drive;
mod error;
pub mod find;
pub mod finish;
mod incoming;
mod learned;
mod open;
mod patience;
pub mod reads;
mod refer;
mod report;
mod request;
mod send;
mod standing;
mod unary;
mod windows;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use futures_util::FutureExt as _;
use http::Response;

pub use active::Active;
pub use app::App;
pub use error::{Class, ProxyError, Side};
pub use learned::Learned;
pub use report::Report;
pub use request::{Identity, Session, Standing, TurnRequest, Untouched};
pub use standing::Accepted;
pub use windows::Windows;

use crate::upstream::{self, Outbound, Payload};
use open::Opened;

/// Serves one managed request: a turn.
///
/// # Errors
/// [`ProxyError`] where the caller gets an answer of ours instead of the upstream's.
pub async fn turn(
    app: &Arc<App>,
    request: TurnRequest,
    report: Report,
) -> Result<Response<Body>, ProxyError> {
    let (identity, purpose) = (request.identity, request.purpose);
    // dialect, session, tokens, policy, commit, render: the request half, pure but for one look-up,
    // which is waited for only so long.
    let answer = match open::open(app, request, report).await? {
        // upstream, intercept, record: one hop after the other until the answer is whole.
        Opened::Managed(turn) => {
            let sending = AssertUnwindSafe(send::first(app, *turn)).catch_unwind();
            // A mistake of ours behind the upstream's answer costs this turn, not the connection.
            let gone = |_| Err(ProxyError::Middle("panic"));
            sending.await.unwrap_or_else(gone)
        }
        Opened::Untouched { request, report } => forward(app, *request, *report).await,
    };
    if let Ok(response) = &answer {
        standing::answered(app, &identity, purpose, response.status());
    }
    answer
}

/// Serves a request that is not managed.
///
/// # Errors
/// If the upstream gave no response.
pub async fn forward(
    app: &Arc<App>,
    request: Untouched,
    mut report: Report,
) -> Result<Response<Body>, ProxyError> {
    match pass(app, request, &mut report).await {
        Ok(mut response) => {
            response.headers_mut().extend(report.headers());
            report.answered(response.status());
            report.finish(Some(response.status()));
            Ok(response)
        }
        Err(error) => {
            report.refuse(error.status());
            Err(error)
        }
    }
}

/// Forwards a request as it is, and the response as it comes.
///
/// # Errors
/// If the upstream gave no response.
async fn pass(
    app: &App,
    request: Untouched,
    report: &mut Report,
) -> Result<Response<Body>, ProxyError> {
    let Untouched {
        method,
        asked,
        mut headers,
        payload,
    } = request;
    let url = app.upstream.target(&asked)?;
    upstream::to_upstream(&mut headers);
    let outbound = Outbound {
        method,
        url,
        headers,
        payload,
    };
    let told = |retry| report.retried(retry);
    let mut response = app.upstream.send(outbound, told).await?;
    upstream::to_client(response.headers_mut());
    Ok(response.map(Body::new))
}

/// The client's request as it came, for forwarding.
fn untouched(request: &TurnRequest) -> Untouched {
    Untouched {
        method: request.method.clone(),
        asked: request.asked.clone(),
        headers: request.headers.clone(),
        payload: Payload::Whole(request.raw.clone().into()),
    }
}
