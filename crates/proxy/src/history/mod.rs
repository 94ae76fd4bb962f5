//! Reads a recorded conversation from the store: the path that ends at a record, and what was said.
//! `pipeline` continues it, `inspect` shows it. Never writes, and never decides which record is meant.

mod conversation;
mod patience;
mod readers;
mod reads;

use std::sync::Arc;

pub use conversation::{Conversation, conversation, held_by, together};
pub use patience::{Patience, Waiting};
pub use readers::Readers;
pub use reads::Reads;

use plimsoll_core::session::path::Path;
use plimsoll_model::{Digest, Parent, RecordId, Snapshot, TurnRecord};
use plimsoll_store::StoreError;

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
