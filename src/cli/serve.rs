//! `plimsoll serve`: reads the configuration, wires the parts, serves, and stops in good order.
//! Owns the wiring and the signals; never touches a request.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{logs, tenant_key, wire};
use crate::config::{Config, Flags, is_ours, unread};
use crate::ingress::{Drained, Edge, Probes, Server, descriptors};
use crate::pipeline::App;
use crate::upstream::BaseUrl;

/// How long streams that were cut may take to record what they handed out.
const LAST_RECORDS: Duration = Duration::from_secs(5);
/// How long the upstream's name may take to be looked up before it is believed to be another's.
const LOOK_UP: Duration = Duration::from_secs(2);
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
    let _logs = logs::start(&config.log)?;
    // Before anything is opened: how many connections there may be follows from it.
    if let Err(error) = descriptors::raise() {
        tracing::warn!(%error, "the limit of open files can't be raised; it stays as it is");
    }
    for note in unread(variables()) {
        tracing::warn!("{note}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("can't start the runtime")?;
    runtime.block_on(serve(config))?;
    // What still runs off the async workers must not hold up the exit.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Variables that are ours, or look as if they were meant to be. Names or values that are no UTF-8 become text that no setting accepts.
pub(super) fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(move |(name, value)| (text(name), text(value)))
        .filter(|(name, _)| is_ours(name))
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
    let upstream = config.upstream.base_url;
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
    let server = Server::bind(edge, probes).await?;
    for own in [server.listen_addr()?, server.admin_addr()?] {
        anyhow::ensure!(
            !is_own(&upstream, own).await,
            "upstream.base_url is {}, which is the proxy's own address {own}; give the provider's by --upstream",
            upstream.as_str(),
        );
    }
    Ok((server, app))
}

/// Whether the upstream is an address that was just bound. Its host is looked up where the ports are
/// the same, and an address that this machine can bind is its own.
async fn is_own(upstream: &BaseUrl, own: SocketAddr) -> bool {
    let Some((host, port)) = upstream.host_and_port() else {
        return false;
    };
    if port != own.port() {
        return false;
    }
    let look_up = tokio::net::lookup_host((host.as_str(), port));
    // A name that can't be looked up now is the first request's trouble, not this check's.
    let Ok(Ok(mut found)) = tokio::time::timeout(LOOK_UP, look_up).await else {
        return false;
    };
    let is_here = |ip: IpAddr| std::net::UdpSocket::bind((ip, 0)).is_ok();
    found.any(|found| {
        let ip = found.ip();
        ip == own.ip() || own.ip().is_unspecified() && is_here(ip)
    })
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

/// What a server hears, in the order terminate, interrupt, hang up.
///
/// # Errors
/// If the system does not let them be watched.
fn signals() -> anyhow::Result<[Signal; 3]> {
    let install = |kind| signal(kind).context("can't watch for signals");
    Ok([
        install(SignalKind::terminate())?,
        install(SignalKind::interrupt())?,
        install(SignalKind::hangup())?,
    ])
}

/// The first signal drains; the second ends the process at once. A terminal that closes is neither.
async fn watch_signals(signals: [Signal; 3], stop: CancellationToken) {
    let [mut terminate, mut interrupt, mut hang_up] = signals;
    let mut next = async || {
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hang_up.recv() => {
                    tracing::info!("a hang-up changes nothing: settings are read at the start alone");
                }
            }
        }
    };
    next().await;
    stop.cancel();
    tracing::info!("draining; a second signal ends the process at once");
    next().await;
    std::process::exit(INTERRUPTED);
}
