//! What is sealed at rest: it is served like anything else, no byte of it is on the disk or in a
//! server, it needs its key, and what was changed or exchanged behind the store's back is not served.

use std::fs;

use memchr::memmem;

use super::*;
use crate::sealing::Seals;

const KEY: &str = "the key of now, which is long enough";
const OLD: &str = "the key before, which is long enough";
/// Short enough not to be compressed.
const TEXT: &[u8] = b"a text that nobody else may read";

/// A store with these settings whose values are sealed.
pub(crate) fn sealed(settings: StoreSettings) -> StoreSettings {
    keyed(&settings, Some(KEY), &[])
}

fn keyed(settings: &StoreSettings, current: Option<&str>, previous: &[&str]) -> StoreSettings {
    StoreSettings {
        seals: Seals::new(current, previous),
        ..settings.clone()
    }
}

/// A directory, and a server if there is one.
fn places() -> (tempfile::TempDir, Vec<StoreSettings>) {
    let dir = tempfile::tempdir().unwrap();
    let mut places = vec![config(dir.path())];
    places.extend(redis::tests::fresh());
    (dir, places)
}

fn opened(settings: &StoreSettings) -> Store {
    Store::open(settings).unwrap().store
}

/// A record and content with the text, and a row of the list.
fn said(number: u64) -> Vec<Batch> {
    let value = |kind: &str| Bytes::from([TEXT, format!("{kind} {number}").as_bytes()].concat());
    let record = value("record");
    let id = blob_id(&record);
    let records = Batch {
        links: vec![Link {
            key: key(number),
            id,
            turn: 1,
        }],
        listed: Some(Listed {
            session: key(number),
            at: number,
            id,
            row: Bytes::from_static(b"row"),
        }),
        blobs: vec![(id, record)],
        ..Batch::default()
    };
    let content = value("content");
    let content = Batch {
        blobs: vec![(blob_id(&content), content)],
        kind: BatchKind::Content,
        ..Batch::default()
    };
    vec![records, content]
}

fn write(store: &Store, numbers: std::ops::Range<u64>) {
    for batch in numbers.flat_map(said) {
        wait(store.commit(batch)).unwrap();
    }
}

fn has(store: &Store, number: u64) -> bool {
    said(number)
        .into_iter()
        .flat_map(|batch| batch.blobs)
        .all(|(id, value)| store.blobs(&[id]).unwrap() == [Some(value)])
}

/// Every byte that is kept: of all files, or of all values in the server, with their names.
fn kept(settings: &StoreSettings) -> Vec<u8> {
    if settings.backend == Backend::Sled {
        return bytes_below(&settings.path);
    }
    let mut server = server(settings);
    let pattern = format!("{}:*", settings.redis.prefix);
    let names: Vec<Vec<u8>> = ::redis::cmd("KEYS")
        .arg(pattern)
        .query(&mut server)
        .unwrap();
    let dumped = |name: Vec<u8>| -> Vec<u8> {
        let value: Vec<u8> = ::redis::cmd("DUMP").arg(&name).query(&mut server).unwrap();
        [name, value].concat()
    };
    names.into_iter().flat_map(dumped).collect()
}

pub(crate) fn bytes_below(directory: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        // The engine renames files while it runs.
        if path.is_dir() {
            bytes.extend(bytes_below(&path));
        } else {
            bytes.extend(fs::read(&path).unwrap_or_default());
        }
    }
    bytes
}

fn server(settings: &StoreSettings) -> ::redis::Connection {
    let client = ::redis::Client::open(settings.redis.urls[0].as_str()).unwrap();
    client.get_connection().unwrap()
}

fn shows(settings: &StoreSettings) -> bool {
    memmem::find(&kept(settings), TEXT).is_some()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn a_sealed_store_answers_as_memory_does(operations in operations()) {
        let (_dir, places) = places();
        for place in places {
            let kinds = place.backend == Backend::Sled;
            let place = sealed(place);
            answers_as_memory_does(operations.clone(), kinds, &|| Store::open(&place).unwrap())?;
        }
    }
}

#[test]
fn no_byte_of_what_is_sealed_is_kept_as_it_came() {
    let (_dir, places) = places();
    for place in places {
        let open_place = StoreSettings {
            path: place.path.join("open"),
            ..place.clone()
        };
        let store = opened(&open_place);
        write(&store, 0..3);
        assert!(
            shows(&open_place),
            "the look itself finds what is not sealed"
        );
        store.close().unwrap();
        drop(store);

        let mut place = sealed(place);
        place.path = place.path.join("sealed");
        place.redis.prefix.push_str("-sealed");
        let store = opened(&place);
        for number in 0..40 {
            write(&store, number..number + 1);
            assert!(!shows(&place), "while it is written");
        }
        assert_eq!(store.sweep().unwrap(), 0);
        assert!(!shows(&place), "after a sweep");
        store.close().unwrap();
        assert!(!shows(&place), "at rest");
        let store = opened(&place);
        assert!((0..40).all(|number| has(&store, number)));
        assert_eq!(store.sessions(None, 99).unwrap().len(), 40);
        assert_eq!(store.stats().unwrap().content, 40);
    }
}

