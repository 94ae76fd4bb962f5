//! Who looks at a session's content, as the log tells it: once an hour for each session and viewer. Owns that line
//! and what it remembers for it. Never keeps what was looked at.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// For how long a look is not told again.
const AGAIN: Duration = Duration::from_secs(60 * 60);
/// How many looks are remembered. A further one takes the place of the oldest, which is then told again.
const MOST_LOOKS: usize = 1024;

/// Where a request comes from: all that tells viewers apart, since they have one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Viewer(pub Option<IpAddr>);

/// The looks that were told.
#[derive(Default)]
pub struct Looks(Mutex<HashMap<(String, Viewer), Instant>>);

impl Looks {
    /// Tells in the log that somebody looks at a session's content, unless it has just told so.
    pub fn note(&self, session: &str, viewer: Viewer) {
        if self.is_new(session, viewer, Instant::now()) {
            let viewer = viewer.0.map(tracing::field::display);
            tracing::info!(session, viewer, "content is looked at in the console");
        }
    }

    fn is_new(&self, session: &str, viewer: Viewer, now: Instant) -> bool {
        let look = (session.to_owned(), viewer);
        let mut told = self.0.lock();
        let last = told.get(&look);
        if last.is_some_and(|last| now.duration_since(*last) < AGAIN) {
            return false;
        }
        if told.len() >= MOST_LOOKS {
            let oldest = told.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(look, _)| look.clone()) {
                told.remove(&oldest);
            }
        }
        told.insert(look, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_told_once_an_hour_for_each_session_and_viewer() {
        let (looks, begin) = (Looks::default(), Instant::now());
        let here = Viewer(Some([127, 0, 0, 1].into()));
        let other = Viewer(Some([10, 0, 0, 7].into()));
        assert!(looks.is_new("a", here, begin));
        assert!(!looks.is_new("a", here, begin + AGAIN / 2));
        assert!(looks.is_new("a", other, begin) && looks.is_new("b", here, begin));
        assert!(looks.is_new("a", here, begin + AGAIN));
        for session in 0..2 * MOST_LOOKS {
            assert!(looks.is_new(&session.to_string(), here, begin + AGAIN));
        }
        assert_eq!(looks.0.lock().len(), MOST_LOOKS);
    }
}
