//! Makes one conversation of many recorded sessions: one system message, one tools array, and the
//! sessions one after the other as tasks of the same user. Owns the choice of sessions and the cut
//! of their users' texts; never changes a call, an answer or a result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_scripted::Recording;
use plimsoll_scripted::trace::{Message, Turn};
use plimsoll_tokens::{Counter, Encoding};
use serde_json::{Value, json};

/// How many sessions make the conversation: as many as the tasks of the published run.
pub const SESSIONS: usize = 89;
/// Tokens of the user's text that each session keeps. What a user says is never evicted, so the
/// texts of all sessions have to fit into one context together.
pub const USER_TOKENS: u32 = 400;
/// What is left of a user's message behind that.
const REST: &str = "Go on.";

/// A conversation, and what of the sessions is in it.
pub struct Composed {
    /// All turns as one session.
    pub recording: Recording,
    /// The turn at which each session begins, from 0.
    pub begins: Vec<usize>,
    /// Tokens of all user messages as recorded, and as they are sent.
    pub user_tokens: (u64, u64),
}

/// The sessions with the least user text, by name; `None` where no recordings are at hand.
pub fn compose(root: &Path, counter: &Counter) -> Option<Composed> {
    let files = chosen(root)?;
    let mut composed = Composed {
        recording: Recording {
            id: "marathon".to_owned(),
            tools: None,
            turns: Vec::new(),
        },
        begins: Vec::new(),
        user_tokens: (0, 0),
    };
    let mut tools = BTreeMap::new();
    for (number, file) in files.iter().enumerate() {
        let recording = read(file).instance(number);
        composed.begins.push(composed.recording.turns.len());
        let list: Vec<Value> = recording
            .tools
            .as_deref()
            .map_or_else(Vec::new, |text| serde_json::from_str(text).unwrap());
        for tool in list {
            let name = tool.pointer("/function/name").unwrap().to_string();
            tools.entry(name).or_insert(tool);
        }
        append(&mut composed, recording.turns, number == 0, counter);
    }
    let tools: Vec<Value> = tools.into_values().collect();
    composed.recording.tools = Some(Value::Array(tools).to_string());
    Some(composed)
}

/// The files of the sessions that are played. Sessions that were put together of others are left
/// out.
fn chosen(root: &Path) -> Option<Vec<PathBuf>> {
    let index = std::fs::read_to_string(root.join("index.json")).ok()?;
    let index: Value = serde_json::from_str(&index).unwrap();
    let said = |session: &Value| {
        let user = session.pointer("/tokens_by_role/user");
        user.and_then(Value::as_u64).unwrap_or_default()
    };
    let mut sessions: Vec<&Value> = index
        .get("sessions")?
        .as_array()?
        .iter()
        .filter(|session| session.get("composed") == Some(&Value::Bool(false)))
        .collect();
    sessions.sort_by_key(|session| (said(session), session.get("id").map(Value::to_string)));
    let mut files: Vec<PathBuf> = sessions
        .iter()
        .take(SESSIONS)
        .filter_map(|session| session.get("file")?.as_str())
        .map(|file| root.join(file))
        .collect();
    files.sort();
    Some(files)
}

fn read(file: &Path) -> Recording {
    let bytes = zstd::decode_all(std::fs::File::open(file).unwrap()).unwrap();
    Recording::parse(&String::from_utf8(bytes).unwrap()).unwrap()
}

/// Adds the turns of a session. Only the first session's system message is kept, and the last
/// answer of each makes no call that nothing would answer.
fn append(composed: &mut Composed, mut turns: Vec<Turn>, first: bool, counter: &Counter) {
    let mut left = USER_TOKENS;
    for (at, turn) in turns.iter_mut().enumerate() {
        turn.before.retain(|message| match message.role.as_str() {
            "system" | "developer" => first && at == 0,
            _ => true,
        });
        for message in turn.before.iter_mut().filter(|said| said.role == "user") {
            let text = content(message);
            let size = counter.count(Encoding::O200k, &text);
            composed.user_tokens.0 += u64::from(size);
            if size > left {
                let kept = beginning(&text, left, counter);
                message.raw = json!({"role": "user", "content": kept}).to_string();
            }
            let sent = counter.count(Encoding::O200k, &content(message));
            composed.user_tokens.1 += u64::from(sent);
            left = left.saturating_sub(sent);
        }
    }
    if let Some(last) = turns.last_mut() {
        last.answer.calls.clear();
        if last.answer.text.is_empty() {
            "Done.".clone_into(&mut last.answer.text);
        }
    }
    composed.recording.turns.append(&mut turns);
}

fn content(message: &Message) -> String {
    let value: Value = serde_json::from_str(&message.raw).unwrap();
    let text = value.get("content").and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// The first lines or words of a text, of about so many tokens at most.
fn beginning(text: &str, tokens: u32, counter: &Counter) -> String {
    let mut kept = String::new();
    let mut size = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        size += counter.count(Encoding::O200k, word);
        if size > tokens {
            break;
        }
        kept.push_str(word);
    }
    if kept.trim().is_empty() {
        return REST.to_owned();
    }
    kept
}
