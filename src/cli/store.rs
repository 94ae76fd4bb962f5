//! `plimsoll store`: what an operator does to a store, stopped or live: counts it, removes what is too
//! old or is to be erased, copies it. Owns its flags and what it prints. Never serves anything.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use http::Method;
use plimsoll_console::inspect::date;
use plimsoll_ingress::{ErasedCounts, erased, shown};
use plimsoll_store::{
    self, Backend, Copied, Snapshot, Store, StoreError, StoreSettings, holder, is_redis_url,
};
use serde_json::{Value, json};

use super::agents::Environment;
use super::erase::from as erase_from;
use super::{export, live, logs, output, serve, state, wire};
use crate::config::{Config, Flags, LogSection};

/// Looks after a store.
#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Say what a store holds: sessions, records, content, bytes, and from when to when.
    Stats(PlaceArgs),
    /// Remove what is older than `store.keep_records` and `store.keep_content`, and give the room back.
    Gc(PlaceArgs),
    /// Erase a session, or all sessions of a tenant, with the content that no other session has.
    Erase(EraseArgs),
    /// Write a copy of a data directory that is whole, also while it is in use.
    Snapshot(SnapshotArgs),
    /// Copy everything from one store to another, and compare them.
    Copy(CopyArgs),
}

/// The configured store, or that of a process that serves.
#[derive(Debug, Args)]
struct PlaceArgs {
    /// The admin address of the process that serves the store, like 127.0.0.1:9187. Without it, nobody
    /// may use the data directory.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["data", "config"])]
    admin: Option<String>,
    /// Data directory [default: the configured one].
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// Configuration file [default: config/plimsoll.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Erases whatever its age. A session that was forked from an erased one begins anew.
#[derive(Debug, Args)]
struct EraseArgs {
    /// The name of a session, as in x-plimsoll-session and in `plimsoll export --list`.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "tenant",
        conflicts_with = "tenant"
    )]
    session: Option<String>,
    /// The digest of a tenant, as `GET /api/sessions` shows it.
    #[arg(long, value_name = "DIGEST")]
    tenant: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// A snapshot is a data directory: serve it, or put it in the place of another. Of a store in Redis
