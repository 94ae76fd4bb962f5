//! Where log lines go and how they look: stderr, text or JSON. Owns the subscriber; never decides
//! what is logged.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Sets up logging for the process.
///
/// # Errors
/// If the level is no level, or logging was set up before.
pub fn start(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::builder()
        .parse(&log.level)
        .context("can't read log.level")?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("can't start logging: {error}"))
}
