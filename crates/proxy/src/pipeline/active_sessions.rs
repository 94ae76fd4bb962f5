//! Counts the sessions that were served lately, for one gauge. Owns the hashes of their names and
//! their last times. Never remembers anything else of a session, nor more sessions than fit into
//! its share of the memory.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plimsoll_model::caches::{MEMORY, share};
use plimsoll_model::{CacheName, Erased, Hashed, hash};

/// How long a session counts as active after its last turn.
const ACTIVE_FOR: Duration = Duration::from_secs(15 * 60);
/// How often a full table is searched for sessions that have ended, at most.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);
/// The most memory that one session takes, in bytes. The table doubles when it grows.
const SESSION_BYTES: usize = 2 * (size_of::<(u64, Instant)>() + 2);

/// The last time of each session, by the hash of the name that clients see.
#[derive(Debug)]
pub struct ActiveSessions {
    seen: Mutex<SeenSessions>,
    /// How many sessions are held. When the table is full, a new session does not count until an
    /// old one has ended.
    most: usize,
}

#[derive(Debug, Default)]
struct SeenSessions {
    sessions: HashMap<u64, Instant, Hashed>,
    pruned: Option<Instant>,
}

impl SeenSessions {
    fn prune(&mut self) {
        self.sessions.retain(|_, at| at.elapsed() < ACTIVE_FOR);
        self.pruned = Some(Instant::now());
    }
}

impl Default for ActiveSessions {
    fn default() -> Self {
        Self::new(MEMORY)
    }
}

impl ActiveSessions {
    /// Holds as many sessions as fit into their share of `all`, the memory of all caches.
    #[must_use]
    pub fn new(all: usize) -> Self {
        Self {
            seen: Mutex::default(),
            most: share(CacheName::Sessions, all) / SESSION_BYTES,
        }
    }

    /// Notes a turn of a session.
    pub fn touch(&self, session: &str) {
        if session.is_empty() {
            return;
        }
        let session = hash(session);
        let mut seen = self.seen.lock();
        let recent = seen.pruned.is_some_and(|at| at.elapsed() < PRUNE_INTERVAL);
        if seen.sessions.len() >= self.most && !recent {
            seen.prune();
        }
        if seen.sessions.len() < self.most || seen.sessions.contains_key(&session) {
            seen.sessions.insert(session, Instant::now());
        }
    }

    /// Forgets a session, or all of them if a tenant is erased, because names do not tell whose they
    /// are.
    pub fn forget(&self, whose: &Erased) {
        let mut seen = self.seen.lock();
        match whose {
            Erased::Session(name) => drop(seen.sessions.remove(&hash(name.as_str()))),
            Erased::Tenant(_) => seen.sessions.clear(),
        }
    }

    /// How many sessions were served lately.
    #[must_use]
    pub fn count(&self) -> usize {
        let mut seen = self.seen.lock();
        seen.prune();
        seen.sessions.len()
    }

    /// How many bytes of memory the table takes.
    #[must_use]
    pub fn weight(&self) -> u64 {
        (self.seen.lock().sessions.len() * SESSION_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_sessions_are_told_apart_than_fit() {
        let active = ActiveSessions::new(1 << 20);
        for session in 0..100_000 {
            active.touch(&session.to_string());
        }
        let fit = share(CacheName::Sessions, 1 << 20);
        assert!(active.weight() as usize <= fit);
        assert!(active.count() > fit / SESSION_BYTES / 2);
        active.touch("");
        active.touch("0");
        assert_eq!(active.count(), fit / SESSION_BYTES);
    }
}
