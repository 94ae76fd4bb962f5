//! What stands before each thought of a request, read as the providers compare it.
//!
//! Owns the canonical form: blocks by value, without markers, defaults and the thoughts themselves.
//! It never says whether a thought is valid.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::Form;
use super::read::{array, text};

/// Kinds that hold a thought.
const THOUGHTS: [&str; 3] = ["thinking", "redacted_thinking", "reasoning"];
/// Members of a message of Chat Completions that show a thought.
const SHOWN: [&str; 4] = [
    "thinking_blocks",
    "reasoning_details",
    "reasoning_content",
    "reasoning",
];

/// A request, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prefix {
    pub system: u64,
    tools: Vec<Tool>,
    pub steps: Vec<Step>,
    /// Tools are a set, which holds where they bind by name.
    unordered: bool,
    /// The index of the newest message of the model's.
    pub newest: Option<usize>,
}

/// A tool that is offered.
#[derive(Debug, Clone)]
struct Tool {
    name: String,
    hash: u64,
    /// It is not part of what the model sees before something names it.
    deferred: bool,
}

/// A part of a request's list.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A block that is compared.
    Block(Block),
    /// A thought, which is not.
    Thought(Carried),
}

/// A block that is compared.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub path: String,
    pub hash: u64,
    /// The deferred tools that it names.
    named: Vec<String>,
    /// The provider has put it in the place of what stood before it.
    pub compacted: bool,
}

/// A thought as it came back.
#[derive(Debug, Clone)]
pub(crate) struct Carried {
    pub path: String,
    pub signature: String,
    pub text: String,
    /// The id of its item, in Responses.
    pub id: String,
    /// The index of the message that it is in.
    pub place: usize,
}

impl Prefix {
    pub(crate) fn read(form: Form, body: &Value) -> Self {
        let tools = array(body, "tools").map(tool).collect();
        let mut prefix = Self {
            system: digest("none"),
            tools,
            steps: Vec::new(),
            unordered: form != Form::Responses,
            newest: None,
        };
        match form {
            Form::Messages => prefix.messages(body),
            Form::Chat => prefix.chat(body),
            Form::Responses => prefix.responses(body),
        }
        prefix
    }

