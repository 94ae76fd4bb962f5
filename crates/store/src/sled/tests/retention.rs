//! What is too old goes, and nothing else does: over a simulated month, under a bound, across kills,
//! and while batches come in.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const DAY: u64 = 24 * 60 * 60;
/// The first day of the tests.
const FIRST: u64 = 20_000;
/// How many turns a day has.
const TURNS: u64 = 40;

/// A store whose day a test sets.
struct Dated {
    dir: tempfile::TempDir,
    seconds: Arc<AtomicU64>,
    retention: Retention,
}

impl Dated {
    fn new(retention: Retention) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            seconds: Arc::new(AtomicU64::new(FIRST * DAY)),
            retention,
        }
    }

    fn open(&self) -> Store {
        Store::open(&dated(self.dir.path(), self.retention, &self.seconds))
            .unwrap()
            .store
    }

    /// Sets the day, in the middle of it.
    fn set(&self, day: u64) {
        self.seconds
            .store((FIRST + day) * DAY + DAY / 2, Ordering::Relaxed);
    }

    /// Waits until the store has swept today.
    fn swept(&self, store: &Store) {
        let today = self.seconds.load(Ordering::Relaxed) / DAY;
        until(store, |store| swept_day(store) == today);
    }
}

fn dated(dir: &Path, retention: Retention, seconds: &Arc<AtomicU64>) -> StoreSettings {
    StoreSettings {
        retention,
        clock: Clock::Set(Arc::clone(seconds)),
        ..config(dir)
    }
}

fn days(days: u64) -> Option<Duration> {
    Some(Duration::from_secs(days * DAY))
}

fn swept_day(store: &Store) -> u64 {
    let Store::Sled(store) = store else { panic!() };
    let day = store.shared.read(|trees, path| trees.swept(path));
    day.map_or(0, u64::from)
}

fn until(store: &Store, said: impl Fn(&Store) -> bool) {
    super::until(store, Duration::from_secs(240), said);
}

/// What a turn says: content in a batch of its own, which no link leads to.
fn content(number: u64) -> Batch {
    let bytes = noise(1_000_000 + number, 8_000);
    Batch {
        blobs: vec![(blob_id(&bytes), bytes)],
        kind: BatchKind::Content,
        ..Batch::default()
    }
}

/// The turns of a day, each with its record and its content.
fn play(store: &Store, day: u64) {
    let turns = turns(day).map(|n| [content(n), of_own_session(n)]);
    let tickets: Vec<_> = turns.flatten().map(|batch| store.commit(batch)).collect();
    tickets.into_iter().for_each(|ticket| wait(ticket).unwrap());
}

fn turns(day: u64) -> Range<u64> {
    day * TURNS..(day + 1) * TURNS
}

fn of_own_session(number: u64) -> Batch {
    let mut batch = numbered(number);
    batch.listed.as_mut().unwrap().session = key(number);
    batch
}

fn contents(store: &Store, numbers: Range<u64>) -> usize {
    let ids: Vec<Digest> = numbers.map(|n| content(n).blobs[0].0).collect();
    store.blobs(&ids).unwrap().iter().flatten().count()
}

#[test]
fn a_clock_that_is_months_ahead_removes_nothing_on_its_first_day() {
    let dated = Dated::new(Retention {
        records: days(7),
        content: days(3),
        most_bytes: None,
    });
    let store = dated.open();
    play(&store, 0);
    dated.swept(&store);
    store.close().unwrap();
    // One start under a wrong clock, and whatever asks for a sweep under it.
    dated.set(100);
    let store = dated.open();
    assert_eq!(store.sweep().unwrap(), 0);
    assert_eq!(present(&store, turns(0)), Ok(TURNS as usize));
    store.close().unwrap();
    // The clock is right again, then wrong on another day than the one that was noted.
    dated.set(2);
    let store = dated.open();
    dated.swept(&store);
    dated.set(200);
    assert_eq!(store.sweep().unwrap(), 0);
    assert_eq!(present(&store, turns(0)), Ok(TURNS as usize));
    store.close().unwrap();
    // It says the same for a second day, which another start sees: it was no mistake.
    dated.set(201);
    let store = dated.open();
    dated.swept(&store);
    assert_eq!(present(&store, turns(0)), Ok(0));
}

