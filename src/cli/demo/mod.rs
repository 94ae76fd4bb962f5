//! `plimsoll demo`: a recorded session through the real proxy, over real HTTP, in front of a
//! scripted provider, without a key or a network. Owns the order of the play and the exit code.
//! Never computes a figure: `measure` does.

mod agent;
mod measure;
mod plot;
mod screen;
mod session;
mod stage;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_scripted::size::{CountFn, MESSAGE_OVERHEAD, Sizer};
use plimsoll_tokens::{Counter, Encoding, Models};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::closing::MetricsText;
use super::health::client;
use agent::{Agent, MODEL};
use measure::{DemoMeter, Figures, TurnFacts};
use screen::{Scene, Screen};
use session::{Cue, Session};
use stage::DemoStage;

/// How long a run takes if somebody watches. Otherwise it is as fast as possible.
const WATCHED_RUN: Duration = Duration::from_secs(18);

/// The exit codes of a shell for a process that SIGINT or SIGTERM ended.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;

/// The arguments of the command.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// The most tokens of a request.
    #[arg(long, value_name = "TOKENS", default_value_t = 40_000,
          value_parser = plimsoll_core::turn::sizes::ceiling)]
    budget: u32,
    /// Also write what was measured to a file, as JSON. The README's pictures are drawn from it.
    #[arg(long, value_name = "FILE", hide = true)]
    figures: Option<PathBuf>,
    /// Stop after this many turns.
    #[arg(long, value_name = "TURNS", hide = true)]
    turns: Option<usize>,
}

/// Plays the session. The exit code is 0 only if every promise was kept.
///
/// # Errors
/// If a part can't be started, or a request gets no answer.
pub fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("can't start the runtime")?;
    let code = runtime.block_on(demo(args));
    runtime.shutdown_background();
    code
}

async fn demo(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let session = Arc::new(Session::bundled()?);
    let cue = Arc::new(Cue::default());
    let counter = Counter::load();
    let count: CountFn = Arc::new(move |text: &str| {
        usize::try_from(counter.count(Encoding::O200k, text)).unwrap_or(usize::MAX)
    });
    let script = session.script(&cue, &count);
    let stage = DemoStage::start(script, Arc::clone(&count), args.budget).await?;
    let play = Play {
        args,
        session: &session,
        cue: &cue,
        count: &count,
        stage: &stage,
    };
    // The screen belongs to the play, so that an interrupt also restores the terminal.
    let code = tokio::select! {
        played = play.run() => played,
        code = interrupted() => code,
    };
    let stopped = stage.stop().await;
    let code = code?;
    stopped?;
    Ok(code)
}

/// Waits for a signal that ends the demo.
async fn interrupted() -> anyhow::Result<ExitCode> {
    let install = |kind| signal(kind).context("can't watch for signals");
    let mut interrupt = install(SignalKind::interrupt())?;
    let mut terminate = install(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => Ok(ExitCode::from(INTERRUPTED)),
        _ = terminate.recv() => Ok(ExitCode::from(TERMINATED)),
    }
}

/// Everything that a run needs.
struct Play<'a> {
    args: &'a DemoArgs,
    session: &'a Session,
    cue: &'a Cue,
    count: &'a CountFn,
    stage: &'a DemoStage,
}

impl Play<'_> {
    async fn run(&self) -> anyhow::Result<ExitCode> {
        let scene = self.scene();
        let mut screen = Screen::open(&scene);
        let prices = Models::builtin().family(MODEL).prices;
        let mut meter = DemoMeter::new(self.args.budget, prices, Arc::clone(self.count));
        let mut agent = Agent::new(self.stage.proxy, &self.session.recording)?;
        let begun = Instant::now();
        for turn in 0..scene.turns {
            self.turn(turn, &mut agent, &mut meter).await?;
            screen.show(&scene, meter.figures())?;
            // A watched run is spread over a fixed time, so that a viewer can follow it.
            if screen.is_live() {
                let due = WATCHED_RUN.mul_f64((turn + 1) as f64 / scene.turns as f64);
                tokio::time::sleep_until(begun + due).await;
            }
        }
        let metrics = self.metrics().await;
        let shown = metrics.as_deref().map(MetricsText);
        // The proxy's ledger must agree with what the provider counted.
        if let Some(shown) = &shown {
            meter.ledger(shown);
        }
        let figures = meter.figures();
        let facts = table::TableFacts {
            ceiling: scene.ceiling,
            episodes: self.session.episodes(scene.turns),
            passes: shown.as_ref().map(passes),
            parts: shown.as_ref().map(parts),
            needed: shown.as_ref().map(needed),
        };
        screen.close(&table::table(figures, &facts))?;
        if let Some(file) = &self.args.figures {
            let named = || format!("can't write {}", file.display());
            let figures = serde_json::to_vec(figures).with_context(named)?;
            std::fs::write(file, figures).with_context(named)?;
        }
        Ok(verdict(figures))
    }

    async fn turn(
        &self,
        turn: usize,
        agent: &mut Agent,
        meter: &mut DemoMeter,
    ) -> anyhow::Result<()> {
        let recorded = self.session.recording.turns.get(turn);
        let adds = recorded.map_or(&[][..], |turn| turn.before.as_slice());
        self.cue.begin(turn);
        let told = agent.turn(adds).await;
        let told = told.with_context(|| format!("turn {}", turn + 1))?;
        let mut received = self.stage.provider.take();
        // Requests are noted when they end, and a later one may end first.
        received.sort_by_key(|request| request.index);
        meter.turn(&TurnFacts {
            told: &told,
            received: &received,
            expected: &self.session.visible(turn),
            hops: self.session.hops(turn),
            output: self.cue.output(),
        });
        Ok(())
    }

    fn scene(&self) -> Scene {
        let all = &self.session.recording.turns;
        let turns = self.args.turns.unwrap_or(all.len()).clamp(1, all.len());
        let sizer = Sizer::new(Arc::clone(self.count));
        // This is near enough to choose a scale.
        let sizes = all.iter().take(turns).map(|turn| {
            let before = turn
                .before
                .iter()
                .map(|message| sizer.message(&message.raw));
            before.sum::<usize>() + session::recorded_output(&turn.answer, self.count)
        });
        Scene {
            turns,
            ceiling: usize::try_from(self.args.budget).unwrap_or(usize::MAX),
            top: sizes.map(|size| size + MESSAGE_OVERHEAD).sum(),
        }
    }

    /// The proxy's metrics, read as a monitoring system would.
    async fn metrics(&self) -> Option<String> {
        let url = format!("http://{}/metrics", self.stage.admin);
        let response = client().ok()?.get(url).send().await.ok()?;
        response.text().await.ok()
    }
}

/// How many passes the proxy counted.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a counter of passes is a small whole number"
)]
fn passes(shown: &MetricsText<'_>) -> usize {
    shown.sum("passes_total", "") as usize
}

/// The strings that calls used of what had left their view: those that were held and those that were missed.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counters of strings are whole numbers"
)]
fn needed(shown: &MetricsText<'_>) -> [usize; 2] {
    ["in_view", "missed"].map(|how| shown.sum("needed_total", &format!("how=\"{how}\"")) as usize)
}

/// What was saved in dollars, by part.
fn parts(shown: &MetricsText<'_>) -> [f64; 3] {
    ["evicted", "rewritten", "hidden"]
        .map(|part| shown.sum("saved_usd", &format!("part=\"{part}\"")))
}

fn verdict(figures: &Figures) -> ExitCode {
    if figures.faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
