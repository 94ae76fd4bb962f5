//! Which branch of its session a turn belongs to. A session has a row for the turns with which it began and for those that
//! went on from them, and one for each branch: turns that went on from where another turn had gone on before, as after a
//! rewind, a second attempt or a new beginning. Owns that rule, so that each turn counts in exactly one row. Never writes.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::session::chain::RecordKey;
use plimsoll_core::session::hours;
use plimsoll_core::session::path::{Path, PathEntry};
use plimsoll_core::turn::Mode;
use plimsoll_core::turn::state::TurnState;
use plimsoll_model::{Digest, HourSums, TurnSums};
use plimsoll_store::{Store, Take};
use tokio::task::JoinHandle;

use super::app::App;
use super::record_place::RecordPlace;
use crate::history::{Patience, Reads};

/// How long a turn waits at its end to learn whether another has gone on from where it does. Nothing but the list of
/// sessions depends on it.
const PATIENCE: Duration = Duration::from_millis(250);

/// The place of a turn among the branches of its session, as far as it is known.
pub enum Branching {
    /// Whether the store knows of another turn that has gone on from the same record.
    Known(bool),
    /// The store is asked that while the model answers.
    Asked(JoinHandle<bool>),
}

/// The place of a turn among the branches of its session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BranchPlace {
    /// The branch's name. None for the session's first.
    pub name: Option<String>,
    /// What the turns of its row came to before.
    pub sums: TurnSums,
    /// What they came to by the hour.
    pub hours: Vec<HourSums>,
}

impl Branching {
    /// What is known when the model is asked.
    #[must_use]
    pub fn new(app: &Arc<App>, credential: Digest, place: &RecordPlace, state: &TurnState) -> Self {
        if let Some(taken) = state.taken {
            return Self::Known(taken);
        }
        let origin = origin(place, &state.path);
        let (app, mode) = (Arc::clone(app), state.terms.mode);
        Self::Asked(tokio::spawn(async move {
            let (_waiting, patience) = Patience::new();
            let worker = Arc::clone(&app);
            let find = move |patience: &Patience| is_taken(&worker, mode, patience, origin);
            let found = app.readers.run(credential, &patience, PATIENCE, find).await;
            found.unwrap_or(false)
        }))
    }

    /// Waits for the store, if it was asked and has not answered.
    pub async fn learn(&mut self) {
        if let Self::Asked(answer) = self {
            *self = Self::Known(answer.await.unwrap_or(false));
        }
    }

    /// The place of a turn that ended then and said this, its calls' ids left blank.
    pub fn place(
        &self,
        app: &App,
        place: &RecordPlace,
        state: &TurnState,
        (ended, said): (u64, Digest),
    ) -> BranchPlace {
        let taken = match self {
            Self::Known(taken) => *taken,
            // A turn that broke off waits for nothing.
            Self::Asked(_) => false,
        };
        decide(app, place, state, (ended, said), taken)
    }
}

/// The newest record behind a turn, if it is of the same session. A session may go on from another's records.
fn before_in<'a>(path: &'a Path, session: &str) -> Option<&'a PathEntry> {
    let newest = path.entries.last();
    newest.filter(|entry| entry.record.session == session)
}

/// The key by which a turn's record tells others that it went on from there.
#[must_use]
pub fn origin(place: &RecordPlace, path: &Path) -> Digest {
    let key = match before_in(path, &place.session) {
        Some(entry) => RecordKey::Next(entry.id),
        None => RecordKey::First(&place.session),
    };
    key.digest(place.tenant, &place.keys)
}

/// Whether memory knows if another turn has gone on from a remembered path. It does not where other processes write, and
/// not of a session that begins.
#[must_use]
pub fn is_remembered(store: &Store, path: &Path, session: &str) -> bool {
    !store.is_shared() && before_in(path, session).is_some()
}

/// Whether the store knows of a turn that has gone on from there. A store that fails does not. May read the disk.
#[must_use]
pub fn is_taken(app: &App, mode: Mode, patience: &Patience, origin: Digest) -> bool {
    let told = |op, time| app.metrics.observe_store(op, time);
    let reads = Reads::new(app.records(mode), &told).while_waited_for(patience);
    let known = reads.links(&[origin], Take::First(1)).unwrap_or_default();
    known.iter().any(|records| !records.is_empty())
}

fn decide(
    app: &App,
    place: &RecordPlace,
    state: &TurnState,
    (ended, said): (u64, Digest),
    taken: bool,
) -> BranchPlace {
    let path = &state.path;
    let before = before_in(path, &place.session);
    let followed = match before {
        Some(_) => path.follow(),
        None => app.paths.begins(origin(place, path)),
    };
    if !taken && !followed {
        return before.map_or_else(BranchPlace::default, |_| goes_on(path));
    }
    // What is played again word for word is found where it was played first, and goes on from where it was played last.
    let twin = before.and_then(|entry| {
        let head = state.heads.get(entry.position as usize + 1)?;
        let key = RecordKey::After(*head).digest(place.tenant, &place.keys);
        let twin = app.paths.twin(&key)?;
        let own = before_in(&twin, &place.session).is_some_and(|newest| newest.id != entry.id);
        (own && !twin.follow()).then_some(twin)
    });
    if let Some(twin) = twin {
        return goes_on(&twin);
    }
    let from = before.map_or(Digest([0; 32]), |entry| entry.id.0);
    let ended = ended.to_be_bytes();
    let parts = [
        b"branch".as_slice(),
        place.tenant.0.as_bytes(),
        place.session.as_bytes(),
        from.as_bytes(),
        &ended,
        said.as_bytes(),
    ];
    BranchPlace {
        name: Some(Digest::of(&parts).short()),
        ..BranchPlace::default()
    }
}

/// The place of a turn in the row of the newest turn of a path.
fn goes_on(path: &Path) -> BranchPlace {
    let newest = path.newest();
    BranchPlace {
        name: newest.and_then(|newest| newest.facts.branch.clone()),
        sums: path.sums(),
        hours: hours::of(&path.entries),
    }
}
