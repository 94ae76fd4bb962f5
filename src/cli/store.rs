//! `plimsoll store`: what an operator does to a store that no server uses. Owns its flags and what it
//! prints. Never serves anything.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::{export, serve, wire};
use crate::config::{Config, Flags};
use crate::store::{self, Backend, Copied, Store, StoreSettings, is_redis_url};

/// Looks after a store.
#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Copy everything from one store to another, and compare them.
    Copy(CopyArgs),
}

/// Copies all records and content. What the target has is not written again, so a copy that was
/// stopped is begun again with the same command. A data directory must not be in use.
#[derive(Debug, Args)]
struct CopyArgs {
    /// The store to read: sled:DIRECTORY, redis://HOST:PORT or rediss://HOST:PORT.
    from: String,
    /// The store to write, in the same form.
    to: String,
    /// Configuration file, for `store.prefix` and how long things are kept [default:
    /// config/plimsoll.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Does what the arguments say.
///
/// # Errors
/// If a store can't be opened, read or written.
pub fn run(args: &StoreArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        StoreCommand::Copy(args) => copy(args),
    }
}

fn copy(args: &CopyArgs) -> anyhow::Result<ExitCode> {
    let flags = Flags {
        config: args.config.clone(),
        ..Flags::default()
    };
    let config = Config::load(&flags, serve::variables())?;
    let settings = wire::store_config(&config);
    let from_settings = named(&settings, &args.from)?;
    let to_settings = named(&settings, &args.to)?;
    anyhow::ensure!(
        from_settings != to_settings,
        "a store can't be copied to itself"
    );
    if from_settings.backend == Backend::Sled {
        export::ensure_holds_a_store(&from_settings.path)?;
    }
    let (from, to) = (
        open(&from_settings, &args.from)?,
        open(&to_settings, &args.to)?,
    );
    let mut screen = std::io::stderr().lock();
    let mut told = |copied: Copied| {
        // Nothing depends on whether somebody reads this.
        let _ = write!(
            screen,
            "\r{} blobs, {} links",
            copied.blobs + copied.there,
            copied.links
        );
    };
    let copied = store::copy(&from, &to, &mut told);
    let found = copied.and_then(|copied| Ok((copied, store::lacking(&from, &to)?)));
    // What was acknowledged is safe, however the stores close.
    let _closed = (from.close(), to.close());
    let (
        Copied {
            blobs,
            there,
            links,
            rows,
        },
        lacking,
    ) = found.context("the copy is not whole; run the command again to go on")?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "copied {blobs} blobs ({there} more were there already), {links} links and {rows} rows of sessions"
    )?;
    if lacking.any() {
        anyhow::bail!(
            "the copy lacks {} blobs, {} links and {} rows of what the source holds; run the command again",
            lacking.blobs,
            lacking.links,
            lacking.rows,
        );
    }
    writeln!(out, "compared: the copy holds all of it")?;
    if let Some(note) = key_note(&from_settings, &to_settings) {
        writeln!(out, "{note}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What has to be done so that sessions are found: they are under the tenant's key.
fn key_note(from: &StoreSettings, to: &StoreSettings) -> Option<String> {
    let file = |settings: &StoreSettings| settings.path.join(super::tenant_key::KEY_FILE);
    match (from.backend, to.backend) {
        (Backend::Sled, Backend::Redis) => Some(format!(
            "set PLIMSOLL__TENANT__KEY to the content of {}, or its sessions are not found",
            file(from).display()
        )),
        (Backend::Redis, Backend::Sled) => Some(
            "serve the directory with the PLIMSOLL__TENANT__KEY that the server had, or its sessions are not found"
                .to_owned(),
        ),
        (Backend::Sled, Backend::Sled) => Some(format!(
            "copy {} to {}, or its sessions are not found",
            file(from).display(),
            file(to).display()
        )),
        _ => None,
    }
}

/// The settings of the store that a text names.
fn named(settings: &StoreSettings, text: &str) -> anyhow::Result<StoreSettings> {
    let mut settings = settings.clone();
    if let Some(path) = text.strip_prefix("sled:").filter(|path| !path.is_empty()) {
        (settings.backend, settings.path) = (Backend::Sled, path.into());
    } else if text.split(',').all(is_redis_url) {
        settings.backend = Backend::Redis;
        settings.redis.urls = text.split(',').map(str::to_owned).collect();
    } else {
        // The text may hold a password.
        anyhow::bail!("a store is named like sled:./data, redis://HOST:PORT or rediss://HOST:PORT");
    }
    Ok(settings)
}

fn open(settings: &StoreSettings, name: &str) -> anyhow::Result<Store> {
    let what = match settings.backend {
        Backend::Sled => name,
        Backend::Redis | Backend::Memory => "the server",
    };
    Ok(Store::open(settings)
        .with_context(|| format!("can't open {what}"))?
        .store)
}
