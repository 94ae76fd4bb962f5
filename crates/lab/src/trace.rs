//! Recorded sessions as files: chat messages as JSON, one a line, plain, gzipped or zstd, with an
//! optional first line `{"_meta": …}`. Owns the reading of files and directories; never changes a
//! message, but for the time that it was recorded with, which no provider is sent.

use std::collections::HashSet;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use plimsoll_model::Role;
use plimsoll_model::raw::{self, Object};
use plimsoll_scripted::trace::{Recording, TraceError as RecordingError};
use plimsoll_wire::Dialect;
use serde_json::Value;

use super::agents::{OpencodeError, RecordedUsage};
use super::time;

/// Fields that hold the time of a message; they are taken off it.
const TIMES: [&str; 3] = ["timestamp", "created_at", "time"];

/// How much a packed file may hold, in bytes. The longest sessions that agents keep are a fifth of it.
const MAX_UNPACKED: u64 = 512 << 20;

/// Why a file can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file or directory can't be read.
    #[error("can't read {path}: {cause}")]
    Read {
        /// The file or directory.
        path: String,
        /// Why.
        cause: std::io::Error,
    },
    /// What was named can't be read to its end, such as a pipe.
    #[error("{0} is no file and no directory: write what it gives into a file, and name that")]
    NoFile(String),
    /// A packed file holds more than is unpacked.
    #[error(
        "{0} unpacks to more than {max} MiB: unpack it yourself if you trust it, and name the plain file",
        max = MAX_UNPACKED >> 20
    )]
    Unpacks(String),
    /// A directory, and what is below it, holds no recorded session.
    #[error("found no .jsonl, .jsonl.gz or .jsonl.zst file in {0}")]
    Nothing(String),
    /// The file is no text, packed or not.
    #[error("{0} is no UTF-8 text: give JSONL, plain, gzipped or zstd")]
    Text(String),
    /// What was exported is the account of a session, without its messages.
    #[error(
        "{0} holds a session's account alone, because its content was not stored: set store.content to \"all\" \
         before a session that is to be replayed"
    )]
    Account(String),
    /// A database of opencode's can't be read.
    #[error("can't read {path} as a database of opencode's: {cause}")]
    Database {
        /// The database.
        path: String,
        /// Why.
        cause: OpencodeError,
    },
    /// There is nothing to replay.
    #[error("{path}: {cause}")]
    Recording {
        /// The file.
        path: String,
        /// Why.
        cause: RecordingError,
    },
}

/// One message as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceMessage {
    /// Its JSON.
    pub raw: Bytes,
    /// Who speaks.
    pub role: Role,
    /// When it was recorded, in milliseconds since 1970.
    pub time: Option<u64>,
}

/// Where a session's tools come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tools {
    /// It was recorded with them.
    Recorded,
    /// They were made up from the names and arguments of its calls.
    Derived,
    /// It calls none.
    #[default]
    None,
}

/// One recorded session.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its id, else the name of its file.
    pub name: String,
    /// The model that answered, where it is told.
    pub model: String,
    /// Its messages.
    pub messages: Vec<TraceMessage>,
    /// How many of them an earlier conversation of the session had. Answers among them were asked for there,
    /// so no request is made for them here.
    pub history: usize,
    /// The tools array.
    pub tools: Option<String>,
    /// Where that comes from.
    pub tools_from: Tools,
    /// Lines that are no messages, by number from 1.
    pub skipped: Vec<usize>,
    /// The tokens that providers reported, if its agent has kept that.
    pub usage: Option<RecordedUsage>,
    /// The session as the scripted model reads it.
    pub recording: Recording,
    /// Whether its thoughts are the lab's, which hold nothing that an answer needs.
    pub made_up: bool,
}

/// What was found below what was named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The files, in the order in which they are read.
    pub files: Vec<PathBuf>,
    /// What was passed over although it looked like one of them, and why, a line each.
    pub skipped: Vec<String>,
}

