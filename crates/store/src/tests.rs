//! Laws of every store, with the memory store as the oracle, and the injected faults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_model::blob_id;
use proptest::prelude::*;

use super::faults::Faults;
use super::memory::Memory;
use super::*;

mod links;
pub(super) mod sealed;

use sealed::sealed;

/// Waits for a ticket without a runtime of the caller's.
pub(super) fn wait(ticket: Ticket) -> Result<(), StoreError> {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(ticket)
}

/// Waits until a store says so.
pub(super) fn until(store: &Store, patience: Duration, said: impl Fn(&Store) -> bool) {
    let deadline = Instant::now() + patience;
    while !said(store) {
        assert!(Instant::now() < deadline, "{:?}", store.notes());
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn config(dir: &Path) -> StoreSettings {
    StoreSettings {
        path: dir.to_owned(),
        cache_mb: 8,
        retry: Duration::ZERO,
        look: Duration::from_millis(20),
        stand_by: Duration::from_millis(50),
        ..StoreSettings::default()
    }
}

pub(super) fn open(dir: &Path) -> OpenedStore {
    Store::open(&config(dir)).unwrap()
}

/// Bytes that don't compress, the same for the same seed.
pub(super) fn noise(seed: u64, length: usize) -> Bytes {
    let mut out = vec![0; length];
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut out);
    out.into()
}

fn value(number: usize) -> Bytes {
    match number {
        0 => Bytes::new(),
        1 => Bytes::from_static(b"short"),
        2 => vec![b'x'; 40_000].into(),
        // Exactly one chunk on disk, one byte more, and many chunks.
        3 => noise(3, (6 << 10) - codec::HEADER),
        4 => noise(4, (6 << 10) - codec::HEADER + 1),
        other => noise(other as u64, other * 4_000),
    }
}

const VALUES: usize = 9;
const KEYS: u64 = 5;

fn key(number: u64) -> Digest {
    blob_id(&number.to_le_bytes())
}

#[derive(Clone, Debug)]
pub(super) enum Operation {
    Commit { batch: Batch, wait: bool },
    Links(Vec<Digest>, Take),
    Linked,
    Blobs(Vec<Digest>),
    Sessions(Option<(u64, Digest)>, usize),
    Each,
    Reopen,
}

fn ids() -> impl Strategy<Value = Digest> {
    // One more than there are: an id that is never stored, with links that dangle.
    (0..=VALUES).prop_map(|number| blob_id(&value(number)))
}

fn takes() -> impl Strategy<Value = Take> {
    let few = 0..12usize;
    prop_oneof![
        Just(Take::ALL),
        few.clone().prop_map(Take::First),
        few.prop_map(Take::Last),
        Just(Take::Last(usize::MAX)),
    ]
}

fn rows() -> impl Strategy<Value = Listed> {
    (0..4u64, 0..6u64, ids(), 0..3u8).prop_map(|(session, at, id, row)| Listed {
        session: key(session),
        at,
        id,
        row: Bytes::from(vec![row; 3]),
    })
}

fn batches() -> impl Strategy<Value = Batch> {
    let kind = prop_oneof![Just(BatchKind::Records), Just(BatchKind::Content)];
    let more = (
        kind,
        proptest::collection::vec(ids(), 0..3),
        proptest::option::of(rows()),
        proptest::option::of((0..3u64).prop_map(key)),
    );
    (plain_batches(), more).prop_map(|(batch, (kind, renewed, listed, owner))| Batch {
        kind,
        renewed,
        listed,
        owner,
        ..batch
    })
}

fn plain_batches() -> impl Strategy<Value = Batch> {
    let blobs = proptest::collection::vec(0..VALUES, 0..4);
    let link = (0..KEYS, ids(), 0u32..4);
    let links = proptest::collection::vec(link, 0..6);
    (blobs, links, proptest::bool::weighted(0.05)).prop_map(|(blobs, links, wrong)| {
        let blob = |number| (blob_id(&value(number)), value(number));
        let mut blobs: Vec<_> = blobs.into_iter().map(blob).collect();
        if wrong {
            blobs.push((key(0), Bytes::from_static(b"not what the id says")));
        }
        let link = |(key_of, id, turn)| Link {
            key: key(key_of),
            id,
            turn,
        };
        Batch {
            blobs,
            links: links.into_iter().map(link).collect(),
            ..Batch::default()
        }
    })
}

pub(super) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let commit = (batches(), any::<bool>());
    let keys = proptest::collection::vec((0..=KEYS).prop_map(key), 0..6);
    let place = (0..7u64, (0..5u64).prop_map(key));
    let page = (proptest::option::of(place), 0..5usize);
    let operation = prop_oneof![
        4 => commit.prop_map(|(batch, wait)| Operation::Commit { batch, wait }),
        3 => (keys, takes()).prop_map(|(keys, take)| Operation::Links(keys, take)),
        3 => proptest::collection::vec(ids(), 0..5).prop_map(Operation::Blobs),
        1 => Just(Operation::Linked),
        3 => page.prop_map(|(before, most)| Operation::Sessions(before, most)),
        1 => Just(Operation::Each),
        1 => Just(Operation::Reopen),
    ];
    proptest::collection::vec(operation, 1..30)
}

