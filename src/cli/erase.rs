//! Erases sessions of a store that serves: from the store, and from the memory of this process. Owns
//! the order of the two, in which nothing erased is written again. Never erases in other processes.

use crate::ingress::ErasedCounts;
use crate::inspect::{ArchiveError, Erasure, erasure};
use crate::model::Erased;
use crate::pipeline::App;
use crate::store::{Batch, Store, StoreError};

/// Erases what is meant. Turns under way end as they would, but are not recorded. Blocks for as long
/// as it takes to read all records and to copy what stays. `others` empties what else remembers sessions.
///
/// # Errors
/// [`ArchiveError`] if the store fails. Running it again goes on.
pub fn erase(app: &App, whose: &Erased, others: &dyn Fn()) -> Result<ErasedCounts, ArchiveError> {
    let forget = || {
        app.forget(whose);
        others();
    };
    app.erasing.begin(whose, forget);
    let erased = from_stores(app, whose);
    // What was read since the beginning may have been read before it was gone.
    let meanwhile = app.erasing.end(forget);
    for batch in meanwhile {
        app.store.commit(batch).wait()?;
    }
    erased
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
