//! opencode's sessions, which it keeps in a database: `~/.local/share/opencode/opencode.db`. Owns
//! the questions that it is asked. Never writes to it, and never waits long for opencode.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::{Conversation, field, number, text};

/// How a database of this form begins.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// How long opencode may hold the database.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a database can't be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct OpencodeError(#[from] rusqlite::Error);

/// A message with its parts.
struct Message {
    id: String,
    data: Value,
    parts: Vec<Value>,
}

/// Whether a file is a database.
#[must_use]
pub fn is_database(file: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    // Whoever opens a pipe waits until somebody writes to it.
    let is_file = std::fs::metadata(file).is_ok_and(|meta| meta.is_file());
    let mut read = || File::open(file).and_then(|mut file| file.read_exact(&mut begin));
    is_file && read().is_ok() && begin == MAGIC
}

fn open(database: &Path) -> Result<Connection, OpencodeError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

/// The sessions of a database with how many bytes each has, the oldest first.
///
/// # Errors
/// [`OpencodeError`] if it is no database of opencode's.
pub fn sessions(database: &Path) -> Result<Vec<(String, u64)>, OpencodeError> {
    let connection = open(database)?;
    let mut asked = connection.prepare(
        "SELECT session_id, SUM(LENGTH(data)) FROM part GROUP BY session_id ORDER BY MIN(time_created)",
    )?;
    let rows = asked.query_map([], |row| {
        let bytes: i64 = row.get(1)?;
        Ok((row.get(0)?, bytes.unsigned_abs()))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The conversations of a session, from one summary to the next, and how many of its rows can't be
/// read.
///
/// # Errors
/// [`OpencodeError`] if the database can't be read.
pub fn read(database: &Path, session: &str) -> Result<(Vec<Conversation>, usize), OpencodeError> {
    let connection = open(database)?;
    let mut bad = 0;
    let mut value = |data: String| {
        let read: Value = serde_json::from_str(&data).unwrap_or_default();
        bad += usize::from(!read.is_object());
        read
    };
    let mut asked = connection
        .prepare("SELECT id, data FROM message WHERE session_id = ?1 ORDER BY time_created, id")?;
    let rows = asked.query_map([session], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: Vec<(String, String)> = rows.collect::<Result<_, _>>()?;
    let mut asked =
        connection.prepare("SELECT data FROM part WHERE message_id = ?1 ORDER BY id")?;
    let mut messages = Vec::new();
    for (id, data) in rows {
        let parts = asked.query_map([&id], |row| row.get(0))?;
        let parts: Vec<String> = parts.collect::<Result<_, _>>()?;
        messages.push(Message {
            id,
            data: value(data),
            parts: parts.into_iter().map(&mut value).collect(),
        });
    }
    Ok((conversations(&messages), bad))
}

fn conversations(messages: &[Message]) -> Vec<Conversation> {
    let mut read = Vec::new();
    let mut now = Conversation::default();
    // Where the messages begin that the next summary leaves as they were.
    let mut tail = "";
    for (at, message) in messages.iter().enumerate() {
        let mut parts = message.parts.iter();
        if let Some(compaction) = parts.find(|part| text(part, "type") == "compaction") {
            tail = text(compaction, "tail_start_id");
        }
        if field(&message.data, "summary") != &Value::Bool(true) {
            add(&mut now, message);
            continue;
        }
        // It goes on with the summary in place of what was said before.
        let next = now.next();
        read.push(std::mem::replace(&mut now, next));
        now.say("user", &said(message), created(message));
        let before = messages.get(..at).unwrap_or_default();
        let left = before.iter().skip_while(|message| message.id != tail);
        left.for_each(|message| add(&mut now, message));
        now.begin_here();
    }
    read.push(now);
    read
}

fn created(message: &Message) -> &Value {
    field(field(&message.data, "time"), "created")
}

fn add(now: &mut Conversation, message: &Message) {
    match text(&message.data, "role") {
        "assistant" => answer(now, message),
        _ => now.say("user", &said(message), created(message)),
    }
}

/// What a message says that calls nothing.
fn said(message: &Message) -> String {
    let said = message.parts.iter().filter(|part| {
        text(part, "type") == "text" && field(part, "ignored") != &Value::Bool(true)
    });
    said.map(|part| text(part, "text"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn answer(now: &mut Conversation, message: &Message) {
    let data = &message.data;
    let time = created(message);
    let model = text(data, "modelID");
    if !model.is_empty() {
        now.model = Some(model.to_owned());
    }
    let tokens = field(data, "tokens");
    let cache = field(tokens, "cache");
    let cached = number(cache, "read");
    let input = number(tokens, "input") + cached + number(cache, "write");
    let output = number(tokens, "output") + number(tokens, "reasoning");
    now.usage.add(input, cached, output);
    let mut results = Vec::new();
    for (at, part) in message.parts.iter().enumerate() {
        match text(part, "type") {
            // Older versions keep several answers in one message.
            "step-start" if at > 0 => settle(now, &mut results),
            "text" => now.answer(time).text(text(part, "text")),
            "reasoning" => now.answer(time).reasoning(text(part, "text")),
            "tool" => {
                let state = field(part, "state");
                let id = text(part, "callID");
                now.answer(time)
                    .call(id, text(part, "tool"), field(state, "input"));
                results.push((id.to_owned(), outcome(state)));
            }
            _ => {}
        }
    }
    settle(now, &mut results);
}

/// Results stand behind the whole answer.
fn settle(now: &mut Conversation, results: &mut Vec<(String, (String, Value))>) {
    for (id, (output, time)) in results.drain(..) {
        now.result(&id, &output, &time);
    }
}

fn outcome(state: &Value) -> (String, Value) {
    let output = match text(state, "status") {
        "error" => text(state, "error"),
        _ => text(state, "output"),
    };
    let ended = field(field(state, "time"), "end");
    (output.to_owned(), ended.clone())
}
