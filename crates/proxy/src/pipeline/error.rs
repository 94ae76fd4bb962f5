//! Every way in which a request can fail, and whose fault that is. Owns the classes, the codes and
//! the messages of errors. Never makes a response.

use std::fmt;

use bytes::Bytes;
use http::StatusCode;
use plimsoll_core::policy::Pinned;
use plimsoll_core::turn::TermsError;
use plimsoll_model::room::Full;
use plimsoll_wire::Dialect;
use plimsoll_wire::{ErrorSide, ErrorText};

use crate::record::FailedStage;
use crate::upstream::{UploadFault, UpstreamError};

/// An error that the proxy answers with instead of the upstream.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// One of Plimsoll's headers has a value that is not allowed.
    #[error("{name}: {allowed}")]
    Header {
        /// The name of the header.
        name: &'static str,
        /// The values that are allowed.
        allowed: String,
    },
    /// The body can't be decompressed.
    #[error("the body is not valid {coding}; send it whole, or without content-encoding")]
    Coding {
        /// The `content-encoding` that was named.
        coding: &'static str,
    },
    /// The body is larger than the limit, as sent or after decompression.
    #[error("the body is larger than {cap} bytes; send less, or raise server.body_cap")]
    TooLarge {
        /// The limit in bytes.
        cap: usize,
    },
    /// The body takes far more memory or time to unpack than its size suggests.
    #[error(
        "the body unpacks to far more than its size, or at too high a cost; send it without \
         content-encoding"
    )]
    Unpacks,
    /// The client broke off or stopped sending in the middle of its body.
    #[error(transparent)]
    Body(#[from] UploadFault),
    /// The client asked for a protocol switch.
    #[error("WebSocket is not served here; use plain HTTP requests")]
    Upgrade,
    /// The method is CONNECT, which names no path.
    #[error("CONNECT is not served here; send requests to the base URL")]
    Method,
    /// The request names a host that the proxy does not answer to.
    #[error(
        "the host of this request is not one that the proxy answers to; use localhost or \
         127.0.0.1 in the base URL, or add the host to server.hosts"
    )]
    Host,
    /// The request comes from a web page whose origin is not allowed.
    #[error(
        "pages of this origin may not use the proxy; add the origin to server.origins if they should"
    )]
    Origin,
    /// The request carries the token of a ChatGPT login, which is not for this upstream.
    #[error(
        "this request carries a ChatGPT login, and its token is not for the OpenAI API; start the proxy with \
         --upstream https://chatgpt.com/backend-api/codex, or log in with an API key"
    )]
    Login,
    /// The proxy serves as much as it is allowed to.
    #[error("the proxy is busy; try again soon, or raise {}", .0.setting())]
    Overloaded(ServingLimit),
    /// The budget that the request asks for does not fit its model.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The budget can't be met, and the operator chose to refuse such requests.
    #[error(
        "the context holds {size} tokens where {ceiling} are allowed, and nothing more can be \
         evicted: user text {user}, system text {system}, tools {tools}, the newest exchange \
         {newest}, what can't be edited {opaque}, the rest {rest}; start a new session, or {way_out}",
        way_out = way_out(*windowed), user = pinned.user, system = pinned.system, tools = pinned.fixed,
        newest = pinned.newest, opaque = pinned.opaque, rest = pinned.rest
    )]
    Budget {
        /// The ceiling in tokens.
        ceiling: u64,
        /// Whether the ceiling comes from the model's window.
        windowed: bool,
        /// The size that remains, in tokens.
        size: u64,
        /// What can't be evicted.
        pinned: Pinned,
    },
    /// A later hop could not be prepared. The client's own request can't take its place, because
    /// the model has already answered it.
    #[error("the proxy could not go on with the turn ({0}); send the request again")]
    Interrupted(Interruption),
    /// The upstream gave no response.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// What limits how much is served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServingLimit {
    /// How many requests are served.
    Requests,
    /// How many bytes requests and answers take.
    Bodies,
    /// How many bodies are unpacked.
    Processors,
}

impl ServingLimit {
    /// What has to be raised for more.
    fn setting(self) -> &'static str {
        match self {
            Self::Requests => "server.max_in_flight",
            Self::Bodies => "server.body_budget",
            Self::Processors => "the number of processors",
        }
    }
}

/// What kept the proxy from going on with a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// A stage failed.
    Stage(FailedStage),
    /// The runtime is shutting down.
    Stopped,
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stage(stage) => stage.name(),
            Self::Stopped => "stopped",
        })
    }
}

