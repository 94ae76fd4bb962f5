//! How many files the process may open, and how many of them agents' connections may take. Owns the
//! limit. Never opens a file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than anybody needs. Some programs that the proxy starts walk over all descriptors that they
/// may have.
const MAX_DESCRIPTORS: u64 = 65_536;

/// How many descriptors no connection gets: those of the store, of the log and of the runtimes.
const RESERVED: u64 = 48;

/// One descriptor in so many, and how many at least and at most, are for connections to the admin port.
const ADMIN_SHARE: u64 = 8;
const ADMIN_LEAST: u64 = 8;
const ADMIN_MOST: u64 = 128;

/// How many connections are accepted under any limit.
const MIN_CONNECTIONS: usize = 8;

/// Raises the limit as far as the system allows, and returns it.
///
/// # Errors
/// The system's error. The old limit stays.
pub fn raise() -> std::io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(MAX_DESCRIPTORS);
    let wanted = limit
        .maximum
        .unwrap_or(MAX_DESCRIPTORS)
        .min(MAX_DESCRIPTORS);
    if wanted <= current {
        return Ok(current);
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised)?;
    Ok(wanted)
}

fn limit() -> u64 {
    let limit = getrlimit(Resource::Nofile).current;
    limit.unwrap_or(MAX_DESCRIPTORS).min(MAX_DESCRIPTORS)
}

fn of_admin(limit: u64) -> u64 {
    (limit / ADMIN_SHARE).clamp(ADMIN_LEAST, ADMIN_MOST)
}

/// How many connections the admin port may have. They are none of those of agents.
pub(super) fn admin_connections() -> usize {
    usize::try_from(of_admin(limit())).unwrap_or(MIN_CONNECTIONS)
}

/// How many connections agents may have. Each may need another one to the upstream.
pub(super) fn connections() -> usize {
    let limit = limit();
    let room = limit.saturating_sub(RESERVED + of_admin(limit)) / 2;
    usize::try_from(room)
        .unwrap_or(usize::MAX)
        .max(MIN_CONNECTIONS)
}

/// How many requests may be served at once over this many connections. The others are for requests
/// that have to be refused.
pub(super) fn places(connections: usize) -> usize {
    (connections * 3 / 4).max(1)
}
