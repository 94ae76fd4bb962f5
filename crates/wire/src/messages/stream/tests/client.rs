//! A client as SDKs write one: reads the events, puts the message together, and minds what a
//! strict one would mind.

use serde_json::{Value, json};

use super::*;

/// The response as a client reads it.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The message of `message_start`, with what came behind it.
    pub(super) message: Value,
    /// Its blocks. A call's input stands as the pieces spell it.
    pub(super) blocks: Vec<Value>,
    /// Blocks that were begun and not ended.
    pub(super) open: usize,
    pub(super) starts: usize,
    /// Stop reasons in order.
    pub(super) finishes: Vec<String>,
    pub(super) stops: usize,
    pub(super) errors: usize,
    pub(super) pings: usize,
    /// What is against the rules of a stream.
    pub(super) faults: Vec<String>,
}

pub(super) fn read(stream: &[u8]) -> View {
    let text = String::from_utf8_lossy(stream)
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    let mut view = View::default();
    for event in text.split("\n\n") {
        let name = event.lines().find_map(|line| line.strip_prefix("event:"));
        let data = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let data: Vec<&str> = data.map(str::trim_start).collect();
        if !data.is_empty() {
            view.take(name.map(str::trim), &data.join("\n"));
        }
    }
    view
}

impl View {
    fn take(&mut self, name: Option<&str>, data: &str) {
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            return;
        };
        let bare = if event["error"].is_object() {
            "error"
        } else {
            ""
        };
        let kind = event["type"].as_str().unwrap_or(bare);
        if name.is_some_and(|name| name != kind) && !kind.is_empty() {
            self.fault(&format!("{kind} under the name {name:?}"));
        }
        if self.stops > 0 && kind != "ping" {
            self.fault(&format!("{kind} behind the end"));
        }
        match kind {
            "message_start" => {
                self.starts += 1;
                self.message = event["message"].clone();
            }
            "content_block_start" => {
                self.orderly(kind);
                if event["index"].as_u64() != Some(self.blocks.len() as u64) {
                    self.fault(&format!("{event} is not block {}", self.blocks.len()));
                }
                self.blocks.push(event["content_block"].clone());
                self.open += 1;
            }
            "content_block_delta" => {
                self.orderly(kind);
                self.delta(&event);
            }
            "content_block_stop" => {
                self.orderly(kind);
                if event["index"].as_u64() != Some(self.blocks.len() as u64 - 1) {
                    self.fault(&format!("{event} ends another block"));
                }
                self.open = self.open.saturating_sub(1);
            }
            "message_delta" => {
                let reason = event["delta"]["stop_reason"].as_str();
                self.finishes.extend(reason.map(str::to_owned));
                for (key, count) in event["usage"].as_object().into_iter().flatten() {
                    self.message["usage"][key] = count.clone();
                }
            }
            "message_stop" => self.stops += 1,
            "ping" => self.pings += 1,
            "error" => {
                self.errors += 1;
                if !event["error"]["type"].is_string() || !event["error"]["message"].is_string() {
                    self.fault(&format!("{event} is no error"));
                }
            }
            _ => {}
        }
    }

    fn orderly(&mut self, kind: &str) {
        if self.starts == 0 {
            self.fault(&format!("{kind} before the start"));
        }
        if !self.finishes.is_empty() {
            self.fault(&format!("{kind} behind the stop reason"));
        }
        if self.open > 0 && kind == "content_block_start" {
            self.fault("a block inside another");
        }
    }

    fn delta(&mut self, event: &Value) {
        let delta = &event["delta"];
        let last = self.blocks.len().wrapping_sub(1) as u64;
        let Some(block) = self.blocks.last_mut() else {
            return self.fault("a delta without a block");
        };
        if event["index"].as_u64() != Some(last) || self.open == 0 {
            return self.fault(&format!("{event} is of another block"));
        }
        let mut add = |key: &str, piece: &Value| {
            let text = block[key].as_str().unwrap_or_default().to_owned();
            block[key] = json!(text + piece.as_str().unwrap_or_default());
        };
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => add("text", &delta["text"]),
            "thinking_delta" => add("thinking", &delta["thinking"]),
            "signature_delta" => add("signature", &delta["signature"]),
            "compaction_delta" => add("content", &delta["content"]),
            "input_json_delta" => add("json", &delta["partial_json"]),
            "citations_delta" => {
                if !block["citations"].is_array() {
                    block["citations"] = json!([]);
                }
                let citations = block["citations"].as_array_mut().unwrap();
                citations.push(delta["citation"].clone());
            }
            _ => {}
        }
    }

    fn fault(&mut self, fault: &str) {
        self.faults.push(fault.to_owned());
    }

    /// What the client was told in short, a line a block.
    pub(super) fn lines(&self) -> Vec<String> {
        self.blocks.iter().map(line).collect()
    }

    fn usage(&self, key: &str) -> u64 {
        self.message["usage"][key].as_u64().unwrap_or_default()
    }
}