    /// The tools as they are seen where these are named.
    pub(crate) fn tools(&self, named: &BTreeSet<String>) -> u64 {
        let seen = |tool: &&Tool| !tool.deferred || named.contains(&tool.name);
        let mut seen: Vec<&Tool> = self.tools.iter().filter(seen).collect();
        if self.unordered {
            seen.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let hashes: Vec<u64> = seen.iter().map(|tool| tool.hash).collect();
        digest(hashes)
    }

    /// The deferred tools that its blocks name.
    pub(crate) fn named(&self) -> BTreeSet<String> {
        let names = self.blocks().flat_map(|block| &block.named);
        names.cloned().collect()
    }

    /// The blocks alone.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.steps.iter().filter_map(|step| match step {
            Step::Block(block) => Some(block),
            Step::Thought(_) => None,
        })
    }

    /// The thoughts alone.
    pub(crate) fn thoughts(&self) -> impl Iterator<Item = &Carried> {
        self.steps.iter().filter_map(|step| match step {
            Step::Thought(thought) => Some(thought),
            Step::Block(_) => None,
        })
    }

    fn messages(&mut self, body: &Value) {
        if let Some(system) = body.get("system") {
            self.system = digest(seen(&blocks(Some(system))));
        }
        for (place, message) in array(body, "messages").enumerate() {
            let content = blocks(message.get("content"));
            self.message(place, message, &["role", "content"], content);
        }
    }

    /// One message: what it says beside its content goes with its first block.
    fn message(&mut self, place: usize, message: &Value, known: &[&str], content: Vec<Value>) {
        let mut lead = vec![text(message, "role")];
        if lead.iter().any(|role| role == "assistant") {
            self.newest = Some(place);
        }
        let members = message.as_object().into_iter().flatten();
        for (name, value) in members.filter(|(name, _)| !known.contains(&name.as_str())) {
            if !value.is_null() && !SHOWN.contains(&name.as_str()) && name != "cache_control" {
                lead.push(format!("{name} {:x}", value_hash(value)));
            }
        }
        lead.sort_unstable();
        let mut first = true;
        for (at, block) in content.iter().enumerate() {
            let path = format!("messages.{place}.content.{at}");
            if let Some(thought) = carried(block, &path, place) {
                self.steps.push(Step::Thought(thought));
            } else if let Some(hash) = block_hash(block) {
                let hash = if first {
                    digest((&lead, hash))
                } else {
                    digest(hash)
                };
                self.block(path, hash, block);
                first = false;
            }
        }
    }

    fn block(&mut self, path: String, hash: u64, block: &Value) {
        let mut named = Vec::new();
        references(block, &mut named);
        self.steps.push(Step::Block(Block {
            path,
            hash,
            named,
            compacted: text(block, "type") == "compaction",
        }));
    }

    /// Chat Completions, numbered as what is passed on: without what goes before the talk.
    fn chat(&mut self, body: &Value) {
        let list: Vec<&Value> = array(body, "messages").collect();
        let is_system =
            |message: &&&Value| matches!(text(message, "role").as_str(), "system" | "developer");
        let front = list.iter().take_while(is_system).count();
        let (system, talk) = list.split_at(front);
        let system = system
            .iter()
            .flat_map(|message| blocks(message.get("content")));
        let system: Vec<Value> = system.collect();
        if !system.is_empty() {
            self.system = digest(seen(&system));
        }
        for (place, message) in talk.iter().enumerate() {
            let details = array(message, "reasoning_details");
            let thoughts = array(message, "thinking_blocks").chain(details);
            let mut content: Vec<Value> = thoughts.cloned().collect();
            content.extend(blocks(message.get("content")));
            content.extend(array(message, "tool_calls").map(called));
            let known = ["role", "content", "tool_calls", "refusal"];
            self.message(place, message, &known, content);
        }
    }

    fn responses(&mut self, body: &Value) {
        let front = [body.get("instructions"), body.pointer("/text/format")];
        let front: Vec<Option<u64>> = front
            .into_iter()
            .map(|part| part.filter(|part| !part.is_null()).map(value_hash))
            .collect();
        self.system = digest(front);
        let said = body.get("input").and_then(Value::as_str);
        let said = said.map(|text| serde_json::json!({"role": "user", "content": text}));
        let items = said.iter().chain(array(body, "input"));
        for (place, item) in items.enumerate() {
            let path = format!("input.{place}");
            if let Some(thought) = carried(item, &path, place) {
                self.steps.push(Step::Thought(thought));
                continue;
            }
            let mut plain = without(item, &["id", "status"]);
            if let Some(fields) = plain.as_object_mut() {
                fields
                    .entry("type")
                    .or_insert_with(|| Value::from("message"));
                if let Some(content) = fields.get_mut("content") {
                    *content = seen(&blocks(Some(&*content))).into();
                }
            }
            let hash = value_hash(&plain);
            self.block(path, hash, item);
        }
    }
}

/// The state of a walk over a request: what has been passed so far.
#[derive(Debug, Clone)]
pub(super) struct Walk<'a> {
    prefix: &'a Prefix,
    named: BTreeSet<String>,
    /// The chain over the blocks.
    pub messages: u64,
    /// The tools as they are seen here.
    pub tools: u64,
    /// The blocks, each by a short hash and its path.
    pub passed: Vec<(u16, &'a str)>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(prefix: &'a Prefix) -> Self {
        let named = BTreeSet::new();
        Self {
            prefix,
            messages: digest("begin"),
            tools: prefix.tools(&named),
            passed: Vec::new(),
            named,
        }
    }

    pub(super) fn pass(&mut self, block: &'a Block) {
        if block.compacted {
            *self = Self::new(self.prefix);
        }
        self.messages = digest((self.messages, block.hash));
        let short = u16::try_from(block.hash & 0xffff).unwrap_or_default();
        self.passed.push((short, block.path.as_str()));
        if !block.named.is_empty() {
            self.named.extend(block.named.iter().cloned());
            self.tools = self.prefix.tools(&self.named);
        }
    }
}

/// The thought that a block holds, if it is one.
fn carried(block: &Value, path: &str, place: usize) -> Option<Carried> {
    let kind = text(block, "type");
    let known = THOUGHTS.contains(&kind.as_str()) || kind.starts_with("reasoning.");
    let signature = ["signature", "data", "encrypted_content"]
        .into_iter()
        .find_map(|field| block.get(field).and_then(Value::as_str));
    let said = match kind.as_str() {
        "thinking" => text(block, "thinking"),
        "reasoning.text" => text(block, "text"),
        _ => String::new(),
    };
    known.then(|| Carried {
        path: path.to_owned(),
        signature: signature.unwrap_or_default().to_owned(),
        text: said,
        id: text(block, "id"),
        place,
    })
}

