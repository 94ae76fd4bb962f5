//! Pins that an operator asked for and that wait for the next turn of their session, which records them.
//! Until then they are in memory alone. Owns how many may wait. Never knows whether a session exists.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::turn::PinAsk;

/// The most sessions whose pins wait.
const MOST_SESSIONS: usize = 1_024;
/// The most pins that wait for one session.
const MOST_WAITING: usize = 64;

/// Pins that wait, by the name of their session.
#[derive(Debug, Default)]
pub struct AskedPins(Mutex<HashMap<String, Vec<PinAsk>>>);

/// Why no further pin is taken.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PinRefused {
    /// Too many wait for this session.
    #[error("{MOST_WAITING} pins wait for this session's next turn: ask again after it")]
    Session,
    /// Too many sessions have pins that wait.
    #[error(
        "the pins of {MOST_SESSIONS} sessions wait for a turn: ask again when some have had one"
    )]
    Sessions,
}

impl AskedPins {
    /// Notes what is asked of a session. All of it is taken, or nothing.
    ///
    /// # Errors
    /// [`PinRefused`] if too much waits.
    pub fn ask(&self, session: &str, asks: Vec<PinAsk>) -> Result<(), PinRefused> {
        let mut waiting = self.0.lock();
        if !waiting.contains_key(session) && waiting.len() >= MOST_SESSIONS {
            return Err(PinRefused::Sessions);
        }
        let before = waiting.entry(session.to_owned()).or_default();
        if before.len() + asks.len() > MOST_WAITING {
            return Err(PinRefused::Session);
        }
        before.extend(asks);
        Ok(())
    }

    /// What waits for a session. It goes on waiting until a turn has recorded it.
    #[must_use]
    pub fn of(&self, session: &str) -> Vec<PinAsk> {
        let waiting = self.0.lock();
        waiting.get(session).cloned().unwrap_or_default()
    }

    /// Forgets the first `count` of what waits for a session, because a turn has recorded them.
    pub fn recorded(&self, session: &str, count: usize) {
        let mut waiting = self.0.lock();
        let Some(asks) = waiting.get_mut(session) else {
            return;
        };
        asks.drain(..count.min(asks.len()));
        if asks.is_empty() {
            waiting.remove(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(count: usize) -> Vec<PinAsk> {
        vec![PinAsk::Newest; count]
    }

    #[test]
    fn what_waits_is_bounded_and_goes_once_it_is_recorded() {
        let pins = AskedPins::default();
        assert_eq!(pins.ask("a", asks(60)), Ok(()));
        assert_eq!(pins.ask("a", asks(5)), Err(PinRefused::Session));
        assert_eq!(pins.of("a").len(), 60);
        pins.recorded("a", 58);
        assert_eq!(pins.ask("a", asks(5)), Ok(()));
        assert_eq!(pins.of("a").len(), 7);
        pins.recorded("a", 7);
        assert!(pins.of("a").is_empty() && pins.of("b").is_empty());
        for session in 0..MOST_SESSIONS {
            assert_eq!(pins.ask(&session.to_string(), asks(1)), Ok(()));
        }
        assert_eq!(pins.ask("further", asks(1)), Err(PinRefused::Sessions));
        assert_eq!(pins.ask("7", asks(1)), Ok(()));
    }
}
