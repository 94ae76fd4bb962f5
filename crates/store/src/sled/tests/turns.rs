//! Whose batch is written next: nobody waits for all of a long one of somebody else's.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::super::SledStore;
use super::super::entry::{EntryReader, Scanned};
use super::super::shared::Engine;
use super::super::writes::Writes;
use super::*;

/// The entries of the archive, each with the writes of some groups.
fn archived(dir: &Path) -> Vec<Writes> {
    let file = fs::File::open(dir.join("archive")).unwrap();
    let mut reader = EntryReader::new(&file, 0).unwrap();
    let mut entries = Vec::new();
    while let Some(found) = reader.next().unwrap() {
        let Scanned::Whole(_, group, _) = found else {
            panic!("damage");
        };
        let mut all = Writes::default();
        group.into_iter().for_each(|writes| all.extend(writes));
        entries.push(all);
    }
    entries
}

fn owned(owner: u64, batch: Batch) -> Batch {
    Batch {
        owner: Some(key(owner)),
        ..batch
    }
}

fn link(number: u64) -> Link {
    Link {
        key: key(number),
        id: key(0),
        turn: 1,
    }
}

/// A batch of the first owner with so many links and one.
fn long(last: u64) -> Batch {
    let batch = Batch {
        links: (0..=last).map(link).collect(),
        ..Batch::default()
    };
    owned(1, batch)
}

#[test]
fn others_wait_for_a_piece_of_a_long_batch_and_its_owner_for_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = SledStore::open(&config(dir.path())).unwrap();
    let last = 9 * 512;
    // Nothing is written while somebody has this.
    let engine = store.shared.engine.write();
    let batches = [
        long(last),
        owned(1, through(1)),
        owned(2, through(2)),
        Batch::default(),
    ];
    let [long, own, others, barrier] = batches.map(|batch| store.commit(batch));
    drop(engine);
    barrier.wait().unwrap();
    for ticket in [long, own, others] {
        let polled = pin!(ticket).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(
            polled,
            Poll::Ready(Ok(())),
            "what has no owner waits for all"
        );
    }
    store.close().unwrap();
    let entries = archived(dir.path());
    let of_blob = |number| {
        let (id, _) = through(number).blobs.remove(0);
        let has = |writes: &Writes| writes.blobs.iter().any(|(blob, ..)| *blob == id);
        entries.iter().position(has).unwrap()
    };
    let has = |writes: &Writes| writes.links.iter().any(|(of, _)| *of == link(last));
    let of_last = entries.iter().position(has).unwrap();
    assert!(of_blob(2) < of_last, "the other owner's came first");
    assert!(of_last <= of_blob(1), "the owner's own came in its order");
}

#[test]
fn a_long_batch_takes_one_place_in_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let settings = StoreSettings {
        queue: 4,
        ..config(dir.path())
    };
    let (store, _) = SledStore::open(&settings).unwrap();
    let engine = store.shared.engine.write();
    let first = store.commit(long(9 * 512));
    // Half of the places are for what may not be left out.
    let second = store.commit_spare(owned(2, through(2)));
    assert!(store.commit_spare(owned(2, through(3))).is_refused());
    let more = [4, 5].map(|number| store.commit(owned(2, through(number))));
    assert_eq!(store.health().waiting, 4);
    assert!(store.commit(owned(2, through(6))).is_refused());
    drop(engine);
    for ticket in [first, second].into_iter().chain(more) {
        ticket.wait().unwrap();
    }
    assert_eq!((store.health().waiting, store.health().failed), (0, 2));
}

#[test]
fn nothing_more_is_written_of_a_batch_of_which_a_piece_failed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = SledStore::open(&config(dir.path())).unwrap();
    let mut engine = store.shared.engine.write();
    let failing = Batch {
        listed: numbered(1).listed,
        ..long(9 * 512)
    };
    let failing = store.commit(failing);
    let next = store.commit(owned(1, numbered(2)));
    let error = StoreError::io("using", dir.path(), &std::io::Error::other("no disk"));
    *engine = Engine::Failed(error);
    drop(engine);
    assert!(failing.wait().is_err());
    // The engine was opened again meanwhile.
    next.wait().unwrap();
    assert_eq!((store.health().waiting, store.health().failed), (0, 1));
    let rows = store.sessions(None, usize::MAX).unwrap();
    assert_eq!(rows, Vec::from_iter(numbered(2).listed));
}
