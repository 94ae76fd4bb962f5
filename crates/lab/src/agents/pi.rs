//! pi's sessions: `~/.pi/agent/sessions/DIRECTORY/TIME_ID.jsonl`. Owns the tree of their entries.
//! Never reads another file.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Conversation, content, field, items, number, text};

/// The conversations that lead to the newest entry, from one compaction to the next.
pub fn read(lines: &[Value]) -> Vec<Conversation> {
    let entries = path(lines);
    let mut read = Vec::new();
    let mut now = Conversation::default();
    for (at, entry) in entries.iter().enumerate() {
        if text(entry, "type") == "compaction" {
            let before = entries.get(..at).unwrap_or_default();
            let next = compacted(&now, before, entry);
            read.push(std::mem::replace(&mut now, next));
        } else {
            add(&mut now, entry);
        }
    }
    read.push(now);
    read
}

/// The entries from the root to the newest one.
fn path(lines: &[Value]) -> Vec<&Value> {
    let by_id: HashMap<&str, &Value> = lines.iter().map(|line| (text(line, "id"), line)).collect();
    let mut at = lines.last();
    let (mut path, mut seen) = (Vec::new(), HashSet::new());
    while let Some(entry) = at {
        if !seen.insert(text(entry, "id")) {
            break;
        }
        path.push(entry);
        at = entry
            .get("parentId")
            .and_then(Value::as_str)
            .and_then(|id| by_id.get(id).copied());
    }
    path.reverse();
    path
}

/// The summary, and the entries from the first that was kept.
fn compacted(now: &Conversation, before: &[&Value], entry: &Value) -> Conversation {
    let mut next = now.next();
    let system = field(entry, "systemMessage");
    if !system.is_null() {
        next.messages.clear();
        next.tools.clear();
        self::system(&mut next, system, field(entry, "timestamp"));
    }
    next.say("user", text(entry, "summary"), field(entry, "timestamp"));
    let first = text(entry, "firstKeptEntryId");
    let kept = before.iter().skip_while(|entry| text(entry, "id") != first);
    for entry in kept.filter(|entry| text(field(entry, "message"), "role") != "system") {
        add(&mut next, entry);
    }
    next.begin_here();
    next
}

fn add(now: &mut Conversation, entry: &Value) {
    let (message, time) = (field(entry, "message"), field(entry, "timestamp"));
    match text(entry, "type") {
        "message" => match text(message, "role") {
            "system" => system(now, message, time),
            "assistant" => answer(now, message, time),
            "toolResult" => {
                let result = content(field(message, "content"));
                now.result(text(message, "toolCallId"), &result, time);
            }
            // A command of the user's own, which the model reads.
            "bashExecution" => {
                let ran = [text(message, "command"), text(message, "output")];
                now.say("user", &ran.join("\n"), time);
            }
            _ => now.say("user", &content(field(message, "content")), time),
        },
        "custom_message" => now.say("user", &content(field(entry, "content")), time),
        "branch_summary" => now.say("user", text(entry, "summary"), time),
        _ => {}
    }
}

/// The system text in sections, and the tools. A later one changes some of them; what a request
/// then begins with is not told by its place, so only the first one counts.
fn system(now: &mut Conversation, message: &Value, time: &Value) {
    if !now.tools.is_empty()
        || now
            .messages
            .iter()
            .any(|said| text(said, "role") == "system")
    {
        return;
    }
    let sections = field(message, "sections").as_object().into_iter().flatten();
    let sections = sections.filter_map(|(_, section)| section.as_str());
    let said: Vec<&str> = std::iter::once(text(message, "content"))
        .chain(sections)
        .collect();
    now.say("system", said.join("\n\n").trim(), time);
    for tool in items(message, "toolsAdded") {
        now.tool(
            text(tool, "name"),
            field(tool, "description"),
            field(tool, "parameters"),
        );
    }
}

fn answer(now: &mut Conversation, message: &Value, time: &Value) {
    // What broke off is not sent again.
    if matches!(text(message, "stopReason"), "error" | "aborted") {
        return;
    }
    let model = text(message, "model");
    if !model.is_empty() {
        now.model = Some(model.to_owned());
    }
    let usage = field(message, "usage");
    let cached = number(usage, "cacheRead");
    let input = number(usage, "input") + cached + number(usage, "cacheWrite");
    now.usage.add(input, cached, number(usage, "output"));
    now.begin_answer(time);
    now.answer(time).blocks(message);
}