/// All that a store hands over: blobs with their kinds, links, and rows.
type Everything = (
    BTreeMap<Digest, (Bytes, BatchKind)>,
    BTreeSet<Link>,
    BTreeMap<Digest, (u64, Bytes, Digest)>,
);

/// Everything, once, with each blob in front of the links that lead to it.
fn everything(store: &Store) -> Everything {
    let mut all = Everything::default();
    let (blobs, links, rows) = &mut all;
    let stored = store.linked().unwrap();
    store
        .each(&mut |batch: Batch| {
            assert!(batch.size() < 3 << 20, "a batch of {} bytes", batch.size());
            for (id, value) in batch.blobs {
                let known = blobs.get(&id).map_or(batch.kind, |(_, kind)| *kind);
                blobs.insert(id, (value, known.or(batch.kind)));
            }
            for link in batch.links {
                let dangles = !stored.contains(&(link.turn, link.id));
                assert!(dangles || blobs.contains_key(&link.id));
                links.insert(link);
            }
            if let Some(row) = batch.listed {
                let known = rows.entry(row.session).or_default();
                *known = (*known).clone().max((row.at, row.row, row.id));
            }
            Ok(())
        })
        .unwrap();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn sled_answers_as_memory_does(operations in operations()) {
        let dir = tempfile::tempdir().unwrap();
        answers_as_memory_does(operations, true, &|| open(dir.path()))?;
    }
}

/// Holds a store to the oracle. `open` opens the same store again. `kinds` says whether the store
/// knows the kind of a blob that batches of both kinds held, which no two blobs of a proxy's are.
pub(super) fn answers_as_memory_does(
    operations: Vec<Operation>,
    kinds: bool,
    open: &dyn Fn() -> OpenedStore,
) -> Result<(), TestCaseError> {
    let oracle = Store::Memory(Memory::default());
    let mut store = open().store;
    for operation in operations {
        match operation {
            Operation::Commit { batch, wait: waits } => {
                let (ours, theirs) = (oracle.commit(batch.clone()), store.commit(batch));
                if waits {
                    prop_assert_eq!(wait(theirs), wait(ours));
                }
            }
            Operation::Links(keys, take) => {
                let (theirs, ours) = (store.links(&keys, take), oracle.links(&keys, take));
                prop_assert_eq!(theirs.unwrap(), ours.unwrap(), "{:?}", take);
            }
            Operation::Linked => {
                prop_assert_eq!(store.linked().unwrap(), oracle.linked().unwrap());
            }
            Operation::Blobs(ids) => {
                prop_assert_eq!(store.blobs(&ids).unwrap(), oracle.blobs(&ids).unwrap());
            }
            Operation::Sessions(before, most) => {
                let page = store.sessions(before, most).unwrap();
                prop_assert_eq!(page, oracle.sessions(before, most).unwrap());
            }
            Operation::Each => {
                let (ours, theirs) = (everything(&oracle), everything(&store));
                let values = |all: &Everything| {
                    let blobs = all.0.iter();
                    blobs
                        .map(|(id, (value, _))| (*id, value.clone()))
                        .collect::<Vec<_>>()
                };
                // What a renewal makes of a blob's kind shows when the batch is applied.
                prop_assert_eq!(values(&theirs), values(&ours));
                prop_assert_eq!((theirs.1, theirs.2), (ours.1, ours.2));
            }
            Operation::Reopen => {
                store.close().unwrap();
                let opened = open();
                prop_assert!(opened.report.clean);
                prop_assert_eq!(opened.report.quarantined, None);
                store = opened.store;
                let (mut ours, mut theirs) = (everything(&oracle), everything(&store));
                if !kinds {
                    for (_, kind) in ours.0.values_mut().chain(theirs.0.values_mut()) {
                        *kind = BatchKind::Records;
                    }
                }
                prop_assert_eq!(theirs, ours);
            }
        }
    }
    store.close().unwrap();
    Ok(())
}

