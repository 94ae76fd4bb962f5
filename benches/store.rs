//! What a durable turn costs against the floor of the same disk, measured in the same run, and
//! how long a large store takes to open and to sweep. It prints ratios; it asserts nothing.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench has nobody else to report to, and stops at the first surprise"
)]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_model::{Digest, blob_id};
use plimsoll_store::{Backend, Batch, Link, Listed, Store, StoreSettings, Take};

#[path = "../tests/servers/redis.rs"]
#[allow(dead_code, reason = "tests need more of it")]
mod redis;

use redis::RedisServer;

/// The proxy's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TURNS: u64 = 100_000;
const SAMPLES: u64 = 2_000;
const FILL: &str = "PLIMSOLL_BENCH_FILL";

fn main() {
    if let Ok(dir) = std::env::var(FILL) {
        return fill_and_hang(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    commits(dir.path());
    server();
    opens(dir.path());
}

/// A turn record of about 1.5 KB, half of it digests, its four links, and the row of its session,
/// which has four hundred turns.
fn turn(number: u64) -> Batch {
    let mut bytes = vec![0; 500];
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&number.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    while bytes.len() < 1_500 {
        let line = format!(
            "{{\"item\":\"read:{number}\",\"mark\":\"live\",\"tokens\":{}}}",
            bytes.len()
        );
        bytes.extend_from_slice(line.as_bytes());
    }
    let id = blob_id(&bytes);
    let key = |of: u64| Digest::of(&[&(number * 4 + of).to_le_bytes()]);
    let turn = u32::try_from(number % 400).unwrap();
    let links = (0..4)
        .map(|of| Link {
            key: key(of),
            id,
            turn,
        })
        .collect();
    let row = Listed {
        session: Digest::of(&[b"session", &(number / 400).to_le_bytes()]),
        at: number,
        id,
        row: Bytes::from(vec![7; 280]),
    };
    Batch {
        blobs: vec![(id, Bytes::from(bytes))],
        links,
        listed: Some(row),
        ..Batch::default()
    }
}

fn open(dir: &Path) -> (Store, Duration) {
    let began = Instant::now();
    let config = StoreSettings {
        path: dir.to_owned(),
        close_wait: Duration::from_secs(120),
        ..StoreSettings::default()
    };
    let opened = Store::open(&config).unwrap();
    let took = began.elapsed();
    let report = opened.report;
    println!(
        "    {} blobs, {} links, {} checked",
        report.blobs, report.links, report.checked
    );
    (opened.store, took)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

struct Spread {
    p50: f64,
    p99: f64,
}

fn spread(mut micros: Vec<f64>) -> Spread {
    micros.sort_by(f64::total_cmp);
    let at = |share: usize| {
        micros
            .get(micros.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    Spread {
        p50: at(50),
        p99: at(99),
    }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// Bytes of a turn as a plain log would hold them.
fn raw(batch: &Batch) -> Vec<u8> {
    let mut out = batch
        .blobs
        .iter()
        .flat_map(|(_, bytes)| bytes.to_vec())
        .collect::<Vec<_>>();
    for link in &batch.links {
        out.extend_from_slice(link.key.as_bytes());
        out.extend_from_slice(link.id.as_bytes());
    }
    out
}

fn append(file: &mut File, bytes: &[u8]) {
    file.write_all(bytes).unwrap();
    file.sync_data().unwrap();
}

/// One producer, the raw log and the store in turns, so that both meet the same machine.
fn commits(dir: &Path) {
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("raw"))
        .unwrap();
    let (store, _) = open(&dir.join("commits"));
    let runtime = runtime();
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for number in 0..SAMPLES {
        let batch = turn(number);
        let bytes = raw(&batch);
        let began = Instant::now();
        append(&mut log, &bytes);
        floor.push(micros(began));
        let began = Instant::now();
        runtime.block_on(store.commit(batch)).unwrap();
        ours.push(micros(began));
    }
    let (floor, ours) = (spread(floor), spread(ours));
    println!(
        "raw append + fdatasync   p50 {:7.1} us  p99 {:7.1} us",
        floor.p50, floor.p99
    );
    println!(
        "durable commit           p50 {:7.1} us  p99 {:7.1} us",
        ours.p50, ours.p99
    );
    println!(
        "ratio: durable commit / raw append, p50 = {:.2}",
        ours.p50 / floor.p50
    );
    let alone = 1e6 / ours.p50;
    let together = grouped(&store);
    println!("group commit, 32 producers: {together:.0} commits/s");
    println!("ratio: 32 producers / one = {:.2}", together / alone);
    store.close().unwrap();
}

/// The same to a server on this machine that writes to its disk before it answers: against the round
/// trip of a plain command with the same bytes, and what another process needs to read it.
fn server() {
    if !redis::are_here() {
        return;
    }
    let server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut settings = StoreSettings {
        backend: Backend::Redis,
        ..StoreSettings::default()
    };
    settings.redis.urls = vec![server.url()];
    let open = || Store::open(&settings).unwrap().store;
    let (store, other) = (open(), open());
    let client = ::redis::Client::open(server.url()).unwrap();
    let mut plain = client.get_connection().unwrap();
    let runtime = runtime();
    let (mut floor, mut ours, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..SAMPLES {
        let batch = turn(number);
        let (bytes, link) = (raw(&batch), batch.links[0]);
        let began = Instant::now();
        ::redis::cmd("SET")
            .arg("plain")
            .arg(bytes)
            .exec(&mut plain)
            .unwrap();
        floor.push(micros(began));
        let began = Instant::now();
        runtime.block_on(store.commit(batch)).unwrap();
        ours.push(micros(began));
        let began = Instant::now();
        assert_eq!(other.links(&[link.key], Take::ALL).unwrap()[0].len(), 1);
        assert!(other.blobs(&[link.id]).unwrap()[0].is_some());
        found.push(micros(began));
    }
    let (floor, ours, found) = (spread(floor), spread(ours), spread(found));
    for (what, spread) in [
        ("SET of the same bytes", &floor),
        ("durable commit to Redis", &ours),
        ("found by another process", &found),
    ] {
        println!(
            "{what:24} p50 {:7.1} us  p99 {:7.1} us",
            spread.p50, spread.p99
        );
    }
    println!("ratio: commit / SET, p50 = {:.2}", ours.p50 / floor.p50);
    let together = grouped(&store);
    println!("group commit to Redis, 32 producers: {together:.0} commits/s");
    store.close().unwrap();
}

fn grouped(store: &Store) -> f64 {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for producer in 0..32 {
            scope.spawn(move || {
                let runtime = runtime();
                for number in 0..200 {
                    let batch = turn(1_000_000 + producer * 1_000 + number);
                    runtime.block_on(store.commit(batch)).unwrap();
                }
            });
        }
    });
    32.0 * 200.0 / began.elapsed().as_secs_f64()
}

fn fill(store: &Store, from: u64) {
    let runtime = runtime();
    let mut tickets = std::collections::VecDeque::new();
    for number in from..from + TURNS {
        tickets.push_back(store.commit(turn(number)));
        if tickets.len() >= 256 {
            runtime.block_on(tickets.pop_front().unwrap()).unwrap();
        }
    }
    for ticket in tickets {
        runtime.block_on(ticket).unwrap();
    }
}

/// What the child does that is killed: it fills the store and never closes it.
fn fill_and_hang(dir: &Path) {
    let (store, _) = open(dir);
    fill(&store, 0);
    println!("filled");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

fn opens(dir: &Path) {
    let data = dir.join("large");
    let (store, _) = open(&data);
    let began = Instant::now();
    fill(&store, 0);
    println!(
        "filled {TURNS} turns in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let began = Instant::now();
    store.close().unwrap();
    println!(
        "close after {TURNS} turns: {:.0} ms",
        began.elapsed().as_secs_f64() * 1e3
    );
    let live: u64 = TURNS * raw(&turn(0)).len() as u64;
    println!(
        "ratio: disk / live bytes = {:.2}",
        disk(&data) as f64 / live as f64
    );
    for _ in 0..3 {
        let (store, took) = open(&data);
        println!(
            "open after a clean stop: {:.0} ms",
            took.as_secs_f64() * 1e3
        );
        store.close().unwrap();
    }
    sweeps(&data);
    let data = dir.join("killed");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(FILL, &data)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(out).map_while(Result::ok);
    assert!(lines.any(|line| line == "filled"), "the child ended early");
    child.kill().unwrap();
    child.wait().unwrap();
    let (store, took) = open(&data);
    println!("open after kill -9: {:.0} ms", took.as_secs_f64() * 1e3);
    store.close().unwrap();
}

/// A sweep of the large store, with one producer and one reader beside it.
fn sweeps(data: &Path) {
    let (store, _) = open(data);
    let began = Instant::now();
    let done = std::sync::atomic::AtomicBool::new(false);
    let going = || !done.load(std::sync::atomic::Ordering::Relaxed);
    let (took, committed, read) = std::thread::scope(|scope| {
        let commits = scope.spawn(|| {
            let (runtime, mut slowest) = (runtime(), 0.0_f64);
            for number in (TURNS..).take_while(|_| going()) {
                let began = Instant::now();
                runtime.block_on(store.commit(turn(number))).unwrap();
                slowest = slowest.max(micros(began));
            }
            slowest
        });
        let reads = scope.spawn(|| {
            let (first, mut slowest) = (turn(0).links, 0.0_f64);
            while going() {
                let began = Instant::now();
                let keys: Vec<Digest> = first.iter().map(|link| link.key).collect();
                assert_eq!(store.links(&keys, Take::ALL).unwrap().concat().len(), 4);
                slowest = slowest.max(micros(began));
                std::thread::sleep(Duration::from_millis(1));
            }
            slowest
        });
        store.sweep().unwrap();
        let took = began.elapsed();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        (took, commits.join().unwrap(), reads.join().unwrap())
    });
    println!(
        "sweep of {TURNS} turns: {:.1} s; slowest commit meanwhile {:.0} ms, slowest read {:.0} ms",
        took.as_secs_f64(),
        committed / 1e3,
        read / 1e3
    );
    store.close().unwrap();
}

fn disk(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let size = |entry: std::fs::DirEntry| {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            disk(&entry.path())
        } else {
            meta.len()
        }
    };
    entries.map(size).sum()
}
