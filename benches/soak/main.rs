//! Turns without end through the real `plimsoll serve`: three dialects, streamed and not, a provider
//! that fails in one answer of ten, clients that vanish, stall and read slowly, and in the first
//! eighth kills of the proxy. Measures what is lost, what leaks, and whether anything grows.
//!
//! `cargo bench --bench soak` plays 200,000 turns of 20,000 sessions; `SOAK_SESSIONS=600` plays
//! fewer, ten turns each. Both halves are alike: new sessions, and then each of them again, found cold.
//! The caches are bounded to 48 MiB, so that they are full at half-time and what grows outside them is
//! seen; `SOAK_CACHES=16MiB` bounds them more for a short soak. With `SOAK_STORE=redis` the records are in a
//! server, which is killed as well; with `SOAK_STORE=memory` nothing is killed, because nothing would be
//! left. What a turn costs is measured in the second half.
//! Ends with 1 where an acknowledged turn was lost, the provider had to refuse a request, a client
//! heard of a hidden call or a session was stuck, where resident memory at the end is above 1.05
//! times that at half-time (1.25 times in a short soak) and 64 bytes more for each turn on disk, or where descriptors or
//! threads stay taken.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::unwrap_used, reason = "a bench may stop at once")]
#![expect(clippy::indexing_slicing, reason = "a bench may stop at once")]

mod client;
#[path = "../support/process.rs"]
mod process;
mod provider;
#[path = "../../tests/servers/redis.rs"]
#[allow(dead_code, reason = "tests need more of it")]
mod redis;
mod talk;
mod wire;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use client::{Counts, Session, Shared};
use process::Process;
use provider::Ledger;
use redis::RedisServer;

/// Turns of a session.
const TURNS: u32 = 10;
/// Turns that a session plays before all others of its half have their turn, so that it is found cold.
const SLICE: u32 = 5;
/// Sessions at once.
const WORKERS: usize = 32;
/// Kills in the first eighth: a killed process begins with empty caches, and what fills must have
/// filled by half-time.
const KILLS: usize = 5;
/// What resident memory may be at the end, as a multiple of that at half-time, beside what the engine keeps.
const GROWTH: f64 = 1.05;
/// The same in a soak of fewer sessions than [`LONG`], which ends while the pages of the engine and
/// the memos of the tokeniser still fill.
const EARLY_GROWTH: f64 = 1.25;
/// What the engine of a store on disk keeps in memory for each turn that the store has, in bytes: its pages and the
/// segments of its log. It is no leak, and a sweep of what is old bounds it.
const ENGINE_BYTES: usize = 64;
/// From so many sessions on a soak is long: its caches are nearly full at half-time.
const LONG: u32 = 10_000;
/// What all caches take in a soak of so many sessions: less than one half of them fills, so that the
/// caches are full at half-time and sessions are found cold in both halves.
const LONG_CACHES: &str = "48MiB";
/// Descriptors and threads that may come and go.
const SLACK: usize = 4;
/// How long idle threads and connections may take to go.
const PATIENCE: Duration = Duration::from_secs(90);

fn setting(name: &str, default: u32) -> u32 {
    let set = std::env::var(name).ok();
    set.map_or(default, |text| text.replace('_', "").parse().unwrap())
}

