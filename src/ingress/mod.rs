//! The edge towards agents: listeners, limits, credentials, headers, and errors in the caller's
//! shape. Owns everything up to the pipeline's door. Never decides what the upstream is sent.
//!
//! | request | what happens |
//! |---|---|
//! | `POST …/chat/completions`, `…/responses`, `…/v1/messages` | read whole, then [`crate::pipeline::turn`] |
//! | `POST …/v1/messages/count_tokens` | the same, but only counted |
//! | a host or a page that is not allowed | 403 |
//! | a WebSocket upgrade | 426 |
//! | anything else | [`crate::pipeline::forward`], streamed in both directions |

mod admin;
mod auth;
mod body;
mod budget;
mod connections;
pub mod descriptors;
mod edge;
mod errors;
mod headers;
mod inflate;
mod limit;
mod origin;
mod pace;
mod server;
mod socket;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::model::caches::MEMORY;

pub use admin::{Probes, Readiness};
pub use auth::{Credential, Sources, identity};
pub use body::Coding;
pub use edge::Edge;
pub use errors::respond;
pub use headers::{overrides, session};
pub use origin::{Host, Hosts, OriginGuard, Origins};
pub use pace::Pace;
pub use server::{BindError, Drained, Server};

/// Where the server listens, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The address for agents.
    pub listen: SocketAddr,
    /// The address for metrics and health.
    pub admin: SocketAddr,
    /// The largest body that is read whole, in bytes, before and after decompression.
    pub body_cap: usize,
    /// How many bytes the bodies of all requests may take. It counts as twice `body_cap` if it is
    /// less, so that one body can always be served.
    pub body_budget: usize,
    /// How slowly a body may come.
    pub pace: Pace,
    /// How long a client may read nothing although bytes wait for it.
    pub write_timeout: Duration,
    /// How many bytes all caches together may take.
    pub cache_memory: usize,
    /// How long requests may go on after the server was told to stop.
    pub drain: Duration,
    /// How many requests are served at once. At least 1.
    pub max_in_flight: usize,
    /// Where credentials are looked for.
    pub sources: Sources,
    /// The hosts that requests may name, besides those of this machine.
    pub hosts: Hosts,
    /// The origins of pages that may send requests, besides those of this machine.
    pub origins: Origins,
    /// The profiles that a request may name.
    pub profiles: BTreeSet<String>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8787).into(),
            admin: (Ipv4Addr::LOCALHOST, 9187).into(),
            body_cap: 64 << 20,
            body_budget: 512 << 20,
            pace: Pace {
                wait: Duration::from_secs(30),
                rate: 4 << 10,
                most: Duration::from_secs(600),
            },
            write_timeout: Duration::from_secs(60),
            cache_memory: MEMORY,
            drain: Duration::from_secs(25),
            max_in_flight: 1024,
            sources: Sources::default(),
            hosts: Hosts::default(),
            origins: Origins::default(),
            profiles: BTreeSet::new(),
        }
    }
}
