//! Pins and passes that an operator asked for and that wait for the next turn of their session, which
//! records them.
//! Until then they are in memory alone. Owns how many may wait. Never knows whether a session exists.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use crate::model::Erased;
use crate::turn::PinAsk;

/// The most sessions whose pins wait. A further one takes the place of the one that has waited longest,
/// because it may never have another turn.
const MOST_SESSIONS: usize = 1_024;
/// The most pins that wait for one session: as many as a turn takes.
const MOST_WAITING: usize = 32;

/// Pins that wait, by the name of their session.
#[derive(Debug, Default)]
pub struct AskedPins(Mutex<WaitingPins>);

#[derive(Debug, Default)]
struct WaitingPins {
    sessions: HashMap<String, Vec<(u64, PinAsk)>>,
    /// The number of the newest ask.
    newest: u64,
    /// Sessions of which a pass is asked.
    passes: VecDeque<String>,
}

/// Too many pins wait for a session.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{MOST_WAITING} pins wait for this session's next turn: ask again after it")]
pub struct TooManyPins;

impl AskedPins {
    /// Notes what is asked of a session. All of it is taken, or nothing.
    ///
    /// # Errors
    /// [`TooManyPins`] if too much waits for it.
    pub fn ask(&self, session: &str, asks: Vec<PinAsk>) -> Result<(), TooManyPins> {
        let mut waiting = self.0.lock();
        let before = waiting.sessions.get(session).map_or(0, Vec::len);
        if before + asks.len() > MOST_WAITING {
            return Err(TooManyPins);
        }
        waiting.make_room(session);
        let mut newest = waiting.newest;
        let numbered = asks.into_iter().map(|ask| {
            newest += 1;
            (newest, ask)
        });
        let numbered: Vec<(u64, PinAsk)> = numbered.collect();
        waiting.newest = newest;
        let of = waiting.sessions.entry(session.to_owned()).or_default();
        of.extend(numbered);
        Ok(())
    }

    /// Forgets what waits for a session, or for all of them if a tenant is erased, because names do not
    /// tell whose they are.
    pub fn forget(&self, whose: &Erased) {
        let mut waiting = self.0.lock();
        match whose {
            Erased::Session(name) => {
                waiting.sessions.remove(name);
                waiting.passes.retain(|one| one != name);
            }
            Erased::Tenant(_) => {
                waiting.sessions.clear();
                waiting.passes.clear();
            }
        }
    }

    /// Asks for a pass with a session's next turn.
    pub fn ask_pass(&self, session: &str) {
        let mut waiting = self.0.lock();
        if waiting.passes.iter().any(|one| one == session) {
            return;
        }
        // The one that has waited longest may never have another turn.
        if waiting.passes.len() == MOST_SESSIONS {
            waiting.passes.pop_front();
        }
        waiting.passes.push_back(session.to_owned());
    }

    /// Whether a pass is asked of a session.
    #[must_use]
    pub fn asks_pass(&self, session: &str) -> bool {
        let waiting = self.0.lock();
        waiting.passes.iter().any(|one| one == session)
    }

    /// Forgets that a pass is asked of a session, because a turn that knew of it was recorded.
    pub fn passed(&self, session: &str) {
        self.0.lock().passes.retain(|one| one != session);
    }

    /// What waits for a session, and the number of the newest. It goes on waiting until a turn has
    /// recorded it.
    #[must_use]
    pub fn of(&self, session: &str) -> (Vec<PinAsk>, u64) {
        let waiting = self.0.lock();
        let asks = waiting.sessions.get(session).map_or(&[][..], Vec::as_slice);
        let newest = asks.last().map_or(0, |(number, _)| *number);
        (asks.iter().map(|(_, ask)| ask.clone()).collect(), newest)
    }

    /// Forgets what waits for a session up to this number, because a turn has recorded it. What was
    /// asked since that turn began goes on waiting.
    pub fn recorded(&self, session: &str, newest: u64) {
        // Most turns recorded none.
        if newest == 0 {
            return;
        }
        let mut waiting = self.0.lock();
        let Some(asks) = waiting.sessions.get_mut(session) else {
            return;
        };
        asks.retain(|(number, _)| *number > newest);
        if asks.is_empty() {
            waiting.sessions.remove(session);
        }
    }
}

impl WaitingPins {
    /// Makes room for a session.
    fn make_room(&mut self, session: &str) {
        if self.sessions.len() < MOST_SESSIONS || self.sessions.contains_key(session) {
            return;
        }
        let since = |asks: &[(u64, PinAsk)]| asks.first().map(|(number, _)| *number);
        let longest = self.sessions.iter().min_by_key(|(_, asks)| since(asks));
        if let Some(session) = longest.map(|(session, _)| session.clone()) {
            tracing::warn!(%session, "its pins have waited longest for a turn and make room");
            self.sessions.remove(&session);
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
        assert_eq!(pins.ask("a", asks(30)), Ok(()));
        assert_eq!(pins.ask("a", asks(3)), Err(TooManyPins));
        let (waiting, newest) = pins.of("a");
        assert_eq!((waiting.len(), newest), (30, 30));
        pins.recorded("a", newest);
        assert!(pins.of("a").0.is_empty() && pins.of("b").0.is_empty());
        for session in 0..MOST_SESSIONS {
            assert_eq!(pins.ask(&session.to_string(), asks(1)), Ok(()));
        }
        assert_eq!(pins.ask("further", asks(1)), Ok(()));
        assert!(pins.of("0").0.is_empty(), "it waited longest");
        assert_eq!((pins.of("1").0.len(), pins.of("further").0.len()), (1, 1));
    }

    #[test]
    fn what_is_asked_while_turns_overlap_is_not_lost() {
        let pins = AskedPins::default();
        pins.ask("a", asks(1)).unwrap();
        let (first, second) = (pins.of("a").1, pins.of("a").1);
        pins.recorded("a", first);
        pins.ask("a", vec![PinAsk::LiftAll]).unwrap();
        pins.recorded("a", second);
        assert_eq!(pins.of("a").0, [PinAsk::LiftAll]);
    }
}
