//! Single faults in a directory, met while it is in use or behind a kill: whatever one of the
//! engine, the archive and the journal loses, another has, or it is told.

use super::super::{log_check, trees};
use super::*;

/// For every `from`th bit of each file of a directory as a kill left it: flips that one, opens, and
/// says where something is missing, told or not.
pub(super) fn child_flips(image: &Path, from: u64) {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["sled/db", "journal", "archive"] {
        let length = fs::metadata(image.join(name)).unwrap().len();
        let used = used(&image.join(name));
        for at in (0..FLIPS).map(|n| (from + n * FLIPPERS) * used / (FLIPS * FLIPPERS)) {
            assert!(at < length);
            let data = scratch.path().join("data");
            copy(image, &data);
            flip_bit(&data.join(name), at, at % 8);
            let opened = match Store::open(&config(&data)) {
                Ok(opened) => opened,
                Err(error) => return println!("say refused {name} {at} {error}"),
            };
            let found = present(&opened.store, 0..BATCHES).unwrap() as u64;
            let lost = opened.report.lost.records();
            if found < BATCHES || lost > 0 {
                println!("say missing {name} {at} {} {lost}", BATCHES - found);
            }
            let more = wait(opened.store.commit(numbered(BATCHES)));
            assert!(more.is_ok(), "{name} {at}: {more:?}");
            assert!(opened.store.close().is_ok(), "{name} {at}");
            let again = open(&data);
            assert_eq!(
                again.report.lost,
                Loss::default(),
                "told twice: {name} {at}"
            );
            let found_again = present(&again.store, 0..BATCHES + 1).unwrap() as u64;
            assert_eq!(found_again, found + 1, "{name} {at}");
            again.store.close().unwrap();
            fs::remove_dir_all(&data).unwrap();
        }
    }
    println!("say done");
}

/// How far a file is written: what is behind is zero.
fn used(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0);
    last.map_or(1, |last| last as u64 + 1)
}

/// Opens a store on a disk that takes nothing, and has the disk take it later.
pub(super) fn child_stands_by(dir: &Path) {
    let key = Keepsake {
        name: "tenant.key",
        bytes: b"secret".to_vec(),
    };
    let config = StoreSettings {
        keepsake: Some(key),
        ..config(dir)
    };
    println!("say refused {}", Store::open(&config).is_err());
    let store = Store::open_or_stand_by(&config).unwrap().store;
    let commit = |numbers: std::ops::Range<u64>| {
        numbers.for_each(|n| wait(store.commit(numbered(n))).unwrap());
    };
    commit(0..5);
    println!("say memory {}", store.health().memory_only);
    println!("say notes {}", store.notes().join(" "));
    println!("say found {}", present(&store, 0..5).unwrap());
    let pid = std::process::id().to_string();
    let lifted = Command::new("prlimit")
        .args(["--fsize=unlimited", "--pid", &pid])
        .status();
    if !lifted.is_ok_and(|status| status.success()) {
        return println!("say lifted false");
    }
    println!("say lifted true");
    let deadline = Instant::now() + Duration::from_secs(30);
    while store.health().memory_only && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    commit(5..10);
    println!("say later {}", present(&store, 0..10).unwrap());
    println!("say closed {}", store.close().is_ok());
}

#[test]
fn a_store_that_the_disk_refuses_stands_by_until_it_gives_way() {
    let dir = tempfile::tempdir().unwrap();
    let limit = "trap '' XFSZ; ulimit -S -f 0";
    let said = said(spawn("stand-by", dir.path(), 0, Some(limit)));
    assert_eq!(value_of(&said, "refused"), "true");
    assert_eq!(value_of(&said, "memory"), "true");
    assert!(value_of(&said, "notes").contains("memory only"), "{said:?}");
    assert_eq!(value_of(&said, "found"), "5");
    if value_of(&said, "lifted") == "true" {
        assert_eq!(value_of(&said, "later"), "10");
        assert_eq!(value_of(&said, "closed"), "true");
        assert_eq!(present(&open(dir.path()).store, 0..10).unwrap(), 10);
        assert_eq!(fs::read(dir.path().join("tenant.key")).unwrap(), b"secret");
    }
}

