//! Which sessions were served lately, for one gauge. Never remembers more than a hash and a time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a session counts as active after its last turn.
const LATELY: Duration = Duration::from_secs(15 * 60);
/// How many sessions are told apart; past it the oldest no longer count.
const MOST: usize = 100_000;

/// Sessions by the short hash that clients see.
#[derive(Debug, Default)]
pub struct Active(Mutex<HashMap<String, Instant>>);

impl Active {
    /// Notes a turn of a session.
    pub fn touch(&self, session: &str) {
        if session.is_empty() {
            return;
        }
        let mut seen = self.0.lock();
        if seen.len() >= MOST {
            Self::prune(&mut seen);
        }
        if seen.len() < MOST || seen.contains_key(session) {
            seen.insert(session.to_owned(), Instant::now());
        }
    }

    /// How many sessions were served lately.
    #[must_use]
    pub fn count(&self) -> usize {
        let mut seen = self.0.lock();
        Self::prune(&mut seen);
        seen.len()
    }

    fn prune(seen: &mut HashMap<String, Instant>) {
        seen.retain(|_, at| at.elapsed() < LATELY);
    }
}
