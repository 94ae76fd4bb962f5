//! One recorded session as lines of JSON: `_meta` first, and then the chat messages, byte for byte
//! as the client sent them, with a `_turn` line after each answer that accounts for its turn.
//! Without stored content there are only the accounts. Owns that form. Never decides which session
//! is exported.

use std::collections::BTreeMap;

use plimsoll_core::session::path::{Path, PathEntry};
use plimsoll_model::{Effect, ExplicitKind, HiddenCall, HiddenTool, ItemNo, StoredHop, StoredMark};
use plimsoll_proxy::history::{self, Conversation, FindError, Reads};
use plimsoll_store::{Store, StoreError};
use serde_json::{Value, json};

use super::archive::{ArchiveError, Branch};
use super::dates::date;

/// A session as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The lines, each with its newline.
    pub text: String,
    /// Whether the text has the messages.
    pub content: bool,
}

impl From<FindError> for ArchiveError {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Store(error) => Self::Store(error),
            FindError::Record(error) => Self::Record(error),
            // A command waits as long as it takes, unless the store is closed meanwhile.
            FindError::Late => Self::Store(StoreError::Closed),
        }
    }
}

/// Writes out a branch.
///
/// # Errors
/// [`ArchiveError`] if the store fails, or a record of the branch is missing.
pub fn export(store: &Store, branch: &Branch) -> Result<Export, ArchiveError> {
    let unwatched = |_, _| {};
    let reads = Reads::new(store, &unwatched);
    let path = history::load(&reads, branch.newest)?;
    let path = path.ok_or_else(|| ArchiveError::Broken(branch.name()))?;
    written(store, branch, &path, true)
}

/// Writes out a branch whose path was read, with its texts or without.
///
/// # Errors
/// As [`export`].
pub fn written(
    store: &Store,
    branch: &Branch,
    path: &Path,
    with_texts: bool,
) -> Result<Export, ArchiveError> {
    let unwatched = |_, _| {};
    let reads = Reads::new(store, &unwatched);
    let said = history::conversation(&reads, path)?;
    let whole = match said.filter(|_| with_texts) {
        Some(said) => texts(&reads, &said)?,
        None => None,
    };
    let (messages, tools) = match &whole {
        Some((messages, tools)) => (Some(messages), tools.as_deref()),
        None => (None, None),
    };
    let mut text = line(&meta(branch, messages.is_some()), tools);
    let mut next = 0;
    for entry in &path.entries {
        let behind = entry.position as usize + 1;
        // The messages up to the turn's answer come before its account.
        for message in messages.into_iter().flatten().take(behind).skip(next) {
            text.push_str(message);
            text.push('\n');
        }
        next = behind;
        text.push_str(&json!({ "_turn": turn(entry, with_texts) }).to_string());
        text.push('\n');
    }
    Ok(Export {
        text,
        content: messages.is_some(),
    })
}

/// The texts of a conversation, each on one line. `None` if one is not stored.
#[expect(clippy::type_complexity, reason = "messages and tools, used once")]
fn texts(
    reads: &Reads<'_>,
    said: &Conversation,
) -> Result<Option<(Vec<String>, Option<String>)>, ArchiveError> {
    let Some(messages) = said.read(reads, |_| true)? else {
        return Ok(None);
    };
    let tools = said.read_tools(reads)?;
    let messages = messages.into_iter().map(|bytes| one_line(&bytes));
    let tools = tools.map(|bytes| one_line(&bytes));
    Ok(Some((messages.collect(), tools)))
}

/// JSON on one line. Outside of strings newlines mean nothing, and inside they can't occur.
fn one_line(json: &[u8]) -> String {
    String::from_utf8_lossy(json).replace(['\n', '\r'], " ")
}

fn meta(branch: &Branch, content: bool) -> Value {
    json!({
        "id": branch.name(),
        "source": "plimsoll export",
        "session": branch.session,
        "parent_session": branch.parent_session,
        "model": branch.models.last(),
        "models": branch.models,
        "turns": branch.turns,
        "created": date(branch.began),
        "ended": date(branch.ended),
        "content": content,
    })
}

/// The first line. The tools are written as they were sent.
fn line(meta: &Value, tools: Option<&str>) -> String {
    let meta = meta.to_string();
    let fields = meta.strip_suffix('}').unwrap_or(&meta);
    match tools {
        Some(tools) => format!("{{\"_meta\":{fields},\"tools\":{tools}}}}}\n"),
        None => format!("{{\"_meta\":{meta}}}\n"),
    }
}

/// The account of a turn. What the model and the proxy said in its hidden calls is text, too.
fn turn(entry: &PathEntry, with_texts: bool) -> Value {
    let record = &entry.record;
    let hops = record.hops.iter().map(|hop| hop_of(hop, with_texts));
    let hops: Vec<Value> = hops.collect();
    let calls = record.calls.iter();
    let calls: Vec<Value> = calls
        .map(|(id, name)| json!({"id": id.0, "name": name}))
        .collect();
    json!({
        "turn": record.turn,
        "position": entry.position,
        "record": entry.id.short(),
        "ended": date(record.ended),
        "model": record.model,
        "calls": calls,
        "first_item": record.first_item,
        "injected": record.injected,
        "hops": hops,
    })
}

fn hop_of(hop: &StoredHop, with_texts: bool) -> Value {
    let calls = hop.calls.iter().map(|call| hidden(call, with_texts));
    let usage = hop.usage.map(|usage| {
        json!({
            "prompt": usage.prompt,
            "cached": usage.cached,
            "cache_write": usage.cache_write,
            "completion": usage.completion,
            "reasoning": usage.reasoning,
        })
    });
    json!({
        "tokens": hop.estimate,
        "text_tokens": hop.text,
        "reasoning_tokens": hop.reasoning,
        "usage": usage,
        "marks": marks(&hop.marks),
        "hidden": calls.collect::<Vec<Value>>(),
    })
}

/// The numbers of the items whose mark a pass moved, by mark.
fn marks(moved: &[(ItemNo, StoredMark)]) -> Value {
    let mut by_mark: BTreeMap<&str, Vec<ItemNo>> = BTreeMap::new();
    for (item, mark) in moved {
        let name = match mark {
            StoredMark::Live => "live",
            StoredMark::Clipped => "clipped",
            StoredMark::Masked => "masked",
            StoredMark::Folded => "folded",
            StoredMark::Removed => "removed",
        };
        by_mark.entry(name).or_default().push(*item);
    }
    json!(by_mark)
}

fn hidden(call: &HiddenCall, with_texts: bool) -> Value {
    let told = |text: &String| with_texts.then(|| text.clone());
    let effect = match &call.effect {
        Effect::Started {
            name,
            kind,
            dependencies,
        } => json!({
            "started": name,
            "type": match kind {
                ExplicitKind::Expl => "expl",
                ExplicitKind::Act => "act",
            },
            "dependencies": dependencies,
        }),
        Effect::Ended { name, description } => {
            json!({"ended": name, "description": description.as_ref().and_then(told)})
        }
        Effect::Recalled { id, pinned, .. } => json!({"recalled": id, "pinned": pinned}),
        Effect::Refused => Value::Null,
    };
    json!({
        "id": call.id.0,
        "tool": match call.tool {
            HiddenTool::Delimiter => "delimiter",
            HiddenTool::Recall => "recall",
        },
        "arguments": told(&call.arguments),
        "result": told(&call.result),
        "tokens": call.tokens,
        "result_tokens": call.result_tokens,
        "effect": effect,
    })
}
