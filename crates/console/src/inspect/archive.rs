//! Which sessions a store holds: its turn records as a tree, and each end of the tree as a branch.
//! Owns how a branch is named and found. Never reads content.

use std::collections::{BTreeMap, HashMap, HashSet};

use plimsoll_core::session::path::Path;
use plimsoll_model::{Digest, Parent, RecordId, Snapshot, TurnRecord};
use plimsoll_store::{Store, StoreError};

/// How many records are read at a time.
const RECORDS_AT_ONCE: usize = 256;
/// The shortest part of a name that finds a branch. A shorter one fits too many.
const MIN_NAME_PART: usize = 4;

/// Why a store can't be shown.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record, or something that it refers to, can't be read.
    #[error("a stored record can't be read: {0}")]
    Record(#[from] rmp_serde::decode::Error),
    /// A part of a session is missing.
    #[error("session {0} is not whole: a record that it stands on is not stored")]
    Broken(String),
}

/// Why a name does not mean exactly one session.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotOne {
    /// Nothing has this name.
    #[error("no recorded session is named {0}: `plimsoll export --list` shows all")]
    None(String),
    /// The name is too short.
    #[error("{0} is too short for a name: give at least {MIN_NAME_PART} characters of it")]
    Short(String),
    /// Several sessions fit.
    #[error("{name} could be any of {of}: give more of the name")]
    Several {
        /// The name.
        name: String,
        /// Some of those that fit.
        of: String,
    },
}

/// A path from a first turn to a turn without successors. Retries and forks are branches of one
/// session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its newest record.
    pub newest: RecordId,
    /// The name of the session, as the client saw it.
    pub session: String,
    /// The name of the branch in the list of sessions. None for the session's first.
    pub row: Option<String>,
    /// The name of the parent session.
    pub parent_session: Option<String>,
    /// How many turns it has.
    pub turns: u32,
    /// When its first turn ended, in milliseconds since 1970.
    pub began: u64,
    /// When its last turn ended.
    pub ended: u64,
    /// The models that were asked, in the order of their first turns.
    pub models: Vec<String>,
    /// Whether the client's content was stored with the last turn.
    pub content: bool,
}

impl Branch {
    /// The branch that a path is. None of an empty one.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let (first, last) = (path.entries.first()?, path.entries.last()?);
        let record = &last.record;
        let mut models: Vec<String> = Vec::new();
        for entry in &path.entries {
            let model = &entry.record.model;
            if !models.contains(model) {
                models.push(model.clone());
            }
        }
        Some(Self {
            newest: last.id,
            session: record.session.clone(),
            row: record.facts.branch.clone(),
            parent_session: record.parent_session.clone(),
            turns: record.turn,
            began: first.record.ended,
            ended: record.ended,
            models,
            content: record.content.is_some(),
        })
    }

    /// The name of this branch alone.
    #[must_use]
    pub fn name(&self) -> String {
        self.newest.short()
    }
}

/// What is kept of a record while a store is shown.
struct RecordSummary {
    parent: Option<RecordId>,
    turn: u32,
    session: String,
    branch: Option<String>,
    parent_session: Option<String>,
    model: String,
    ended: u64,
    content: bool,
}

/// The records of a store.
#[derive(Default)]
pub struct Archive(HashMap<RecordId, RecordSummary>);

impl Archive {
    /// Reads all records. A large store takes long.
    ///
    /// # Errors
    /// [`ArchiveError`] if the store fails.
    pub fn read(store: &Store) -> Result<Self, ArchiveError> {
        let ids: HashSet<Digest> = store.linked()?.into_iter().map(|(_, id)| id).collect();
        let mut ids: Vec<Digest> = ids.into_iter().collect();
        ids.sort_unstable();
        let mut records = HashMap::new();
        for ids in ids.chunks(RECORDS_AT_ONCE) {
            for (id, bytes) in ids.iter().zip(store.blobs(ids)?) {
                // Links also lead to other things than records, such as content.
                let record = bytes.and_then(|bytes| rmp_serde::from_slice(&bytes).ok());
                if let Some(record) = record {
                    records.insert(RecordId(*id), known(store, record)?);
                }
            }
        }
        Ok(Self(records))
    }

    /// All branches, the one used last first.
    #[must_use]
    pub fn branches(&self) -> Vec<Branch> {
        let parents: HashSet<RecordId> = self.0.values().filter_map(|known| known.parent).collect();
        let ends = self.0.keys().filter(|id| !parents.contains(id));
        let mut branches: Vec<Branch> = ends.filter_map(|id| self.branch(*id)).collect();
        branches.sort_by_key(|branch| (std::cmp::Reverse(branch.ended), branch.newest));
        branches
    }

    fn branch(&self, newest: RecordId) -> Option<Branch> {
        let last = self.0.get(&newest)?;
        let mut branch = Branch {
            newest,
            session: last.session.clone(),
            row: last.branch.clone(),
            parent_session: last.parent_session.clone(),
            turns: last.turn,
            began: last.ended,
            ended: last.ended,
            models: Vec::new(),
            content: last.content,
        };
        let mut at = Some(last);
        while let Some(known) = at {
            branch.began = known.ended;
            branch.models.retain(|model| *model != known.model);
            branch.models.insert(0, known.model.clone());
            at = known.parent.and_then(|parent| self.0.get(&parent));
        }
        Some(branch)
    }

