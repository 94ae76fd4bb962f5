//! `plimsoll health`: asks a serving process whether it is ready. Owns its flags and its exit code.
//! Never starts anything.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::Method;
use plimsoll_ingress::AdminToken;
use reqwest::RequestBuilder;

use super::serve;
use crate::config::{Config, Flags};

/// How long an answer is waited for. Whoever asks regularly should wait longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Prints what /readyz says. Ends with 0 if the process is ready to serve, and with 1 if it is not, is
/// draining or does not answer.
#[derive(Debug, Args)]
pub struct HealthArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Which process is asked.
#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// The admin address of the process [default: the configured one].
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// Configuration file [default: config/plimsoll.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl AdminArgs {
    /// Its admin port, for requests that prove what they may.
    ///
    /// # Errors
    /// As [`AdminPort::proving`].
    pub(super) fn port(&self) -> anyhow::Result<AdminPort> {
        AdminPort::proving(self.config.clone(), self.admin.clone())
    }
}

/// Asks the process on this machine.
///
/// # Errors
/// If the configuration can't be read, or nobody answers.
pub fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let port = AdminPort::of(args.admin.config.clone(), args.admin.admin.clone())?;
    let url = port.url("/readyz");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let answer = runtime.block_on(ask(&url));
    // What the system says of the connection tells nobody more.
    let (status, text) = answer.map_err(|_| silent(&url))?;
    write!(std::io::stdout().lock(), "{text}")?;
    Ok(if status.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Says of a server that does not answer what to do.
pub(super) fn silent(url: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{url} does not answer: start `plimsoll serve`, or give the admin address of a server by --admin (`plimsoll run` says its own: that of its console)"
    )
}

/// Where this machine reaches the admin listener of a process, and what that demands.
pub(super) struct AdminPort {
    address: SocketAddr,
    token: Option<AdminToken>,
}

impl AdminPort {
    /// The configured one, or that at the address `admin`. Its token comes from the configuration.
    ///
    /// # Errors
    /// If the configuration can't be read, or the address is none.
    pub(super) fn of(config: Option<PathBuf>, admin: Option<String>) -> anyhow::Result<Self> {
        let flags = Flags {
            config,
            admin,
            ..Flags::default()
        };
        let server = Config::load(&flags, serve::variables())?.server;
        Ok(Self {
            address: reached_at(server.admin),
            token: server.admin_token,
        })
    }

    /// The admin port for requests that prove what they may. They are plain HTTP, so no other machine is sent the token.
    ///
    /// # Errors
    /// As [`Self::of`], and if the token would leave this machine.
    pub(super) fn proving(config: Option<PathBuf>, admin: Option<String>) -> anyhow::Result<Self> {
        let port = Self::of(config, admin)?;
        let Self { address, token } = &port;
        anyhow::ensure!(
            token.is_none() || is_here(address.ip()),
            "{address} is on another machine, and the admin token would go there as plain HTTP, which anybody on the way can read: run this on that machine, or lead a tunnel there (ssh -L {port}:{address} HOST) and give --admin 127.0.0.1:{port}",
            port = address.port()
        );
        Ok(port)
    }

    /// The URL of a path.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request that proves what it may.
    ///
    /// # Errors
    /// If no client can be made.
    pub(super) fn request(&self, method: Method, path: &str) -> reqwest::Result<RequestBuilder> {
        let request = client()?.request(method, self.url(path));
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        })
    }
}

/// A client for a process on this machine.
///
/// # Errors
/// If it can't be made.
pub(super) fn client() -> reqwest::Result<reqwest::Client> {
    // A client needs a default, even if it never speaks TLS.
    let _already = rustls::crypto::ring::default_provider().install_default();
    // The process is on this machine, whatever proxies the environment names.
    let client = reqwest::Client::builder().no_proxy();
    // What is asked is plain HTTP, so a system without certificates will do.
    client.tls_certs_only([]).build()
}

async fn ask(url: &str) -> reqwest::Result<(http::StatusCode, String)> {
    let response = client()?.get(url).timeout(PATIENCE).send().await?;
    Ok((response.status(), response.text().await?))
}

/// Whether an address is of this machine, so that what is sent there stays on it: only then can something listen there.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Where this machine reaches an address on which a process listens.
fn reached_at(listens: SocketAddr) -> SocketAddr {
    let ip = match listens.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listens.port())
}