/// The files of what was named: each file itself, and of a directory all recordings in it and
/// below it, by name.
///
/// # Errors
/// [`TraceError`] where something can't be read, or a directory holds none.
pub fn files(named: &[PathBuf]) -> Result<Found, TraceError> {
    let mut found = Found::default();
    for path in named {
        let before = found.files.len();
        let meta = std::fs::metadata(path).map_err(|cause| unread(path, cause))?;
        if meta.is_dir() {
            walk(path, &mut HashSet::new(), &mut found)?;
        } else if meta.is_file() {
            found.files.push(path.clone());
        } else {
            // Somebody may never write to a pipe, or never stop.
            return Err(TraceError::NoFile(path.display().to_string()));
        }
        if found.files.len() == before {
            return Err(TraceError::Nothing(path.display().to_string()));
        }
    }
    Ok(found)
}

/// Goes through a directory. Each is read once, however many links lead to it: one of them may lead to a
/// directory that it stands in.
fn walk(
    directory: &Path,
    read: &mut HashSet<PathBuf>,
    found: &mut Found,
) -> Result<(), TraceError> {
    let failed = |cause| unread(directory, cause);
    if !read.insert(directory.canonicalize().map_err(failed)?) {
        let note = format!(
            "{} is a link to a directory that is read already, and was skipped",
            directory.display()
        );
        found.skipped.push(note);
        return Ok(());
    }
    let mut inside = std::fs::read_dir(directory)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    inside.sort();
    for path in inside {
        match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => walk(&path, read, found)?,
            Ok(meta) if meta.is_file() => {
                found
                    .files
                    .extend(Some(path).filter(|path| is_recording(path)));
            }
            Ok(_) if is_recording(&path) => {
                let path = path.display();
                found
                    .skipped
                    .push(format!("{path} is no file, and was skipped"));
            }
            Ok(_) => {}
            // A link that leads nowhere or in a circle holds nothing. What can't be read for another reason may.
            Err(cause) if path.is_symlink() && leads_nowhere(&cause) => {
                let path = path.display();
                found.skipped.push(format!("{path} was skipped: {cause}"));
            }
            Err(cause) => return Err(unread(&path, cause)),
        }
    }
    Ok(())
}

fn leads_nowhere(cause: &std::io::Error) -> bool {
    // The standard library has no stable name for a circle of links yet.
    cause.kind() == ErrorKind::NotFound
        || cause.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

fn unread(path: &Path, cause: std::io::Error) -> TraceError {
    TraceError::Read {
        path: path.display().to_string(),
        cause,
    }
}

fn is_recording(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [".jsonl", ".jsonl.gz", ".jsonl.zst"]
        .iter()
        .any(|ending| name.ends_with(ending))
}

/// Reads one file, packed or not: its first bytes tell.
///
/// # Errors
/// [`TraceError`] where it can't be read or holds no session.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    of_text(path, &text(path)?)
}

/// The text of a file, packed or not.
///
/// # Errors
/// [`TraceError`] where it can't be read.
pub(super) fn text(path: &Path) -> Result<String, TraceError> {
    let named = || path.display().to_string();
    let failed = |cause| unread(path, cause);
    let bytes = std::fs::read(path).map_err(failed)?;
    let bytes = unpacked(bytes, MAX_UNPACKED).map_err(failed)?;
    let bytes = bytes.ok_or_else(|| TraceError::Unpacks(named()))?;
    String::from_utf8(bytes).map_err(|_| TraceError::Text(named()))
}

/// The name of a file without its endings.
pub(super) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(".jsonl").next().unwrap_or_default().to_owned()
}

/// The session that a file's text holds.
///
/// # Errors
/// [`TraceError`] where there is none.
pub(super) fn of_text(path: &Path, text: &str) -> Result<Trace, TraceError> {
    let named = || path.display().to_string();
    parse(&stem(path), text).map_err(|cause| {
        if is_account(text) {
            return TraceError::Account(named());
        }
        TraceError::Recording {
            path: named(),
            cause,
        }
    })
}

