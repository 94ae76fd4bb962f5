//! The life of a request, stage by stage. Owns their order; never parses bytes of HTTP nor decides
//! how an error looks to a client.

mod app;
mod error;
mod request;

use std::sync::Arc;

use axum::body::Body;
use http::Response;

pub use app::App;
pub use error::{Class, ProxyError, Side};
pub use request::{
    Budget, Identity, MIN_CEILING, Mode, Overrides, Policy, Session, TurnRequest, Untouched,
};

use crate::upstream::{self, Outbound, Payload};

/// Serves one managed request: a turn.
///
/// # Errors
/// If the upstream gave no response.
pub async fn turn(app: &Arc<App>, request: TurnRequest) -> Result<Response<Body>, ProxyError> {
    let TurnRequest {
        method,
        asked,
        headers,
        raw,
        ..
    } = request;
    pass(
        app,
        Untouched {
            method,
            asked,
            headers,
            payload: Payload::Whole(raw),
        },
    )
    .await
}

/// Forwards a request as it is, and the response as it comes.
///
/// # Errors
/// If the upstream gave no response.
pub async fn pass(app: &Arc<App>, request: Untouched) -> Result<Response<Body>, ProxyError> {
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
    let mut response = app.upstream.send(outbound).await?;
    upstream::to_client(response.headers_mut());
    Ok(response.map(Body::new))
}
