//! Recorded sessions as files: chat messages as JSON, one a line, plain, gzipped or zstd, with an
//! optional first line `{"_meta": …}`. Owns the reading of files and directories; never changes a
//! message, but for the time that it was recorded with, which no provider is sent.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use plimsoll_scripted::trace::{Recording, TraceError as RecordingError};
use serde_json::Value;

use super::agents::{OpencodeError, RecordedUsage};
use super::time;
use crate::model::raw::{self, Object};
use crate::model::{Dialect, Role};

/// Fields that hold the time of a message; they are taken off it.
const TIMES: [&str; 3] = ["timestamp", "created_at", "time"];

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
    /// The tools array.
    pub tools: Option<String>,
    /// Where that comes from.
    pub tools_from: Tools,
    /// Lines that are no messages, by number from 1.
    pub skipped: Vec<usize>,
    /// The tokens that providers reported, if its agent has kept that.
    pub usage: Option<RecordedUsage>,
    /// The same session, as the scripted model reads it.
    pub recording: Recording,
    /// Whether its thoughts are the lab's, which hold nothing that an answer needs.
    pub made_up: bool,
}

/// The files of what was named: each file itself, and of a directory all recordings in it and
/// below it, by name.
///
/// # Errors
/// [`TraceError`] where something can't be read, or a directory holds none.
pub fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, TraceError> {
    let mut found = Vec::new();
    for path in named {
        let before = found.len();
        walk(path, true, &mut found)?;
        if found.len() == before {
            return Err(TraceError::Nothing(path.display().to_string()));
        }
    }
    Ok(found)
}

fn walk(path: &Path, named: bool, found: &mut Vec<PathBuf>) -> Result<(), TraceError> {
    let failed = |cause| TraceError::Read {
        path: path.display().to_string(),
        cause,
    };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        if named || is_recording(path) {
            found.push(path.to_owned());
        }
        return Ok(());
    }
    let mut inside = std::fs::read_dir(path)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    inside.sort();
    for path in inside {
        walk(&path, false, found)?;
    }
    Ok(())
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
    let failed = |cause| TraceError::Read {
        path: named(),
        cause,
    };
    let bytes = std::fs::read(path).map_err(failed)?;
    let bytes = unpacked(bytes).map_err(failed)?;
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

fn unpacked(bytes: Vec<u8>) -> std::io::Result<Vec<u8>> {
    if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return zstd::decode_all(bytes.as_slice());
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain)?;
        return Ok(plain);
    }
    Ok(bytes)
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