fn line(block: &Value) -> String {
    let field = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
    let kind = field("type");
    match kind.as_str() {
        "text" => format!("text {}", field("text")),
        "thinking" => format!("thinking {} {}", field("thinking"), field("signature")),
        "redacted_thinking" => format!("redacted {}", field("data")),
        "tool_use" | "server_tool_use" => {
            format!("{kind} {} {} {}", field("id"), field("name"), field("json"))
        }
        _ => kind,
    }
}

/// What holds for every response that a client gets, and what this case expects.
pub(super) fn check(case: &Case, seen: &Seen, view: &View) {
    let name = case.name;
    assert_eq!(view.lines(), case.blocks, "{name}: blocks");
    let finish = view.finishes.first().map(String::as_str);
    assert_eq!(finish, case.finish, "{name}: finish");
    let keys = [
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "output_tokens",
    ];
    assert_eq!(keys.map(|key| view.usage(key)), case.usage, "{name}: usage");
    sound(case, seen, view);
    let shown = String::from_utf8_lossy(&seen.client);
    let named = |hidden: &String| shown.contains(&format!("{hidden:?}"));
    assert!(
        !case.spec.hidden.own().iter().any(named),
        "{name}: a name shows"
    );
    if view.errors == 0 && case.strict {
        assert_eq!(view.open, 0, "{name}: blocks left open");
        assert_eq!(
            (view.starts, view.finishes.len(), view.stops),
            (1, 1, 1),
            "{name}"
        );
    }
}

/// What holds for every response.
pub(super) fn sound(case: &Case, seen: &Seen, view: &View) {
    let name = case.name;
    if case.strict {
        assert_eq!(view.faults, Vec::<String>::new(), "{name}");
    }
    if !case.passes_unchanged {
        for hidden in case.spec.hidden.own() {
            let quoted = format!(r#""name":{hidden:?}"#);
            let shown = String::from_utf8_lossy(&seen.client);
            assert!(!shown.contains(&quoted), "{name}: {hidden} shows");
        }
    }
    assert!(view.starts <= 1, "{name}: {} starts", view.starts);
    assert!(
        view.finishes.len() <= 1,
        "{name}: {} ends",
        view.finishes.len()
    );
    let complete = seen.answers.last().is_some_and(|answer| answer.complete);
    assert_eq!(view.errors, usize::from(!complete), "{name}: errors");
    if !complete {
        assert_eq!(view.stops + view.finishes.len(), 0, "{name}: failed whole");
    }
    if let (Some(id), Some(first)) = (view.message["id"].as_str(), seen.answers.first()) {
        assert_eq!(Some(id), first.id.as_deref(), "{name}: id");
    }
    for answer in &seen.answers {
        for block in &answer.blocks {
            let block: Value = serde_json::from_slice(&block.raw).unwrap();
            let call = block["type"] == "tool_use";
            assert!(!call || block["input"].is_object(), "{name}: {block}");
        }
        let calls = answer.blocks.iter().filter_map(|block| match block.kind {
            BlockKind::Call(place) => Some(place),
            BlockKind::Text | BlockKind::Reasoning | BlockKind::Other => None,
        });
        let calls: Vec<usize> = calls.collect();
        let want: Vec<usize> = (0..answer.calls.len()).collect();
        assert_eq!(calls, want, "{name}: calls and blocks");
    }
}