#[test]
fn a_disk_that_goes_on_refusing_costs_the_oldest_records_and_no_more_memory() {
    let dir = tempfile::tempdir().unwrap();
    // Where a directory should be made is a file, until it is taken away.
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("sled"), b"in the way").unwrap();
    let config = StoreSettings {
        queue_bytes: 100_000,
        ..config(&data)
    };
    let error = StoreError::io("writing", &data, &std::io::ErrorKind::StorageFull.into());
    let standby = super::super::super::standby::Standby::new(&config, error).unwrap();
    let store = Store::Standby(standby);
    // Said again all the time, and so never the oldest.
    let again = numbered(1);
    for n in 2..1_000 {
        wait(store.commit(again.clone())).unwrap();
        wait(store.commit(numbered(n))).unwrap();
    }
    assert_eq!(present(&store, 1..2), Ok(1));
    let kept = present(&store, 2..1_000).unwrap() as u64;
    assert!((5..200).contains(&kept), "{kept}");
    assert_eq!(present(&store, 999..1_000), Ok(1));
    assert_eq!(store.health().lost, 998 - kept);
    assert!(store.notes().join(" ").contains("records are lost"));
    fs::remove_file(data.join("sled")).unwrap();
    until(&store, |store| !store.health().memory_only);
    assert_eq!(store.health().lost, 998 - kept);
    let whole = kept as usize + 1;
    until(&store, |store| present(store, 1..1_000) == Ok(whole));
    store.close().unwrap();
    assert_eq!(present(&open(&data).store, 1..1_000), Ok(whole));
}

fn until(store: &Store, said: impl Fn(&Store) -> bool) {
    super::until(store, Duration::from_secs(30), said);
}

#[test]
fn what_is_removed_in_use_is_made_again_from_what_was_left() {
    let scratch = tempfile::tempdir().unwrap();
    for gone in ["lock", "sled", "sled/db", "archive", "journal"] {
        let dir = scratch.path().join(gone.replace('/', "-"));
        let store = open(&dir).store;
        (0..30).for_each(|n| wait(store.commit(numbered(n))).unwrap());
        // At once, so that nothing is made again in the middle of it.
        fs::rename(dir.join(gone), scratch.path().join("gone")).unwrap();
        until(&store, |store| store.health().wiped > 0);
        until(&store, |store| present(store, 0..30) == Ok(30));
        wait(store.commit(numbered(30))).unwrap();
        assert_eq!(store.health().lost, 0, "{gone}");
        let image = scratch.path().join("image");
        copy(&dir, &image);
        let opened = open(&image);
        assert_eq!(present(&opened.store, 0..31), Ok(31), "{gone}");
        assert_eq!(unlisted(&opened.store, 0..31), None, "{gone}");
        // Its thread would go on writing to what is removed.
        opened.store.close().unwrap();
        fs::remove_dir_all(&image).unwrap();
        let moved = scratch.path().join("gone");
        fs::rename(
            moved,
            scratch
                .path()
                .join(format!("{}-gone", gone.replace('/', "-"))),
        )
        .unwrap();
        store.close().unwrap();
    }
}

#[test]
fn a_directory_that_is_removed_in_use_is_begun_anew() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("data");
    let store = open(&dir).store;
    (0..30).for_each(|n| wait(store.commit(numbered(n))).unwrap());
    fs::rename(&dir, scratch.path().join("gone")).unwrap();
    until(&store, |store| store.health().wiped > 0);
    until(&store, |store| present(store, 0..30) == Ok(0));
    wait(store.commit(numbered(30))).unwrap();
    assert_eq!(store.health().lost, 30);
    assert!(store.notes().iter().any(|note| note.contains("lost")));
    store.close().unwrap();
    let opened = open(&dir);
    assert!(opened.report.clean);
    assert_eq!(present(&opened.store, 0..31), Ok(1));
}

/// Lays down a directory as it was left when it was killed.
fn unpack(name: &str, dir: &Path) {
    fs::create_dir_all(dir.join("sled/blobs")).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/store");
    for entry in fs::read_dir(fixtures.join(name)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let name = name.strip_suffix(".zst").unwrap();
        let to = match name {
            "journal" | "archive" | "sealed" => dir.join(name),
            _ => dir.join("sled").join(name),
        };
        let packed = fs::read(entry.path()).unwrap();
        fs::write(to, zstd::decode_all(&packed[..]).unwrap()).unwrap();
    }
}

/// As it is and sealed, killed with something in the journal.
#[test]
fn directories_of_format_1_open() {
    let sealed = crate::tests::sealed::sealed(config(Path::new(""))).seals;
    for (name, seals) in [("format-1", Seals::default()), ("format-1-sealed", sealed)] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("data");
        unpack(name, &dir);
        let settings = StoreSettings {
            seals,
            ..config(&dir)
        };
        for _ in 0..2 {
            let opened = Store::open(&settings).unwrap();
            let report = &opened.report;
            assert_eq!((report.lost, &report.quarantined), (Loss::default(), &None));
            assert_eq!(present(&opened.store, 0..48), Ok(48), "{name}");
            assert_eq!(opened.store.sessions(None, 99).unwrap().len(), 16);
            opened.store.close().unwrap();
            // Then all of it from the archive, as in a snapshot.
            fs::remove_dir_all(dir.join("sled")).unwrap();
            fs::remove_file(dir.join("clean")).unwrap();
        }
    }
}

