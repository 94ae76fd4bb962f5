//! Whether anybody still waits for work that runs off the async workers. The work asks now and
//! then, and stops itself. Never stops anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the work asks.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    gone: Arc<AtomicBool>,
    until: Option<Instant>,
}

/// Held by whoever waits: dropping it ends the wait.
#[derive(Debug)]
pub struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Patience {
    /// A wait without a time limit.
    #[must_use]
    pub fn new() -> (Waiting, Self) {
        let patience = Self::default();
        (Waiting(Arc::clone(&patience.gone)), patience)
    }

    /// This wait with a time limit.
    #[must_use]
    pub fn within(&self, limit: Duration) -> Self {
        Self {
            gone: Arc::clone(&self.gone),
            until: Instant::now().checked_add(limit),
        }
    }

    /// Whether nobody waits any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_whoever_waits_or_with_the_time() {
        let (waiting, patience) = Patience::new();
        let short = patience.within(Duration::ZERO);
        let long = patience.within(Duration::from_secs(3600));
        assert_eq!(
            [&patience, &short, &long].map(Patience::is_over),
            [false, true, false]
        );
        drop(waiting);
        assert_eq!([&patience, &long].map(Patience::is_over), [true, true]);
    }
}
