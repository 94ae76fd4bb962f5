//! How many files the process may open, and what of that agents' connections may take. Owns the
//! limit; never opens anything.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than anybody needs: some programs that we start walk over all that they may have.
const ENOUGH: u64 = 65_536;

/// Descriptors that no agent gets: the store's, the log's, and those of whoever looks after the
/// process by its admin port.
const KEPT: u64 = 64;

/// Connections that are accepted under any limit.
const LEAST: usize = 8;

/// Raises the limit as far as the system lets us, and says where it stands then.
///
/// # Errors
/// If the system refuses; the old limit stands.
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

/// Connections that agents may have at once: what they ask for needs one each to the upstream.
pub(super) fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(ENOUGH);
    let room = limit.min(ENOUGH).saturating_sub(KEPT) / 2;
    usize::try_from(room).unwrap_or(usize::MAX).max(LEAST)
}

/// Requests that may be served at once with so many connections, so that some are left for who has
/// to be refused.
pub(super) fn places(connections: usize) -> usize {
    (connections * 3 / 4).max(1)
}
