//! What only a real directory can show: kills, damage, a full disk, two processes, churn. What
//! may kill or hang a process is done by a child process: this test binary, started again with
//! [`TASK`] set.

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_model::{blob_id, dated_id};

use super::super::tests::{config, noise, open, until, wait};
use super::super::*;

mod cuts;
mod damage;
mod retention;
mod rows;
mod sealed;
mod snapshots;
mod turns;

const TASK: &str = "PLIMSOLL_TEST_STORE_TASK";
const DIR: &str = "PLIMSOLL_TEST_STORE_DIR";
const FROM: &str = "PLIMSOLL_TEST_STORE_FROM";

fn key(number: u64) -> Digest {
    blob_id(&number.to_le_bytes())
}

/// How many sessions the batches belong to.
const SESSIONS: u64 = 16;

/// The batch of a number: one blob of up to 60 KB, four links, one to a shared key, and a row.
fn numbered(number: u64) -> Batch {
    let length = if number % 50 == 49 {
        60_000
    } else {
        (number as usize * 37) % 2_000
    };
    let bytes = noise(number, length + 8);
    // Contents are named by their hash, and records by their time.
    let id = match number % 2 {
        0 => blob_id(&bytes),
        _ => dated_id(&bytes, number),
    };
    let turn = number as u32;
    let keys = [number * 4, number * 4 + 1, number * 4 + 2, u64::MAX];
    let links = keys.map(|of| Link {
        key: key(of),
        id,
        turn,
    });
    Batch {
        blobs: vec![(id, bytes)],
        links: links.into(),
        listed: Some(Listed {
            session: key(number % SESSIONS),
            at: number,
            id,
            row: noise(number, 40),
        }),
        ..Batch::default()
    }
}

/// A batch that does not fit into the journal: one blob and nothing else.
fn through(number: u64) -> Batch {
    let bytes = noise(number, 70_000);
    let id = blob_id(&bytes);
    Batch {
        blobs: vec![(id, bytes)],
        ..Batch::default()
    }
}

/// The latest time that the list has of each session, by their numbers.
fn listed(store: &Store) -> Vec<Option<u64>> {
    let rows = store.sessions(None, usize::MAX).unwrap();
    let of = |session| rows.iter().find(|row| row.session == key(session));
    (0..SESSIONS)
        .map(|session| of(session).map(|row| row.at))
        .collect()
}

/// The first of the batches of which the list has neither its row nor a later one of its session.
fn unlisted(store: &Store, numbers: impl IntoIterator<Item = u64>) -> Option<u64> {
    let rows = listed(store);
    let mut numbers = numbers.into_iter();
    numbers.find(|number| rows[(number % SESSIONS) as usize] < Some(*number))
}

/// How many of the batches are there whole; every link must lead to a right blob.
fn present(store: &Store, numbers: std::ops::Range<u64>) -> Result<usize, StoreError> {
    let mut found = 0;
    for number in numbers {
        let batch = numbered(number);
        let keys: Vec<_> = batch.links.iter().take(3).map(|link| link.key).collect();
        let links = store.links(&keys, Take::ALL)?.concat();
        let blob = store.blobs(&[batch.blobs[0].0])?.remove(0);
        assert!(blob.as_ref().is_none_or(|blob| *blob == batch.blobs[0].1));
        let all = vec![(number as u32, batch.blobs[0].0); 3];
        found += usize::from(blob.is_some() && links == all);
    }
    Ok(found)
}

fn spawn(task: &str, dir: &Path, from: u64, shell: Option<&str>) -> Child {
    let exe = std::env::current_exe().unwrap();
    let test = "sled::tests::child";
    let mut command = match shell {
        None => Command::new(&exe),
        Some(prelude) => {
            let mut sh = Command::new("sh");
            sh.arg("-c")
                .arg(format!("{prelude}; exec \"$0\" \"$@\""))
                .arg(&exe);
            sh
        }
    };
    command
        .args([
            "--exact",
            test,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(TASK, task)
        .env(DIR, dir)
        .env(FROM, from.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What a child says, by first word, until it ends; it must end by itself and well.
fn said(mut child: Child) -> Vec<(String, String)> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let out = child.stdout.take().unwrap();
    let lines = std::thread::spawn(move || {
        BufReader::new(out)
            .lines()
            .map_while(Result::ok)
            .collect::<Vec<_>>()
    });
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the child hangs; it said {:?}", lines.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let lines = lines.join().unwrap();
    assert!(status.success(), "{status}: {lines:?}");
    let say = |line: &String| {
        let line = line.rsplit_once("say ")?.1;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some((word.to_owned(), rest.to_owned()))
    };
    lines.iter().filter_map(say).collect()
}

fn value_of<'a>(said: &'a [(String, String)], word: &str) -> &'a str {
    let found = said.iter().find(|(first, _)| first == word);
    &found.unwrap_or_else(|| panic!("no {word} in {said:?}")).1
}

/// Not a test: what child processes do.
#[test]
#[ignore = "run by the tests of this file as a child process"]
fn child() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let from: u64 = std::env::var(FROM).unwrap().parse().unwrap();
    match task.as_str() {
        "commit" => child_commits(&open(&dir).store, from),
        "commit-sealed" => sealed::child_commits_sealed(&dir, from),
        "probe" => child_probes(&dir, from),
        "snapshots" => snapshots::child_makes_snapshots(&dir, from),
        "hold" => child_holds(&dir),
        "fill" => child_fills(&dir),
        "sweep" => retention::child_sweeps(&dir, from),
        "flips" => damage::child_flips(&dir, from),
        "stand-by" => damage::child_stands_by(&dir),
        other => panic!("no task {other}"),
    }
}

