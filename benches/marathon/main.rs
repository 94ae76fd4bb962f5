//! One conversation of 89 recorded sessions, run live: the real `plimsoll serve` between a client
//! that resends everything with every turn and a provider that refuses what a real one refuses.
//! Measures whether anything grows: requests past the ceiling, memory, the time of a request.
//!
//! `cargo bench --bench marathon` plays all sessions to their end. `MARATHON_TOKENS=2000000` stops
//! once so many tokens were sent; `MARATHON_BUDGET=40000` sets another budget. Ends with 1 where a
//! request passed the ceiling, was refused, or a client met what it must not see; times and memory
//! are printed, never judged.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::unwrap_used, reason = "a bench may stop at once")]

mod compose;
mod probe;
#[path = "../support/process.rs"]
mod process;
mod report;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_scripted::size::Sizer;
use plimsoll_scripted::{
    Auth, Client, ClientOptions, ClientRequest, Options, Player, Provider, Received, Reply, Script,
    Session, TURN_HEADER, Verdict, audit,
};
use plimsoll_tokens::{Counter, Encoding};

use compose::Composed;
use probe::{PROBE, Probe};
use process::Process;
use report::{Checkpoint, Report, Sample};

/// Every so many turns probes are sent.
const CHECKPOINT: usize = 40;
/// How many each time.
const ROUNDS: usize = 6;
/// Probes that are sent before any is counted.
const WARM: usize = 30;
/// How often the last request is sent once more to the proxy begun anew.
const AGAIN: usize = 20;
/// Every so many turns the whole of what was sent is compared with what the client said.
const AUDIT: usize = 50;
/// The seed of the annotations.
const SEED: u64 = 7;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.replace('_', "").parse().unwrap())
}

/// The address of chat completions.
fn chat(process: &Process) -> String {
    format!("http://{}/v1/chat/completions", process.address())
}

#[tokio::main]
async fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces");
    let counter = Arc::new(Counter::load());
    let Some(composed) = compose::compose(&root, &counter) else {
        println!("skipped: no recorded sessions in {}", root.display());
        return ExitCode::SUCCESS;
    };
    let ceiling = u32::try_from(setting("MARATHON_BUDGET").unwrap_or(80_000)).unwrap();
    let most = setting("MARATHON_TOKENS").unwrap_or(u64::MAX);
    let begins = composed.begins.clone();
    let user_tokens = composed.user_tokens;
    let begun = Instant::now();
    let mut run = Run::start(composed, ceiling, counter).await;
    run.play(most).await;
    let broken = run.broken;
    run.print(&begins, user_tokens, begun).await;
    run.anew().await;
    if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Answers probes for itself, and all else as the player does.
fn script(player: &Arc<Player>) -> Script {
    let player = Arc::clone(player);
    Script::ask(move |request| {
        let place = request.header(TURN_HEADER).unwrap_or_default();
        if place.starts_with(PROBE) {
            return Reply::text(probe::ANSWER);
        }
        player.reply(request)
    })
}

/// A conversation under way.
struct Run {
    session: Arc<Session>,
    player: Arc<Player>,
    provider: Provider,
    process: Process,
    /// Serves probes only, under the same load of the machine.
    _control: Process,
    http: reqwest::Client,
    client: Client,
    probe: Probe,
    sizer: Sizer,
    ceiling: u32,
    /// The client's last request.
    last: Option<ClientRequest>,
    /// The last request that the provider received for it.
    before: Option<Received>,
    report: Report,
    /// Rules that were broken.
    broken: usize,
    unmet: usize,
}

impl Run {
    async fn start(composed: Composed, ceiling: u32, counter: Arc<Counter>) -> Self {
        let _already = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .build()
            .unwrap();
        let session = Session::waiting(composed.recording, SEED);
        let player = Arc::new(Player::new([Arc::clone(&session)]).any_style(11));
        let options = Options {
            count: Arc::new(move |text| counter.count(Encoding::O200k, text) as usize),
            auth: Auth::Any,
            ..Options::default()
        };
        let sizer = Sizer::new(options.count.clone());
        let provider = Provider::start(script(&player), options).await.unwrap();
        let budget = ceiling.to_string();
        let settings = [("BUDGET__TOKENS", budget.as_str()), ("LOG__LEVEL", "warn")];
        let process = Process::start(&http, &provider.base_url, &settings).await;
        let direct = format!("{}/chat/completions", provider.base_url);
        let control = Process::start(&http, &provider.base_url, &settings).await;
        let probe = Probe::new(http.clone(), [chat(&process), chat(&control), direct]);
        let client = Client::new(Arc::clone(&session), ClientOptions::default());
        Self {
            session,
            player,
            provider,
            process,
            _control: control,
            http,
            client,
            probe,
            sizer,
            ceiling,
            last: None,
            before: None,
            report: Report::default(),
            broken: 0,
            unmet: 0,
        }
    }

    /// Plays until the conversation ends or so many tokens were sent.
    async fn play(&mut self, most: u64) {
        for _ in 0..WARM {
            self.probe.round().await;
        }
        while let Some(request) = self.client.request() {
            if self.report.tokens() >= most {
                break;
            }
            if request.turn.is_multiple_of(CHECKPOINT) {
                self.checkpoint(request.turn).await;
            }
            let advanced = self.turn(&request).await;
            self.last = Some(request);
            if !advanced {
                break;
            }
        }
        let found = self.player.violations();
        self.complain(&found);
    }

