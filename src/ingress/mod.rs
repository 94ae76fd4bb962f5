//! The edge towards agents: listeners, limits, credentials, headers, and errors in the caller's
//! shape. Owns everything up to the pipeline's door; never decides what the upstream is sent.
//!
//! | request | goes |
//! |---|---|
//! | `POST …/chat/completions` | read whole, then [`crate::pipeline::turn`] |
//! | a WebSocket upgrade | 426 |
//! | anything else | [`crate::pipeline::forward`], streamed both ways |

mod admin;
mod auth;
mod body;
mod edge;
mod errors;
mod headers;
mod limit;
mod server;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::pipeline::caches::MEMORY;

pub use admin::Probes;
pub use auth::{Credential, identity, tenant};
pub use body::Coding;
pub use edge::Edge;
pub use errors::respond;
pub use headers::{overrides, session};
pub use server::{BindError, Drained, Server};

/// Listening and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where agents connect.
    pub listen: SocketAddr,
    /// Where metrics and health are.
    pub admin: SocketAddr,
    /// The largest body that is read whole, in bytes, before and after decompression.
    pub body_cap: usize,
    /// What is remembered between requests takes so many bytes at most.
    pub cache_memory: usize,
    /// How long requests may go on once the server stops.
    pub drain: Duration,
    /// Requests at once, at least 1.
    pub max_in_flight: usize,
    /// The profiles that a request may name.
    pub profiles: BTreeSet<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8787).into(),
            admin: (Ipv4Addr::LOCALHOST, 9187).into(),
            body_cap: 64 << 20,
            cache_memory: MEMORY,
            drain: Duration::from_secs(25),
            max_in_flight: 1024,
            profiles: BTreeSet::new(),
        }
    }
}
