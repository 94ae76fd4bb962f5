//! What an attacker costs: seconds of processor and megabytes of memory for requests and answers of every shape, at one, two
//! and four times a size, each before a process of its own. Then all of them at once beside an ordinary tenant.
//!
//! `cargo bench --bench hostile`; `HOSTILE_MINUTES=1` plays the second part for a minute and not for ten, 0 leaves it
//! out, and `HOSTILE_PRICES=0` leaves the first part out. `HOSTILE_WITHOUT=Kept` leaves that shape out of both,
//! and `HOSTILE_ONLY=Kept` all others. Ends
//! with 1 where twice the size costs more than 2.2 times as much, where a megabyte costs more than a second or 150 MB,
//! or where the ordinary tenant waits (99 of 100 turns take at most 100 ms, and 99 of 100 looks at `/livez` at most 50
//! ms), or where memory is above `server.body_budget` and 150 MB, or has not come back a minute later. The machine does
//! the attackers' and the provider's work, too; the attackers have the lowest priority.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench stops at the first surprise, and prints its figures"
)]

#[path = "../support/process.rs"]
#[allow(dead_code, reason = "other benches need more of it")]
mod process;
mod shapes;
mod wire;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use process::Process;
use shapes::{Ask, SHAPES, Shape};

const SETTINGS: [(&str, &str); 4] = [
    ("BUDGET__TOKENS", "20000"),
    ("LOG__LEVEL", "error"),
    ("SERVER__BODY_BUDGET", BUDGET),
    ("SERVER__CACHE_MEMORY", "64MiB"),
];
const BUDGET: &str = "256MiB";
const BUDGET_MIB: u64 = 256;
/// What may stay, because it is remembered: the 64 of `server.cache_memory`, and twice the 48 of `store.cache_mb`.
const CACHES_MIB: u64 = 64 + 2 * 48;
/// Below so many seconds of processor nothing is compared: what a process does for any request is most of it.
const LEAST: f64 = 0.3;
/// So many seconds of processor in 300 ms are what a process takes that has nothing to do.
const IDLE: f64 = 0.003;

const ROUNDS: usize = 7;
/// How many times its least size a shape has.
const TIMES: [usize; 3] = [1, 2, 4];
/// How a process of this bench is told that it is the attackers.
const ATTACK: &str = "--attack";

/// What a shape cost at one size.
struct Cost {
    mb: f64,
    seconds: f64,
    memory: f64,
}

async fn provider() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().fallback(wire::answer);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}/v1")
}

/// Sends a request and reads its answer. Returns its status; 0 if there was none.
async fn send(client: &reqwest::Client, proxy: SocketAddr, ask: Ask, key: &str) -> u16 {
    sent(client, proxy, ask, key).await.0
}

/// Sends a request and reads its answer. Returns its status, and the milliseconds that the proxy says it took for itself.
async fn sent(client: &reqwest::Client, proxy: SocketAddr, ask: Ask, key: &str) -> (u16, f64) {
    let url = format!("http://{proxy}{}", ask.path);
    let request = client
        .post(url)
        .header("content-type", "application/json")
        .bearer_auth(key);
    let Ok(mut response) = request.body(ask.body).send().await else {
        return (0, 0.0);
    };
    while let Ok(Some(_)) = response.chunk().await {}
    let own = response.headers().get("x-plimsoll-overhead-ms");
    let own = own.and_then(|own| own.to_str().ok()?.parse().ok());
    (response.status().as_u16(), own.unwrap_or_default())
}

/// All shapes, or the one that is asked for, and without the one that is to be left out.
fn shapes() -> impl Iterator<Item = (Shape, usize)> {
    let [only, without] = ["HOSTILE_ONLY", "HOSTILE_WITHOUT"].map(|name| std::env::var(name).ok());
    let is_asked = move |(shape, _): &(Shape, usize)| {
        let name = format!("{shape:?}");
        only.as_ref().is_none_or(|only| *only == name) && without.as_ref() != Some(&name)
    };
    SHAPES.into_iter().filter(is_asked)
}