#[test]
fn over_a_month_what_is_too_old_goes_and_the_disk_stops_growing() {
    let dated = Dated::new(Retention {
        records: days(7),
        content: days(3),
        most_bytes: None,
    });
    let mut store = dated.open();
    // A session that goes on every day: its first turn of a day renews its path.
    let mut path: Vec<Batch> = Vec::new();
    let mut sizes = Vec::new();
    for day in 0..31 {
        dated.set(day);
        let mut batch = of_own_session(900_000 + day);
        batch.renewed = path.iter().map(|batch| batch.blobs[0].0).collect();
        wait(store.commit(batch.clone())).unwrap();
        path.push(batch);
        play(&store, day);
        dated.swept(&store);
        sizes.push(store.disk_bytes());
        assert_eq!(store.health().lost, 0);
        let young = day.saturating_sub(7)..day + 1;
        let numbers = turns(young.start).start..turns(day).end;
        let all = (numbers.end - numbers.start) as usize;
        assert_eq!(present(&store, numbers.clone()), Ok(all), "day {day}");
        assert_eq!(present(&store, 0..numbers.start), Ok(0), "day {day}");
        let young = day.saturating_sub(3);
        let said = turns(young).start..turns(day).end;
        assert_eq!(
            contents(&store, said.clone()) as u64,
            said.end - said.start,
            "day {day}"
        );
        assert_eq!(contents(&store, 0..said.start), 0, "day {day}");
        for batch in &path {
            let keys: Vec<Digest> = batch.links.iter().map(|link| link.key).collect();
            let sets = store.links(&keys, Take::ALL).unwrap();
            let leads =
                |set: &Vec<(u32, Digest)>| set.iter().any(|(_, id)| *id == batch.blobs[0].0);
            assert!(sets.iter().all(leads), "day {day}");
        }
        // The rows are those of the records.
        let rows = store.sessions(None, usize::MAX).unwrap();
        assert_eq!(rows.len(), all + path.len(), "day {day}");
        if day % 10 == 9 {
            store.close().unwrap();
            store = dated.open();
        }
    }
    // The engine's file grows and shrinks by whole segments, so days are compared with days.
    let most = |days: Range<usize>| sizes[days].iter().max().copied().unwrap();
    assert!(most(21..31) < most(11..21) * 5 / 4, "{sizes:?}");
    let removed = store.health().swept;
    store.close().unwrap();
    // What was removed is not in the copies either.
    fs::remove_dir_all(dated.dir.path().join("sled")).unwrap();
    let store = dated.open();
    assert_eq!(present(&store, 0..turns(31).start), Ok(8 * TURNS as usize));
    assert!(removed > 0);
    store.close().unwrap();
}

#[test]
fn without_retention_nothing_is_removed_even_by_a_sweep() {
    let dated = Dated::new(Retention::default());
    let store = dated.open();
    for day in 0..40 {
        dated.set(day);
        play(&store, day);
    }
    assert_eq!((swept_day(&store), store.health().swept), (0, 0));
    assert_eq!(store.sweep(), Ok(0));
    assert_eq!(
        present(&store, 0..turns(40).start),
        Ok(turns(40).start as usize)
    );
    wait(store.commit(of_own_session(7_000))).unwrap();
    assert_eq!(present(&store, 7_000..7_001), Ok(1));
    store.close().unwrap();
    let opened = open(dated.dir.path());
    assert!(opened.report.clean);
    assert_eq!(opened.report.lost, Loss::default());
    assert_eq!(
        present(&opened.store, 0..turns(40).start),
        Ok(turns(40).start as usize)
    );
}

#[test]
fn files_stay_within_their_bound_and_content_goes_before_records() {
    let most = 48 << 20;
    let dated = Dated::new(Retention {
        most_bytes: Some(most),
        ..Retention::default()
    });
    let store = dated.open();
    let said = |day: u64| {
        let bytes = noise(day, 2 << 20);
        Batch {
            blobs: vec![(blob_id(&bytes), bytes)],
            kind: BatchKind::Content,
            ..Batch::default()
        }
    };
    for day in 0..24 {
        dated.set(day);
        wait(store.commit(said(day))).unwrap();
        play(&store, day);
        until(&store, |store| store.disk_bytes() <= most);
    }
    assert_eq!(
        present(&store, 0..turns(24).start),
        Ok(turns(24).start as usize),
        "records stay"
    );
    let ids: Vec<Digest> = (0..24).map(|day| said(day).blobs[0].0).collect();
    let there: Vec<bool> = store
        .blobs(&ids)
        .unwrap()
        .iter()
        .map(Option::is_some)
        .collect();
    assert!(there.is_sorted(), "the oldest goes first: {there:?}");
    let kept = there.iter().filter(|there| **there).count();
    // How many stay depends on when the engine gives its files back.
    assert!((1..20).contains(&kept), "{kept}");
    store.close().unwrap();
}