    async fn checkpoint(&mut self, turn: usize) {
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            rounds.push(self.probe.round().await);
        }
        // Probes are no part of the conversation's figures.
        drop(self.provider.take());
        self.report.checkpoints.push(Checkpoint { turn, rounds });
    }

    /// One turn; false where the client can't go on.
    async fn turn(&mut self, request: &ClientRequest) -> bool {
        let answer = self.send(request).await;
        let said = |name: &str| {
            let value = answer.headers().get(name);
            value
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let overhead = said("x-plimsoll-overhead-ms").parse().unwrap_or(0.0);
        self.unmet += usize::from(said("x-plimsoll-budget") == "exceeded");
        let status = answer.status().as_u16();
        let body = answer.bytes().await.unwrap_or_default();
        let outcome = self.client.hear(status, &body);
        self.complain(&outcome.violations);
        let mut sample = Sample {
            body: request.body.len(),
            overhead,
            resident: self.process.resident().0,
            ..Sample::default()
        };
        self.take(request.turn, &mut sample);
        self.report.turns.push(sample);
        if request.turn.is_multiple_of(500) {
            println!(
                "turn {}: {:.1} M tokens, body {:.1} MB, resident {} MiB",
                request.turn,
                self.report.tokens() as f64 / 1e6,
                request.body.len() as f64 / 1e6,
                sample.resident / 1024
            );
        }
        outcome.advanced
    }

    async fn send(&self, request: &ClientRequest) -> reqwest::Response {
        let mut post = self
            .http
            .post(chat(&self.process))
            .bearer_auth("sk-marathon")
            .header("content-type", "application/json")
            .body(request.body.clone());
        for (name, value) in &request.headers {
            post = post.header(name, value);
        }
        post.send().await.unwrap()
    }

    /// What the last request alone takes: the proxy begun anew on its store, which has served
    /// nothing else. What the whole conversation left in memory is the difference.
    async fn anew(&mut self) {
        let Some(request) = self.last.take() else {
            return;
        };
        self.process.restart(&self.http).await;
        let mut resident = Vec::with_capacity(AGAIN);
        for _ in 0..AGAIN {
            let answer = self.send(&request).await;
            assert!(answer.status().is_success(), "{answer:?}");
            answer.bytes().await.unwrap();
            resident.push(self.process.resident().0 / 1024);
        }
        assert!(self.provider.take().len() >= AGAIN, "nothing went up");
        resident.sort_unstable();
        println!(
            "the proxy begun anew, which served the last request {AGAIN} times and nothing else: {} MiB",
            resident.get(AGAIN / 2).copied().unwrap_or_default()
        );
    }

    /// Takes in what the provider received for a turn.
    fn take(&mut self, turn: usize, sample: &mut Sample) {
        let received = self.provider.take();
        for request in &received {
            if request.verdict != Verdict::Accepted {
                self.broken += 1;
                println!("refused in turn {turn}: {:?}", request.verdict);
            }
            if request.size > self.ceiling as usize {
                self.broken += 1;
                println!("{} tokens in turn {turn}", request.size);
            }
            sample.requests += 1;
            sample.tokens += request.size as u64;
            sample.cached += request.cached as u64;
            sample.peak = sample.peak.max(request.size);
            if let Some(before) = &self.before {
                let growth = audit::growth(&[before, request], &self.sizer);
                sample.breaks += growth.breaks.len();
            }
            self.before = Some(request.clone());
        }
        if turn.is_multiple_of(AUDIT) {
            let requests: Vec<&Received> = received.iter().collect();
            self.complain(&audit::always(&requests, &self.session));
        }
    }

    fn complain(&mut self, found: &[plimsoll_scripted::Violation]) {
        for violation in found {
            self.broken += 1;
            if self.broken <= 20 {
                println!("broken: {violation}");
            }
        }
    }

    async fn print(&self, begins: &[usize], user_tokens: (u64, u64), begun: Instant) {
        let report = &self.report;
        let turns = report.turns.len();
        let sessions = begins.iter().filter(|begin| **begin < turns).count();
        let body = report.turns.last().map_or(0, |turn| turn.body);
        let passes = self
            .process
            .metric(&self.http, "plimsoll_passes_total")
            .await;
        let open = self
            .process
            .metric(&self.http, "plimsoll_fail_open_total")
            .await;
        println!("\n{}", report.table());
        println!(
            "{sessions} sessions, {turns} turns, {} requests, {:.1} M tokens sent in {:.0} s; the last body {:.1} MiB",
            report.requests(),
            report.tokens() as f64 / 1e6,
            begun.elapsed().as_secs_f64(),
            body as f64 / 1024.0 / 1024.0
        );
        println!(
            "user text: {} tokens as recorded, {} as sent; tools {} tokens",
            user_tokens.0,
            user_tokens.1,
            self.session
                .recording
                .tools
                .as_deref()
                .map_or(0, |tools| self.sizer.text(tools))
        );
        println!(
            "largest request {} of {}; {} rules broken, {} budgets reported unmet, {open} failed open",
            report.peak(),
            self.ceiling,
            self.broken,
            self.unmet
        );
        println!(
            "{passes} passes, {} prefix breaks, cached share {:.4}",
            report.breaks(),
            report.cached_share()
        );
        for from in [0.1, 0.5] {
            let (least, most, slope) = report.memory(from);
            println!(
                "resident memory in the last {:.0} %: {least:.0} to {most:.0} MiB, ratio {:.2}, slope {slope:+.1} MiB per 1,000 turns",
                (1.0 - from) * 100.0,
                most / least
            );
        }
        let (descriptors, threads) = self.process.handles();
        println!(
            "highest ever: {} MiB; {descriptors} descriptors and {threads} threads at the end",
            self.process.resident().1 / 1024
        );
        let (ours, control) = report.probe_ratios();
        println!(
            "p50 added to a probe of {} bytes, last tenth against the first: {ours:.2}, by a proxy that serves probes only {control:.2}; the one over the other {:.2}",
            self.probe.bytes(),
            ours / control
        );
    }
}
