//! A thousand streams at once through the real process, half of them read slowly or not at all:
//! what they cost in memory, and whether the other half notices. The provider is a process of its
//! own, so that only the proxy's memory is measured.
//!
//! Twice: at the pace of a model that writes a hundred tokens a second, and as a flood that no model
//! is, which says what a provider that has gone mad may cost. The goal for memory holds for both.
//!
//! Before that, a thousand streams that are all read, with requests of 2 KB, as a replica holds them
//! that does nothing else: what each costs, and how long the proxy itself takes for a turn. Once they come
//! one after the other, as to a replica, and once all in the same moment.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    dead_code,
    reason = "a bench stops at the first surprise, and shares the tests' process"
)]

#[path = "../../tests/it/child.rs"]
mod child;
mod load;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use child::Serving;
use load::Pace;
use tokio::net::TcpListener;

/// Streams that are read, and as many that are not.
const HALF: usize = 500;
/// Frames of a stream that is read, of some 330 bytes each, by the pace at which they come.
const PACES: [(Pace, usize); 2] = [(Pace::Tokens(10), 600), (Pace::Flood, 2_000)];
/// How long slow readers are left alone, so that all that lies between has filled up.
const FILLING: Duration = Duration::from_secs(15);
/// Times that both are measured.
const ROUNDS: usize = 3;
/// MiB that all of it may cost over an idle process.
const GOAL: u64 = 256;
/// Streams that are held while nothing is slow, the bytes of their conversations, and the frames of
/// each at the pace of a model that writes twenty tokens a second.
const HELD: usize = 1_000;
const HELD_SAID: usize = 2 << 10;
const HELD_FRAMES: (usize, Pace) = (300, Pace::Tokens(50));
/// How long after each other they begin. What a thousand requests take in the same moment, the allocator gives
/// back only in part, and that is measured apart.
const HELD_APART: Duration = Duration::from_millis(5);
/// KiB that each of them may cost.
const HELD_GOAL: u64 = 48;
/// Has this program be the provider.
const PROVIDER: &str = "--provider";

/// The provider's process. Dropping it kills it.
struct Provider(Child);