/// Commits for ever, eight batches in flight, and says which were acknowledged.
fn child_commits(store: &Store, from: u64) {
    let mut out = std::io::stdout();
    for first in (from..).step_by(8) {
        let tickets: Vec<_> = (first..first + 8)
            .map(|n| store.commit(numbered(n)))
            .collect();
        for (number, ticket) in (first..).zip(tickets) {
            wait(ticket).unwrap();
            writeln!(out, "say ack {number}").unwrap();
            out.flush().unwrap();
        }
    }
}

/// Opens a directory that may be damaged, reads what was there, and commits more.
fn child_probes(dir: &Path, expected: u64) {
    let opened = match Store::open(&config(dir)) {
        Ok(opened) => opened,
        Err(error) => return println!("say refused {error}"),
    };
    println!("say quarantined {}", opened.report.quarantined.is_some());
    let store = opened.store;
    match present(&store, 0..expected) {
        Ok(found) => println!("say found {found}"),
        Err(error) => println!("say unreadable {error}"),
    }
    let mut written = 0;
    for number in 1_000_000..1_000_010 {
        written += usize::from(wait(store.commit(numbered(number))).is_ok());
    }
    println!("say written {written}");
    let rows = store.sessions(None, usize::MAX).unwrap_or_default();
    println!("say rows {}", rows.len());
    println!("say degraded {}", store.degraded());
    println!(
        "say again {}",
        present(&store, 1_000_000..1_000_010).unwrap_or(0)
    );
    println!("say closed {}", store.close().is_ok());
}

fn child_holds(dir: &Path) {
    let opened = open(dir);
    println!("say held {}", opened.report.blobs);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    opened.store.close().unwrap();
}

/// Commits until the file size limit of the process refuses, then has the limit lifted.
fn child_fills(dir: &Path) {
    let store = open(dir).store;
    let mut good = 0;
    let refused = (0..2_000).find_map(|number| match wait(store.commit(numbered(number))) {
        Ok(()) => {
            good += 1;
            None
        }
        Err(error) => Some(error),
    });
    println!("say good {good}");
    println!("say refused {}", refused.unwrap());
    let still = (5_000..5_020)
        .filter(|n| wait(store.commit(numbered(*n))).is_err())
        .count();
    println!("say still {still}");
    println!("say readable {}", present(&store, 0..good).unwrap());
    println!("say unlisted {:?}", unlisted(&store, 0..good));
    let pid = std::process::id().to_string();
    let lifted = Command::new("prlimit")
        .args(["--fsize=unlimited", "--pid", &pid])
        .status();
    println!("say lifted {}", lifted.is_ok_and(|status| status.success()));
    let after = (6_000..6_020)
        .filter(|n| wait(store.commit(numbered(*n))).is_ok())
        .count();
    println!("say after {after}");
    println!("say degraded {}", store.degraded());
    println!("say kept {}", present(&store, 0..good).unwrap());
    store.close().unwrap();
}