#[tokio::main]
async fn main() -> ExitCode {
    let _already = rustls::crypto::ring::default_provider().install_default();
    let sessions = setting("SOAK_SESSIONS", 20_000);
    let http = reqwest::Client::builder()
        .no_proxy()
        .pool_idle_timeout(Duration::from_secs(2))
        .build()
        .unwrap();
    let ledger = Arc::new(Ledger::default());
    let upstream = provider::start(Arc::clone(&ledger)).await;
    let caches = std::env::var("SOAK_CACHES");
    let caches = caches.as_deref().unwrap_or(LONG_CACHES);
    let mut settings = vec![
        // A turn is acknowledged when its record is durable, however slow the disk is.
        ("STORE__WAIT", "30s"),
        ("UPSTREAM__POOL_IDLE_TIMEOUT", "2s"),
        ("LOG__LEVEL", "error"),
        ("SERVER__CACHE_MEMORY", caches),
    ];
    if sessions < LONG {
        settings.push(("STORE__CACHE_MB", "8"));
    }
    let kept_in = std::env::var("SOAK_STORE").unwrap_or_default();
    let in_memory = kept_in == "memory";
    if in_memory {
        settings.push(("STORE__BACKEND", "memory"));
    }
    let store = (kept_in == "redis" && redis::are_here())
        .then(|| RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]));
    let (url, key) = (store.as_ref().map(RedisServer::url), "k".repeat(64));
    if let Some(url) = &url {
        settings.extend([
            ("STORE__BACKEND", "redis"),
            ("STORE__URL", url.as_str()),
            ("STORE__READ_WAIT", "30s"),
            ("TENANT__KEY", key.as_str()),
        ]);
    }
    let base = format!("http://{upstream}/v1");
    let process = Process::start(&http, &base, &settings).await;
    let shared = Arc::new(Shared {
        proxy: process.address(),
        http,
        ledger,
        counts: Counts::default(),
    });
    let half = sessions / 2;
    let queue = (0..half).map(Session::new).collect();
    let mut soak = Soak {
        process,
        store,
        shared,
        queue: Arc::new(Mutex::new(queue)),
        later: (half..sessions).map(Session::new).collect(),
        kills: if in_memory { 0 } else { KILLS },
        total: (sessions * TURNS) as usize,
        growth: if sessions < LONG {
            EARLY_GROWTH
        } else {
            GROWTH
        },
        begun: Instant::now(),
    };
    if soak.run().await {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A soak under way.
struct Soak {
    process: Process,
    /// The server that has the records. None if they are on disk.
    store: Option<RedisServer>,
    shared: Arc<Shared>,
    queue: Arc<Mutex<VecDeque<Session>>>,
    /// The sessions of the second half, which is as the first was: new sessions, and then each of
    /// them once more, when it has to be read from the store. If all sessions began in the first
    /// half, nothing would be read from the store before half-time.
    later: VecDeque<Session>,
    /// How often the proxy is killed.
    kills: usize,
    /// Turns in all.
    total: usize,
    /// How much resident memory may grow.
    growth: f64,
    begun: Instant,
}

impl Soak {
    /// Plays all turns and prints the figures; false where something was lost, leaked or grew.
    async fn run(&mut self) -> bool {
        for kill in 1..=self.kills {
            self.play_until(self.total * kill / self.kills / 8, true)
                .await;
        }
        self.play_until(self.total / 4, false).await;
        let taken = self.idle("a quarter").await;
        self.play_until(self.total / 2, false).await;
        self.idle("half-time").await;
        let half = self.process.resident().0;
        let before = self.spent().await;
        self.queue.lock().append(&mut self.later);
        self.play_until(self.total, false).await;
        self.spent().await.print_since(&before);
        let left = self.at_rest(taken).await;
        self.idle("the end").await;
        let end = self.process.resident().0;
        let on_disk = self.kills > 0 && self.store.is_none();
        let turns = if on_disk { self.total / 2 } else { 0 };
        let engine = (turns * ENGINE_BYTES / 1024) as u64;
        let growth = end.saturating_sub(engine) as f64 / half.max(1) as f64;
        println!(
            "resident memory at the end over that at half-time: {growth:.3} ({} over {} MiB), beside {} that the \
             engine keeps for the turns of the second half",
            end / 1024,
            half / 1024,
            engine / 1024
        );
        println!(
            "descriptors and threads a quarter in {taken:?}, at the end {left:?}; every metric of \
             failures: {}",
            self.failures().await
        );
        self.print_archive().await;
        let back = left.0 <= taken.0 + SLACK && left.1 <= taken.1 + SLACK;
        self.judge() && growth <= self.growth && back
    }

    /// Plays until so many turns have come to their end; the proxy is killed as the last of them
    /// are under way where that is asked for.
    async fn play_until(&mut self, turns: usize, kill: bool) {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| tokio::spawn(work(self.shared.clone(), self.queue.clone(), turns)))
            .collect();
        if kill {
            while self.turns() + WORKERS < turns {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if let Some(store) = &mut self.store {
                store.restart();
            }
            self.process.restart(&self.shared.http).await;
        }
        for worker in workers {
            worker.await.unwrap();
        }
    }

    fn turns(&self) -> usize {
        self.shared.counts.turns.load(Ordering::Relaxed)
    }

    /// Lets the proxy come to rest, says how it stands, and gives its descriptors and threads.
    async fn idle(&self, when: &str) -> (usize, usize) {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let handles = self.process.handles();
        println!(
            "at {when}: {} turns in {:.0} s, resident {} MiB, of it {:.0} in caches, {} descriptors, \
             {} threads",
            self.turns(),
            self.begun.elapsed().as_secs_f64(),
            self.process.resident().0 / 1024,
            self.metric("cache_bytes").await / f64::from(1 << 20),
            handles.0,
            handles.1
        );
        handles
    }

    /// Descriptors and threads once those that are idle have gone, or have had their time.
    async fn at_rest(&self, taken: (usize, usize)) -> (usize, usize) {
        let waited = Instant::now();
        loop {
            let left = self.process.handles();
            if (left.0 <= taken.0 && left.1 <= taken.1) || waited.elapsed() > PATIENCE {
                return left;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// What was spent so far.
    async fn spent(&self) -> Spent {
        let stored = match &self.store {
            Some(server) => {
                let said = server.cli(&["INFO", "memory"]);
                let used = said
                    .lines()
                    .find_map(|line| line.strip_prefix("used_memory:"));
                used.and_then(|used| used.trim().parse().ok())
                    .unwrap_or(0.0)
            }
            None => self.metric("store_bytes").await,
        };
        Spent {
            turns: self.turns(),
            requests: self.shared.ledger.requests.load(Ordering::Relaxed),
            seconds: {
                let http = &self.shared.http;
                self.process.metric(http, "process_cpu_seconds_total").await
            },
            trips: self.metric("store_round_trips_total").await,
            stored,
        }
    }

    async fn metric(&self, name: &str) -> f64 {
        let name = format!("plimsoll_{name}");
        self.process.metric(&self.shared.http, &name).await
    }

    /// Prints what the bytes of a turn on disk are made of.
    async fn print_archive(&self) {
        let held = self.process.store(&self.shared.http).await;
        let held: serde_json::Value = serde_json::from_str(&held).unwrap();
        let Some(parts) = held["archive"].as_object() else {
            return;
        };
        let turns = self.turns() as f64;
        let each = |bytes: &serde_json::Value| bytes.as_f64().unwrap_or_default() / turns;
        let parts = parts
            .iter()
            .map(|(name, of)| format!("{name} {:.0}", each(of)));
        println!(
            "bytes of a turn in the archive: {}; in all files: {:.0}",
            parts.collect::<Vec<_>>().join(", "),
            each(&held["disk_bytes"])
        );
    }

    /// The counters of what the proxy could not do.
    async fn failures(&self) -> String {
        let mut shown = Vec::new();
        for name in ["fail_open_total", "unmanaged_total", "stream_aborts_total"] {
            shown.push(format!("{name} {}", self.metric(name).await));
        }
        shown.join(", ")
    }

    /// Prints what came of all turns; false where one was lost, leaked, refused or stuck.
    fn judge(&self) -> bool {
        let Shared { counts, ledger, .. } = &*self.shared;
        let read = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::Relaxed);
        println!(
            "{} turns, {} requests upstream, {} faults of the provider, {} tries again, {} clients \
             that left, {} that stalled, {} kills, {} answers to the client's own bytes",
            self.turns(),
            read(&ledger.requests),
            read(&ledger.faults),
            read(&counts.retries),
            read(&counts.vanished),
            read(&counts.stalled),
            self.kills,
            read(&counts.failed_open),
        );
        let mut sound = self.turns() >= self.total;
        for (what, found) in [
            ("hidden calls of acknowledged turns lost", &counts.lost),
            ("answers that showed something hidden", &counts.leaked),
            ("sessions stuck", &counts.stuck),
            ("invalid requests upstream", &ledger.invalid),
        ] {
            let found = found.lock();
            println!("{}: {what}", found.0);
            for text in &found.1 {
                println!("    {text}");
            }
            sound &= found.0 == 0;
        }
        sound
    }
}

/// What a soak has spent.
struct Spent {
    turns: usize,
    requests: usize,
    /// Of all processors, by the proxy.
    seconds: f64,
    /// Round trips to the store.
    trips: f64,
    /// Bytes of the store.
    stored: f64,
}

impl Spent {
    fn print_since(&self, before: &Self) {
        let turns = (self.turns - before.turns) as f64;
        let each = |now: f64, before: f64| (now - before) / turns;
        println!(
            "a turn cost {:.2} ms of a processor, {:.2} requests upstream, {:.2} round trips to the \
             store and {:.0} bytes there",
            1e3 * each(self.seconds, before.seconds),
            each(self.requests as f64, before.requests as f64),
            each(self.trips, before.trips),
            each(self.stored, before.stored),
        );
    }
}

/// Plays sessions a slice at a time until all clients together have played so many turns.
async fn work(shared: Arc<Shared>, queue: Arc<Mutex<VecDeque<Session>>>, turns: usize) {
    loop {
        if shared.counts.turns.load(Ordering::Relaxed) >= turns {
            return;
        }
        let Some(mut session) = queue.lock().pop_front() else {
            return;
        };
        for _ in 0..SLICE {
            if session.turns < TURNS {
                session.turn(&shared).await;
            }
        }
        if session.turns < TURNS {
            queue.lock().push_back(session);
        }
    }
}
