//! An error as a response: in the shape of its dialect, or of OpenAI's if it has none, with the
//! headers that belong to it. Owns those headers. Never words what went wrong, because the errors
//! do, and never touches an error of the upstream's.

use axum::body::Body;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, UPGRADE};
use http::{HeaderValue, Response};
use plimsoll_proxy::pipeline::ProxyError;
use plimsoll_wire::Dialect;

/// The response to a request that failed.
#[must_use]
pub fn respond(dialect: Option<Dialect>, error: &ProxyError) -> Response<Body> {
    let mut response = Response::new(Body::from(error.body(dialect.unwrap_or_default())));
    *response.status_mut() = error.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    match error {
        ProxyError::Overloaded(_) => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // A 426 must name a protocol that is understood.
        ProxyError::Upgrade => {
            headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        ProxyError::Header { .. }
        | ProxyError::Coding { .. }
        | ProxyError::TooLarge { .. }
        | ProxyError::Unpacks
        | ProxyError::Body(_)
        | ProxyError::Terms(_)
        | ProxyError::Budget { .. }
        | ProxyError::Interrupted(_)
        | ProxyError::Method
        | ProxyError::Host
        | ProxyError::Origin
        | ProxyError::Login
        | ProxyError::Upstream(_) => {}
    }
    response
}