/// What a file holds, unpacked if it is packed. None if that is more than `most` bytes: a packed file of a
/// few megabytes can hold more than a machine has memory for.
fn unpacked(bytes: Vec<u8>, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut plain = Vec::new();
    // One byte more than is allowed shows that there is more.
    if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = zstd::Decoder::with_buffer(bytes.as_slice())?;
        decoder.take(most + 1).read_to_end(&mut plain)?;
    } else if bytes.starts_with(&[0x1f, 0x8b]) {
        let decoder = flate2::read::MultiGzDecoder::new(bytes.as_slice());
        decoder.take(most + 1).read_to_end(&mut plain)?;
    } else {
        return Ok(Some(bytes));
    }
    Ok((plain.len() as u64 <= most).then_some(plain))
}

/// Reads a session from its text. Lines that are no messages are skipped, and listed.
///
/// # Errors
/// Where no assistant message is left.
pub fn parse(name: &str, text: &str) -> Result<Trace, RecordingError> {
    let mut meta = Value::Null;
    let mut messages = Vec::new();
    let mut skipped = Vec::new();
    let mut kept = String::with_capacity(text.len());
    for (line, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        if let Some(found) = described(text, "_meta") {
            meta = found;
        } else if let Some(turn) = described(text, "_turn") {
            timed(messages.last_mut(), &turn);
        } else if let Some(message) = message(text) {
            messages.push(message);
            kept.push_str(text);
            kept.push('\n');
        } else {
            skipped.push(line + 1);
        }
    }
    let recording = Recording::parse(&kept)?;
    let (tools, tools_from) = match (recorded_tools(&meta), &recording.tools) {
        (Some(tools), _) => (Some(tools), Tools::Recorded),
        (None, Some(tools)) => (Some(tools.clone()), Tools::Derived),
        (None, None) => (None, Tools::None),
    };
    let word = |field: &str| meta.get(field).and_then(Value::as_str).map(str::to_owned);
    let name = word("id").unwrap_or_else(|| name.to_owned());
    Ok(Trace {
        model: word("model").unwrap_or_else(|| "recorded".to_owned()),
        recording: Recording {
            id: name.clone(),
            ..recording
        },
        name,
        messages,
        history: 0,
        tools,
        tools_from,
        skipped,
        usage: None,
        made_up: false,
    })
}

/// What a line tells of the session (`_meta`) or of a turn (`_turn`); none where it is a message.
fn described(text: &str, what: &str) -> Option<Value> {
    if !text.contains(&format!("\"{what}\"")) {
        return None;
    }
    let object = Object::parse(text.as_bytes()).ok()?;
    let told: Value = serde_json::from_slice(object.raw(what)?).ok()?;
    told.is_object().then_some(told)
}

/// Whether an export holds no messages.
fn is_account(text: &str) -> bool {
    let meta = text
        .lines()
        .next()
        .and_then(|line| described(line, "_meta"));
    meta.is_some_and(|meta| meta.get("content") == Some(&Value::Bool(false)))
}

/// The end of a turn is the time of its answer, where that has none of its own.
fn timed(answer: Option<&mut TraceMessage>, turn: &Value) {
    if let (Some(answer @ TraceMessage { time: None, .. }), Some(ended)) =
        (answer, turn.get("ended"))
    {
        answer.time = time::read(ended.to_string().as_bytes());
    }
}

/// A tools array that is one: names alone, which some recordings list, are none.
fn recorded_tools(meta: &Value) -> Option<String> {
    let tools = meta.get("tools")?.as_array()?;
    let whole = !tools.is_empty() && tools.iter().all(Value::is_object);
    whole.then(|| Value::from(tools.clone()).to_string())
}

fn message(text: &str) -> Option<TraceMessage> {
    let object = Object::parse(text.as_bytes()).ok()?;
    let role = match object.text("role")?.as_ref() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => return None,
    };
    Dialect::Chat.parse(text.as_bytes()).ok()?;
    let time = TIMES
        .iter()
        .filter_map(|field| object.present(field))
        .find_map(time::read);
    let places: Vec<usize> = TIMES
        .iter()
        .filter_map(|field| object.position(field))
        .collect();
    let cuts = object.remove_spans(|place| places.contains(&place));
    let edits: Vec<_> = cuts.into_iter().map(|span| (span, Bytes::new())).collect();
    Some(TraceMessage {
        raw: raw::splice(text.as_bytes(), &edits),
        role,
        time,
    })
}

#[cfg(test)]
mod tests;
