//! A client as SDKs write one: reads the events, puts the response together, and minds what a
//! strict one would mind.

use serde_json::Value;

use super::corpus::Case;
use super::say::{GUIDANCE, OWN};
use crate::answer::Verdict;

/// The response as a client reads it.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The items as they were begun, by their numbers, and whether each was told of as whole.
    begun: Vec<(Value, bool)>,
    /// The items that are whole.
    pub(super) items: Vec<Value>,
    /// What the deltas of all texts come to.
    pub(super) text: String,
    /// The texts of whole items.
    whole: String,
    /// All response objects, the last one being that of the end if there was one.
    pub(super) responses: Vec<Value>,
    sequence: u64,
    /// The type of the event that ended it.
    pub(super) ended: Option<String>,
    errors: Vec<Value>,
}

pub(super) fn read(stream: &[u8]) -> View {
    let text = std::str::from_utf8(stream).unwrap().replace("\r\n", "\n");
    let mut view = View::default();
    for frame in text.split("\n\n").filter(|frame| !frame.is_empty()) {
        let of = |field: &str| -> Vec<&str> {
            frame
                .lines()
                .filter_map(|line| line.strip_prefix(field))
                .collect()
        };
        let data = of("data: ").join("\n");
        if data == "[DONE]" {
            assert!(view.ended.is_some(), "[DONE] without an end");
            continue;
        }
        if let Ok(event) = serde_json::from_str::<Value>(&data)
            && event.is_object()
        {
            let kind = event["type"].as_str().unwrap();
            for name in of("event: ") {
                assert_eq!(name, kind);
            }
            view.take(kind, &event);
        }
    }
    view
}

impl View {
    fn take(&mut self, kind: &str, event: &Value) {
        assert!(self.errors.is_empty(), "{kind} behind an error");
        if let Some(number) = event["sequence_number"].as_u64() {
            assert_eq!(number, self.sequence, "{kind}: number");
            self.sequence += 1;
        }
        if event["response"].is_object() {
            self.responses.push(event["response"].clone());
        }
        match kind {
            "response.created" => assert_eq!(self.responses.len(), 1, "begins twice"),
            "response.completed" | "response.incomplete" | "response.failed" => {
                assert_eq!(self.ended, None, "ends twice");
                self.ended = Some(kind.to_owned());
            }
            "error" => self.errors.push(event.clone()),
            "response.output_item.added" => {
                let next = self.begun.len() as u64;
                assert_eq!(event["output_index"], next, "number of an item");
                self.begun.push((event["item"].clone(), false));
            }
            "response.output_item.done" => self.whole(event),
            _ => self.within(kind, event),
        }
    }

    fn item(&mut self, event: &Value) -> Option<&mut (Value, bool)> {
        assert_eq!(self.ended, None, "an item behind the end");
        let at = event["output_index"].as_u64()?;
        let item = self.begun.get_mut(usize::try_from(at).unwrap());
        let item = item.expect("about an item that never began");
        assert!(!item.1, "about an item that is whole: {event}");
        Some(item)
    }

    fn whole(&mut self, event: &Value) {
        let item = event["item"].clone();
        let begun = self.item(event).unwrap();
        begun.1 = true;
        for key in ["id", "type"] {
            assert_eq!(begun.0[key], item[key], "{key} of an item");
        }
        for part in item["content"].as_array().into_iter().flatten() {
            self.whole
                .push_str(part["text"].as_str().unwrap_or_default());
        }
        self.items.push(item);
    }

    fn within(&mut self, kind: &str, event: &Value) {
        let Some((item, _)) = self.item(event) else {
            return;
        };
        assert_eq!(item["id"], event["item_id"], "{kind}: whose");
        if kind == "response.output_text.delta" {
            self.text.push_str(event["delta"].as_str().unwrap());
        }
    }
}

/// The name of a call, and the type of all else.
pub(super) fn name(item: &Value) -> String {
    let name = item["name"].as_str().filter(|name| !name.is_empty());
    let kind = item["type"].as_str();
    name.or(kind).unwrap_or_default().to_owned()
}

/// What holds for every response that a client gets, and what this case expects.
pub(super) fn check(case: &Case, stream: &[u8], view: &View) {
    let name = case.name;
    let whole: Vec<String> = view.items.iter().map(self::name).collect();
    let begun = view.begun.len();
    assert_eq!(view.text, case.text, "{name}: text");
    let broken = case.verdict == Verdict::Broken;
    if !broken {
        // A name may come late, but not later than the end.
        let items = view.responses.last().unwrap()["output"].as_array().unwrap();
        let told: Vec<String> = items.iter().map(self::name).collect();
        assert_eq!(told, case.items, "{name}: items");
        assert_eq!(begun, case.items.len(), "{name}: items begun");
        assert!(items.starts_with(&view.items), "{name}: output");
    }
    match case.verdict {
        Verdict::Done | Verdict::Mixed | Verdict::HiddenOnly => {
            assert_eq!(view.ended.as_deref(), Some("response.completed"), "{name}");
            assert_eq!(whole, case.items, "{name}: whole items");
            assert_eq!(view.text, view.whole, "{name}: text of items");
        }
        Verdict::Cut => {
            assert_eq!(view.ended.as_deref(), Some("response.incomplete"), "{name}");
        }
        Verdict::Broken => {
            let failed = view.ended.as_deref() == Some("response.failed");
            assert_eq!(view.errors.len(), usize::from(!failed), "{name}: errors");
            assert!(failed || view.ended.is_none(), "{name}");
            let message = view
                .errors
                .iter()
                .find_map(|error| error["message"].as_str());
            assert!(
                failed || message.is_some_and(|said| !said.is_empty()),
                "{name}"
            );
        }
    }
    let usage = view.responses.last().map(usage).unwrap_or_default();
    assert_eq!(usage, case.usage, "{name}: usage");
    sound(case, stream, view);
}

fn usage(response: &Value) -> Option<[u64; 4]> {
    let usage = &response["usage"];
    let count = |of: &Value| of.as_u64().unwrap();
    let input = usage["input_tokens"].as_u64()?;
    let output = count(&usage["output_tokens"]);
    assert_eq!(usage["total_tokens"], input + output);
    Some([
        input,
        count(&usage["input_tokens_details"]["cached_tokens"]),
        output,
        count(&usage["output_tokens_details"]["reasoning_tokens"]),
    ])
}

/// What holds for every response.
pub(super) fn sound(case: &Case, stream: &[u8], view: &View) {
    for response in &view.responses {
        client_own(case.name, response);
    }
    if !case.spec.hidden.is_empty() {
        silent(case, stream);
    }
}

/// Nothing of what was injected shows.
pub(super) fn silent(case: &Case, bytes: &[u8]) {
    let shown = String::from_utf8_lossy(bytes);
    for hidden in case.spec.hidden.own() {
        for trace in [format!("{hidden:?}"), format!("does {hidden}")] {
            assert!(!shown.contains(&trace), "{}: {trace} shows", case.name);
        }
    }
    assert!(!shown.contains(GUIDANCE), "{}: guidance shows", case.name);
}

/// A response repeats what the client sent, and is the first hop's.
pub(super) fn client_own(name: &str, response: &Value) {
    assert_eq!(response["id"], "resp_0a1b", "{name}: id");
    assert_eq!(response["instructions"], OWN, "{name}: instructions");
    assert_eq!(response["max_output_tokens"], 500, "{name}: limit");
    let tools = response["tools"].as_array().unwrap();
    let tools: Vec<String> = tools.iter().map(self::name).collect();
    assert_eq!(tools, ["read", "web_search"], "{name}: tools");
}
