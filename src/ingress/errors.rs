//! How an error looks to the client: in the shape of its dialect, OpenAI's where it has none. Owns
//! its codes; never words what went wrong (the errors do) and never touches an error of the
//! upstream's own.

use axum::body::Body;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, UPGRADE};
use http::{HeaderValue, Response};

use crate::dialect::request::RequestError;
use crate::dialect::{ErrorSide, ErrorText};
use crate::model::Dialect;
use crate::pipeline::{ProxyError, Side};
use crate::upstream;

/// The response to a request that failed.
#[must_use]
pub fn respond(dialect: Option<Dialect>, error: &ProxyError) -> Response<Body> {
    let dialect = dialect.unwrap_or_default();
    let status = error.status();
    let side = match error.class().side {
        Side::Caller => ErrorSide::Caller,
        Side::Upstream | Side::Us => ErrorSide::Server,
    };
    let param = match error {
        ProxyError::Header { name, .. } => Some(*name),
        ProxyError::Coding { .. } => Some("content-encoding"),
        ProxyError::Budget { .. } => Some(dialect.conversation()),
        ProxyError::Request(RequestError::Missing { field, .. }) => Some(*field),
        ProxyError::TooLarge { .. }
        | ProxyError::Body
        | ProxyError::Request(RequestError::Body(_) | RequestError::DuplicateKey)
        | ProxyError::Terms(_)
        | ProxyError::Middle(_)
        | ProxyError::Upgrade
        | ProxyError::Method
        | ProxyError::Overloaded
        | ProxyError::Upstream(_) => None,
    };
    let body = dialect.error(&ErrorText {
        status: status.as_u16(),
        side,
        message: &error.to_string(),
        param,
        code: code(error),
    });
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    match error {
        ProxyError::Overloaded => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // A 426 has to name what would be understood.
        ProxyError::Upgrade => {
            headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        ProxyError::Header { .. }
        | ProxyError::Coding { .. }
        | ProxyError::TooLarge { .. }
        | ProxyError::Body
        | ProxyError::Request(_)
        | ProxyError::Terms(_)
        | ProxyError::Budget { .. }
        | ProxyError::Middle(_)
        | ProxyError::Method
        | ProxyError::Upstream(_) => {}
    }
    response
}

fn code(error: &ProxyError) -> &'static str {
    match error {
        ProxyError::Header { .. } | ProxyError::Terms(_) => "invalid_header",
        ProxyError::Coding { .. } | ProxyError::Request(_) => "invalid_body",
        ProxyError::TooLarge { .. } => "body_too_large",
        ProxyError::Body => "body_incomplete",
        ProxyError::Upgrade => "upgrade_not_supported",
        ProxyError::Method => "method_not_supported",
        ProxyError::Overloaded => "overloaded",
        ProxyError::Budget { .. } => "context_budget_exceeded",
        ProxyError::Middle(_) => "turn_interrupted",
        ProxyError::Upstream(error) => match error {
            upstream::Error::Path => "invalid_path",
            upstream::Error::Connect { .. } => "upstream_unreachable",
            upstream::Error::Broken { .. } => "upstream_broken",
            upstream::Error::ConnectTimeout | upstream::Error::FirstByteTimeout => {
                "upstream_timeout"
            }
        },
    }
}
