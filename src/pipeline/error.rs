//! Everything that can go wrong with a request, and whose fault it is. Owns the classes and the
//! codes; never makes a response.

use bytes::Bytes;
use http::StatusCode;

use crate::dialect::request::RequestError;
use crate::dialect::{ErrorSide, ErrorText};
use crate::model::Dialect;
use crate::policy::Pinned;
use crate::turn::TermsError;
use crate::upstream::{self, UploadFault};

/// A request that gets an answer of ours instead of the upstream's.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// One of our headers has a value that is not allowed.
    #[error("{name}: {allowed}")]
    Header {
        /// The header.
        name: &'static str,
        /// What would be right.
        allowed: String,
    },
    /// The body can't be decompressed.
    #[error("the body is no valid {coding}; send it whole, or without content-encoding")]
    Coding {
        /// The `content-encoding` that was named.
        coding: &'static str,
    },
    /// The body is over the cap, as sent or decompressed.
    #[error("the body is larger than {cap} bytes; send less, or raise server.body_cap")]
    TooLarge {
        /// Bytes that are allowed.
        cap: usize,
    },
    /// The body costs far more memory, or time, than its size.
    #[error(
        "the body unpacks to far more than its size, or at too high a cost; send it without \
         content-encoding"
    )]
    Unpacks,
    /// The client broke off, or fell silent, in its body.
    #[error(transparent)]
    Body(#[from] UploadFault),
    /// A protocol switch was asked for.
    #[error("WebSocket is not served here; use plain HTTP requests")]
    Upgrade,
    /// A method that names no path.
    #[error("CONNECT is not served here; send requests to the base URL")]
    Method,
    /// The request asks for a host that is not this proxy's.
    #[error(
        "the host of this request is not one that the proxy answers to; use localhost or \
         127.0.0.1 in the base URL, or add the host to server.hosts"
    )]
    Host,
    /// The request is of a page of the web.
    #[error(
        "pages of this origin may not use the proxy; add the origin to server.origins if they should"
    )]
    Origin,
    /// As much is served as may be.
    #[error("too much at once; try again soon, or raise {setting}")]
    Overloaded {
        /// What bounds it.
        setting: &'static str,
    },
    /// The body is no request of the dialect.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The request's own budget can't be read against its model.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The budget can't be met and the operator refuses such requests.
    #[error(
        "the context holds {size} tokens where {ceiling} are allowed, and nothing more can be \
         evicted: user text {user}, system text {system}, tools {tools}, the newest exchange \
         {newest}, what can't be edited {opaque}, the rest {rest}; start a new session, or {way_out}",
        way_out = way_out(*windowed), user = pinned.user, system = pinned.system, tools = pinned.fixed,
        newest = pinned.newest, opaque = pinned.opaque, rest = pinned.rest
    )]
    Budget {
        /// τ in tokens.
        ceiling: u64,
        /// Whether it is the model's window.
        windowed: bool,
        /// The size that is left, in tokens.
        size: u64,
        /// What is pinned.
        pinned: Pinned,
    },
    /// A later hop could not be prepared: what the client sent can't be sent again instead,
    /// because the model has been answered already.
    #[error("the proxy could not go on with the turn ({0}); send the request again")]
    Middle(&'static str),
    /// The upstream gave no response.
    #[error(transparent)]
    Upstream(#[from] upstream::Error),
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The caller's: the same request fails again.
    Caller,
    /// The upstream's.
    Upstream,
    /// The proxy's own.
    Us,
}

/// Whose fault an error is, and whether the same request may work later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Whose.
    pub side: Side,
    /// Whether a retry makes sense.
    pub retryable: bool,
}

impl ProxyError {
    /// Sorts the error.
    #[must_use]
    pub fn class(&self) -> Class {
        let (side, retryable) = match self {
            Self::Header { .. } | Self::Coding { .. } => (Side::Caller, false),
            Self::TooLarge { .. } | Self::Unpacks => (Side::Caller, false),
            Self::Upgrade | Self::Method | Self::Host | Self::Origin => (Side::Caller, false),
            Self::Request(_) | Self::Terms(_) | Self::Budget { .. } => (Side::Caller, false),
            Self::Upstream(upstream::Error::Path) => (Side::Caller, false),
            Self::Body(_) | Self::Upstream(upstream::Error::Upload(_)) => (Side::Caller, true),
            Self::Overloaded { .. } | Self::Middle(_) => (Side::Us, true),
            Self::Upstream(
                upstream::Error::Connect { .. }
                | upstream::Error::ConnectTimeout
                | upstream::Error::FirstByteTimeout
                | upstream::Error::Broken { .. },
            ) => (Side::Upstream, true),
        };
        Class { side, retryable }
    }

