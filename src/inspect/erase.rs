//! What has to go if a session or a tenant is erased: its records, what stands on them alone, and the
//! content that no other record names. Owns that choice. Never removes anything.

use std::collections::HashSet;

use super::archive::ArchiveError;
use crate::history::usage_key;
use crate::model::{Content, Digest, Erased, Parent, RecordId, SessionRow, TenantId, TurnRecord};
use crate::store::{Batch, BatchKind, Store};

/// How many blobs are read at a time.
const BLOBS_AT_ONCE: usize = 256;

/// What is to be erased.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Erasure {
    /// The ids of blobs and of rows, as [`Store::erase`] takes them.
    pub ids: HashSet<Digest>,
    /// How many records are among them.
    pub records: u64,
    /// How many sessions they belong to.
    pub sessions: u64,
}

/// Finds what is to be erased. Of a tenant these are the sessions that are in the list of sessions.
/// Reads all records of the store, which may take long.
///
/// # Errors
/// [`ArchiveError`] if the store fails.
pub fn erasure(store: &Store, whose: &Erased) -> Result<Erasure, ArchiveError> {
    let (names, rows) = listed(store, whose)?;
    let mut found = Erasure {
        ids: rows,
        sessions: names.len() as u64,
        ..Erasure::default()
    };
    let (mut named, mut others) = (Named::default(), Named::default());
    store.each(&mut |batch: Batch| {
        if batch.kind == BatchKind::Content {
            return Ok(());
        }
        for (id, bytes) in &batch.blobs {
            // Snapshots and reports of usage are among the records. They are named by those.
            let Ok(record) = rmp_serde::from_slice::<TurnRecord>(bytes) else {
                continue;
            };
            if names.contains(&record.session) {
                found.ids.insert(*id);
                found.records += 1;
                named.add(*id, &record);
            } else {
                others.add(*id, &record);
            }
        }
        Ok(())
    })?;
    let (gone, stays) = (named.all(store)?, others.all(store)?);
    found.ids.extend(gone.difference(&stays));
    Ok(found)
}

/// The names of the sessions, and what their rows are found by.
fn listed(
    store: &Store,
    whose: &Erased,
) -> Result<(HashSet<String>, HashSet<Digest>), ArchiveError> {
    let (mut names, mut rows) = (HashSet::new(), HashSet::new());
    if let Erased::Session(name) = whose {
        names.insert(name.clone());
    }
    store.each(&mut |batch: Batch| {
        let Some(listed) = batch.listed else {
            return Ok(());
        };
        let Ok(row) = rmp_serde::from_slice::<SessionRow>(&listed.row) else {
            return Ok(());
        };
        if whose.means(TenantId(row.tenant), row.of_session()) {
            rows.insert(listed.session);
            names.insert(row.of_session().to_owned());
        }
        Ok(())
    })?;
    Ok((names, rows))
}

/// What some records name.
#[derive(Default)]
struct Named {
    /// Snapshots, and lists of content.
    snapshots: HashSet<Digest>,
    lists: HashSet<Digest>,
    /// Keys of usage that came later.
    usage: Vec<Digest>,
}

impl Named {
    fn add(&mut self, id: Digest, record: &TurnRecord) {
        if let Parent::Snapshot(snapshot) = record.parent {
            self.snapshots.insert(snapshot);
        }
        self.lists.extend(record.content);
        self.usage.push(usage_key(RecordId(id)));
    }

    /// Everything, with what the lists name.
    fn all(self, store: &Store) -> Result<HashSet<Digest>, ArchiveError> {
        let mut all = self.snapshots;
        let lists: Vec<Digest> = self.lists.into_iter().collect();
        for lists in lists.chunks(BLOBS_AT_ONCE) {
            for bytes in store.blobs(lists)?.into_iter().flatten() {
                let Content {
                    messages,
                    answer,
                    tools,
                    ..
                } = rmp_serde::from_slice(&bytes)?;
                all.extend(messages.into_iter().chain([answer]).chain(tools));
            }
        }
        all.extend(lists);
        for keys in self.usage.chunks(BLOBS_AT_ONCE) {
            let reports = store.links(keys)?.into_iter().flatten();
            all.extend(reports.map(|(_, id)| id));
        }
        Ok(all)
    }
}