impl Drop for Provider {
    fn drop(&mut self) {
        // It may have ended already; there is nobody left to tell.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

fn provider() -> (Provider, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(PROVIDER)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let said = child.stdout.take().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    (Provider(child), line.trim().parse().unwrap())
}

#[expect(clippy::print_stdout, reason = "the other process reads it there")]
async fn provide() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    load::provide(listener).await;
}

/// The time in which the half that is read arrives.
async fn time(proxy: &Serving, (pace, frames): (Pace, usize)) -> Duration {
    let begun = Instant::now();
    let wrong = load::fast(proxy.listen, HALF, frames, pace).await;
    assert!(wrong.is_empty(), "{} of {HALF}: {wrong:?}", wrong.len());
    begun.elapsed()
}

/// Holds streams that are all read and begin so long after each other; KiB that each costs over an idle
/// process.
#[expect(clippy::print_stdout, reason = "a bench reports to the terminal")]
async fn hold(apart: Duration) -> u64 {
    let (_provider, upstream) = provider();
    let proxy = Serving::start(upstream, "", &[]);
    let address = proxy.listen;
    let wrong = load::fast(address, 1, 1, Pace::Flood).await;
    assert!(wrong.is_empty(), "{wrong:?}");
    let idle = proxy.resident().0;
    let streams = load::fast_behind(address, (HELD, apart), HELD_FRAMES, HELD_SAID);
    let streams = tokio::spawn(streams);
    // All have begun by then, and none has ended.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let each = (proxy.resident().0.saturating_sub(idle) / HELD as u64) >> 10;
    let wrong = streams.await.unwrap();
    assert!(wrong.is_empty(), "{} of {HELD}: {wrong:?}", wrong.len());
    println!(
        "{HELD} streams that are read, begun {apart:?} apart: {each} KiB each over the {} MiB of an idle \
         process (goal: {HELD_GOAL}); the proxy's own time for a turn is at most {} s for 99 of 100",
        idle >> 20,
        overhead(&proxy).await,
    );
    each
}

/// The bucket that holds 99 of 100 turns by the proxy's own time, in seconds.
async fn overhead(proxy: &Serving) -> String {
    let text = reqwest::get(format!("http://{}/metrics", proxy.admin));
    let text = text.await.unwrap().text().await.unwrap();
    let bucket = |line: &str| {
        let rest = line.strip_prefix("plimsoll_overhead_seconds_bucket{phase=\"total\",le=\"")?;
        let (le, count) = rest.split_once("\"} ")?;
        Some((le.to_owned(), count.parse::<f64>().ok()?))
    };
    let buckets: Vec<(String, f64)> = text.lines().filter_map(bucket).collect();
    let all = buckets.last().map_or(0.0, |(_, count)| *count);
    let mut most = buckets
        .into_iter()
        .filter(|(_, count)| *count >= 0.99 * all);
    most.next().map_or_else(|| "?".to_owned(), |(le, _)| le)
}

/// Plays both halves at a pace; MiB that it cost over an idle process.
#[expect(clippy::print_stdout, reason = "a bench reports to the terminal")]
async fn measure(at: (Pace, usize)) -> u64 {
    let (_provider, upstream) = provider();
    let proxy = Serving::start(upstream, "", &[]);
    // Once before, so that what is made once is there.
    let wrong = load::fast(proxy.listen, 1, 1, Pace::Flood).await;
    assert!(wrong.is_empty(), "{wrong:?}");
    let mib = |bytes: u64| bytes >> 20;
    let idle = proxy.resident().0;
    let (mut alone, mut beside) = (Duration::MAX, Duration::MAX);
    let mut without = 0;
    for round in 0..ROUNDS {
        alone = alone.min(time(&proxy, at).await);
        if round == 0 {
            without = proxy.resident().1;
        }
        let mut slow = load::slow(proxy.listen, HALF / 2, at.0, false).await;
        slow.extend(load::slow(proxy.listen, HALF / 2, at.0, true).await);
        tokio::time::sleep(FILLING).await;
        beside = beside.min(time(&proxy, at).await);
        for reader in slow {
            reader.abort();
        }
    }
    let most = proxy.resident().1;
    let over = mib(most.saturating_sub(idle));
    println!(
        "{:?}: {} streams, half of them slow: {over} MiB over the {} of an idle process (goal: \
         {GOAL}); {} without the slow ones",
        at.0,
        2 * HALF,
        mib(idle),
        mib(without.saturating_sub(idle)),
    );
    println!(
        "the others took {:.2} times as long as alone (goal: 1.25): {beside:.1?} for {alone:.1?}",
        beside.as_secs_f64() / alone.as_secs_f64()
    );
    over
}

fn main() -> ExitCode {
    let asked = |name: &str| std::env::args().any(|argument| argument == name);
    // `cargo test --benches` runs benches too; there is nothing to measure in a debug build.
    if !asked("--bench") && !asked(PROVIDER) {
        return ExitCode::SUCCESS;
    }
    plimsoll_ingress::descriptors::raise().unwrap();
    // The client that reads the metrics needs a default, although it speaks no TLS.
    let _already = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if asked(PROVIDER) {
        runtime.block_on(provide());
        ExitCode::SUCCESS
    } else {
        let each = runtime.block_on(hold(HELD_APART));
        runtime.block_on(hold(Duration::ZERO));
        let over = PACES.map(|at| runtime.block_on(measure(at)));
        // How fast the machine is depends on who else uses it. Memory does so less: what an upstream sends
        // faster than it is taken is read in larger pieces.
        ExitCode::from(u8::from(
            over.iter().any(|over| *over > GOAL) || each > HELD_GOAL,
        ))
    }
}
