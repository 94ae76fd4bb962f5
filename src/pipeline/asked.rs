//! What an operator asked of sessions and what waits for a turn that does and records it: pins, evictions,
//! recalls and passes. Until then it is in memory alone. Owns how much may wait. Never knows whether a session
//! exists, and never decides whether what is asked may be done.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::model::Erased;
use crate::turn::{Asks, BringAsk, EvictAsk, PinAsk};

/// The most sessions of which something waits. A further one takes the place of the one that has waited
/// longest, because it may never have another turn.
const MOST_SESSIONS: usize = 1_024;
/// The most that waits for one session: as many pins as a turn takes.
const MOST_WAITING: usize = 32;

/// One thing that is asked of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAsk {
    /// A pin, with the session's next turn.
    Pin(PinAsk),
    /// The eviction of an item or of an episode.
    Evict(EvictAsk),
    /// That an original comes back into view.
    Bring(BringAsk),
    /// A pass down to the floor, with the session's next turn.
    Pass,
}

/// What waits, by the name of its session.
#[derive(Debug, Default)]
pub struct Asked(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// What is asked of each session, with its number.
    sessions: HashMap<String, Vec<(u64, SessionAsk)>>,
    /// The number of the newest ask.
    newest: u64,
}

/// Too much waits for a session.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{MOST_WAITING} pins, evictions and recalls wait for this session: ask again after its next turn"
)]
pub struct TooManyAsks;

impl Asked {
    /// Notes what is asked of a session. All of it is taken, or nothing.
    ///
    /// # Errors
    /// [`TooManyAsks`] if too much waits for it.
    pub fn ask(&self, session: &str, asks: Vec<SessionAsk>) -> Result<(), TooManyAsks> {
        let mut waiting = self.0.lock();
        let before = waiting.sessions.get(session).map_or(&[][..], Vec::as_slice);
        // What is asked again takes the place of what was asked before.
        let stays = |(_, old): &&(u64, SessionAsk)| !asks.iter().any(|new| new.replaces(old));
        let kept: Vec<(u64, SessionAsk)> = before.iter().filter(stays).cloned().collect();
        if kept.len() + asks.len() > MOST_WAITING {
            return Err(TooManyAsks);
        }
        waiting.make_room(session);
        let first = waiting.newest + 1;
        waiting.newest += asks.len() as u64;
        let all = kept.into_iter().chain((first..).zip(asks)).collect();
        waiting.sessions.insert(session.to_owned(), all);
        Ok(())
    }

    /// Forgets what waits for a session, or for all of them if a tenant is erased, because names do not
    /// tell whose they are.
    pub fn forget(&self, whose: &Erased) {
        let mut waiting = self.0.lock();
        match whose {
            Erased::Session(name) => {
                waiting.sessions.remove(name);
            }
            Erased::Tenant(_) => waiting.sessions.clear(),
        }
    }

    /// Forgets what is to be brought back, because the upstream refused it.
    pub fn refused(&self, session: &str) {
        let mut waiting = self.0.lock();
        if let Some(asks) = waiting.sessions.get_mut(session) {
            asks.retain(|(_, ask)| !matches!(ask, SessionAsk::Bring(_)));
        }
    }

    /// Takes back evictions and recalls of what is named so. What a turn under way has taken in is done
    /// all the same.
    pub fn withdraw(&self, session: &str, names: &[String]) {
        let mut waiting = self.0.lock();
        let Some(asks) = waiting.sessions.get_mut(session) else {
            return;
        };
        let named = |name: &str| names.iter().any(|one| one.eq_ignore_ascii_case(name));
        asks.retain(|(_, ask)| match ask {
            SessionAsk::Evict(EvictAsk { name, .. }) | SessionAsk::Bring(BringAsk { name, .. }) => {
                !named(name)
            }
            SessionAsk::Pin(_) | SessionAsk::Pass => true,
        });
        if asks.is_empty() {
            waiting.sessions.remove(session);
        }
    }

    /// What waits for a session. It goes on waiting until a turn has recorded it.
    #[must_use]
    pub fn of(&self, session: &str) -> Asks {
        let waiting = self.0.lock();
        let mut found = Asks::default();
        let asks = waiting.sessions.get(session).map_or(&[][..], Vec::as_slice);
        for (number, ask) in asks {
            found.newest = found.newest.max(*number);
            match ask {
                SessionAsk::Pin(pin) => found.pins.push(pin.clone()),
                SessionAsk::Evict(evict) => found.evictions.push(evict.clone()),
                SessionAsk::Bring(bring) => found.recalls.push(bring.clone()),
                SessionAsk::Pass => found.pass = true,
            }
        }
        found
    }