#[test]
fn the_list_has_the_newest_row_of_each_session_and_is_read_by_pages() {
    let (_dir, stores) = each_kind();
    for store in stores {
        let row = |session: u64, at, text: &'static [u8]| Listed {
            session: key(session),
            at,
            id: blob_id(b"a"),
            row: Bytes::from_static(text),
        };
        let put = |listed: Listed| Batch {
            listed: Some(listed),
            ..Batch::default()
        };
        for n in 0..50 {
            wait(store.commit(put(row(n, n / 2, b"old")))).unwrap();
        }
        // Later, earlier, and at the same time with a greater and with a smaller row.
        for listed in [
            row(7, 90, b"new"),
            row(8, 1, b"late"),
            row(9, 4, b"z"),
            row(10, 5, b"a"),
        ] {
            wait(store.commit(put(listed))).unwrap();
        }
        let (mut pages, mut before) = (Vec::new(), None);
        loop {
            let page = store.sessions(before, 7).unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.place());
            pages.extend(page);
        }
        assert_eq!(pages.len(), 50);
        assert_eq!(pages, store.sessions(None, 99).unwrap());
        assert!(pages.is_sorted_by(|one, other| one.place() > other.place()));
        let of = |session| {
            pages
                .iter()
                .find(|row| row.session == key(session))
                .cloned()
        };
        assert_eq!(pages[0], row(7, 90, b"new"));
        assert_eq!(of(8), Some(row(8, 4, b"old")));
        assert_eq!(of(9), Some(row(9, 4, b"z")));
        assert_eq!(of(10), Some(row(10, 5, b"old")));
        store.close().unwrap();
        assert_eq!(store.sessions(None, 9), Err(StoreError::Closed));
    }
}

/// A store of each kind that this machine has.
fn each_kind() -> (tempfile::TempDir, Vec<Store>) {
    let dir = tempfile::tempdir().unwrap();
    let mut stores = vec![Store::Memory(Memory::default()), open(dir.path()).store];
    let mut places = vec![sealed(config(&dir.path().join("sealed")))];
    places.extend(redis::tests::fresh());
    places.extend(redis::tests::fresh().map(sealed));
    stores.extend(places.iter().map(|place| Store::open(place).unwrap().store));
    (dir, stores)
}

fn one(bytes: &'static [u8], turn: u32) -> Batch {
    let id = blob_id(bytes);
    Batch {
        blobs: vec![(id, Bytes::from_static(bytes))],
        links: vec![Link {
            key: key(1),
            id,
            turn,
        }],
        ..Batch::default()
    }
}

#[test]
fn a_set_is_sorted_by_turn_then_id_and_shows_no_link_without_its_blob() {
    let (_dir, stores) = each_kind();
    for store in stores {
        let (a, b) = (blob_id(b"a"), blob_id(b"b"));
        wait(store.commit(one(b"a", 300))).unwrap();
        wait(store.commit(one(b"b", 2))).unwrap();
        wait(store.commit(one(b"a", 2))).unwrap();
        let absent = Link {
            key: key(1),
            id: blob_id(b"absent"),
            turn: 1,
        };
        wait(store.commit(Batch {
            links: vec![absent],
            ..Batch::default()
        }))
        .unwrap();
        let mut expected = vec![(2, a), (2, b), (300, a)];
        expected.sort_unstable();
        assert_eq!(
            store.links(&[key(1), key(2)], Take::ALL).unwrap(),
            [expected, vec![]]
        );
        store.close().unwrap();
    }
}

#[test]
fn a_blob_under_a_wrong_id_is_refused_whole() {
    let (_dir, stores) = each_kind();
    for store in stores {
        let mut batch = one(b"good", 1);
        batch.blobs.push((key(7), Bytes::from_static(b"bad")));
        assert_eq!(
            wait(store.commit(batch)),
            Err(StoreError::WrongId { id: key(7) })
        );
        assert_eq!(store.links(&[key(1)], Take::ALL).unwrap(), [vec![]]);
        assert_eq!(store.health().failed, 1);
    }
}

#[test]
fn a_closed_store_says_so() {
    let (_dir, stores) = each_kind();
    for store in stores {
        store.close().unwrap();
        assert_eq!(wait(store.commit(one(b"late", 1))), Err(StoreError::Closed));
        assert_eq!(store.blobs(&[key(1)]), Err(StoreError::Closed));
    }
}

#[test]
fn a_batch_whose_ticket_nobody_awaits_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).store;
    drop(store.commit(one(b"dropped", 1)));
    store.close().unwrap();
    let store = open(dir.path()).store;
    assert_eq!(
        store.links(&[key(1)], Take::ALL).unwrap(),
        [vec![(1, blob_id(b"dropped"))]]
    );
}

