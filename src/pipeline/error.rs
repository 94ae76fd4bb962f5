//! Everything that can go wrong with a request, and whose fault it is. Owns the classes; never
//! renders a response.

use crate::upstream;

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
    /// The client broke off, or fell silent, in its body.
    #[error("the body did not arrive whole; send it again")]
    Body,
    /// A protocol switch was asked for.
    #[error("WebSocket is not served here; use plain HTTP requests")]
    Upgrade,
    /// A method that names no path.
    #[error("CONNECT is not served here; send requests to the base URL")]
    Method,
    /// As many requests are served as may be.
    #[error("too many requests at once; try again soon, or raise server.max_in_flight")]
    Overloaded,
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
            Self::Header { .. } | Self::Coding { .. } | Self::TooLarge { .. } => {
                (Side::Caller, false)
            }
            Self::Upgrade | Self::Method => (Side::Caller, false),
            Self::Upstream(upstream::Error::Path) => (Side::Caller, false),
            Self::Body => (Side::Caller, true),
            Self::Overloaded => (Side::Us, true),
            Self::Upstream(
                upstream::Error::Connect { .. }
                | upstream::Error::ConnectTimeout
                | upstream::Error::FirstByteTimeout
                | upstream::Error::Broken { .. },
            ) => (Side::Upstream, true),
        };
        Class { side, retryable }
    }
}