#[test]
fn a_sealed_store_is_not_opened_without_its_key() {
    let (_dir, places) = places();
    for place in places {
        let store = opened(&keyed(&place, Some(OLD), &[]));
        write(&store, 0..1);
        store.close().unwrap();
        for wrong in [
            place.clone(),
            keyed(&place, Some(KEY), &[]),
            keyed(&place, None, &[KEY]),
        ] {
            let refused = Store::open(&wrong).err().unwrap();
            assert!(matches!(refused, StoreError::Sealed { .. }), "{refused}");
            let text = refused.to_string();
            assert!(text.contains("SEAL_KEY") && !text.contains(OLD), "{text}");
        }
        let store = opened(&keyed(&place, Some(KEY), &[OLD]));
        assert!(has(&store, 0));
        write(&store, 1..2);
        store.close().unwrap();
        // Both keys are needed from here on, and the one that seals may change back.
        assert!(Store::open(&keyed(&place, Some(OLD), &[])).is_err());
        let store = opened(&keyed(&place, Some(OLD), &[KEY]));
        assert!(has(&store, 0) && has(&store, 1));
        // What is handed over once more takes the key of now.
        write(&store, 1..2);
        assert!(has(&store, 1));
        store.close().unwrap();
    }
}

#[test]
fn what_was_begun_open_is_read_beside_what_is_sealed() {
    let (_dir, places) = places();
    for place in places {
        let store = opened(&place);
        write(&store, 0..2);
        store.close().unwrap();
        let place = sealed(place);
        let store = opened(&place);
        write(&store, 2..4);
        assert!((0..4).all(|number| has(&store, number)));
        store.close().unwrap();
        let store = opened(&place);
        assert!((0..4).all(|number| has(&store, number)));
        store.close().unwrap();
    }
}

/// A sweep of a directory writes all of it anew, under the key of now.
#[test]
fn a_sweep_seals_what_was_open_and_frees_an_old_key() {
    let dir = tempfile::tempdir().unwrap();
    let place = config(dir.path());
    let store = opened(&place);
    write(&store, 0..5);
    store.close().unwrap();
    assert!(shows(&place));
    let swept = |place: &StoreSettings| {
        let store = opened(place);
        store.sweep().unwrap();
        assert!((0..5).all(|number| has(&store, number)));
        store.close().unwrap();
    };
    swept(&keyed(&place, Some(OLD), &[]));
    assert!(!shows(&place));
    swept(&keyed(&place, Some(KEY), &[OLD]));
    assert!(!shows(&place));
    // The key before is not needed any more.
    let store = opened(&sealed(place.clone()));
    assert!((0..5).all(|number| has(&store, number)));
    store.close().unwrap();
    swept(&keyed(&place, None, &[KEY]));
    let store = opened(&place);
    assert!((0..5).all(|number| has(&store, number)));
    assert!(shows(&place));
}

#[test]
fn a_copy_seals_or_opens_what_it_copies() {
    let (_dir, places) = places();
    for place in places {
        let store = opened(&sealed(place));
        write(&store, 0..3);
        let target = tempfile::tempdir().unwrap();
        let to = opened(&config(target.path()));
        copy(&store, &to, &mut |_| {}).unwrap();
        assert!(!lacking(&store, &to).unwrap().any());
        to.close().unwrap();
        assert!(shows(&config(target.path())));
    }
}

/// What somebody changed or exchanged in the server is not served. (A directory has its own test.)
#[test]
fn what_was_exchanged_in_a_server_is_told_and_not_served() {
    let Some(place) = redis::tests::fresh().map(sealed) else {
        return;
    };
    let store = opened(&place);
    write(&store, 0..2);
    let ids: Vec<Digest> = (0..2).map(|number| said(number)[0].blobs[0].0).collect();
    let name = |id: &Digest| [place.redis.prefix.as_bytes(), b":b:", id.as_bytes()].concat();
    let mut server = server(&place);
    let mut get = |id| -> Vec<u8> {
        ::redis::cmd("GET")
            .arg(name(id))
            .query(&mut server)
            .unwrap()
    };
    let (one, other) = (get(&ids[0]), get(&ids[1]));
    let mut changed = one.clone();
    *changed.last_mut().unwrap() ^= 1;
    for value in [other, changed] {
        let set = ::redis::cmd("SET")
            .arg(name(&ids[0]))
            .arg(value)
            .exec(&mut server);
        set.unwrap();
        let reader = opened(&place);
        assert_eq!(reader.blobs(&ids[..1]).unwrap(), [None]);
        assert_eq!(reader.health().mismatched, 1);
        assert!(has(&reader, 1));
    }
}