#[test]
fn nothing_acknowledged_is_lost_to_kills() {
    let dir = tempfile::tempdir().unwrap();
    let mut next = 0;
    let mut acknowledged = Vec::new();
    for round in 0..12u64 {
        let mut child = spawn("commit", dir.path(), next, None);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let patience = Duration::from_millis(20 + (round * 7_919) % 330);
        let mut began = None;
        while let Some(Ok(line)) = lines.next() {
            let Some((_, number)) = line.split_once("say ack ") else {
                continue;
            };
            let number: u64 = number.parse().unwrap();
            acknowledged.push(number);
            next = number + 100;
            if began.get_or_insert_with(Instant::now).elapsed() >= patience {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success(), "killed, not ended");
        if round % 4 == 3 {
            let opened = open(dir.path());
            assert_eq!(opened.report.quarantined, None);
            assert!(!opened.report.clean);
            opened.store.close().unwrap();
        }
    }
    assert!(
        acknowledged.len() > 100,
        "only {} commits",
        acknowledged.len()
    );
    let store = open(dir.path()).store;
    for number in &acknowledged {
        assert_eq!(
            present(&store, *number..number + 1).unwrap(),
            1,
            "batch {number} is lost"
        );
    }
    let lost = unlisted(&store, acknowledged.iter().copied());
    assert_eq!(lost, None, "a row is lost");
    let shared = store.links(&[key(u64::MAX)], Take::ALL).unwrap().remove(0);
    assert!(shared.len() >= acknowledged.len().min(MEMBERS));
    store.close().unwrap();
    let sizes = acknowledged
        .iter()
        .map(|n| numbered(*n).blobs[0].1.len() as u64 + 4 * 68 + 36 + 80);
    assert_no_waste(dir.path(), sizes.sum());
}

/// The engine's log within four times what lives (and the segments that it begins with, and its
/// slack), and no page in a file of its own, which the engine would neither sync nor ever remove.
fn assert_no_waste(data: &Path, live: u64) {
    let used = disk(data);
    assert!(
        used <= 4 * live + (8 << 20) + super::trees::SLACK_BYTES,
        "{used} bytes on disk for {live}"
    );
    assert_eq!(fs::read_dir(data.join("sled/blobs")).unwrap().count(), 0);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn flip(path: &Path, at: u64, length: usize) {
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut bytes = vec![0; length];
    file.seek(SeekFrom::Start(at)).unwrap();
    let read = file.read(&mut bytes).unwrap();
    bytes.truncate(read);
    bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&bytes).unwrap();
}

/// One kind of damage to a store's directory, at a place that `seed` chooses.
fn damage(data: &Path, seed: u64) -> String {
    let engine = data.join("sled");
    let log = engine.join("db");
    let length = fs::metadata(&log).unwrap().len();
    let place = |share: u64| length * ((seed * 131 + share) % 97) / 97;
    let snapshot = || {
        let mut names = fs::read_dir(&engine)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        names
            .find(|path| path.to_string_lossy().contains("snap."))
            .unwrap()
    };
    match seed % 8 {
        0 => fs::OpenOptions::new()
            .write(true)
            .open(&log)
            .unwrap()
            .set_len(place(1))
            .unwrap(),
        1 => flip(&log, place(2), 1),
        2 => flip(&log, place(3), 4096),
        3 => (0..20).for_each(|share| flip(&log, place(share * 7), 1)),
        4 => flip(&snapshot(), 40 + seed, 3),
        5 => fs::remove_file(snapshot()).unwrap(),
        6 => flip(&engine.join("conf"), 14, 1),
        _ => fs::write(&log, b"").unwrap(),
    }
    format!("damage {} of seed {seed}", seed % 8)
}

#[test]
fn a_damaged_store_is_served_or_set_aside_and_never_stops_the_process() {
    const BATCHES: u64 = 400;
    let scratch = tempfile::tempdir().unwrap();
    let whole = scratch.path().join("whole");
    let store = open(&whole).store;
    let tickets: Vec<_> = (0..BATCHES).map(|n| store.commit(numbered(n))).collect();
    tickets.into_iter().for_each(|ticket| wait(ticket).unwrap());
    store.close().unwrap();
    let mut set_aside = 0;
    for seed in 0..24 {
        let data = scratch.path().join(format!("trial-{seed}"));
        copy(&whole, &data);
        if seed % 3 == 1 {
            fs::remove_file(data.join("clean")).unwrap();
        }
        let what = damage(&data, seed);
        let first = said(spawn("probe", &data, BATCHES, None));
        // Where the damage shows in use only, the store stops; the next start must deal with it.
        let second = said(spawn("probe", &data, BATCHES, None));
        let story = format!("{what}: {first:?} then {second:?}");
        let works = |said: &[(String, String)]| {
            value_of(said, "written") == "10" && value_of(said, "again") == "10"
        };
        assert!(
            works(&first) || value_of(&first, "degraded") == "true",
            "{story}"
        );
        assert!(works(&second), "{story}");
        let aside = [&first, &second].map(|said| value_of(said, "quarantined") == "true");
        set_aside += usize::from(aside.contains(&true));
        // All that the engine loses is in the archive.
        let found = value_of(&second, "found");
        assert_eq!(found, BATCHES.to_string(), "not mended: {story}");
        assert_eq!(value_of(&second, "rows"), SESSIONS.to_string(), "{story}");
        fs::remove_dir_all(&data).unwrap();
    }
    assert!(set_aside > 0, "no damage was ever noticed");
}

#[test]
fn a_second_process_is_told_who_holds_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn("hold", dir.path(), 0, None);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("say held"))
    );
    let error = Store::open(&config(dir.path())).err().unwrap();
    assert_eq!(
        error,
        StoreError::Locked {
            dir: dir.path().to_owned(),
            pid: Some(child.id()),
        }
    );
    assert!(
        error
            .to_string()
            .contains(&dir.path().display().to_string())
    );
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
    assert!(open(dir.path()).report.clean);
}

