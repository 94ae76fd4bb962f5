//! `plimsoll export`: lists the sessions of a data directory, or writes one out. Owns its flags and
//! what it prints. Never makes a data directory.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use plimsoll_console::inspect::{Archive, Branch, date, export};
use plimsoll_store::{Store, StoreError, holder};

use super::agents::Environment;
use super::health::AdminPort;
use super::{output, serve, sessions, state, wire};
use crate::config::{Backend, Config, Flags};

/// Lists the sessions that a server has recorded, or writes one as JSONL. `plimsoll replay` reads
/// that if the session's content was stored. While a server runs, ask it with --admin.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The name of a session (x-plimsoll-session in its responses) or of one of its branches. The
    /// first few characters are enough.
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    session: Option<String>,
    /// List all sessions.
    #[arg(long)]
    list: bool,
    /// Data directory [default: the configured one].
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// Ask the process that serves, at its admin address, in place of opening a data directory. Its sessions are listed
    /// by `plimsoll sessions`.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["data", "list"])]
    admin: Option<String>,
    /// Configuration file [default: config/plimsoll.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write to a file instead of printing.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Lists sessions, or writes out the one that the arguments name.
///
/// # Errors
/// If the directory is empty or in use, or if the name does not mean exactly one session.
pub fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let flags = Flags {
        config: args.config.clone(),
        data: args.data.clone(),
        fallback_data: Some(state::of_server(&Environment::process())),
        ..Flags::default()
    };
    let shown = match (&args.admin, &args.session) {
        (Some(_), Some(name)) => ask(args, name)?,
        _ => read(&flags, args)?,
    };
    match &args.out {
        Some(file) => output::write_recorded(file, &shown.text)?,
        None => std::io::stdout().lock().write_all(shown.text.as_bytes())?,
    }
    for note in shown.notes {
        writeln!(std::io::stderr().lock(), "{}", output::harmless(&note))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How long a process may take to write out a session. A long one is read from the store whole.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// What is said of a session that a process gave without its texts.
const ASKED_WITHOUT: &str = "this session's content is not stored (that needs store.content = \"all\") or not shown \
    (console.content): only its account can be shown";

/// What is printed, and the notes that go to stderr.
struct ExportOutput {
    text: String,
    notes: Vec<String>,
}

/// What the process at an admin address has of a session.
fn ask(args: &ExportArgs, name: &str) -> anyhow::Result<ExportOutput> {
    let port = AdminPort::proving(args.config.clone(), args.admin.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let text = runtime.block_on(async {
        let row = sessions::named(&port, name).await?;
        let session = sessions::text(&row, "session");
        sessions::fetch(&port, &format!("/api/sessions/{session}/export"), PATIENCE).await
    })?;
    let meta = text.lines().next().unwrap_or_default();
    let meta: serde_json::Value = serde_json::from_str(meta)?;
    let has_texts = meta.pointer("/_meta/content");
    let has_texts = has_texts.and_then(serde_json::Value::as_bool);
    let notes = (has_texts != Some(true)).then(|| ASKED_WITHOUT.to_owned());
    Ok(ExportOutput {
        text,
        notes: notes.into_iter().collect(),
    })
}

/// What a stopped server's directory has of a session, or which sessions it has.
fn read(flags: &Flags, args: &ExportArgs) -> anyhow::Result<ExportOutput> {
    let config = Config::load(flags, serve::variables())?;
    // `--list` does not go with --admin.
    let live = if args.list {
        "see `plimsoll sessions`".to_owned()
    } else {
        format!("ask it with --admin {}", config.server.admin)
    };
    let store = open(&config, &live)?;
    let shown = show(&store, args.session.as_deref());
    // What was read is complete, however the directory is closed. The next start checks it.
    let _closed = store.close();
    let mut shown = shown?;
    if args.list && config.store.backend == Backend::Sled {
        shown.notes.extend(others(&config.store.path));
    }
    Ok(shown)
}

/// Opens the configured store. `live` says what a user can do while a process has it.
fn open(config: &Config, live: &str) -> anyhow::Result<Store> {
    let directory = config.store.path.as_path();
    match config.store.backend {
        Backend::Memory => anyhow::bail!(
            "store.backend is \"memory\", which keeps nothing: there is no session to export"
        ),
        Backend::Sled => ensure_holds_a_store(directory)?,
        // A server is read while others use it.
        Backend::Redis => {}
    }
    match Store::open(&wire::unswept(&wire::store_config(config))) {
        Ok(opened) => Ok(opened.store),
        Err(StoreError::Locked { pid, .. }) => anyhow::bail!(
            "{} is in use by {}: {live}, or stop it first",
            directory.display(),
            holder(pid),
        ),
        Err(error) => Err(error).context("can't open the store"),
    }
}

/// Makes sure that a server has stored something in a directory. Opening the store would make one.
pub(super) fn ensure_holds_a_store(directory: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        state::holds_a_store(directory),
        "{} holds no recorded sessions: name the data directory of a server by --data{}",
        directory.display(),
        others(directory).map_or(String::new(), |others| format!("; {others}")),
    );
    Ok(())
}

/// Words for the stores on this machine beside one. `None` if there are none.
pub(super) fn others(directory: &Path) -> Option<String> {
    let own = std::path::absolute(directory).ok();
    let mut known = state::known(&Environment::process());
    known.retain(|place| Some(place) != own.as_ref());
    let names: Vec<_> = known
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    (!names.is_empty()).then(|| format!("stores that are here: {}", names.join(", ")))
}

fn show(store: &Store, session: Option<&str>) -> anyhow::Result<ExportOutput> {
    let archive = Archive::read(store)?;
    let Some(name) = session else {
        return Ok(list(&archive.branches()));
    };
    let (branch, others) = archive.find(name)?;
    let exported = export(store, &branch)?;
    let mut notes = Vec::new();
    // The user named a session, and should know that this is only one of its branches.
    if others > 0 {
        notes.push(format!(
            "session {} has {} branches; this is {}, the longest one: --list shows the others",
            branch.session,
            others + 1,
            branch.name(),
        ));
    }
    if !exported.content {
        notes.push(if branch.content {
            "a part of this session's content is missing: only its account can be shown".to_owned()
        } else {
            "this session's content was not stored (that needs store.content = \"all\"): only its account can be \
             shown"
                .to_owned()
        });
    }
    Ok(ExportOutput {
        text: exported.text,
        notes,
    })
}

fn list(branches: &[Branch]) -> ExportOutput {
    let mut text = format!(
        "{:16}  {:16}  {:16}  {:>5}  {:24}  {:24}  {:7}  models\n",
        "branch", "session", "child of", "turns", "first turn", "last turn", "content"
    );
    for branch in branches {
        let _ = writeln!(
            text,
            "{:16}  {:16}  {:16}  {:>5}  {:24}  {:24}  {:7}  {}",
            branch.name(),
            match branch.session.as_str() {
                "" => "-".into(),
                name => output::harmless_word(name),
            },
            output::harmless_word(branch.parent_session.as_deref().unwrap_or("-")),
            branch.turns,
            date(branch.began),
            date(branch.ended),
            if branch.content { "stored" } else { "-" },
            // Clients name these, and may name anything.
            output::harmless_word(&branch.models.join(", ")),
        );
    }
    let notes = if branches.is_empty() {
        vec!["no session was recorded here".to_owned()]
    } else {
        Vec::new()
    };
    ExportOutput { text, notes }
}
