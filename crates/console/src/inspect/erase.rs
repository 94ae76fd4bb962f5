//! What has to go if a session or a tenant is erased: its records, what stands on them alone, and the
//! content that no other record names. Owns that choice. Never removes anything.

use std::collections::HashSet;

use plimsoll_model::{Content, Digest, Erased, Parent, Said, SessionRow, TenantId, TurnRecord};
use plimsoll_store::{Batch, BatchKind, Store, StoreError};

use super::archive::ArchiveError;

/// How many blobs are read at a time.
const BLOBS_AT_ONCE: usize = 256;
/// Of how many records it is held at a time what they name.
const RECORDS_AT_ONCE: usize = 256;

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
/// Reads all records of the store, twice if anything is to go, which may take long. What it holds in memory is as much as
/// there is to erase, and a part of the others at a time, however many these are.
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
    let mut named = Named::default();
    each_record(store, &mut |id, record| {
        // Something may be handed over twice.
        if names.contains(&record.session) && found.ids.insert(id) {
            found.records += 1;
            named.add(record);
        }
        Ok(())
    })?;
    let mut gone = HashSet::new();
    named.each(store, &mut |id| {
        gone.insert(id);
    })?;
    if !gone.is_empty() {
        // What others name stays.
        let mut others = Named::default();
        let mut stays = |id: Digest| {
            gone.remove(&id);
        };
        each_record(store, &mut |_, record| {
            if names.contains(&record.session) {
                return Ok(());
            }
            others.add(record);
            if others.records < RECORDS_AT_ONCE {
                return Ok(());
            }
            std::mem::take(&mut others).each(store, &mut stays)
        })?;
        others.each(store, &mut stays)?;
    }
    found.ids.extend(gone);
    Ok(found)
}

/// The names of the sessions, and what their rows are found by. None of these changes meanwhile: what is being erased is
/// not recorded.
fn listed(
    store: &Store,
    whose: &Erased,
) -> Result<(HashSet<String>, HashSet<Digest>), ArchiveError> {
    let (mut names, mut rows) = (HashSet::new(), HashSet::new());
    if let Erased::Session(name) = whose {
        names.insert(name.clone());
    }
    store.each_page(|page| {
        for listed in page {
            let Ok(row) = rmp_serde::from_slice::<SessionRow>(&listed.row) else {
                continue;
            };
            if whose.means(TenantId(row.tenant), row.of_session()) {
                rows.insert(listed.session);
                names.insert(row.of_session().to_owned());
            }
        }
        Ok::<_, StoreError>(true)
    })?;
    Ok((names, rows))
}

/// Hands over each record, some of them twice.
fn each_record(
    store: &Store,
    each: &mut dyn FnMut(Digest, &TurnRecord) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let mut failed = None;
    let read = store.each(&mut |batch: Batch| {
        if batch.kind == BatchKind::Content {
            return Ok(());
        }
        for (id, bytes) in &batch.blobs {
            // Snapshots are among the records. They are named by those.
            let Ok(record) = rmp_serde::from_slice::<TurnRecord>(bytes) else {
                continue;
            };
            if let Err(error) = each(*id, &record) {
                failed = Some(error);
                // It ends the reading, and is not what is told.
                return Err(StoreError::Closed);
            }
        }
        Ok(())
    });
    failed.map_or(Ok(()), Err)?;
    Ok(read?)
}

/// What some records name.
#[derive(Default)]
struct Named {
    /// Snapshots, and lists of content.
    snapshots: HashSet<Digest>,
    lists: HashSet<Digest>,
    /// How many records.
    records: usize,
}

impl Named {
    fn add(&mut self, record: &TurnRecord) {
        if let Parent::Snapshot(snapshot) = record.parent {
            self.snapshots.insert(snapshot);
        }
        self.lists.extend(record.content);
        self.records += 1;
    }

    /// Hands over everything, with what the lists name.
    fn each(self, store: &Store, each: &mut dyn FnMut(Digest)) -> Result<(), ArchiveError> {
        self.snapshots.into_iter().for_each(&mut *each);
        let lists: Vec<Digest> = self.lists.into_iter().collect();
        for lists in lists.chunks(BLOBS_AT_ONCE) {
            for bytes in store.blobs(lists)?.into_iter().flatten() {
                let Content {
                    messages,
                    answer,
                    tools,
                    ..
                } = rmp_serde::from_slice(&bytes)?;
                let messages = messages.into_iter().map(Said::blob);
                let named = messages.chain([answer]).chain(tools);
                named.for_each(&mut *each);
            }
        }
        lists.into_iter().for_each(&mut *each);
        Ok(())
    }
}