#[test]
fn a_full_disk_fails_tickets_and_heals_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    // Blocks of 512 bytes: four segments, so that the engine can fill up the one that it is in
    // when it opens. The signal is ignored, so writes fail.
    let limit = "trap '' XFSZ; ulimit -S -f 16384";
    let said = said(spawn("fill", dir.path(), 0, Some(limit)));
    assert_ne!(value_of(&said, "good"), "0");
    assert!(
        value_of(&said, "refused").contains("check space"),
        "{said:?}"
    );
    assert_eq!(value_of(&said, "degraded"), "false");
    assert_eq!(value_of(&said, "readable"), value_of(&said, "good"));
    assert_eq!(value_of(&said, "kept"), value_of(&said, "good"));
    assert_eq!(value_of(&said, "unlisted"), "None");
    if value_of(&said, "lifted") == "true" {
        assert_eq!(value_of(&said, "after"), "20", "{said:?}");
    }
    let opened = open(dir.path());
    assert_eq!(opened.report.quarantined, None);
    let good: u64 = value_of(&said, "good").parse().unwrap();
    assert_eq!(present(&opened.store, 0..good).unwrap() as u64, good);
    assert_eq!(unlisted(&opened.store, 0..good), None);
}

/// Changes one entry behind the back of a closed store.
fn tamper(data: &Path, tree: &str, key: impl AsRef<[u8]>, value: &[u8]) {
    let config = ::sled::Config::new().path(data.join("sled"));
    let db = config.segment_size(2 << 20).open().unwrap();
    db.open_tree(tree).unwrap().insert(key, value).unwrap();
    db.flush().unwrap();
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).store.close().unwrap();
    tamper(dir.path(), "meta", "format", &[7]);
    let error = Store::open(&config(dir.path())).err().unwrap();
    assert_eq!(error, StoreError::Format { found: 7, known: 1 });
    assert!(dir.path().join("sled").exists());
}

#[test]
fn a_blob_that_is_not_what_its_id_says_is_absent_until_it_is_committed_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).store;
    let batch = numbered(3);
    let id = batch.blobs[0].0;
    wait(store.commit(batch.clone())).unwrap();
    store.close().unwrap();
    let mut encoder = codec::Encoder::new(Seals::default()).unwrap();
    let age = super::age::Age::new(BatchKind::Records, 1).bytes();
    let wrong = encoder.encode(&id, b"wrong").unwrap();
    let wrong = [&wrong[..], &age].concat();
    let key = [&id.as_bytes()[..], &[0; 4]].concat();
    tamper(dir.path(), "blobs", &key, &wrong);
    let store = open(dir.path()).store;
    assert_eq!(store.blobs(&[id]).unwrap(), [None]);
    assert_eq!(store.health().mismatched, 1);
    wait(store.commit(batch.clone())).unwrap();
    assert_eq!(
        store.blobs(&[id]).unwrap(),
        [Some(batch.blobs[0].1.clone())]
    );
    store.close().unwrap();
    tamper(dir.path(), "blobs", &key, &[&[9, 0, 0], &age[..]].concat());
    let store = open(dir.path()).store;
    let error = store.blobs(&[id]).unwrap_err();
    assert_eq!(error, StoreError::Codec(codec::CodecError::Version(9)));
    assert!(!store.degraded());
}

fn disk(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let size = |entry: fs::DirEntry| {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            disk(&entry.path())
        } else {
            meta.len()
        }
    };
    entries.map(size).sum()
}

#[test]
fn disk_stays_within_four_times_what_lives_under_churn() {
    let dir = tempfile::tempdir().unwrap();
    let mut live = 0u64;
    for round in 0..6 {
        let store = open(dir.path()).store;
        let mut tickets = Vec::new();
        for number in 0..2_500u64 {
            // Half of each round says again what an earlier one said.
            let batch = numbered(if number % 2 == 0 {
                number
            } else {
                round * 10_000 + number
            });
            if number % 2 == 1 || round == 0 {
                live += batch.blobs[0].1.len() as u64 + 4 * 68 + 36 + 80;
            }
            tickets.push(store.commit(batch));
            if tickets.len() == 500 {
                tickets.drain(..).for_each(|ticket| wait(ticket).unwrap());
            }
        }
        store.close().unwrap();
    }
    assert_no_waste(dir.path(), live);
    let report = open(dir.path()).report;
    assert_eq!(report.blobs, 2_500 / 2 + 6 * 2_500 / 2);
}
