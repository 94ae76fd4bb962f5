//! Claude Code's sessions: `~/.claude/projects/PROJECT/SESSION.jsonl`. Owns the tree of their lines
//! and where a conversation ends. Never reads another file.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Answer, Conversation, RecordedUsage, content, field, items, number, text};

/// The conversations of a session: the main one, from one summary to the next, and those of
/// sub-agents that older versions kept in the same file.
pub fn read(lines: &[Value]) -> Vec<Conversation> {
    let said = lines.iter().filter(|line| line.get("uuid").is_some());
    let (aside, main): (Vec<&Value>, Vec<&Value>) =
        said.partition(|line| field(line, "isSidechain") == &Value::Bool(true));
    let begin = prologue(lines);
    let mut read = conversations(&begin, &main);
    for run in runs(&aside) {
        // A sub-agent has a system text and tools of its own, which are not kept.
        read.extend(conversations(&Conversation::default(), &run));
    }
    read
}

/// The lines of sub-agents, those of each together.
fn runs<'a>(lines: &[&'a Value]) -> Vec<Vec<&'a Value>> {
    let mut runs: Vec<Vec<&Value>> = Vec::new();
    let mut of: HashMap<&str, usize> = HashMap::new();
    for line in lines {
        let agent = line.get("agentId").and_then(Value::as_str);
        let known = of
            .get(text(line, "parentUuid"))
            .or_else(|| of.get(agent?))
            .copied();
        let run = known.unwrap_or_else(|| {
            runs.push(Vec::new());
            runs.len() - 1
        });
        of.insert(text(line, "uuid"), run);
        of.extend(agent.map(|agent| (agent, run)));
        if let Some(run) = runs.get_mut(run) {
            run.push(line);
        }
    }
    runs
}

/// The system text and the tools, which newer versions keep.
fn prologue(lines: &[Value]) -> Conversation {
    let mut begin = Conversation::default();
    let mut shapes = lines
        .iter()
        .filter(|line| text(line, "type") == "api-request-shape");
    if let Some(shape) = shapes.next().map(|line| field(line, "shape")) {
        begin.say("system", &content(field(shape, "system")), &Value::Null);
        for tool in items(shape, "tools") {
            begin.tool(
                text(tool, "name"),
                field(tool, "description"),
                field(tool, "input_schema"),
            );
        }
    }
    begin
}

fn conversations(begin: &Conversation, lines: &[&Value]) -> Vec<Conversation> {
    let kept = branch(lines);
    let mut read = Vec::new();
    let mut reader = Reader::new(begin.next());
    // What a summary leaves as it was stands behind the summary.
    let mut preserved: HashSet<&str> = HashSet::new();
    for line in lines
        .iter()
        .filter(|line| kept.contains(text(line, "uuid")))
    {
        if text(line, "subtype") == "compact_boundary" {
            read.push(std::mem::replace(&mut reader, Reader::new(begin.next())).into);
            let messages = field(field(line, "compactMetadata"), "preservedMessages");
            preserved = items(messages, "uuids").filter_map(Value::as_str).collect();
            continue;
        }
        reader.line(line);
        if field(line, "isCompactSummary") == &Value::Bool(true) {
            let left = lines
                .iter()
                .filter(|line| preserved.contains(text(line, "uuid")));
            left.for_each(|line| reader.line(line));
            reader.into.begin_here();
            reader.open = None;
        }
    }
    read.push(reader.into);
    read
}

/// The lines that lead to the newest one. People go back and ask differently, and what they left
/// was not sent again. Results of calls in parallel hang beside each other, and belong to it.
fn branch<'a>(lines: &[&'a Value]) -> HashSet<&'a str> {
    let ids = lines.iter().enumerate();
    let places: HashMap<&str, usize> = ids.map(|(at, line)| (text(line, "uuid"), at)).collect();
    let is_message = |line: &&Value| matches!(text(line, "type"), "user" | "assistant");
    let mut at = lines.iter().rposition(is_message);
    let mut kept = HashSet::new();
    let mut calls = HashSet::new();
    while let Some((place, line)) = at.and_then(|place| Some((place, lines.get(place)?))) {
        if !kept.insert(text(line, "uuid")) {
            break;
        }
        for block in items(field(line, "message"), "content") {
            calls.insert(text(block, "id"));
        }
        let names = ["parentUuid", "logicalParentUuid"];
        let above = names.iter().find_map(|name| line.get(*name)?.as_str());
        // A line that can't be read was most likely the one before.
        at = above.and_then(|id| places.get(id).copied().or_else(|| place.checked_sub(1)));
    }
    for line in lines {
        let blocks = items(field(line, "message"), "content");
        let mut results = blocks.filter(|block| text(block, "type") == "tool_result");
        if results.any(|block| calls.contains(text(block, "tool_use_id"))) {
            kept.insert(text(line, "uuid"));
        }
    }
    kept
}

/// A message of the provider that is being read. It has a line for each of its blocks, and results
/// may stand between them.
struct Open {
    id: String,
    /// Its place among the messages.
    place: usize,
    /// What was used before it.
    usage: RecordedUsage,
}

/// What a message took. Input is reported without what the cache had.
fn usage(usage: &Value) -> RecordedUsage {
    let cached = number(usage, "cache_read_input_tokens");
    let written = number(usage, "cache_creation_input_tokens");
    RecordedUsage {
        input: number(usage, "input_tokens") + cached + written,
        cached,
        hour_write: number(field(usage, "cache_creation"), "ephemeral_1h_input_tokens"),
        output: number(usage, "output_tokens"),
    }
}

struct Reader {
    into: Conversation,
    open: Option<Open>,
}

impl Reader {
    fn new(into: Conversation) -> Self {
        Self { into, open: None }
    }

    fn line(&mut self, line: &Value) {
        let (message, time) = (field(line, "message"), field(line, "timestamp"));
        match text(line, "type") {
            // What it says about a failure of the provider is not the model's.
            "assistant" if field(line, "isApiErrorMessage") == &Value::Bool(true) => {}
            "assistant" => self.answer(message, time),
            "user" => self.user(message, time),
            "attachment" => {
                let role = match text(line, "renderedRole") {
                    "system" => "system",
                    _ => "user",
                };
                for rendered in items(line, "rendered") {
                    self.into
                        .say(role, &content(field(rendered, "content")), time);
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, message: &Value, time: &Value) {
        let id = text(message, "id");
        if self
            .open
            .as_ref()
            .is_none_or(|open| open.id != id || id.is_empty())
        {
            self.into.begin_answer(time);
            self.open = Some(Open {
                id: id.to_owned(),
                place: self.into.messages.len() - 1,
                usage: self.into.usage,
            });
        }
        let Some(open) = &self.open else { return };
        // Each line of a message tells what it took until then, and the last one all of it.
        self.into.usage = open.usage.plus(usage(field(message, "usage")));
        let model = text(message, "model");
        if !model.is_empty() {
            self.into.model = Some(model.to_owned());
        }
        let answer = self.into.messages.get_mut(open.place);
        Answer(answer.and_then(Value::as_object_mut)).blocks(message);
    }

    fn user(&mut self, message: &Value, time: &Value) {
        let said = field(message, "content");
        for block in items(message, "content") {
            if text(block, "type") == "tool_result" {
                let result = content(field(block, "content"));
                self.into.result(text(block, "tool_use_id"), &result, time);
            }
        }
        // Parts that are results have no text of their own.
        self.into.say("user", &content(said), time);
    }
}
