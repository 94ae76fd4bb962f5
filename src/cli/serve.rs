//! `plimsoll serve`: reads the configuration, wires the parts, serves, and stops in good order.
//! Owns the wiring and the signals; never touches a request.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{logs, tenant_key, wire};
use crate::config::{Config, ENV_PREFIX, Flags};
use crate::ingress::{Drained, Edge, Probes, Server};
use crate::pipeline::App;

/// How long streams that were cut may take to record what they handed out.
const LAST_RECORDS: Duration = Duration::from_secs(5);
/// What a shell reports for a process that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Serves until a signal; the exit code is 0 after a drain, also one that was cut short.
///
/// # Errors
/// If the configuration is wrong or something can't be set up.
pub fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    // What the process writes, the store's engine included, is the owner's from the first byte.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let config = Config::load(flags, variables())?;
    logs::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("can't start the runtime")?;
    runtime.block_on(serve(config))?;
    // What still runs off the async workers must not hold up the exit.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Our variables. Names or values that are no UTF-8 become text that no setting accepts.
pub(super) fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(move |(name, value)| (text(name), text(value)))
        .filter(|(name, _)| name.starts_with(ENV_PREFIX))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    // Installed before anything listens, so that no signal finds the default action.
    tokio::spawn(watch_signals(signals()?, stop.clone()));
    let base_url = config.upstream.base_url.clone();
    let (server, app) = start(config).await?;
    tracing::info!(
        listen = %server.listen_addr()?,
        admin = %server.admin_addr()?,
        upstream = base_url.as_str(),
        "serving"
    );
    match server.run(stop).await {
        Drained::Finished => tracing::info!("stopped, all requests finished"),
        Drained::Cut(open) => {
            tracing::warn!(open, "stopped at the deadline, open requests were cut")
        }
    }
    close(&app).await
}

/// Wires the parts and listens.
///
/// # Errors
/// If something can't be set up.
pub(super) async fn start(config: Config) -> anyhow::Result<(Server, Arc<App>)> {
    let tenant = tenant_key::obtain(&config.tenant, &config.store)?;
    let app = wire::app_keeping(&config, tenant.keepsake)?;
    let edge = Edge::new(config.server, Arc::clone(&app), tenant.key);
    let probes = Probes {
        metrics: {
            let app = Arc::clone(&app);
            Arc::new(move || app.metrics_text())
        },
        ready: {
            let app = Arc::clone(&app);
            Arc::new(move || wire::readiness(&app.store))
        },
    };
    Ok((Server::bind(edge, probes).await?, app))
}

/// Waits for the last records and makes them durable.
///
/// # Errors
/// If the store's thread is gone.
pub(super) async fn close(app: &Arc<App>) -> anyhow::Result<()> {
    // Streams that were cut still record what they handed out.
    app.streams.close();
    if tokio::time::timeout(LAST_RECORDS, app.streams.wait())
        .await
        .is_err()
    {
        tracing::warn!("stopped before every cut stream was recorded");
    }
    // What was handed out is made durable before the process ends.
    let store = Arc::clone(&app.store);
    let closed = tokio::task::spawn_blocking(move || store.close()).await;
    if let Err(error) = closed.context("the store's thread ended")? {
        tracing::warn!(%error, "the store was not closed cleanly; the next start takes longer");
    }
    Ok(())
}

/// The signals that end a command, in the order terminate, interrupt.
///
/// # Errors
/// If the system does not let them be watched.
pub(super) fn signals() -> anyhow::Result<[Signal; 2]> {
    let install = |kind| signal(kind).context("can't watch for signals");
    Ok([
        install(SignalKind::terminate())?,
        install(SignalKind::interrupt())?,
    ])
}

/// The first signal drains; the second ends the process at once.
async fn watch_signals([mut terminate, mut interrupt]: [Signal; 2], stop: CancellationToken) {
    let mut next = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    next().await;
    tracing::info!("draining; a second signal ends the process at once");
    stop.cancel();
    next().await;
    std::process::exit(INTERRUPTED);
}