fn flip_bit(path: &Path, at: u64, bit: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

/// Bits flipped in each file, in each of so many processes.
const FLIPS: u64 = 10;
const FLIPPERS: u64 = 4;
/// Batches in the image of a kill.
const BATCHES: u64 = 120;

#[test]
fn one_flipped_bit_behind_a_kill_is_healed_or_told() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, image) = (scratch.path().join("data"), scratch.path().join("image"));
    // Some stood there at the last clean stop, some were flushed since, the last were not.
    let commit = |store: &Store, numbers: std::ops::Range<u64>| {
        numbers.for_each(|n| wait(store.commit(numbered(n))).unwrap());
    };
    let store = open(&data).store;
    commit(&store, 0..40);
    store.close().unwrap();
    let store = open(&data).store;
    commit(&store, 40..100);
    std::thread::sleep(Duration::from_millis(300));
    commit(&store, 100..BATCHES);
    copy(&data, &image);
    drop(store);
    let children: Vec<_> = (0..FLIPPERS)
        .map(|n| spawn("flips", &image, n, None))
        .collect();
    for child in children {
        let said = said(child);
        value_of(&said, "done");
        for (word, rest) in &said {
            assert_ne!(word, "refused", "{rest}");
            let Some((place, numbers)) = rest.split_once(' ').filter(|_| word == "missing") else {
                continue;
            };
            let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
            let [_, missing, lost] = numbers[..] else {
                panic!("{said:?}")
            };
            // What one bit can take is the group that stood in the journal alone.
            assert!(
                lost > 0 || missing == 0,
                "{missing} lost in silence: {rest}"
            );
            assert!(missing <= 1, "{missing} lost to one bit: {rest}");
            assert_eq!(place, "journal", "two copies were there: {rest}");
        }
    }
}

/// What a store tells of a damaged log if no archive is left to mend it from, whether or not the
/// journal shows a trace of what was written.
#[test]
fn what_damage_takes_is_told_where_no_archive_has_it() {
    const BATCHES: u64 = 90;
    for (name, batch) in [
        ("journal", &numbered as &dyn Fn(u64) -> Batch),
        ("through", &through),
    ] {
        for killed in [false, true] {
            let scratch = tempfile::tempdir().unwrap();
            let (data, image) = (scratch.path().join("data"), scratch.path().join("image"));
            let store = open(&data).store;
            (0..BATCHES).for_each(|n| wait(store.commit(batch(n))).unwrap());
            std::thread::sleep(Duration::from_millis(300));
            if killed {
                copy(&data, &image);
            }
            store.close().unwrap();
            if killed {
                fs::remove_dir_all(&data).unwrap();
                fs::rename(&image, &data).unwrap();
            }
            fs::remove_file(data.join("archive")).unwrap();
            let log = data.join("sled/db");
            let used = used(&log);
            // A busy machine writes more of what is soon replaced, so that a few places may all miss the blobs.
            (1..16).for_each(|part| flip(&log, used * part / 16, 2_000));
            fs::write(data.join("suspect"), "").unwrap();
            let story = format!("{name}, killed: {killed}");
            let opened = open(&data);
            let ids: Vec<_> = (0..BATCHES).map(|n| batch(n).blobs[0].0).collect();
            let found = opened.store.blobs(&ids).unwrap();
            let missing = found.iter().filter(|blob| blob.is_none()).count() as u64;
            assert!(missing > 0, "{story}");
            assert!(opened.report.lost.records() > 0, "{story}");
            if !killed {
                assert_eq!(opened.report.lost.blobs, missing, "{story}");
            }
            assert_eq!(
                opened.store.health().lost,
                opened.report.lost.records(),
                "{story}"
            );
            let notes = opened.store.notes().join(" ");
            assert!(notes.contains("records are lost"), "{story}: {notes}");
            opened.store.close().unwrap();
            assert_eq!(
                open(&data).report.lost,
                Loss::default(),
                "told twice: {story}"
            );
        }
    }
}

/// Places in the log that are flipped one after the other.
const PLACES: u64 = 80;

