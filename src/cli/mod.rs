//! The command line: what can be typed, and what each command does. Owns arguments, exit codes and
//! what is printed. Never serves a request itself.

mod agent;
mod agents;
mod check;
pub mod closing;
mod demo;
mod erase;
mod export;
mod health;
mod hello;
mod help;
mod init;
mod lab;
mod lines;
mod live;
mod logs;
mod output;
mod pages;
mod progress;
mod replay;
mod serve;
mod sessions;
mod setup;
mod shell;
mod signals;
mod split;
mod state;
mod store;
mod tenant_key;
mod tune;
mod views;
pub mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Flags;
pub use help::typed;
pub use logs::say;

/// The load line for an agent's context window: an OpenAI-compatible reverse proxy.
#[derive(Debug, Parser)]
#[command(version = env!("PLIMSOLL_VERSION"), about)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve agents until a signal comes.
    Serve(ServeArgs),
    /// Run an agent through the proxy, and report at its end what was saved.
    Run(agent::RunArgs),
    /// Write a configuration file from what is on this machine.
    Init(init::InitArgs),
    /// Lead an agent to the proxy by its own settings, or take that back.
    Setup(setup::SetupArgs),
    /// Play a recorded session through the proxy; no key, no network.
    Demo(demo::DemoArgs),
    /// Compare policies on recorded sessions; no key, no network.
    Replay(replay::ReplayArgs),
    /// Find a budget and a floor for recorded sessions; no key, no network.
    Tune(tune::TuneArgs),
    /// List recorded sessions, or write one as JSONL.
    Export(export::ExportArgs),
    /// Ask the server on this machine whether it is ready.
    Health(health::HealthArgs),
    /// List or follow the sessions of the server on this machine.
    Sessions(sessions::SessionsArgs),
    /// Compare the sessions under a profile that is tried with those beside them.
    Split(split::SplitArgs),
    /// Look after a store that no server uses.
    Store(store::StoreArgs),
    /// Check a configuration file and the variables, and report every mistake with its place.
    Check(check::CheckArgs),
    /// Print the completions of a shell.
    Completions(shell::CompletionsArgs),
    /// Write the pages for `man`.
    Man(shell::ManArgs),
}

/// Flags win over PLIMSOLL__SECTION__KEY variables, which win over the file.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration file [default: config/plimsoll.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address for agents [default: 127.0.0.1:8787].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The address for the console, /metrics, /livez and /readyz [default: 127.0.0.1:9187].
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// The URL that /v1 stands for [default: the OpenAI API].
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Data directory [default: ./data if a store lies there, else ~/.local/state/plimsoll/serve].
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// The most tokens of a request, such as 60000 or 60k [default: 80000].
    #[arg(long, value_name = "TOKENS")]
    budget: Option<String>,
    /// Log level, or directives like warn,plimsoll=debug [default: info].
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

impl From<ServeArgs> for Flags {
    fn from(args: ServeArgs) -> Self {
        let ServeArgs {
            config,
            listen,
            admin,
            upstream,
            data,
            budget,
            log,
        } = args;
        Self {
            config,
            listen,
            admin,
            upstream,
            data,
            budget,
            log,
            fallback_data: Some(state::of_server(&agents::Environment::process())),
        }
    }
}

/// Runs the command and returns its exit code.
///
/// # Errors
/// Whatever stops a command before it has begun. `main` prints it.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => serve::run(&args.into()),
        Command::Run(args) => agent::run(args),
        Command::Init(args) => init::run(&args),
        Command::Setup(args) => setup::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Sessions(args) => sessions::run(&args),
        Command::Split(args) => split::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Check(args) => check::run(&args, &mut std::io::stdout().lock()),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
    }
}