/// Commits for ever, and sweeps for ever beside it.
pub(super) fn child_sweeps(dir: &Path, from: u64) {
    let seconds = Arc::new(AtomicU64::new((FIRST + 30) * DAY));
    let retention = Retention {
        records: days(7),
        ..Retention::default()
    };
    let store = Arc::new(Store::open(&dated(dir, retention, &seconds)).unwrap().store);
    let sweeping = Arc::clone(&store);
    std::thread::spawn(move || {
        loop {
            println!("say swept {:?}", sweeping.sweep());
        }
    });
    let mut out = std::io::stdout();
    for number in from.. {
        wait(store.commit(numbered(number))).unwrap();
        writeln!(out, "say ack {number}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_kill_in_a_sweep_loses_nothing_that_is_young() {
    let dated = Dated::new(Retention::default());
    let store = dated.open();
    for day in [0, 1, 26, 29] {
        dated.set(day);
        play(&store, day);
    }
    store.close().unwrap();
    let mut next = 100_000;
    let mut acknowledged = Vec::new();
    let (mut sweeps, mut met) = (0, HashSet::new());
    for round in 0..16u64 {
        let mut child = spawn("sweep", dated.dir.path(), next, None);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let patience = Duration::from_millis(5 + (round * 7_919) % 230);
        let (mut began, before) = (None, sweeps);
        while let Some(Ok(line)) = lines.next() {
            sweeps += usize::from(line.contains("say swept Ok"));
            assert!(!line.contains("swept Err"), "{line}");
            if let Some((_, number)) = line.split_once("say ack ") {
                let number: u64 = number.parse().unwrap();
                acknowledged.push(number);
                next = number + 1;
            }
            // Every other time a whole sweep comes first, however slow the machine is.
            let counts = round % 2 == 0 || sweeps > before;
            if counts && began.get_or_insert_with(Instant::now).elapsed() >= patience {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success(), "killed, not ended");
        for name in ["sweep.new", "swept", "dropped"] {
            if dated.dir.path().join(name).exists() {
                met.insert(name);
            }
        }
        if round % 3 == 2 {
            let opened = open(dated.dir.path());
            assert_eq!(
                (opened.report.quarantined, opened.report.lost),
                (None, Loss::default())
            );
            opened.store.close().unwrap();
        }
    }
    assert!(sweeps > 3 && met.contains("sweep.new"), "{sweeps} {met:?}");
    let store = open(dated.dir.path()).store;
    let young = turns(26)
        .chain(turns(29))
        .chain(acknowledged.iter().copied());
    for number in young {
        assert_eq!(
            present(&store, number..number + 1),
            Ok(1),
            "{number} is lost"
        );
    }
    assert_eq!(
        present(&store, turns(0).start..turns(1).end),
        Ok(0),
        "the old is gone"
    );
    assert_eq!(unlisted(&store, acknowledged), None, "a row is lost");
    store.close().unwrap();
}

/// Every place at which a process can be killed while a copy takes the store's place.
#[test]
fn a_copy_that_is_whole_takes_its_place_from_wherever_it_was_left() {
    let scratch = tempfile::tempdir().unwrap();
    let (old, new) = (scratch.path().join("old"), scratch.path().join("new"));
    for (dir, numbers) in [(&old, 0..60), (&new, 20..60)] {
        let store = open(dir).store;
        numbers.for_each(|n| wait(store.commit(numbered(n))).unwrap());
        store.close().unwrap();
        fs::remove_file(dir.join("clean")).unwrap();
    }
    for step in 0..5 {
        let dir = scratch.path().join(format!("step-{step}"));
        copy(&old, &dir);
        let swept = dir.join("swept");
        fs::create_dir(&swept).unwrap();
        copy(&new.join("sled"), &swept.join("sled"));
        fs::copy(new.join("archive"), swept.join("archive")).unwrap();
        if step >= 1 {
            fs::rename(dir.join("sled"), dir.join("dropped")).unwrap();
        }
        if step >= 2 {
            fs::rename(swept.join("sled"), dir.join("sled")).unwrap();
        }
        if step >= 3 {
            fs::rename(swept.join("archive"), dir.join("archive")).unwrap();
        }
        if step >= 4 {
            fs::remove_dir(&swept).unwrap();
        }
        let opened = open(&dir);
        assert_eq!(opened.report.quarantined, None, "{step}");
        assert_eq!(present(&opened.store, 20..60), Ok(40), "{step}");
        opened.store.close().unwrap();
        for name in ["swept", "dropped", "sweep.new"] {
            assert!(!dir.join(name).exists(), "{step} {name}");
        }
    }
}

#[test]
fn what_is_named_again_while_a_copy_is_made_stays() {
    let dated = Dated::new(Retention {
        records: days(7),
        ..Retention::default()
    });
    let store = dated.open();
    (0..4).for_each(|day| play(&store, day));
    let mut stayed = 0;
    for round in 0..24u64 {
        // Old blobs that are the last of their time, and one renewal that comes in the middle.
        dated.set(round * 20);
        let olds: Vec<Batch> = (0..60)
            .map(|n| of_own_session(50_000 + round * 100 + n))
            .collect();
        for batch in &olds {
            wait(store.commit(batch.clone())).unwrap();
        }
        dated.set(round * 20 + 9);
        let renewal = Batch {
            renewed: olds.iter().map(|batch| batch.blobs[0].0).collect(),
            ..of_own_session(80_000 + round)
        };
        std::thread::scope(|scope| {
            let sweeping = scope.spawn(|| store.sweep());
            std::thread::sleep(Duration::from_micros(round * 2_500));
            wait(store.commit(renewal)).unwrap();
            let ids: Vec<Digest> = olds.iter().map(|batch| batch.blobs[0].0).collect();
            let seen = store.blobs(&ids).unwrap();
            sweeping.join().unwrap().unwrap();
            let after = store.blobs(&ids).unwrap();
            assert_eq!(seen, after, "round {round}");
            if seen[0].is_some() {
                stayed += 1;
                let first = 50_000 + round * 100;
                assert_eq!(present(&store, first..first + 60), Ok(60), "round {round}");
            }
        });
    }
    assert!(stayed > 0, "no renewal ever came in time");
    store.close().unwrap();
}

#[test]
fn what_is_erased_is_gone_with_its_links_and_its_row() {
    let dated = Dated::new(Retention::default());
    let store = dated.open();
    play(&store, 0);
    let gone = of_own_session(7);
    let erased = HashSet::from([gone.blobs[0].0, gone.listed.clone().unwrap().session]);
    assert_eq!(store.erase(erased), Ok(1));
    assert_eq!(present(&store, 0..TURNS), Ok(TURNS as usize - 1));
    assert_eq!(present(&store, 7..8), Ok(0));
    assert_eq!(store.sessions(None, 99).unwrap().len() as u64, TURNS - 1);
    let keys: Vec<Digest> = gone.links.iter().map(|link| link.key).collect();
    let links = store.links(&keys, Take::ALL).unwrap();
    assert!(links[..3].iter().all(Vec::is_empty));
    store.close().unwrap();
    for file in ["archive", "journal", "sled/db"] {
        let bytes = fs::read(dated.dir.path().join(file)).unwrap();
        let inside = &gone.blobs[0].1[..32];
        assert!(memchr::memmem::find(&bytes, inside).is_none(), "{file}");
    }
    assert_eq!(store.sweep(), Err(StoreError::Closed));
}

#[test]
fn a_sweep_that_fails_or_is_stopped_leaves_the_store_as_it_was() {
    let dated = Dated::new(Retention::default());
    let store = dated.open();
    play(&store, 0);
    // Something that can't be removed is where the copy should be.
    let draft = dated.dir.path().join("sweep.new");
    fs::write(&draft, b"in the way").unwrap();
    let error = store.sweep().unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert!(!store.degraded());
    play(&store, 1);
    fs::remove_file(&draft).unwrap();
    assert_eq!(store.sweep(), Ok(0));
    store.close().unwrap();
    for round in 0..6 {
        let store = dated.open();
        std::thread::scope(|scope| {
            let sweeping = scope.spawn(|| store.sweep());
            std::thread::sleep(Duration::from_millis(round * 9));
            store.close().unwrap();
            let swept = sweeping.join().unwrap();
            assert!(
                matches!(swept, Ok(0) | Err(StoreError::Closed)),
                "{swept:?}"
            );
        });
        assert!(!draft.exists());
        let opened = open(dated.dir.path());
        assert!(opened.report.clean, "{round}");
        assert_eq!(
            present(&opened.store, 0..turns(2).start),
            Ok(2 * TURNS as usize)
        );
        opened.store.close().unwrap();
    }
}