/// Who caused an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller did.
    Caller,
    /// The upstream did.
    Upstream,
    /// The proxy did.
    Us,
}

/// What programs read of an error.
struct ErrorFacts {
    fault: Fault,
    status: StatusCode,
    code: &'static str,
}

impl From<Full> for ProxyError {
    fn from(_: Full) -> Self {
        Self::Overloaded(ServingLimit::Bodies)
    }
}

impl ProxyError {
    /// A panic of the proxy's own was caught.
    #[must_use]
    pub fn panicked() -> Self {
        Self::Interrupted(Interruption::Stage(FailedStage::Panic))
    }

    /// Who caused the error.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.facts().fault
    }

    /// The status that the caller gets.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.facts().status
    }

    /// The word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.facts().code
    }

    /// Everything that programs read of the error, in one table.
    fn facts(&self) -> ErrorFacts {
        use Fault::{Caller, Upstream, Us};
        let (fault, status, code) = match self {
            Self::Header { .. } | Self::Terms(_) => {
                (Caller, StatusCode::BAD_REQUEST, "invalid_header")
            }
            Self::Coding { .. } => (Caller, StatusCode::BAD_REQUEST, "invalid_body"),
            Self::TooLarge { .. } | Self::Unpacks => {
                (Caller, StatusCode::PAYLOAD_TOO_LARGE, "body_too_large")
            }
            Self::Body(upload) | Self::Upstream(UpstreamError::Upload(upload)) => match upload {
                UploadFault::Broken => (Caller, StatusCode::BAD_REQUEST, "body_incomplete"),
                UploadFault::Late => (Caller, StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
            },
            Self::Upgrade => {
                let status = StatusCode::UPGRADE_REQUIRED;
                (Caller, status, "upgrade_not_supported")
            }
            Self::Method => {
                let status = StatusCode::METHOD_NOT_ALLOWED;
                (Caller, status, "method_not_supported")
            }
            Self::Host => (Caller, StatusCode::FORBIDDEN, "host_not_allowed"),
            Self::Origin => (Caller, StatusCode::FORBIDDEN, "origin_not_allowed"),
            Self::Login => (Caller, StatusCode::BAD_REQUEST, "chatgpt_login"),
            Self::Overloaded(_) => (Us, StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
            Self::Budget { .. } => (Caller, StatusCode::BAD_REQUEST, "context_budget_exceeded"),
            Self::Interrupted(_) => (Us, StatusCode::BAD_GATEWAY, "turn_interrupted"),
            Self::Upstream(error) => match error {
                UpstreamError::Path | UpstreamError::Upload(_) => {
                    (Caller, StatusCode::BAD_REQUEST, "invalid_path")
                }
                UpstreamError::Connect { .. } => {
                    (Upstream, StatusCode::BAD_GATEWAY, "upstream_unreachable")
                }
                UpstreamError::Broken { .. } | UpstreamError::Dropped { .. } => {
                    (Upstream, StatusCode::BAD_GATEWAY, "upstream_broken")
                }
                UpstreamError::ConnectTimeout | UpstreamError::FirstByteTimeout => {
                    (Upstream, StatusCode::GATEWAY_TIMEOUT, "upstream_timeout")
                }
            },
        };
        ErrorFacts {
            fault,
            status,
            code,
        }
    }

    /// The error in the shape of a dialect, as a body or as the data of an error event.
    #[must_use]
    pub fn body(&self, dialect: Dialect) -> Bytes {
        let ErrorFacts {
            fault,
            status,
            code,
        } = self.facts();
        let side = match fault {
            Fault::Caller => ErrorSide::Caller,
            Fault::Upstream | Fault::Us => ErrorSide::Server,
        };
        let param = match self {
            Self::Header { name, .. } => Some(*name),
            Self::Coding { .. } | Self::Unpacks => Some("content-encoding"),
            Self::Budget { .. } => Some(dialect.conversation()),
            Self::TooLarge { .. }
            | Self::Body(_)
            | Self::Terms(_)
            | Self::Interrupted(_)
            | Self::Upgrade
            | Self::Method
            | Self::Host
            | Self::Origin
            | Self::Login
            | Self::Overloaded(_)
            | Self::Upstream(_) => None,
        };
        dialect.error(&ErrorText {
            status: status.as_u16(),
            side,
            message: &self.to_string(),
            param,
            code,
        })
    }
}

/// What the caller can do to make room.
fn way_out(windowed: bool) -> &'static str {
    if windowed {
        "use a model that takes more, or larger [partitions] where the operator parts its window"
    } else {
        "raise the budget"
    }
}
