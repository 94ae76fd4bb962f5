//! Erases sessions of a store that serves: from the store, and from the memory of this process. Owns
//! the order of the two, in which nothing erased is written again. Never erases in other processes.

use plimsoll_console::inspect::{ArchiveError, Erasure, erasure};
use plimsoll_ingress::ErasedCounts;
use plimsoll_model::Erased;
use plimsoll_proxy::pipeline::App;
use plimsoll_store::{Batch, Store, StoreError};

/// Erases what is meant. Turns under way end as they would, but are not recorded. Blocks for as long
/// as it takes to read all records and to copy what stays. `others` empties what else remembers sessions.
///
/// # Errors
/// [`ArchiveError`] if the store fails. Running it again goes on.
pub fn erase(app: &App, whose: &Erased, others: &dyn Fn()) -> Result<ErasedCounts, ArchiveError> {
    write_again(app, app.erasing.take_unwritten())?;
    let forget = || {
        app.forget(whose);
        others();
    };
    app.erasing.begin(whose, forget);
    let erased = from_stores(app, whose);
    // What was read since the beginning may have been read before it was gone.
    let written = write_again(app, app.erasing.end(forget));
    let erased = erased?;
    written?;
    Ok(erased)
}

/// Writes what was written during an erasure once more. Each batch is tried, whatever becomes of those before it,
/// and what the store refuses is kept for the beginning of the next erasure.
///
/// # Errors
/// Why the store refused the first of them.
fn write_again(app: &App, batches: Vec<Batch>) -> Result<(), StoreError> {
    let (mut refused, mut outcome) = (Vec::new(), Ok(()));
    for batch in batches {
        let Err(error) = app.store.commit(batch.clone()).wait() else {
            continue;
        };
        tracing::warn!(%error, "what was recorded during an erasure could not be written again");
        // No store takes a blob that is not what its id says.
        if !matches!(error, StoreError::WrongId { .. }) {
            refused.push(batch);
        }
        outcome = outcome.and(Err(error));
    }
    app.erasing.keep_unwritten(refused);
    outcome
}

fn from_stores(app: &App, whose: &Erased) -> Result<ErasedCounts, ArchiveError> {
    // What was only watched is counted nowhere.
    from(&app.watched, whose)?;
    from(&app.store, whose)
}

/// Erases from a store that nobody else uses, or whose users do not write what is erased.
///
/// # Errors
/// [`ArchiveError`] if the store fails.
pub fn from(store: &Store, whose: &Erased) -> Result<ErasedCounts, ArchiveError> {
    // What was handed over before is in the store when this is, and so it is found.
    settled(store)?;
    let Erasure {
        ids,
        records,
        sessions,
    } = erasure(store, whose)?;
    if ids.is_empty() {
        return Ok(ErasedCounts::default());
    }
    let removed = store.erase(ids)?;
    Ok(ErasedCounts {
        sessions,
        records,
        removed,
    })
}

fn settled(store: &Store) -> Result<(), StoreError> {
    store.commit(Batch::default()).wait()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::super::wire;
    use super::*;
    use crate::config::{Backend, Config};
    use plimsoll_model::blob_id;
    use plimsoll_store::faults::Faults;
    use plimsoll_store::memory::Memory;

    fn holds(app: &App, text: &'static str) -> bool {
        let blobs = app.store.blobs(&[blob_id(text.as_bytes())]).unwrap();
        blobs[0].is_some()
    }

    fn batch(id: &'static str, text: &'static str) -> Batch {
        Batch {
            blobs: vec![(blob_id(id.as_bytes()), Bytes::from_static(text.as_bytes()))],
            ..Batch::default()
        }
    }

    /// Erases something, while these batches are written.
    fn erased_beside(app: &App, batches: &[Batch]) -> Result<ErasedCounts, ArchiveError> {
        let whose = Erased::Session("a".to_owned());
        app.erasing.begin(&whose, || {});
        let leave = app.erasing.leave(app.erasing.began(), |_| false).unwrap();
        assert!(batches.iter().all(|batch| leave.hold(batch)));
        drop(leave);
        erase(app, &whose, &|| {})
    }

    #[tokio::test]
    async fn what_was_written_meanwhile_is_written_again_whatever_else_fails() {
        let mut config = Config::default();
        config.store.backend = Backend::Memory;
        let mut app = wire::app(&config).unwrap();
        let faults = Faults::default();
        let store = Store::Memory(Memory::with_faults(faults.clone()));
        Arc::get_mut(&mut app).unwrap().store = Arc::new(store);
        // No store takes the first.
        let refused = erased_beside(&app, &[batch("one", "another"), batch("two", "two")]);
        assert!(refused.is_err());
        assert!(holds(&app, "two"));
        // A store that refuses all has it later.
        faults.fail_commits(true);
        let refused = erased_beside(&app, &[batch("three", "three"), batch("four", "four")]);
        assert!(refused.is_err() && !holds(&app, "three"));
        faults.fail_commits(false);
        let erased = erase(&app, &Erased::Session("b".to_owned()), &|| {});
        assert!(erased.is_ok());
        assert!(holds(&app, "three") && holds(&app, "four"));
    }
}