/// The middle of some numbers.
fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

async fn once(client: &reqwest::Client, upstream: &str, shape: Shape, size: usize) -> Cost {
    let proxy = Process::start(client, upstream, &SETTINGS).await;
    // What is made once is made before.
    let before = Shape::Calls(wire::Dialect::Chat).asks(10, 0).remove(0);
    assert_eq!(send(client, proxy.address(), before, "k").await, 200);
    let (idle, cpu) = (proxy.resident().0, proxy.processor());
    let said = wire::SENT.load(Ordering::Relaxed);
    let mut bytes = 0;
    for ask in shape.asks(size, 1) {
        bytes += ask.body.len();
        let status = send(client, proxy.address(), ask, "k").await;
        assert!(matches!(status, 200 | 503), "{shape:?} {size}: {status}");
    }
    bytes += wire::SENT.load(Ordering::Relaxed) - said;
    // The record may be written behind the answer.
    let mut last = proxy.processor();
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = proxy.processor();
        if now - last < IDLE {
            break;
        }
        last = now;
    }
    let over = proxy.resident().1.saturating_sub(idle);
    Cost {
        mb: bytes as f64 / 1e6,
        seconds: last - cpu,
        memory: over as f64 / 1024.0,
    }
}

/// Prices every shape; how many break a bound.
async fn price(client: &reqwest::Client, upstream: &str) -> usize {
    println!(
        "shape | MB | seconds at 1, 2, 4 times (4 over 1) | MiB at 1, 2, 4 times | seconds per MB | MiB per MB"
    );
    let mut broken = 0;
    for (shape, size) in shapes() {
        // Each round has all sizes, so that what slows the machine for a while slows them alike.
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let mut round = Vec::new();
            for times in TIMES {
                round.push(once(client, upstream, shape, size * times).await);
            }
            rounds.push(round);
        }
        let steepness = median(
            rounds
                .iter()
                .map(|round| round[2].seconds / round[0].seconds),
        );
        let costs = [0, 1, 2].map(|at| {
            let of = |cost: fn(&Cost) -> f64| median(rounds.iter().map(|round| cost(&round[at])));
            Cost {
                mb: of(|cost| cost.mb),
                seconds: of(|cost| cost.seconds),
                memory: of(|cost| cost.memory),
            }
        });
        let seconds = costs.each_ref().map(|cost| cost.seconds);
        // Twice the size twice over: a single step of a shared machine says little.
        let steep = seconds[2] > LEAST && steepness > 2.2 * 2.2;
        let most = &costs[2];
        // The first MB of an answer is free, and so is what a process takes for any request.
        let (per, memory) = (
            most.seconds / most.mb.max(1.0),
            most.memory / most.mb.max(1.0),
        );
        let wrong = steep || per > 1.0 || memory > 150.0;
        broken += usize::from(wrong);
        println!(
            "{shape:?} | {:.1} | {:.2} {:.2} {:.2} ({steepness:.2}) | {:.0} {:.0} {:.0} | {per:.2} | {memory:.0}{}",
            most.mb,
            seconds[0],
            seconds[1],
            seconds[2],
            costs[0].memory,
            costs[1].memory,
            most.memory,
            if wrong { "  <- too much" } else { "" }
        );
    }
    broken
}

/// Where the provider listens.
fn host(upstream: &str) -> SocketAddr {
    let host = upstream.trim_start_matches("http://");
    host.trim_end_matches("/v1").parse().unwrap()
}

