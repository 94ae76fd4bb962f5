//! How many files the process may open, and how many of them agents' connections may take. Owns the
//! limit. Never opens a file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than anybody needs. Some programs that the proxy starts walk over all descriptors that they
/// may have.
const ENOUGH: u64 = 65_536;

/// How many descriptors no agent gets: those of the store, of the log, and of whoever uses the
/// admin port.
const KEPT: u64 = 64;

/// How many connections are accepted under any limit.
const LEAST: usize = 8;

/// Raises the limit as far as the system allows, and returns it.
///
/// # Errors
/// The system's error. The old limit stays.
pub fn raise() -> std::io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(ENOUGH);
    let wanted = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
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

/// How many connections agents may have. Each may need another one to the upstream.
pub(super) fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(ENOUGH);
    let room = limit.min(ENOUGH).saturating_sub(KEPT) / 2;
    usize::try_from(room).unwrap_or(usize::MAX).max(LEAST)
}

/// How many requests may be served at once over this many connections. The others are for requests
/// that have to be refused.
pub(super) fn places(connections: usize) -> usize {
    (connections * 3 / 4).max(1)
}
