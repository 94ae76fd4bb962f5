//! Reads a recorded conversation from the store: the path that ends at a record, usage that was
//! reported late, and what was said. `pipeline` continues it, `inspect` shows it. Never writes, and
//! never decides which record is meant.

mod conversation;
mod patience;
mod reads;

use std::sync::Arc;

pub use conversation::{Conversation, conversation};
pub use patience::{Patience, Waiting};
pub use reads::{Readers, Reads};

use crate::model::{Digest, LateReport, Parent, RecordId, Snapshot, TurnRecord};
use crate::session::path::{Path, REPORTS};
use crate::store::StoreError;

/// Why a path could not be read. The request is then forwarded as it came.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody waits for the answer any more.
    #[error("nobody waits for what is looked up")]
    Late,
    /// A record can't be read.
    #[error("a stored record can't be read: {0}")]
    Record(#[from] rmp_serde::decode::Error),
}

/// Folds the path that ends at a record; `None` if a part of it is not stored.
///
/// # Errors
/// [`FindError`] where the store fails or a record can't be read.
pub fn load(store: &Reads<'_>, id: RecordId) -> Result<Option<Path>, FindError> {
    // Walks back to the beginning, or to a snapshot, which lists all records before it.
    let mut newer = Vec::new();
    let mut at = Parent::Record(id);
    let mut path = loop {
        match at {
            Parent::Root => break Path::default(),
            Parent::Record(id) => {
                let Some(record) = record(store, id)? else {
                    return Ok(None);
                };
                at = record.parent;
                newer.push((id, Arc::new(record)));
            }
            Parent::Snapshot(id) => match snapshot(store, id)? {
                Some(path) => break path,
                None => return Ok(None),
            },
        }
    };
    for (id, record) in newer.into_iter().rev() {
        path.push(id, record);
    }
    // A path in memory has the late reports of all turns. Here only the newest is read, because
    // counts are corrected by that one.
    for entry in path.entries.iter_mut().rev().take(REPORTS) {
        if entry.reported.is_none()
            && let Some(report) = late_report(store, entry.id)?
        {
            entry.learn(&report);
        }
        if entry.told().is_some() {
            break;
        }
    }
    Ok(Some(path))
}

/// A record; `None` if it is not stored.
///
/// # Errors
/// [`FindError`] where the store fails or it can't be read.
pub fn record(store: &Reads<'_>, id: RecordId) -> Result<Option<TurnRecord>, FindError> {
    let bytes = store.blobs(&[id.0])?.into_iter().next().flatten();
    Ok(bytes
        .map(|bytes| rmp_serde::from_slice(&bytes))
        .transpose()?)
}

fn snapshot(store: &Reads<'_>, id: Digest) -> Result<Option<Path>, FindError> {
    let Some(bytes) = store.blobs(&[id])?.into_iter().next().flatten() else {
        return Ok(None);
    };
    let snapshot: Snapshot = rmp_serde::from_slice(&bytes)?;
    let ids: Vec<Digest> = snapshot.steps.iter().map(|step| step.record.0).collect();
    let mut records = Vec::with_capacity(ids.len());
    for bytes in store.blobs(&ids)? {
        let Some(bytes) = bytes else { return Ok(None) };
        records.push(Arc::new(rmp_serde::from_slice::<TurnRecord>(&bytes)?));
    }
    Ok(Some(Path::from_snapshot(&snapshot, records)))
}

/// The key of usage that was reported after the record was written.
#[must_use]
pub fn usage_key(id: RecordId) -> Digest {
    Digest::of(&[b"usage", id.0.as_bytes()])
}

/// What came of a record's turn after it was written: the usage of its last hop, and what the turn cost.
///
/// # Errors
/// [`FindError`] where the store fails or the usage can't be read.
pub fn late_report(store: &Reads<'_>, id: RecordId) -> Result<Option<LateReport>, FindError> {
    let Some((_, blob)) = store.links(&[usage_key(id)])?.into_iter().flatten().next() else {
        return Ok(None);
    };
    let bytes = store.blobs(&[blob])?.into_iter().next().flatten();
    Ok(bytes
        .map(|bytes| rmp_serde::from_slice(&bytes))
        .transpose()?)
}
