//! Snapshots of a directory that is in use: each is a store with all that was acknowledged before it
//! was asked for, also behind kills, and none is left that is not whole.

use super::*;

fn opened(settings: &StoreSettings) -> Store {
    Store::open(settings).unwrap().store
}

#[test]
fn a_snapshot_under_load_and_kills_has_all_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copies) = (dir.path().join("data"), dir.path().join("copies"));
    fs::create_dir(&copies).unwrap();
    let mut acknowledged = Vec::new();
    let mut next = 0;
    for round in 0..4u64 {
        let mut child = spawn("snapshots", dir.path(), next, None);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 2 + round;
        for line in lines.map_while(Result::ok) {
            if let Some((_, number)) = line.split_once("say ack ") {
                let number: u64 = number.parse().unwrap();
                acknowledged.push(number);
                next = number + 100;
            } else if let Some((_, name)) = line.split_once("say snapshot ") {
                let store = open(&copies.join(name)).store;
                for number in &acknowledged {
                    let found = present(&store, *number..number + 1).unwrap();
                    assert_eq!(found, 1, "{number} is not in {name}");
                }
                store.close().unwrap();
                left -= 1;
                if left == 0 {
                    child.kill().unwrap();
                    break;
                }
            } else if let Some((_, error)) = line.split_once("say failed ") {
                panic!("round {round}: {error}");
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let store = open(&data).store;
    for number in acknowledged {
        assert_eq!(present(&store, number..number + 1).unwrap(), 1, "{number}");
    }
    store.close().unwrap();
    for entry in fs::read_dir(&copies).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.ends_with(".part") || copies.join(&name).join("archive").exists());
    }
}

/// Ends the process with the error, because a thread that only panics leaves the other one working.
fn sound<T>(outcome: Result<T, StoreError>) -> T {
    outcome.unwrap_or_else(|error| {
        println!("say failed {error}");
        std::process::exit(1)
    })
}

/// Commits without an end on one thread, and makes snapshots on another: before each it says what was
/// acknowledged by then.
pub(super) fn child_makes_snapshots(dir: &Path, from: u64) {
    let store = open(&dir.join("data")).store;
    let last = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in from.. {
                sound(wait(store.commit(numbered(number))));
                last.lock().unwrap().push(number);
            }
        });
        for number in 0.. {
            std::thread::sleep(Duration::from_millis(15));
            let acknowledged = std::mem::take(&mut *last.lock().unwrap());
            let name = format!("{from}-{number}");
            sound(store.snapshot(&dir.join("copies").join(&name)));
            for number in acknowledged {
                println!("say ack {number}");
            }
            println!("say snapshot {name}");
        }
    });
}

#[test]
fn a_snapshot_is_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let store = open(&data).store;
    for number in 0..20 {
        wait(store.commit(numbered(number))).unwrap();
    }
    fs::write(data.join("tenant.key"), "the key").unwrap();
    let target = dir.path().join("one");
    let made = store.snapshot(&target).unwrap();
    assert_eq!(made.path, target);
    assert_eq!(fs::read(target.join("tenant.key")).unwrap(), b"the key");
    let refused = |target: &Path, words: &str| {
        let error = store.snapshot(target).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(&target, "exists already");
    refused(Path::new("/"), "name a directory");
    refused(&data.join("journal/two"), "Not a directory");
    // A sweep may take the archive away while it is copied.
    store.sweep().unwrap();
    store.snapshot(&dir.path().join("three")).unwrap();
    // What is damaged is not handed on as a backup.
    let archive = data.join("archive");
    let length = fs::metadata(&archive).unwrap().len();
    flip(&archive, length / 2, 1);
    refused(&dir.path().join("four"), "store gc");
    store.sweep().unwrap();
    store.snapshot(&dir.path().join("five")).unwrap();
    for (name, there) in [
        ("one", true),
        ("three", true),
        ("four", false),
        ("five", true),
    ] {
        assert_eq!(dir.path().join(name).exists(), there, "{name}");
        if there {
            let store = open(&dir.path().join(name)).store;
            assert_eq!(present(&store, 0..20), Ok(20), "{name}");
            assert!(listed(&store)[..16].iter().all(Option::is_some));
        }
    }
    let left = fs::read_dir(dir.path()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(left.into_iter().all(|name| !name.ends_with(".part")));
    store.close().unwrap();
    assert_eq!(
        store.snapshot(&dir.path().join("six")),
        Err(StoreError::Closed)
    );
}

#[test]
fn what_the_archive_is_made_of_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).store;
    for number in 0..20 {
        wait(store.commit(numbered(number))).unwrap();
    }
    let parts = store.stats().unwrap().archive.unwrap();
    let length = fs::metadata(dir.path().join("archive")).unwrap().len();
    assert_eq!((parts.all, parts.content), (length, 0));
    let values: usize = (0..20)
        .map(|n| numbered(n).blobs[0].1.len() + codec::HEADER)
        .sum();
    assert_eq!(parts.records, values as u64);
    assert_eq!((parts.links, parts.rows), (20 * 4 * 70, 20 * (76 + 40)));
    assert_eq!(parts.names, 20 * 41);
    // Each entry has two stamps, a checksum and four counts.
    assert!(
        parts.frames() >= 136 && parts.frames().is_multiple_of(136),
        "{parts:?}"
    );
    store.close().unwrap();
}

#[test]
fn a_sealed_snapshot_asks_for_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |name: &str| crate::tests::sealed::sealed(config(&dir.path().join(name)));
    let store = opened(&settings("data"));
    wait(store.commit(numbered(1))).unwrap();
    store.snapshot(&dir.path().join("one")).unwrap();
    store.close().unwrap();
    let open = Store::open(&config(&dir.path().join("one")));
    assert!(matches!(open, Err(StoreError::Sealed { .. })));
    let store = opened(&settings("one"));
    assert_eq!(present(&store, 1..2), Ok(1));
}