    /// The status that the caller is answered.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Header { .. } | Self::Coding { .. } => StatusCode::BAD_REQUEST,
            Self::Request(_) | Self::Terms(_) | Self::Budget { .. } => StatusCode::BAD_REQUEST,
            Self::TooLarge { .. } | Self::Unpacks => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(fault) | Self::Upstream(upstream::Error::Upload(fault)) => match fault {
                UploadFault::Broken => StatusCode::BAD_REQUEST,
                UploadFault::Late => StatusCode::REQUEST_TIMEOUT,
            },
            Self::Upgrade => StatusCode::UPGRADE_REQUIRED,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Host | Self::Origin => StatusCode::FORBIDDEN,
            Self::Overloaded { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Middle(_) => StatusCode::BAD_GATEWAY,
            Self::Upstream(error) => match error {
                upstream::Error::Path | upstream::Error::Upload(_) => StatusCode::BAD_REQUEST,
                upstream::Error::Connect { .. } | upstream::Error::Broken { .. } => {
                    StatusCode::BAD_GATEWAY
                }
                upstream::Error::ConnectTimeout | upstream::Error::FirstByteTimeout => {
                    StatusCode::GATEWAY_TIMEOUT
                }
            },
        }
    }

    /// The error in a dialect's shape, as a body or as the data of a stream's error event.
    #[must_use]
    pub fn body(&self, dialect: Dialect) -> Bytes {
        let side = match self.class().side {
            Side::Caller => ErrorSide::Caller,
            Side::Upstream | Side::Us => ErrorSide::Server,
        };
        let param = match self {
            Self::Header { name, .. } => Some(*name),
            Self::Coding { .. } | Self::Unpacks => Some("content-encoding"),
            Self::Budget { .. } => Some(dialect.conversation()),
            Self::Request(RequestError::Missing { field, .. }) => Some(*field),
            Self::TooLarge { .. }
            | Self::Body(_)
            | Self::Request(RequestError::Body(_) | RequestError::DuplicateKey)
            | Self::Terms(_)
            | Self::Middle(_)
            | Self::Upgrade
            | Self::Method
            | Self::Host
            | Self::Origin
            | Self::Overloaded { .. }
            | Self::Upstream(_) => None,
        };
        dialect.error(&ErrorText {
            status: self.status().as_u16(),
            side,
            message: &self.to_string(),
            param,
            code: self.code(),
        })
    }

    /// The word for programs.
    fn code(&self) -> &'static str {
        match self {
            Self::Header { .. } | Self::Terms(_) => "invalid_header",
            Self::Coding { .. } | Self::Request(_) => "invalid_body",
            Self::TooLarge { .. } | Self::Unpacks => "body_too_large",
            Self::Body(fault) | Self::Upstream(upstream::Error::Upload(fault)) => match fault {
                UploadFault::Broken => "body_incomplete",
                UploadFault::Late => "body_too_slow",
            },
            Self::Upgrade => "upgrade_not_supported",
            Self::Method => "method_not_supported",
            Self::Host => "host_not_allowed",
            Self::Origin => "origin_not_allowed",
            Self::Overloaded { .. } => "overloaded",
            Self::Budget { .. } => "context_budget_exceeded",
            Self::Middle(_) => "turn_interrupted",
            Self::Upstream(error) => match error {
                upstream::Error::Path | upstream::Error::Upload(_) => "invalid_path",
                upstream::Error::Connect { .. } => "upstream_unreachable",
                upstream::Error::Broken { .. } => "upstream_broken",
                upstream::Error::ConnectTimeout | upstream::Error::FirstByteTimeout => {
                    "upstream_timeout"
                }
            },
        }
    }
}

/// What would make room for a context that has none.
fn way_out(windowed: bool) -> &'static str {
    if windowed {
        "use a model that takes more"
    } else {
        "raise the budget"
    }
}
