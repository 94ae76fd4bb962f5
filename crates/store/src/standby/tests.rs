//! What is in memory in place of a disk, and how it gets there: what is erased never does, what the
//! disk does not take is told and tried again, and closing waits for nobody who works with the disk.

use std::time::Instant;

use plimsoll_model::blob_id;

use super::super::Store;
use super::super::batch::{Link, Take};
use super::super::tests::{config, noise, until, wait};
use super::*;

fn batch(number: u64) -> Batch {
    let bytes = noise(number, 700);
    let id = blob_id(&bytes);
    Batch {
        links: vec![Link {
            key: blob_id(b"key"),
            id,
            turn: number as u32,
        }],
        listed: Some(Listed {
            session: session(number),
            at: number,
            id,
            row: noise(number, 40),
        }),
        blobs: vec![(id, bytes)],
        ..Batch::default()
    }
}

fn session(number: u64) -> Digest {
    blob_id(&number.to_le_bytes())
}

/// What is erased if a batch is.
fn of(number: u64) -> HashSet<Digest> {
    HashSet::from([batch(number).blobs[0].0, session(number)])
}

/// Whether blob, link and row of a batch are found: all of them, or none.
#[track_caller]
fn has(store: &Store, number: u64) -> bool {
    let id = batch(number).blobs[0].0;
    let blob = store.blobs(&[id]).unwrap()[0].is_some();
    let links = store.links(&[blob_id(b"key")], Take::ALL).unwrap();
    let link = links[0].iter().any(|(_, to)| *to == id);
    let rows = store.sessions(None, 99).unwrap();
    let row = rows.iter().any(|row| row.session == session(number));
    assert!(blob == link && link == row, "{blob} {link} {row}");
    blob
}

/// A store in place of a disk that refuses as long as a file is where a directory should be.
fn refused(dir: &Path, change: impl FnOnce(&mut StoreSettings)) -> (Store, std::path::PathBuf) {
    let data = dir.join("data");
    std::fs::create_dir(&data).unwrap();
    let in_the_way = data.join("sled");
    std::fs::write(&in_the_way, b"in the way").unwrap();
    let mut settings = config(&data);
    change(&mut settings);
    let error = StoreError::io("writing", &data, &std::io::ErrorKind::StorageFull.into());
    let store = Store::Standby(Standby::new(&settings, error).unwrap());
    (0..3).for_each(|number| wait(store.commit(batch(number))).unwrap());
    (store, in_the_way)
}

const SOON: std::time::Duration = std::time::Duration::from_secs(20);

#[test]
fn what_is_erased_while_the_disk_refuses_never_gets_there() {
    let dir = tempfile::tempdir().unwrap();
    let (store, in_the_way) = refused(dir.path(), |_| {});
    // The disk may have more of it, so whoever asked has to ask again.
    let told = store.erase(of(1));
    assert!(matches!(told, Err(StoreError::Io { .. })), "{told:?}");
    assert!(!has(&store, 1) && has(&store, 2));
    std::fs::remove_file(in_the_way).unwrap();
    until(&store, SOON, |store| !store.health().memory_only);
    // What is being moved gets there first.
    store.close().unwrap();
    let disk = Store::open(&config(&dir.path().join("data")))
        .unwrap()
        .store;
    assert!(has(&disk, 0) && !has(&disk, 1) && has(&disk, 2));
    disk.close().unwrap();
}

#[test]
fn what_the_disk_does_not_take_is_told_and_can_be_erased() {
    let dir = tempfile::tempdir().unwrap();
    // It opens, and takes nothing.
    let (store, in_the_way) = refused(dir.path(), |settings| settings.queue = 0);
    std::fs::remove_file(in_the_way).unwrap();
    until(&store, SOON, |store| !store.health().memory_only);
    until(&store, SOON, |store| {
        store.notes().join(" ").contains("still in memory only")
    });
    assert!(store.health().waiting > 0);
    assert!(has(&store, 1) && has(&store, 2));
    assert_eq!(store.erase(of(1)), Ok(1));
    assert!(!has(&store, 1) && has(&store, 2));
    let target = dir.path().join("snapshot");
    assert!(store.snapshot(&target).is_err() && !target.exists());
    assert!(store.close().is_err(), "something is lost");
}

#[test]
fn what_the_disk_did_not_take_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let settings = StoreSettings {
        stand_by: 30 * SOON,
        ..config(dir.path())
    };
    let error = StoreError::io("writing", dir.path(), &std::io::ErrorKind::Other.into());
    let standby = Standby::new(&settings, error).unwrap();
    (0..3).for_each(|number| wait(standby.commit(batch(number))).unwrap());
    let takes_nothing = StoreSettings {
        queue: 0,
        ..settings.clone()
    };
    let (disk, _) = SledStore::open(&takes_nothing).unwrap();
    assert!(!standby.0.take(Some(disk)));
    assert!(!standby.0.try_again(), "it still takes nothing");
    let (inner, store) = (Arc::clone(&standby.0), Store::Standby(standby));
    assert!(has(&store, 0) && has(&store, 1));
    inner.open().unwrap().close().unwrap();
    let (disk, _) = SledStore::open(&settings).unwrap();
    *inner.disk.write() = Disk::Open(Arc::new(disk));
    assert!(inner.try_again());
    assert!(inner.memory.batches().is_empty());
    assert_eq!(store.notes(), Vec::<String>::new());
    assert!((0..3).all(|number| has(&store, number)));
    store.close().unwrap();
}

#[test]
fn closing_waits_for_no_sweep() {
    let dir = tempfile::tempdir().unwrap();
    // The thread of the store looks at what it was asked for only after that.
    let (store, in_the_way) = refused(dir.path(), |settings| settings.look = 2 * SOON);
    std::fs::remove_file(in_the_way).unwrap();
    until(&store, SOON, |store| !store.health().memory_only);
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| store.sweep());
        std::thread::sleep(std::time::Duration::from_millis(300));
        let began = Instant::now();
        store.close().unwrap();
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        let swept = sweep.join().unwrap();
        assert!(
            swept.is_ok() || swept == Err(StoreError::Closed),
            "{swept:?}"
        );
    });
}
