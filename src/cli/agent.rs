//! `plimsoll run`: the proxy on a free port, an agent that is told its address, and at the agent's
//! end what the session saved. Owns how long an agent may take to end. Never changes a file of the
//! agent, nor of the directory in which it works.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_ingress::Server;
use plimsoll_proxy::pipeline::App;
use plimsoll_store::{StoreError, make_data_directory};
use tokio::process::Child;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agents::{Environment, launch, login};
use super::hello;
use super::logs::{self, say};
use super::pages;
use super::serve;
use super::signals::{self, ReceivedSignal};
use super::state::{self, DataPool};
use crate::config::{Backend, Config, Flags, duration, unread};

/// What a shell adds to the number of a signal that ended a process.
const SIGNALLED: i32 = 128;
/// The exit codes of a shell for a program that it can't start, and for one that is not there.
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
/// The variable that names the upstream.
const UPSTREAM: &str = "PLIMSOLL__UPSTREAM__BASE_URL";

/// The arguments of the command.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Configuration file [default: config/plimsoll.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// The URL that /v1 stands for [default: where the agent's requests would go: the Anthropic API
    /// for claude and for models of Anthropic's, ChatGPT for codex if it is logged in there, else the OpenAI API].
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Data directory [default: a free one below ~/.local/state/plimsoll/run].
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// The most tokens of a request, such as 60000 or 60k [default: 80000].
    #[arg(long, value_name = "TOKENS")]
    budget: Option<String>,
    /// Log level [default: error, because the terminal belongs to the agent].
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// How long the agent may take to end after a signal, before it is killed.
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = duration)]
    grace: Duration,
    /// The agent and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs an agent. The exit code is the agent's own.
///
/// # Errors
/// If the proxy or the agent can't be started.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let RunArgs {
        config,
        upstream,
        data,
        budget,
        log,
        grace,
        command,
    } = args;
    let (program, rest) = command.split_first().context("name the agent to run")?;
    let mut variables = serve::variables();
    let chosen = config.is_some() || variables.any(|(name, _)| name == UPSTREAM);
    let environment = Environment::process();
    let own = || (!chosen).then(|| launch::upstream(program, rest, &environment))?;
    let pool = DataPool::of(&environment);
    let flags = Flags {
        config,
        fallback_data: pool.as_ref().map(|pool| pool.path().to_owned()),
        listen: Some("127.0.0.1:0".to_owned()),
        admin: Some("127.0.0.1:0".to_owned()),
        upstream: upstream.or_else(own),
        data,
        budget,
        log: Some(log.unwrap_or_else(|| "error".to_owned())),
    };
    pages::huge(false);
    let mut config = Config::load(&flags, serve::variables())?;
    if config.store.backend == Backend::Sled && config.store.path.as_os_str().is_empty() {
        // Nothing says where the user's state is kept, and the agent's working directory is not the
        // place for it.
        config.store.backend = Backend::Memory;
    }
    let _logs = logs::start(&config.log)?;
    for note in unread(serve::variables()) {
        say(&format!("plimsoll: {note}"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("can't start the runtime")?;
    let code = runtime.block_on(beside(config, pool, grace, program, rest, &environment));
    runtime.shutdown_background();
    code
}

/// Serves while the agent runs.
async fn beside(
    config: Config,
    pool: Option<DataPool>,
    grace: Duration,
    program: &OsStr,
    rest: &[OsString],
    environment: &Environment,
) -> anyhow::Result<ExitCode> {
    // Signals are caught before anything starts, so that none ends the proxy alone.
    let mut heard = signals::hear()?;
    let upstream = config.upstream.base_url.clone();
    let is_heard = hello::is_heard(&config.log);
    let (server, app) = start(config, pool).await?;
    let base = format!("http://{}", server.listen_addr()?);
    if is_heard {
        let program = program.to_string_lossy();
        hello::running(&program, &base, upstream.as_str(), server.admin_addr()?);
    }
    say(&format!(
        "plimsoll: console at http://{}",
        server.admin_addr()?
    ));
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.run(stop.clone()));
    let launch = launch::launch(program, rest, &base, environment);
    let mut launch = launch.context("can't write what pi is given")?;
    let token = login::note(program, rest, environment, upstream.as_str());
    for note in launch.note.iter().chain(&token) {
        say(&format!("plimsoll: {note}"));
    }
    // The agent's memory is its own affair.
    pages::huge(true);
    let child = launch.command.spawn();
    pages::huge(false);
    let ended = match child {
        Ok(child) => wait(child, &mut heard, grace).await,
        Err(error) => Ok(not_run(program, &error)),
    };
    stop.cancel();
    tokio::select! {
        served = serving => drop(served.context("the server ended")?),
        // Processes that the agent left behind may still talk. Nobody has to wait for them.
        () = asked_to_end(&mut heard) => {}
    }
    serve::close(&app).await?;
    report(&app);
    ended
}

/// Starts the proxy in the configured data directory, or else in a free one of the pool. If none is
/// free or can be written, the records are kept in memory, because the run matters more than its
/// records.
async fn start(mut config: Config, pool: Option<DataPool>) -> anyhow::Result<(Server, Arc<App>)> {
    // Gateways call a server that stays.
    config.compress.listen = None;
    let in_pool = pool.filter(|pool| config.store.path == pool.path());
    let Some(pool) = in_pool.filter(|_| config.store.backend == Backend::Sled) else {
        return serve::start(config).await;
    };
    let from = std::env::current_dir().unwrap_or_default();
    let mut why = "all its data directories are in use".to_owned();
    for place in pool.places(&from) {
        config.store.path.clone_from(&place);
        let started = match make_data_directory(&place) {
            Ok(()) => serve::start(config.clone()).await,
            Err(error) => Err(error.into()),
        };
        match started {
            Ok(started) => {
                // Without this note, the next run from here at worst takes another directory.
                let _unnoted = state::note(&place, &from);
                return Ok(started);
            }
            Err(error) if is_in_use(&error) => {}
            Err(error) => {
                why = format!("{error:#}");
                break;
            }
        }
    }
    config.store.backend = Backend::Memory;
    let started = serve::start(config).await?;
    say(&format!(
        "plimsoll: what is recorded of this session is kept in memory only: {why} ({}); name a directory by --data",
        pool.path().display()
    ));
    Ok(started)
}

fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(StoreError::Locked { .. }))
}

