//! `plimsoll run`: the proxy on a free port, an agent before it that is told where it is, and at the
//! agent's end what the session saved. Owns what each agent reads its address from; never changes a
//! file of the agent's.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

use super::logs::{self, say};
use super::serve;
use crate::config::{Config, Flags};
use crate::pipeline::App;

/// What a shell reports for a process that a signal ended, less the signal's number.
const SIGNALLED: i32 = 128;
/// Where Claude Code's requests go where nobody says otherwise.
const ANTHROPIC: &str = "https://api.anthropic.com/v1";

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Configuration file [default: config/plimsoll.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// What /v1 stands for [default: the Anthropic API for claude, else the OpenAI API].
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Data directory [default: ./data].
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// Ceiling of the context in tokens [default: 80000].
    #[arg(long, value_name = "TOKENS")]
    budget: Option<u32>,
    /// Log level [default: error, because the terminal is the agent's].
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// The agent and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs an agent; the exit code is the agent's own.
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
        command,
    } = args;
    let (program, rest) = command.split_first().context("name the agent to run")?;
    let named = config.is_some() || serve::variables().any(|(name, _)| name.contains("UPSTREAM"));
    let anthropic = || (is(program, "claude") && !named).then(|| ANTHROPIC.to_owned());
    let flags = Flags {
        config,
        listen: Some("127.0.0.1:0".to_owned()),
        admin: Some("127.0.0.1:0".to_owned()),
        upstream: upstream.or_else(anthropic),
        data,
        budget,
        log: Some(log.unwrap_or_else(|| "error".to_owned())),
    };
    let config = Config::load(&flags, serve::variables())?;
    let _logs = logs::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("can't start the runtime")?;
    let code = runtime.block_on(beside(config, program, rest));
    runtime.shutdown_background();
    code
}

/// Serves while the agent runs.
async fn beside(config: Config, program: &OsStr, rest: &[OsString]) -> anyhow::Result<ExitCode> {
    let signals = serve::signals()?;
    let (server, app) = serve::start(config).await?;
    let base = format!("http://{}", server.listen_addr()?);
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.run(stop.clone()));
    let child = command(program, rest, &base).spawn();
    let child = child.with_context(|| format!("can't run {}", program.display()))?;
    let ended = wait(child, signals).await;
    stop.cancel();
    serving.await.context("the server ended")?;
    serve::close(&app).await?;
    report(&app);
    ended
}

/// The agent's command, told where the proxy is in every way that one is known to read.
fn command(program: &OsStr, rest: &[OsString], base: &str) -> Command {
    let mut command = Command::new(program);
    let v1 = format!("{base}/v1");
    command
        .env("OPENAI_BASE_URL", &v1)
        .env("OPENAI_API_BASE", &v1)
        .env("ANTHROPIC_BASE_URL", base);
    if is(program, "codex") {
        // codex reads no variable; a setting on its command line wins over its file.
        command.arg("-c").arg(format!("openai_base_url={v1:?}"));
    }
    if is(program, "opencode") {
        let at = json!({"options": {"baseURL": v1}});
        let config = json!({"provider": {"openai": at, "anthropic": at}});
        command.env("OPENCODE_CONFIG_CONTENT", config.to_string());
    }
    command.args(rest);
    command
}

/// Whether a program is the one of this name, wherever it lies.
fn is(program: &OsStr, name: &str) -> bool {
    Path::new(program).file_stem() == Some(OsStr::new(name))
}

/// Waits for the agent. An interrupt from the keyboard reaches it too, and is its own to act on; a
/// request to terminate is handed on.
async fn wait(mut child: Child, signals: [Signal; 2]) -> anyhow::Result<ExitCode> {
    let [mut terminate, mut interrupt] = signals;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.context("can't wait for the agent")?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => child.start_kill().context("can't stop the agent")?,
        }
    };
    let signalled = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().or(signalled.map(|signal| SIGNALLED + signal));
    Ok(ExitCode::from(u8::try_from(code.unwrap_or(1)).unwrap_or(1)))
}

/// What the session came to, in one line on stderr, read from the proxy's own metrics.
fn report(app: &App) {
    let metrics = app.metrics_text();
    let sum = |name: &str, label: &str| -> f64 {
        let of = |line: &&str| line.starts_with(name) && line.contains(label);
        let values = metrics.lines().filter(of);
        let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.fold(0.0, |sum, value| sum + value)
    };
    let turns = sum("plimsoll_context_tokens_count", "stage=\"out\"");
    if turns == 0.0 {
        say("plimsoll: nothing was managed: the agent sent no request with tools through it");
        return;
    }
    let (asked, sent) = (
        sum("plimsoll_context_tokens_sum", "stage=\"in\""),
        sum("plimsoll_context_tokens_sum", "stage=\"out\""),
    );
    let (prompt, cached) = (
        sum("plimsoll_tokens_total", "type=\"input\""),
        sum("plimsoll_tokens_total", "type=\"cache_read\""),
    );
    let share = |part: f64, whole: f64| 100.0 * part / whole.max(1.0);
    let came_to = if sent <= asked {
        format!("{:.0} % saved", share(asked - sent, asked))
    } else {
        // A short session only pays for the tools that would save in a long one.
        format!("{:.0} more, for the hidden tools", sent - asked)
    };
    say(&format!(
        "plimsoll: {turns:.0} requests; {asked:.0} tokens asked for, {sent:.0} sent ({came_to}) in \
         {passes:.0} passes; {cached:.0} % of the prompts came from the provider's cache",
        passes = sum("plimsoll_passes_total", ""),
        cached = share(cached, prompt),
    ));
}