/// All shapes at once, again and again, beside an ordinary tenant; how many bounds break. The attackers are a process of
/// the lowest priority: elsewhere they would be other machines.
async fn siege(client: &reqwest::Client, upstream: &str, minutes: f64) -> usize {
    let proxy = Process::start(client, upstream, &SETTINGS).await;
    let ordinary = || Shape::Calls(wire::Dialect::Chat).asks(100, 0).remove(0);
    send(client, proxy.address(), ordinary(), "ordinary").await;
    let idle = proxy.resident().0;
    let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let mut attackers = tokio::process::Command::new("nice");
    let attackers = attackers
        .args(["-n", "19"])
        .arg(std::env::current_exe().unwrap())
        .args([ATTACK, &proxy.address().to_string(), &minutes.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (mut turns, mut owns, mut looks, mut refused) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let (mut straight, host) = (Vec::new(), host(upstream));
    while Instant::now() < until {
        let begun = Instant::now();
        let (status, own) = sent(client, proxy.address(), ordinary(), "ordinary").await;
        turns.push(begun.elapsed());
        owns.push(Duration::from_secs_f64(own / 1e3));
        refused += usize::from(status != 200);
        let begun = Instant::now();
        send(client, host, ordinary(), "ordinary").await;
        straight.push(begun.elapsed());
        let begun = Instant::now();
        assert!(proxy.lives(client).await);
        looks.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let attacks = attackers.wait_with_output().await.unwrap().stdout;
    let most = proxy.resident().1 / 1024;
    let caches = (proxy.metric(client, "plimsoll_cache_bytes").await
        + proxy.metric(client, "plimsoll_store_cache_bytes").await)
        / f64::from(1 << 20);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (after, idle) = (proxy.resident().0 / 1024, idle / 1024);
    let times = [&mut turns, &mut owns, &mut straight, &mut looks];
    let [turn, own, straight, look] = times.map(|times| {
        times.sort_unstable();
        times[times.len() * 99 / 100]
    });
    println!(
        "{minutes} minutes, {} attacks beside {} turns of another tenant: 99 of 100 turns took at most {turn:.0?} \
         (goal: 100 ms; {own:.0?} of the proxy's own time, {straight:.0?} without the proxy), looks at /livez {look:.0?} \
         (goal: 50 ms); {refused} were refused; {most} MiB at the highest (goal: \
         {}), {idle} before and {after} a minute later (goal: {}), of which caches have {caches:.0}",
        String::from_utf8_lossy(&attacks).trim(),
        turns.len(),
        BUDGET_MIB + 150,
        idle + CACHES_MIB,
    );
    let broken = [
        turn > Duration::from_millis(100),
        look > Duration::from_millis(50),
        most > BUDGET_MIB + 150,
        after > idle + CACHES_MIB,
    ];
    broken.into_iter().filter(|broken| *broken).count()
}

/// The attackers: each shape again and again for so many minutes. Prints how many attacks there were.
async fn attack(client: &reqwest::Client, address: SocketAddr, minutes: f64) {
    let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let mut attackers = Vec::new();
    for (number, (shape, size)) in shapes().enumerate() {
        let client = client.clone();
        attackers.push(tokio::spawn(async move {
            let mut run = 0;
            while Instant::now() < until {
                run += 1;
                for ask in shape.asks(size, run) {
                    send(&client, address, ask, &format!("attacker {}", number % 3)).await;
                }
            }
            run
        }));
    }
    let mut attacks = 0;
    for attacker in attackers {
        attacks += attacker.await.unwrap();
    }
    println!("{attacks}");
}

#[tokio::main]
async fn main() -> ExitCode {
    // `cargo test --benches` runs benches too; there is nothing to measure in a debug build.
    let arguments: Vec<String> = std::env::args().collect();
    let _already = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    if let [_, attack, address, minutes] = &arguments[..]
        && attack == ATTACK
    {
        self::attack(&client, address.parse().unwrap(), minutes.parse().unwrap()).await;
        return ExitCode::SUCCESS;
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let upstream = provider().await;
    let minutes = std::env::var("HOSTILE_MINUTES").ok();
    let minutes = minutes.map_or(10.0, |text| text.parse().unwrap());
    let mut broken = 0;
    if std::env::var("HOSTILE_PRICES").as_deref() != Ok("0") {
        broken += price(&client, &upstream).await;
    }
    if minutes > 0.0 {
        broken += siege(&client, &upstream, minutes).await;
    }
    println!("{broken} bounds are broken");
    ExitCode::from(u8::from(broken > 0))
}