    /// Forgets what a recorded turn has done of what it knew of. What was asked since that turn began goes
    /// on waiting, and so do evictions if it made no pass that could take them, and recalls that are still
    /// among what it knows.
    pub fn recorded(&self, session: &str, known: &Asks) {
        // Of most sessions nothing is asked.
        if known.newest == 0 {
            return;
        }
        let mut waiting = self.0.lock();
        let Some(asks) = waiting.sessions.get_mut(session) else {
            return;
        };
        asks.retain(|(number, ask)| {
            let waits = match ask {
                SessionAsk::Evict(_) => !known.judged,
                SessionAsk::Bring(bring) => known.recalls.contains(bring),
                SessionAsk::Pin(_) | SessionAsk::Pass => false,
            };
            *number > known.newest || waits
        });
        if asks.is_empty() {
            waiting.sessions.remove(session);
        }
    }
}

impl SessionAsk {
    /// Whether this makes an earlier ask needless. Pins are taken in their order, so each stays.
    fn replaces(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Pass, Self::Pass) => true,
            (Self::Evict(new), Self::Evict(old)) => new.name.eq_ignore_ascii_case(&old.name),
            (Self::Bring(new), Self::Bring(old)) => new.name.eq_ignore_ascii_case(&old.name),
            (Self::Pin(_) | Self::Evict(_) | Self::Bring(_) | Self::Pass, _) => false,
        }
    }
}

impl Waiting {
    /// Makes room for a session.
    fn make_room(&mut self, session: &str) {
        if self.sessions.len() < MOST_SESSIONS || self.sessions.contains_key(session) {
            return;
        }
        let since = |asks: &[(u64, SessionAsk)]| asks.first().map(|(number, _)| *number);
        let longest = self.sessions.iter().min_by_key(|(_, asks)| since(asks));
        if let Some(session) = longest.map(|(session, _)| session.clone()) {
            tracing::warn!(%session, "what is asked of it has waited longest for a turn and makes room");
            self.sessions.remove(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins(count: usize) -> Vec<SessionAsk> {
        vec![SessionAsk::Pin(PinAsk::Newest); count]
    }

    fn evict(name: &str, now: bool) -> SessionAsk {
        let name = name.to_owned();
        SessionAsk::Evict(EvictAsk { name, now })
    }

    #[test]
    fn what_waits_is_bounded_and_goes_once_it_is_recorded() {
        let asked = Asked::default();
        assert_eq!(asked.ask("a", pins(30)), Ok(()));
        assert_eq!(asked.ask("a", pins(3)), Err(TooManyAsks));
        let known = asked.of("a");
        assert_eq!((known.pins.len(), known.newest), (30, 30));
        asked.recorded("a", &known);
        assert_eq!((asked.of("a"), asked.of("b")), Default::default());
        for session in 0..MOST_SESSIONS {
            assert_eq!(asked.ask(&session.to_string(), pins(1)), Ok(()));
        }
        assert_eq!(asked.ask("further", pins(1)), Ok(()));
        assert!(asked.of("0").pins.is_empty(), "it waited longest");
        let waits = |session: &str| asked.of(session).pins.len();
        assert_eq!((waits("1"), waits("further")), (1, 1));
    }

    #[test]
    fn what_is_asked_while_turns_overlap_is_not_lost() {
        let asked = Asked::default();
        asked.ask("a", pins(1)).unwrap();
        let (first, second) = (asked.of("a"), asked.of("a"));
        asked.recorded("a", &first);
        let lifted = vec![SessionAsk::Pin(PinAsk::LiftAll), SessionAsk::Pass];
        asked.ask("a", lifted).unwrap();
        asked.recorded("a", &second);
        let left = asked.of("a");
        assert_eq!((left.pins, left.pass), (vec![PinAsk::LiftAll], true));
    }

    #[test]
    fn evictions_wait_for_a_pass_and_are_asked_once() {
        let asked = Asked::default();
        asked.ask("a", vec![evict("Read:4", false)]).unwrap();
        asked.ask("a", vec![evict("read:4", true)]).unwrap();
        let mut known = asked.of("a");
        assert_eq!(known.evictions.len(), 1);
        assert!(known.evictions[0].now, "the newest word counts");
        asked.recorded("a", &known);
        assert_eq!(asked.of("a").evictions.len(), 1, "no pass ran");
        known.judged = true;
        asked.recorded("a", &known);
        assert_eq!(asked.of("a"), Asks::default());
    }
}