#[test]
fn a_queue_that_is_full_refuses_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreSettings {
        queue_bytes: 1_000,
        ..config(dir.path())
    };
    let store = Store::open(&config).unwrap().store;
    let large = |seed| {
        let bytes = noise(seed, 900_000);
        Batch {
            blobs: vec![(blob_id(&bytes), bytes)],
            ..Batch::default()
        }
    };
    let batches: Vec<_> = (0..20).map(large).collect();
    let commit = |batch| store.commit(batch);
    let tickets: Vec<_> = batches.into_iter().map(commit).collect();
    let outcomes: Vec<_> = tickets.into_iter().map(wait).collect();
    assert_eq!(
        outcomes[0],
        Ok(()),
        "a batch over the bound passes where nothing waits"
    );
    assert!(outcomes.contains(&Err(StoreError::Busy)), "{outcomes:?}");
    wait(store.commit(one(b"after", 1))).unwrap();
}

#[test]
fn what_may_be_left_out_leaves_room_for_what_may_not() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreSettings {
        queue_bytes: 1_000,
        ..config(dir.path())
    };
    let store = Store::open(&config).unwrap().store;
    let sized = |size| {
        let bytes = noise(1, size);
        Batch {
            blobs: vec![(blob_id(&bytes), bytes)],
            ..Batch::default()
        }
    };
    assert_eq!(
        wait(store.commit_spare(sized(501))),
        Err(StoreError::Busy),
        "more than half is too much, even where nothing waits"
    );
    wait(store.commit(sized(501))).unwrap();
    // A batch goes on waiting for a moment after it was acknowledged.
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&StoreSettings {
        path: dir.path().to_owned(),
        ..config
    });
    let store = store.unwrap().store;
    let spare = store.commit_spare(sized(500));
    wait(store.commit(sized(500))).unwrap();
    wait(spare).unwrap();
}

/// A store that can't keep everything drops what nothing new stands on.
#[test]
fn what_is_renewed_stays_as_long_as_the_batch_that_renews_it() {
    let size = |number: usize| one_of(noise(number as u64, 1_000));
    let store = Store::forgetful(4 * 1_500);
    let (first, ids): (Vec<Batch>, Vec<Digest>) = (0..2).map(size).unzip();
    for batch in first {
        wait(store.commit(batch)).unwrap();
    }
    for number in 2..12 {
        let (mut batch, _) = size(number);
        batch.renewed = vec![ids[0], key(9)];
        wait(store.commit(batch)).unwrap();
    }
    let held = store.blobs(&ids).unwrap();
    assert_eq!(held[0], Some(noise(0, 1_000)));
    assert_eq!(held[1], None);
}

fn one_of(bytes: Bytes) -> (Batch, Digest) {
    let id = blob_id(&bytes);
    let batch = Batch {
        blobs: vec![(id, bytes)],
        ..Batch::default()
    };
    (batch, id)
}

#[test]
fn faults_do_what_they_say_and_can_be_lifted() {
    let faults = Faults::default();
    let store = Store::Memory(Memory::with_faults(faults.clone()));
    faults.fail_commits(true);
    assert_eq!(
        wait(store.commit(one(b"lost", 1))),
        Err(StoreError::Injected)
    );
    faults.fail_commits(false);
    assert_eq!(store.links(&[key(1)], Take::ALL).unwrap(), [vec![]]);
    faults.fail_reads(true);
    assert_eq!(store.blobs(&[]), Err(StoreError::Injected));
    faults.fail_reads(false);
    let held = faults.hold_reads(Duration::from_secs(60));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| store.links(&[key(1)], Take::ALL));
        // Without the fault it would have ended long before.
        std::thread::sleep(Duration::from_millis(30));
        assert!(!reader.is_finished());
        drop(held);
        assert_eq!(reader.join().unwrap().unwrap(), [vec![]]);
    });
    let delay = Duration::from_millis(30);
    faults.delay_commits(delay);
    let before = Instant::now();
    let ticket = store.commit(one(b"slow", 1));
    assert_eq!(
        store.links(&[key(1)], Take::ALL).unwrap()[0].len(),
        1,
        "readable before it is durable"
    );
    assert_eq!(wait(ticket), Ok(()));
    assert!(before.elapsed() >= delay);
}

#[test]
fn only_a_disk_or_a_fault_makes_a_reader_wait() {
    let dir = tempfile::tempdir().unwrap();
    assert!(open(dir.path()).store.reads_wait());
    assert!(Store::Memory(Memory::with_faults(Faults::default())).reads_wait());
    assert!(!Store::Memory(Memory::default()).reads_wait());
}

#[test]
fn secrets_and_paths_apart_the_errors_say_what_to_do() {
    let locked = StoreError::Locked {
        dir: PathBuf::from("/data"),
        pid: Some(7),
    };
    let said = locked.to_string();
    assert!(
        said.starts_with("process 7 holds the data directory /data: stop it, or give this one"),
        "{said}"
    );
    let format = StoreError::Format { found: 3, known: 1 };
    assert!(format.to_string().contains("format 3"));
}