#[test]
fn a_flipped_bit_in_the_log_is_found_before_the_engine_steps_over_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, image) = (scratch.path().join("data"), scratch.path().join("image"));
    // Several segments, behind a clean stop and a kill.
    for round in 0..3 {
        let opened = open(&data);
        assert_eq!(opened.report.lost, Loss::default());
        let batch = |n: u64| {
            let bytes = noise(round * 100 + n, 40_000);
            let id = blob_id(&bytes);
            Batch {
                blobs: vec![(id, bytes)],
                ..Batch::default()
            }
        };
        (0..50).for_each(|n| wait(opened.store.commit(batch(n))).unwrap());
        if round == 0 {
            opened.store.close().unwrap();
            continue;
        }
        std::thread::sleep(Duration::from_millis(300));
        copy(&data, &image);
        // What the close writes must not come into the image, which takes the directory's place.
        opened.store.close().unwrap();
        fs::remove_dir_all(&data).unwrap();
        fs::rename(&image, &data).unwrap();
        let log = data.join("sled/db");
        let length = fs::metadata(&log).unwrap().len();
        assert_eq!(log_check::length_if_whole(&log), Some(length), "{round}");
    }
    let log = data.join("sled/db");
    let used = used(&log);
    assert!(used > 2 * trees::SEGMENT_BYTES as u64, "{used}");
    let segment = |at: u64| at / trees::SEGMENT_BYTES as u64;
    let end = log_check::end(&log);
    for at in (0..PLACES).map(|n| n * used / PLACES) {
        flip_bit(&log, at, at % 8);
        let found = log_check::length_if_whole(&log).is_none();
        // The last message may be one that was never whole; behind it and behind a cap nothing
        // counts.
        let spare = (segment(at) == segment(end) && at + 8_192 > end)
            || at % trees::SEGMENT_BYTES as u64 > trees::SEGMENT_BYTES as u64 - 64;
        assert!(found || spare, "{at} of {used}");
        flip_bit(&log, at, at % 8);
    }
    let opened = open(&data);
    assert_eq!(
        (opened.report.checked > 2, opened.report.lost),
        (false, Loss::default())
    );
    assert_eq!(opened.report.blobs, 150);
    opened.store.close().unwrap();
    // What was cut off at the end is counted, and put back.
    let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(trees::SEGMENT_BYTES as u64).unwrap();
    let opened = open(&data);
    assert_eq!(
        (opened.report.blobs, opened.report.lost),
        (150, Loss::default())
    );
    opened.store.close().unwrap();
}

/// Behind a kill the engine may step over a message that held one chunk of a blob and not the first.
#[test]
fn a_blob_that_lacks_a_chunk_is_missed_at_the_start_and_made_whole_again() {
    const BLOBS: u64 = 5;
    for copies in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let blob = |n: u64| {
            let bytes = noise(n, 40_000);
            (blob_id(&bytes), bytes)
        };
        let store = open(dir.path()).store;
        for n in 0..BLOBS {
            let batch = Batch {
                blobs: vec![blob(n)],
                ..Batch::default()
            };
            wait(store.commit(batch)).unwrap();
        }
        store.close().unwrap();
        let engine = ::sled::Config::new().path(dir.path().join("sled"));
        let engine = engine.segment_size(trees::SEGMENT_BYTES).open().unwrap();
        let lost = [&blob(2).0.as_bytes()[..], &3_u32.to_be_bytes()].concat();
        let chunks = engine.open_tree("blobs").unwrap();
        assert!(chunks.remove(lost).unwrap().is_some());
        engine.flush().unwrap();
        drop((chunks, engine));
        // All is counted, as where the log is damaged.
        fs::write(dir.path().join("suspect"), b"").unwrap();
        if !copies {
            fs::remove_file(dir.path().join("archive")).unwrap();
            fs::remove_file(dir.path().join("journal")).unwrap();
        }
        let opened = open(dir.path());
        let there = |n: &u64| {
            opened
                .store
                .blobs(&[blob(*n).0])
                .unwrap()
                .remove(0)
                .is_some()
        };
        let found = (0..BLOBS).filter(there).count() as u64;
        assert!(opened.report.quarantined.is_some(), "{copies}: in silence");
        assert_eq!(found, BLOBS - u64::from(!copies), "{copies}");
        assert_eq!(opened.report.blobs, found, "{copies}");
        if copies {
            assert_eq!(opened.report.lost, Loss::default());
        }
        opened.store.close().unwrap();
        // Once, and not at each start.
        fs::write(dir.path().join("suspect"), b"").unwrap();
        let again = open(dir.path());
        assert_eq!(again.report.quarantined, None, "{copies}");
        assert_eq!(again.report.blobs, found, "{copies}");
        again.store.close().unwrap();
    }
}
