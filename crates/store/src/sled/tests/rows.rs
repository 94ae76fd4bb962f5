//! Rows of the list of sessions that wait for the engine.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// The batch of a number, with its row for this session.
fn turn_of(session: u64, number: u64) -> Batch {
    let mut batch = numbered(number);
    batch.listed.as_mut().unwrap().session = key(session);
    batch
}

/// What the engine itself has, whatever waits.
fn in_engine(store: &Store, session: u64) -> Option<u64> {
    let Store::Sled(store) = store else {
        unreachable!("the store is in a directory");
    };
    let row = store
        .shared
        .read(|trees, path| trees.row(path, &key(session)));
    row.unwrap().map(|row| row.at)
}

/// How long the committer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the engine has the row of this time.
fn until_in_engine(store: &Store, session: u64, at: u64) {
    until(store, PATIENCE, |store| {
        in_engine(store, session) == Some(at)
    });
}

#[test]
fn a_reader_finds_the_newest_row_at_any_time() {
    const TURNS: u64 = 600;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).store;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !ended.load(Ordering::Acquire) {
                let rows = store.sessions(None, 99).unwrap();
                let at = rows
                    .iter()
                    .find(|row| row.session == key(1))
                    .map(|row| row.at);
                // It is listed from its first turn on, with no row that is older than one before.
                assert!(at >= Some(seen) || seen == 0, "{at:?} after {seen}");
                seen = at.unwrap_or(seen);
            }
        });
        for number in 1..=TURNS {
            wait(store.commit(turn_of(1, number))).unwrap();
            wait(store.commit(turn_of(2 + number % 40, number))).unwrap();
            let rows = store.sessions(None, 1).unwrap();
            assert_eq!(rows[0].at, number);
            if number % 100 == 0 {
                until_in_engine(&store, 1, number);
            }
        }
        ended.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    store.close().unwrap();
    let store = open(dir.path()).store;
    assert_eq!(in_engine(&store, 1), Some(TURNS));
    assert_eq!(store.sessions(None, 99).unwrap().len(), 41);
    store.close().unwrap();
}

#[test]
fn a_row_that_comes_late_takes_no_newer_ones_place() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).store;
    let newest = |store: &Store| store.sessions(None, 9).unwrap()[0].at;
    for number in [5, 3, 9, 1] {
        wait(store.commit(turn_of(1, number))).unwrap();
    }
    assert_eq!(newest(&store), 9);
    // The engine has the newest, and an older one waits.
    until_in_engine(&store, 1, 9);
    wait(store.commit(turn_of(1, 7))).unwrap();
    assert_eq!(newest(&store), 9);
    store.close().unwrap();
    let store = open(dir.path()).store;
    assert_eq!(newest(&store), 9);
    store.close().unwrap();
}

#[test]
fn the_engine_gets_rows_although_nothing_pauses() {
    /// Some four times as many as the archive may be ahead of the engine.
    const MOST: u64 = 800;
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("data");
    let store = open(&dir).store;
    let mut next = 1;
    let mut under_load = |session: u64| {
        wait(store.commit(turn_of(session, next))).unwrap();
        for _ in 0..MOST {
            next += 1;
            // None of these has the row that is waited for.
            wait(store.commit(turn_of(0, next))).unwrap();
            if in_engine(&store, session).is_some() {
                return;
            }
        }
        panic!("the engine does not get the row of session {session}");
    };
    // The last ones make the archive longer than what follows.
    (1..12).for_each(&mut under_load);
    fs::rename(&dir, scratch.path().join("gone")).unwrap();
    until(&store, PATIENCE, |store| store.health().wiped > 0);
    // The archive is short again.
    under_load(12);
    store.close().unwrap();
}
