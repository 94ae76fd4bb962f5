//! A thousand streams at once through the real process, half of them read slowly or not at all:
//! what they cost in memory, and whether the other half notices. The provider is a process of its
//! own, so that only the proxy's memory is measured.
//!
//! Twice: at the pace of a model that writes a hundred tokens a second, and as a flood that no model
//! is. Goals are for the first; the second says what a provider that has gone mad may cost. There an
//! HTTP/1 connection without TLS reads up to 400 KB at once, for which reqwest has no setting.

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
    plimsoll::ingress::descriptors::raise().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if asked(PROVIDER) {
        runtime.block_on(provide());
        ExitCode::SUCCESS
    } else {
        let over = PACES.map(|at| runtime.block_on(measure(at)));
        // How fast the machine is depends on who else uses it; memory does not.
        ExitCode::from(u8::from(over[0] > GOAL))
    }
}