/// the server itself makes backups.
#[derive(Debug, Args)]
struct SnapshotArgs {
    /// The directory to make. With --admin a plain name: the process makes it below its
    /// store.snapshots.
    #[arg(value_name = "DIRECTORY")]
    target: String,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Copies all records and content. What the target has is not written again, so a copy that was
/// stopped is begun again with the same command. A data directory must not be in use.
#[derive(Debug, Args)]
struct CopyArgs {
    /// The store to read: sled:DIRECTORY, redis://HOST:PORT, rediss://HOST:PORT, or redis for the
    /// configured store.url, whose password then shows in no list of processes.
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
    // A store says there what it waits for.
    let _logs = logs::start(&LogSection {
        level: "warn".to_owned(),
        ..LogSection::default()
    })?;
    match &args.command {
        StoreCommand::Stats(args) => stats(args),
        StoreCommand::Gc(args) => gc(args),
        StoreCommand::Erase(args) => erase(args),
        StoreCommand::Snapshot(args) => snapshot(args),
        StoreCommand::Copy(args) => copy(args),
    }
}

fn stats(args: &PlaceArgs) -> anyhow::Result<ExitCode> {
    let held = match &args.admin {
        Some(admin) => live::ask(admin, (Method::GET, "/api/store"), None)?,
        None => shown(&with(args, wire::unswept, Store::stats)??),
    };
    let number = |name: &str| held.get(name).and_then(Value::as_u64);
    let count = |name: &str| number(name).unwrap_or_default();
    let time = |name: &str| number(name).map_or("-".to_owned(), date);
    let mut out = std::io::stdout().lock();
    if args.admin.is_none() {
        let settings = configured(args)?;
        if settings.backend == Backend::Sled {
            writeln!(out, "directory {}", settings.path.display())?;
            if let Some(others) = export::others(&settings.path) {
                logs::say(&others);
            }
        }
    }
    writeln!(out, "sessions  {}", count("sessions"))?;
    writeln!(out, "oldest    {}", time("oldest"))?;
    writeln!(out, "newest    {}", time("newest"))?;
    for (name, blobs, bytes) in [
        ("records ", "records", "record_bytes"),
        ("content ", "content", "content_bytes"),
    ] {
        writeln!(
            out,
            "{name}  {} blobs, {} bytes before compression",
            count(blobs),
            count(bytes)
        )?;
    }
    writeln!(out, "links     {}", count("links"))?;
    writeln!(out, "files     {} bytes", count("disk_bytes"))?;
    if let Some(archive) = held.get("archive").and_then(Value::as_object) {
        let part = |name: &str| {
            archive
                .get(name)
                .and_then(Value::as_u64)
                .unwrap_or_default()
        };
        writeln!(
            out,
            "archive   {} bytes: records {}, content {}, names {}, links {}, rows {}, frames {}",
            part("bytes"),
            part("records"),
            part("content"),
            part("names"),
            part("links"),
            part("rows"),
            part("frames")
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn gc(args: &PlaceArgs) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if let Some(admin) = &args.admin {
        let swept = live::ask(admin, (Method::POST, "/api/store/gc"), None)?;
        let removed = swept.get("removed").and_then(Value::as_u64);
        writeln!(
            out,
            "removed {}",
            output::counted(&removed.unwrap_or_default(), "blob")
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let swept = with(args, StoreSettings::clone, |store| {
        let before = store.disk_bytes();
        // The store may have begun by itself, so what it has removed since it was opened counts.
        let swept = store.sweep();
        swept.map(|_| (store.health().swept, before, store.disk_bytes()))
    })?;
    let (removed, before, after) = swept.context("nothing was removed")?;
    writeln!(
        out,
        "removed {}; the files took {} bytes and take {} now",
        output::counted(&removed, "blob"),
        before,
        after
    )?;
    Ok(ExitCode::SUCCESS)
}

fn erase(args: &EraseArgs) -> anyhow::Result<ExitCode> {
    let (session, tenant) = (args.session.as_deref(), args.tenant.as_deref());
    let whose = erased(session, tenant).map_err(anyhow::Error::msg)?;
    let ErasedCounts {
        sessions,
        records,
        removed,
    } = match &args.place.admin {
        Some(admin) => {
            let asked = json!({"session": session, "tenant": tenant});
            let told = live::ask(admin, (Method::POST, "/api/store/erase"), Some(&asked))?;
            let count = |name: &str| told.get(name).and_then(Value::as_u64).unwrap_or_default();
            ErasedCounts {
                sessions: count("sessions"),
                records: count("records"),
                removed: count("removed"),
            }
        }
        None => with(&args.place, wire::unswept, |store| {
            erase_from(store, &whose)
        })?
        .context("nothing was erased")?,
    };
    anyhow::ensure!(
        records + removed > 0,
        "there is nothing of it in this store"
    );
    writeln!(
        std::io::stdout().lock(),
        "erased {}: {}, {} in all",
        output::counted(&sessions, "session"),
        output::counted(&records, "record"),
        output::counted(&removed, "blob")
    )?;
    Ok(ExitCode::SUCCESS)
}

fn snapshot(args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    let (directory, bytes) = match &args.place.admin {
        Some(admin) => {
            let asked = json!({"name": args.target});
            let told = live::ask(admin, (Method::POST, "/api/store/snapshot"), Some(&asked))?;
            let directory = told.get("directory").and_then(Value::as_str);
            let bytes = told.get("bytes").and_then(Value::as_u64);
            (
                directory.unwrap_or(&args.target).to_owned(),
                bytes.unwrap_or_default(),
            )
        }
        None => {
            let target = PathBuf::from(&args.target);
            let Snapshot { path, bytes } =
                with(&args.place, wire::unswept, |store| store.snapshot(&target))??;
            (path.display().to_string(), bytes)
        }
    };
    writeln!(
        std::io::stdout().lock(),
        "wrote {directory}: {bytes} bytes, a data directory of its own"
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The settings of the configured store.
fn configured(args: &PlaceArgs) -> anyhow::Result<StoreSettings> {
    let flags = Flags {
        config: args.config.clone(),
        data: args.data.clone(),
        fallback_data: Some(state::of_server(&Environment::process())),
        ..Flags::default()
    };
    let config = Config::load(&flags, serve::variables())?;
    Ok(wire::store_config(&config))
}

/// Opens the configured store, works on it, and closes it.
fn with<T>(
    args: &PlaceArgs,
    how: impl FnOnce(&StoreSettings) -> StoreSettings,
    work: impl FnOnce(&Store) -> T,
) -> anyhow::Result<T> {
    let settings = configured(args)?;
    match settings.backend {
        Backend::Memory => anyhow::bail!("store.backend is \"memory\", which keeps nothing"),
        Backend::Sled => export::ensure_holds_a_store(&settings.path)?,
        Backend::Redis => {}
    }
    let store = open(&how(&settings), &settings.path.display().to_string())?;
    let done = work(&store);
    // What was done is on the disk, however the directory is closed. The next start checks it.
    let _closed = store.close();
    Ok(done)
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
    let from = open(&wire::unswept(&from_settings), &args.from)?;
    // Sessions are found under the same key there, and a process that starts with another one says so.
    let marked = StoreSettings {
        key_mark: from.key_mark(),
        ..wire::unswept(&to_settings)
    };
    let to = open(&marked, &args.to)?;
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
    let copied = plimsoll_store::copy(&from, &to, &mut told);
    // What is compared must not come from the memory of whoever wrote it.
    let written = to.close();
    let to = open(&to_settings, &args.to)?;
    let copied = copied.and_then(|copied| written.map(|()| copied));
    let found = copied.and_then(|copied| Ok((copied, plimsoll_store::lacking(&from, &to)?)));
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
    } else if text == "redis" && !settings.redis.urls.is_empty() {
        settings.backend = Backend::Redis;
    } else if text.split(',').map(str::trim).all(is_redis_url) {
        settings.backend = Backend::Redis;
        settings.redis.urls = text.split(',').map(|url| url.trim().to_owned()).collect();
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
    let opened = Store::open(settings);
    if let Err(StoreError::Locked { dir, pid }) = &opened {
        anyhow::bail!(
            "{} holds the data directory {}: if it serves, let it do this by --admin ADDRESS, its admin port (--admin 127.0.0.1:9187 by default), or stop it first",
            holder(*pid),
            dir.display()
        );
    }
    Ok(opened.with_context(|| format!("can't open {what}"))?.store)
}