/// Says why an agent did not start, and gives the exit code of a shell for that.
fn not_run(program: &OsStr, error: &std::io::Error) -> ExitCode {
    let (code, why) = match error.kind() {
        ErrorKind::NotFound => (
            NOT_FOUND,
            "there is no such program; is it installed, and on the search path?".to_owned(),
        ),
        _ => (NOT_RUN, error.to_string()),
    };
    say(&format!("plimsoll: can't run {}: {why}", program.display()));
    ExitCode::from(code)
}

/// Waits for the agent and passes signals on to it. After the first signal that asks for an end,
/// the agent has its grace time, and then it is killed.
async fn wait(
    mut child: Child,
    heard: &mut Receiver<ReceivedSignal>,
    grace: Duration,
) -> anyhow::Result<ExitCode> {
    let mut deadline = None;
    let status = loop {
        let over = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = child.wait() => break status.context("can't wait for the agent")?,
            Some(heard) = heard.recv() => {
                // The terminal has sent its signals to the agent already. A second one could end it
                // at once.
                if heard.is_to_hand_on() {
                    heard.hand_on(child.id());
                }
                if heard.ends() && deadline.is_none() {
                    deadline = Some(Instant::now() + grace);
                }
            }
            () = over => {
                // The grace time is over.
                child.start_kill().context("can't end the agent")?;
                break child.wait().await.context("can't wait for the agent")?;
            }
        }
    };
    let signalled = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().or(signalled.map(|signal| SIGNALLED + signal));
    Ok(ExitCode::from(u8::try_from(code.unwrap_or(1)).unwrap_or(1)))
}

/// Waits for a signal that asks for an end.
async fn asked_to_end(heard: &mut Receiver<ReceivedSignal>) {
    while let Some(next) = heard.recv().await {
        if next.ends() {
            return;
        }
    }
    std::future::pending().await
}

/// Prints what the session cost to stderr, read from the proxy's own metrics.
fn report(app: &App) {
    for line in super::closing::lines(&app.metrics_text()) {
        say(&format!("plimsoll: {line}"));
    }
}
