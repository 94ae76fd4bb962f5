//! `plimsoll serve`: reads the configuration, wires the parts, serves, and stops in good order.
//! Owns the start, the signals and the end. Never touches a request.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_ingress::{Aside, Drained, Edge, Server, descriptors};
use plimsoll_proxy::pipeline::App;
use plimsoll_proxy::upstream::BaseUrl;
use plimsoll_store::{StoreError, holder};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{hello, logs, pages, state, tenant_key, wire};
use crate::config::{Backend, Config, Flags, StoreSection, is_ours, unread};

/// How long streams that were cut may take to record what they sent.
const LAST_RECORDS: Duration = Duration::from_secs(5);
/// How long the look-up of the upstream's name may take. After that it counts as another machine's.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// The exit code of a shell for a process that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Serves until a signal. The exit code is 0 after draining, even if that was cut short.
///
/// # Errors
/// If the configuration is wrong or a part can't be set up.
pub fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    // Everything that the process writes, even by the store's engine, must be private from the
    // first byte.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    pages::huge(false);
    let config = Config::load(flags, variables())?;
    let _logs = logs::start(&config.log)?;
    // This comes before anything is opened, because the number of connections depends on it.
    if let Err(error) = descriptors::raise() {
        tracing::warn!(%error, "the limit of open files can't be raised; it stays as it is");
    }
    for note in unread(variables()) {
        tracing::warn!("{note}");
    }
    if config.store.keep_evicted && config.store.seal_key.is_none() {
        tracing::warn!(
            "store.keep_evicted: what is evicted lies in the store in the clear; set PLIMSOLL__STORE__SEAL_KEY to seal it"
        );
    }
    if state::beside().is_some_and(|beside| beside == config.store.path) {
        tracing::info!(
            "the store in ./data is used, because one lies there; without it, servers keep theirs in ~/.local/state/plimsoll/serve"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("can't start the runtime")?;
    runtime.block_on(serve(config))?;
    // What still runs off the async workers must not delay the exit.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// The variables that are settings or look like it. A name or value that is not UTF-8 becomes a
/// text that no setting accepts.
pub(super) fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(move |(name, value)| (text(name), text(value)))
        .filter(|(name, _)| is_ours(name))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    // Installed before anything listens, so that no signal meets the default action.
    tokio::spawn(watch_signals(signals()?, stop.clone()));
    let base_url = config.upstream.base_url.clone();
    let is_heard = hello::is_heard(&config.log);
    let store = place(&config.store);
    let (server, app) = start(config).await.map_err(held_by_another)?;
    let console = format!("http://{}", server.admin_addr()?);
    if let Some(address) = server.aside_addr() {
        tracing::info!(compress = %address, "other gateways may call");
    }
    tracing::info!(
        listen = %server.listen_addr()?,
        admin = %server.admin_addr()?,
        %console,
        upstream = base_url.as_str(),
        store,
        "serving"
    );
    if is_heard {
        hello::serving(server.listen_addr()?, server.admin_addr()?, &store);
    }
    match server.run(stop).await {
        Drained::Finished => tracing::info!("stopped, all requests finished"),
        Drained::Cut(open) => {
            tracing::warn!(open, "stopped at the deadline, open requests were cut")
        }
    }
    close(&app).await
}

/// Where a store is, for people.
fn place(store: &StoreSection) -> String {
    match store.backend {
        Backend::Sled => store.path.display().to_string(),
        Backend::Memory => "memory".to_owned(),
        Backend::Redis => "redis".to_owned(),
    }
}

/// Says of a store that another process holds what can be done about it.
fn held_by_another(error: anyhow::Error) -> anyhow::Error {
    let Some(StoreError::Locked { dir, pid }) = error.downcast_ref() else {
        return error;
    };
    let stop = pid.map_or_else(String::new, |pid| format!(" (kill {pid})"));
    anyhow::anyhow!(
        "{} holds the store in {}: stop it{stop}, or start this one beside it: plimsoll serve --data DIRECTORY --listen 127.0.0.1:8788 --admin 127.0.0.1:9188",
        holder(*pid),
        dir.display(),
    )
}

/// Wires the parts and listens.
///
/// # Errors
/// If a part can't be set up.
pub(super) async fn start(mut config: Config) -> anyhow::Result<(Server, Arc<App>)> {
    // The key comes before the store, because the store keeps its file.
    let tenant = tenant_key::obtain(&config.tenant, &config.store)?;
    let memory = config.compress.memory(config.server.cache_memory);
    config.server.cache_memory -= memory;
    let app = wire::app_under(&config, &tenant)?;
    let aside = match config.compress.listen {
        Some(listen) => {
            let router = wire::compress(&app, &config, tenant.key, memory);
            Some(Aside::bind("compress", listen, "compress.listen", router).await?)
        }
        None => None,
    };
    let upstream = config.upstream.base_url;
    let snapshots = config.store.snapshots;
    let edge = Edge::new(config.server, Arc::clone(&app), tenant.key);
    let server = Server::bind(edge, wire::probes(&app, snapshots)).await?;
    let server = server.with(aside);
    // This can only be checked after binding, because the port may have been 0.
    let own = [server.listen_addr()?, server.admin_addr()?];
    for own in own.into_iter().chain(server.aside_addr()) {
        anyhow::ensure!(
            !is_own(&upstream, own).await,
            "upstream.base_url is {}, which is the proxy's own address {own}; give the provider's by --upstream",
            upstream.as_str(),
        );
    }
    Ok((server, app))
}

/// Whether the upstream is an address that was just bound. If the ports are equal, the host is
/// looked up. An address that this machine can bind is its own.
async fn is_own(upstream: &BaseUrl, own: SocketAddr) -> bool {
    let Some((host, port)) = upstream.host_and_port() else {
        return false;
    };
    if port != own.port() {
        return false;
    }
    let look_up = tokio::net::lookup_host((host.as_str(), port));
    // A name that can't be looked up now is for the first request to report.
    let Ok(Ok(mut found)) = tokio::time::timeout(LOOKUP_TIMEOUT, look_up).await else {
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
    // Streams that were cut still record what they sent.
    app.streams.close();
    if tokio::time::timeout(LAST_RECORDS, app.streams.wait())
        .await
        .is_err()
    {
        tracing::warn!("stopped before every cut stream was recorded");
    }
    // Everything that was handed over is made durable before the process ends.
    let store = Arc::clone(&app.store);
    let closed = tokio::task::spawn_blocking(move || store.close()).await;
    if let Err(error) = closed.context("the store's thread ended")? {
        tracing::warn!(%error, "the store was not closed cleanly; the next start takes longer");
    }
    Ok(())
}

/// The signals of a server: terminate, interrupt, hang up.
///
/// # Errors
/// If the system does not allow watching them.
fn signals() -> anyhow::Result<[Signal; 3]> {
    let install = |kind| signal(kind).context("can't watch for signals");
    Ok([
        install(SignalKind::terminate())?,
        install(SignalKind::interrupt())?,
        install(SignalKind::hangup())?,
    ])
}

/// The first signal starts draining, and the second ends the process at once. A hang-up does
/// neither.
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
    // Whoever asks twice wants an end now, even if streams are cut.
    std::process::exit(INTERRUPTED);
}