    /// The branch with this name, which may be that of a branch or of a session, or the beginning
    /// of one. Of a session's branches this is the longest, and of equally long ones the newest.
    /// Also returns how many other branches the session has.
    ///
    /// # Errors
    /// [`NotOne`] if the name fits nothing, or several sessions.
    pub fn find(&self, name: &str) -> Result<(Branch, usize), NotOne> {
        if name.chars().count() < MIN_NAME_PART {
            return Err(NotOne::Short(name.to_owned()));
        }
        let branches = self.branches();
        // A whole name of a branch is never ambiguous, even if a session begins with the same
        // letters.
        let is_named =
            |branch: &&Branch| branch.name() == name || branch.row.as_deref() == Some(name);
        let exact = branches.iter().find(is_named);
        if let Some(branch) = exact {
            return Ok((branch.clone(), 0));
        }
        // Branches of one session count as one match, because the user named the session.
        let mut fits: BTreeMap<String, Vec<Branch>> = BTreeMap::new();
        for branch in branches {
            if branch.session.starts_with(name) {
                let named = fits.entry(branch.session.clone()).or_default();
                named.push(branch);
            } else if branch.name().starts_with(name) {
                fits.insert(branch.name(), vec![branch]);
            }
        }
        let names: Vec<String> = fits.keys().take(5).cloned().collect();
        let mut sessions = fits.into_values();
        let (Some(session), None) = (sessions.next(), sessions.next()) else {
            return Err(if names.is_empty() {
                NotOne::None(name.to_owned())
            } else {
                NotOne::Several {
                    name: name.to_owned(),
                    of: names.join(", "),
                }
            });
        };
        let others = session.len() - 1;
        // The longest branch is the one that the agent went on with. Retries and forks are shorter.
        let longest = |branch: &Branch| (branch.turns, branch.ended, branch.newest);
        let found = session.into_iter().max_by_key(longest);
        let found = found.map(|branch| (branch, others));
        found.ok_or_else(|| NotOne::None(name.to_owned()))
    }
}

fn known(store: &Store, record: TurnRecord) -> Result<RecordSummary, ArchiveError> {
    Ok(RecordSummary {
        parent: match record.parent {
            Parent::Root => None,
            Parent::Record(id) => Some(id),
            Parent::Snapshot(id) => last_of(store, id)?,
        },
        turn: record.turn,
        session: record.session,
        branch: record.facts.branch,
        parent_session: record.parent_session,
        model: record.model,
        ended: record.ended,
        content: record.content.is_some(),
    })
}

/// The newest record of a snapshot.
fn last_of(store: &Store, id: Digest) -> Result<Option<RecordId>, ArchiveError> {
    let Some(bytes) = store.blobs(&[id])?.into_iter().next().flatten() else {
        return Ok(None);
    };
    let snapshot: Snapshot = rmp_serde::from_slice(&bytes)?;
    Ok(snapshot.steps.last().map(|step| step.record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> RecordId {
        RecordId(Digest([number; 32]))
    }

    /// Records as (id, parent or 0, turn, session).
    fn archive(records: &[(u8, u8, u32, &str)]) -> Archive {
        let known = |(number, parent, turn, session): &(u8, u8, u32, &str)| {
            let known = RecordSummary {
                parent: (*parent > 0).then(|| id(*parent)),
                turn: *turn,
                branch: None,
                session: (*session).to_owned(),
                parent_session: None,
                model: format!("m{}", turn % 2),
                ended: u64::from(*number) * 1000,
                content: false,
            };
            (id(*number), known)
        };
        Archive(records.iter().map(known).collect())
    }

    /// A session with a retry of its third turn, one of its own, and one without a name.
    fn some() -> Archive {
        archive(&[
            (0x10, 0, 1, "aaaa1111"),
            (0x11, 0x10, 2, "aaaa1111"),
            (0x12, 0x11, 3, "aaaa1111"),
            (0x13, 0x11, 3, "aaaa1111"),
            (0x14, 0x12, 4, "aaaa1111"),
            (0x20, 0, 1, "aaaa2222"),
            (0x30, 0, 1, ""),
        ])
    }

    #[test]
    fn each_end_of_the_tree_is_a_branch() {
        let found: Vec<_> = some()
            .branches()
            .iter()
            .map(|one| (one.newest, one.turns, one.began, one.models.len()))
            .collect();
        assert_eq!(
            found,
            [
                (id(0x30), 1, 48_000, 1),
                (id(0x20), 1, 32_000, 1),
                (id(0x14), 4, 16_000, 2),
                (id(0x13), 3, 16_000, 2),
            ]
        );
        assert_eq!(Archive::default().branches(), []);
    }

    #[test]
    fn a_branch_is_found_by_its_name_or_its_sessions() {
        for (name, expect) in [
            ("aaaa1111", Ok((id(0x14), 1))),
            ("aaaa1", Ok((id(0x14), 1))),
            ("aaaa2", Ok((id(0x20), 0))),
            ("1313", Ok((id(0x13), 0))),
            ("1414141414141414", Ok((id(0x14), 0))),
            ("3030", Ok((id(0x30), 0))),
            ("aaa", Err(NotOne::Short("aaa".to_owned()))),
            ("bbbb", Err(NotOne::None("bbbb".to_owned()))),
            (
                "aaaa",
                Err(NotOne::Several {
                    name: "aaaa".to_owned(),
                    of: "aaaa1111, aaaa2222".to_owned(),
                }),
            ),
        ] {
            let found = some().find(name);
            let found = found.map(|(branch, others)| (branch.newest, others));
            assert_eq!(found, expect, "{name}");
        }
    }
}
