//! What an operator asked of sessions and what waits for a turn that does and records it: pins, evictions,
//! recalls and passes. Until then it is in memory alone. Owns how much may wait, and that what was asked of a
//! turn that somebody looked at is done by a turn that goes on from there, and on no other branch of the session.
//! Never decides whether what is asked may be done.

use std::collections::HashMap;

use parking_lot::Mutex;
use plimsoll_core::session::path::Path;
use plimsoll_core::turn::{Ask, Asks};
use plimsoll_model::{Erased, RecordId};

/// The most sessions of which something waits. A further one takes the place of the one that has waited
/// longest, because it may never have another turn.
const MOST_SESSIONS: usize = 1_024;
/// The most that waits for one session: as many pins as a turn takes.
const MOST_WAITING: usize = 32;

/// What waits, by the name of its session and by the record that was looked at.
#[derive(Debug, Default)]
pub struct Asked(Mutex<Waiting>);

/// Something that waits.
#[derive(Clone, Debug)]
struct WaitingAsk {
    /// Its number.
    number: u64,
    /// The newest record of what was looked at. A turn that goes on from there has it on its path.
    of: RecordId,
    ask: Ask,
}

#[derive(Debug, Default)]
struct Waiting {
    /// What is asked of each session, oldest first.
    sessions: HashMap<String, Vec<WaitingAsk>>,
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
    /// Notes what is asked of a session, by somebody who looked at the end of this path of it. All of it is taken, or
    /// nothing.
    ///
    /// # Errors
    /// [`TooManyAsks`] if too much waits for the session.
    pub fn ask(&self, session: &str, path: &Path, asks: Vec<Ask>) -> Result<(), TooManyAsks> {
        let Some(of) = path.entries.last().map(|newest| newest.id) else {
            return Ok(());
        };
        let mut waiting = self.0.lock();
        let before = waiting.sessions.get(session).map_or(&[][..], Vec::as_slice);
        // What is asked again takes the place of what was asked before.
        let again = |old: &WaitingAsk| asks.iter().any(|new| replaces(new, &old.ask));
        let stays = |old: &&WaitingAsk| !(again(old) && old.is_on(path));
        let mut all: Vec<WaitingAsk> = before.iter().filter(stays).cloned().collect();
        if all.len() + asks.len() > MOST_WAITING {
            return Err(TooManyAsks);
        }
        waiting.make_room(session);
        let first = waiting.newest + 1;
        waiting.newest += asks.len() as u64;
        let new = (first..).zip(asks);
        all.extend(new.map(|(number, ask)| WaitingAsk { number, of, ask }));
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

    /// Forgets what is to be brought back to this path, because the upstream refused it.
    pub fn refused(&self, session: &str, path: &Path) {
        self.retain(session, path, |one| !matches!(one.ask, Ask::Bring(_)));
    }

    /// Takes back evictions and recalls of what is named so on this path. What a turn under way has taken in is
    /// done all the same.
    pub fn withdraw(&self, session: &str, path: &Path, names: &[String]) {
        let named = |name: &str| names.iter().any(|one| one.eq_ignore_ascii_case(name));
        self.retain(session, path, |one| match &one.ask {
            Ask::Evict(ask) | Ask::Bring(ask) => !named(&ask.name),
            Ask::Pin(_) | Ask::Pass => true,
        });
    }

    /// What waits for a turn that goes on from this path of a session. It goes on waiting until a turn has recorded it.
    #[must_use]
    pub fn of(&self, session: &str, path: &Path) -> Asks {
        let waiting = self.0.lock();
        let mut found = Asks::default();
        let asks = waiting.sessions.get(session).map_or(&[][..], Vec::as_slice);
        for one in asks.iter().filter(|one| one.is_on(path)) {
            found.newest = found.newest.max(one.number);
            match &one.ask {
                Ask::Pin(pin) => found.pins.push(pin.clone()),
                Ask::Evict(evict) => found.evictions.push(evict.clone()),
                Ask::Bring(bring) => found.recalls.push(bring.clone()),
                Ask::Pass => found.pass = true,
            }
        }
        found
    }

    /// Forgets what a recorded turn, which went on from this path, has done of what it knew of. What was asked since
    /// that turn began goes on waiting, and so do evictions if it made no pass that could take them, and recalls that
    /// are still among what it knows.
    pub fn recorded(&self, session: &str, path: &Path, known: &Asks) {
        // Of most sessions nothing is asked.
        if known.newest == 0 {
            return;
        }
        self.retain(session, path, |one| {
            let waits = match &one.ask {
                Ask::Evict(_) => !known.judged,
                Ask::Bring(bring) => known.recalls.contains(bring),
                Ask::Pin(_) | Ask::Pass => false,
            };
            one.number > known.newest || waits
        });
    }

    /// Keeps of what waits for this path what `stays` says, and all that waits for others.
    fn retain(&self, session: &str, path: &Path, stays: impl Fn(&WaitingAsk) -> bool) {
        let mut waiting = self.0.lock();
        let Some(asks) = waiting.sessions.get_mut(session) else {
            return;
        };
        asks.retain(|one| stays(one) || !one.is_on(path));
        if asks.is_empty() {
            waiting.sessions.remove(session);
        }
    }
}

impl WaitingAsk {
    /// Whether a path is the one that was looked at, or goes on from it.
    fn is_on(&self, path: &Path) -> bool {
        path.entries.iter().rev().any(|entry| entry.id == self.of)
    }
}

/// Whether an ask makes an earlier one needless. Pins are taken in their order, so each stays.
fn replaces(new: &Ask, earlier: &Ask) -> bool {
    match (new, earlier) {
        (Ask::Pass, Ask::Pass) => true,
        (Ask::Evict(new), Ask::Evict(old)) | (Ask::Bring(new), Ask::Bring(old)) => {
            new.name.eq_ignore_ascii_case(&old.name)
        }
        (Ask::Pin(_) | Ask::Evict(_) | Ask::Bring(_) | Ask::Pass, _) => false,
    }
}

impl Waiting {
    /// Makes room for a session.
    fn make_room(&mut self, session: &str) {
        if self.sessions.len() < MOST_SESSIONS || self.sessions.contains_key(session) {
            return;
        }
        let since = |asks: &[WaitingAsk]| asks.first().map(|one| one.number);
        let longest = self.sessions.iter().min_by_key(|(_, asks)| since(asks));
        if let Some(session) = longest.map(|(session, _)| session.clone()) {
            tracing::warn!(%session, "what is asked of it has waited longest for a turn and makes room");
            self.sessions.remove(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use plimsoll_core::turn::{NamedAsk, PinAsk};
    use plimsoll_model::Digest;

    /// A path of one record.
    fn at(number: u8) -> Path {
        Path::default().extend(RecordId(Digest([number; 32])), Arc::default())
    }

    fn pins(count: usize) -> Vec<Ask> {
        vec![Ask::Pin(PinAsk::Newest); count]
    }

    fn evict(name: &str, now: bool) -> Ask {
        let name = name.to_owned();
        Ask::Evict(NamedAsk { name, now })
    }

    #[test]
    fn what_waits_is_bounded_and_goes_once_it_is_recorded() {
        let asked = Asked::default();
        assert_eq!(asked.ask("a", &at(1), pins(30)), Ok(()));
        assert_eq!(asked.ask("a", &at(1), pins(3)), Err(TooManyAsks));
        let known = asked.of("a", &at(1));
        assert_eq!((known.pins.len(), known.newest), (30, 30));
        asked.recorded("a", &at(1), &known);
        assert_eq!(
            (asked.of("a", &at(1)), asked.of("b", &at(1))),
            Default::default()
        );
        for session in 0..MOST_SESSIONS {
            assert_eq!(asked.ask(&session.to_string(), &at(1), pins(1)), Ok(()));
        }
        assert_eq!(asked.ask("further", &at(1), pins(1)), Ok(()));
        assert!(asked.of("0", &at(1)).pins.is_empty(), "it waited longest");
        let waits = |session: &str| asked.of(session, &at(1)).pins.len();
        assert_eq!((waits("1"), waits("further")), (1, 1));
    }

    #[test]
    fn what_is_asked_while_turns_overlap_is_not_lost() {
        let asked = Asked::default();
        asked.ask("a", &at(1), pins(1)).unwrap();
        let (first, second) = (asked.of("a", &at(1)), asked.of("a", &at(1)));
        asked.recorded("a", &at(1), &first);
        let lifted = vec![Ask::Pin(PinAsk::LiftAll), Ask::Pass];
        asked.ask("a", &at(1), lifted).unwrap();
        asked.recorded("a", &at(1), &second);
        let left = asked.of("a", &at(1));
        assert_eq!((left.pins, left.pass), (vec![PinAsk::LiftAll], true));
    }

    #[test]
    fn evictions_wait_for_a_pass_and_are_asked_once() {
        let asked = Asked::default();
        asked
            .ask("a", &at(1), vec![evict("Read:4", false)])
            .unwrap();
        asked.ask("a", &at(1), vec![evict("read:4", true)]).unwrap();
        let mut known = asked.of("a", &at(1));
        assert_eq!(known.evictions.len(), 1);
        assert!(known.evictions[0].now, "the newest word counts");
        asked.recorded("a", &at(1), &known);
        assert_eq!(asked.of("a", &at(1)).evictions.len(), 1, "no pass ran");
        known.judged = true;
        asked.recorded("a", &at(1), &known);
        assert_eq!(asked.of("a", &at(1)), Asks::default());
    }

    #[test]
    fn what_is_asked_of_one_branch_waits_for_no_other() {
        let asked = Asked::default();
        let (one, other) = (at(1), at(2));
        asked.ask("a", &one, vec![Ask::Pass]).unwrap();
        asked.ask("a", &other, vec![evict("Read:4", true)]).unwrap();
        // What is asked of one is not what is asked again of the other.
        asked.ask("a", &one, vec![evict("Read:4", true)]).unwrap();
        assert_eq!(asked.of("a", &at(3)), Asks::default());
        let mut known = asked.of("a", &one);
        assert!(known.pass && known.evictions.len() == 1);
        // A later turn goes on from there.
        let later = one.extend(RecordId(Digest([9; 32])), Arc::default());
        assert_eq!(asked.of("a", &later), known);
        known.judged = true;
        asked.recorded("a", &later, &known);
        assert_eq!(asked.of("a", &later), Asks::default());
        asked.withdraw("a", &one, &["read:4".to_owned()]);
        assert_eq!(asked.of("a", &other).evictions.len(), 1);
        asked.withdraw("a", &other, &["read:4".to_owned()]);
        assert_eq!(asked.of("a", &other), Asks::default());
    }
}
