//! The parts of the demo in one process: a scripted provider, and the proxy in front of it on a
//! temporary store. Owns their start and their end. Never looks at what goes through them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_ingress::{Drained, Edge, Server};
use plimsoll_proxy::pipeline::App;
use plimsoll_proxy::upstream::BaseUrl;
use plimsoll_scripted::size::CountFn;
use plimsoll_scripted::{Options, Provider, Script};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::{tenant_key, wire};
use crate::config::{Backend, Config};

/// How long a request may go on after the demo was interrupted.
const DRAIN: Duration = Duration::from_secs(1);

/// A running proxy in front of a running provider.
pub struct DemoStage {
    /// The provider. What it received is what was really sent.
    pub provider: Provider,
    /// The address for the agent.
    pub proxy: SocketAddr,
    /// The address of the proxy's metrics.
    pub admin: SocketAddr,
    app: Arc<App>,
    stop: CancellationToken,
    serving: JoinHandle<Drained>,
    /// Removed together with the stage.
    directory: TempDir,
}

impl DemoStage {
    /// Starts both on free ports of the loopback interface.
    ///
    /// # Errors
    /// If a port, the temporary directory or the store is not available.
    pub async fn start(script: Script, count: CountFn, ceiling: u32) -> anyhow::Result<Self> {
        let options = Options {
            count,
            ..Options::default()
        };
        // The provider comes first, because the proxy needs its address.
        let provider = Provider::start(script, options).await;
        let provider = provider.context("can't start the scripted provider")?;
        let directory = tempfile::tempdir().context("can't make a temporary directory")?;
        let config = config(&provider, &directory, ceiling)?;
        let key = tenant_key::obtain(&config.tenant, &config.store)?.key;
        let app = wire::app(&config)?;
        let edge = Edge::new(config.server, Arc::clone(&app), key);
        let server = Server::bind(edge, wire::probes(&app, None)).await?;
        let (proxy, admin) = (server.listen_addr()?, server.admin_addr()?);
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.run(stop.clone()));
        Ok(Self {
            provider,
            proxy,
            admin,
            app,
            stop,
            serving,
            directory,
        })
    }

    /// Stops both in good order and removes the store.
    ///
    /// # Errors
    /// If the store can't be closed, or its directory can't be removed.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        // The proxy was told to stop before the provider, so that it does not see a broken
        // upstream.
        self.provider.stop();
        self.serving.await.context("the proxy's task ended")?;
        let app = self.app;
        let closed = tokio::task::spawn_blocking(move || app.store.close()).await;
        closed.context("the store's thread ended")??;
        let removed = self.directory.close();
        removed.context("can't remove the temporary directory")
    }
}

/// The defaults except for addresses, the directory and the budget, so that the demo shows what `serve`
/// does.
fn config(provider: &Provider, directory: &TempDir, ceiling: u32) -> anyhow::Result<Config> {
    let mut config = Config::default();
    config.server.listen = (Ipv4Addr::LOCALHOST, 0).into();
    config.server.admin = (Ipv4Addr::LOCALHOST, 0).into();
    config.server.drain = DRAIN;
    config.upstream.base_url = BaseUrl::parse(&provider.base_url)?;
    // The scripted provider has no list of models.
    config.upstream.ask_models = false;
    config.store.backend = Backend::Sled;
    config.store.path = directory.path().join("data");
    config.budget.ceiling = ceiling;
    Ok(config)
}