/// A content as blocks: a text is one block of text.
fn blocks(content: Option<&Value>) -> Vec<Value> {
    match content {
        Some(Value::String(text)) => vec![serde_json::json!({"type": "text", "text": text})],
        Some(Value::Array(blocks)) => blocks.clone(),
        Some(_) | None => Vec::new(),
    }
}

/// A call of Chat Completions as it is passed on, with its arguments as the JSON that they are.
fn called(call: &Value) -> Value {
    let function = call.get("function").unwrap_or(&Value::Null);
    let arguments = text(function, "arguments");
    let input = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
    serde_json::json!({"type": "tool_use", "id": call.get("id"), "name": function.get("name"),
        "input": input})
}

/// The hashes of what is compared of some blocks.
fn seen(blocks: &[Value]) -> Vec<u64> {
    blocks.iter().filter_map(block_hash).collect()
}

/// What is compared of a block; nothing of white space.
fn block_hash(block: &Value) -> Option<u64> {
    let kind = text(block, "type");
    let mut plain = without(block, &[]);
    let fields = plain.as_object_mut()?;
    fields.retain(|name, value| match (name.as_str(), &*value) {
        (_, Value::Null) | ("is_error", Value::Bool(false)) => false,
        ("citations" | "annotations" | "logprobs", Value::Array(list)) => !list.is_empty(),
        _ => true,
    });
    match kind.as_str() {
        "text" | "input_text" | "output_text" => {
            let said = text(block, "text").trim().to_owned();
            if said.is_empty() {
                return None;
            }
            fields.insert("type".to_owned(), "text".into());
            fields.insert("text".to_owned(), said.into());
        }
        "tool_result" => {
            let content = blocks(block.get("content"));
            fields.insert("content".to_owned(), seen(&content).into());
        }
        _ => {}
    }
    for path in ["/source/url", "/image_url", "/image_url/url"] {
        if let Some(Value::String(url)) = plain.pointer_mut(path) {
            *url = address(url).to_owned();
        }
    }
    Some(value_hash(&plain))
}

fn tool(tool: &Value) -> Tool {
    let named = tool.get("function").unwrap_or(tool);
    let mut plain = without(tool, &[]);
    if let Some(fields) = plain.as_object_mut() {
        fields.retain(|name, value| match (name.as_str(), &*value) {
            (_, Value::Null) => false,
            ("strict" | "eager_input_streaming", Value::Bool(set)) => *set,
            ("type", Value::String(kind)) => kind != "custom",
            ("description", Value::String(text)) => !text.is_empty(),
            ("allowed_callers", callers) => *callers != serde_json::json!(["direct"]),
            _ => true,
        });
    }
    Tool {
        name: text(named, "name"),
        hash: value_hash(&plain),
        deferred: tool.get("defer_loading") == Some(&Value::Bool(true)),
    }
}

/// An object without the marker and without some members.
fn without(value: &Value, members: &[&str]) -> Value {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| name != "cache_control" && !members.contains(&name.as_str()));
    }
    value
}

/// The tools that a block names by reference, however deep.
fn references(value: &Value, named: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if text(value, "type") == "tool_reference" {
                named.push(text(value, "tool_name"));
            }
            for value in fields.values() {
                references(value, named);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, named)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A hash that is the same in each process.
pub(crate) fn digest(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The hash of a JSON value, whatever the order of its keys and wherever it is marked.
fn value_hash(value: &Value) -> u64 {
    match value {
        Value::Null => digest("null"),
        Value::Bool(set) => digest(("bool", set)),
        Value::Number(number) => digest(("number", whole(number))),
        Value::String(text) => digest(("text", text)),
        Value::Array(list) => {
            let hashes: Vec<u64> = list.iter().map(value_hash).collect();
            digest(("list", hashes))
        }
        Value::Object(fields) => {
            let members = fields.iter().filter(|(name, _)| *name != "cache_control");
            let mut hashes: Vec<(&str, u64)> = members
                .map(|(name, value)| (name.as_str(), value_hash(value)))
                .collect();
            hashes.sort_unstable();
            digest(("object", hashes))
        }
    }
}

/// A number as text: 1 and 1.0 are the same.
fn whole(number: &serde_json::Number) -> String {
    let text = number.to_string();
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// An address without what signs it, since nobody here fetches the bytes behind it.
fn address(url: &str) -> &str {
    match url.split_once('?') {
        Some((bare, _)) if url.starts_with("http") => bare,
        Some(_) | None => url,
    }
}
