//! Where the server listens, and its limits. Owns the defaults. Never reads a configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use plimsoll_model::caches::MEMORY;
use plimsoll_model::room::{ROOM, Room};

use super::access::AdminToken;
use super::auth::Sources;
use super::origin::{Hosts, Origins};
use super::pace::Pace;
use super::pieces;

/// Where the server listens, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The address for agents.
    pub listen: SocketAddr,
    /// The address for metrics and health.
    pub admin: SocketAddr,
    /// What is demanded of whoever uses that address.
    pub admin_token: Option<AdminToken>,
    /// The largest body that is read whole, in bytes, before and after decompression.
    pub body_cap: usize,
    /// How many bytes requests, answers and what is made of them may take. It counts as twice `body_cap` if it
    /// is less, so that one body can always be served.
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
}

impl ServerSettings {
    /// Room for requests and answers.
    #[must_use]
    pub fn room(&self) -> Room {
        Room::of(self.body_budget.max(pieces::most_of_one(self.body_cap)))
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8787).into(),
            admin: (Ipv4Addr::LOCALHOST, 9187).into(),
            admin_token: None,
            body_cap: 64 << 20,
            body_budget: ROOM,
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
        }
    }
}
