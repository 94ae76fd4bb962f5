//! A client as SDKs write one: reads the events, puts the response together, and minds what a
//! strict one would mind.

use serde_json::Value;

use super::*;

/// The response as a client reads it.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) text: String,
    /// Calls by index (or, without one, in order of their ids): id, name, arguments.
    pub(super) calls: Vec<(Option<u64>, String, String, String)>,
    pub(super) finishes: Vec<String>,
    pub(super) roles: usize,
    pub(super) dones: usize,
    pub(super) errors: usize,
    pub(super) ids: Vec<String>,
    pub(super) usage: Option<(u64, u64, u64)>,
    pub(super) usages: usize,
    /// Everything that was said after the first finish reason, but for usage and `[DONE]`.
    pub(super) late: usize,
}

pub(super) fn read(stream: &[u8]) -> View {
    let text = std::str::from_utf8(stream)
        .unwrap()
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    let mut view = View::default();
    for event in text.split("\n\n") {
        let data = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let data: Vec<&str> = data
            .map(|value| value.strip_prefix(' ').unwrap_or(value))
            .collect();
        if !data.is_empty() {
            view.take(&data.join("\n"));
        }
    }
    view
}

impl View {
    fn take(&mut self, data: &str) {
        assert_eq!(self.dones, 0, "something behind [DONE]: {data}");
        if data == "[DONE]" {
            self.dones += 1;
            return;
        }
        let Ok(chunk) = serde_json::from_str::<Value>(data) else {
            return;
        };
        if chunk["error"].is_object() {
            self.errors += 1;
            return;
        }
        self.ids.extend(
            chunk["id"]
                .as_str()
                .filter(|id| !id.is_empty())
                .map(str::to_owned),
        );
        let counts = &chunk["usage"];
        if counts.is_object() {
            let count = |key: &str| counts[key].as_u64().unwrap();
            self.usage = Some((
                count("prompt_tokens"),
                count("completion_tokens"),
                count("total_tokens"),
            ));
            self.usages += 1;
        }
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            self.choose(choice);
        }
    }

    fn choose(&mut self, choice: &Value) {
        let delta = &choice["delta"];
        self.roles += usize::from(delta["role"].is_string());
        let text = delta["content"].as_str().unwrap_or_default();
        let calls = delta["tool_calls"].as_array();
        if !self.finishes.is_empty()
            && (!text.is_empty() || calls.is_some_and(|calls| !calls.is_empty()))
        {
            self.late += 1;
        }
        self.text.push_str(text);
        for call in calls.into_iter().flatten() {
            self.call(call);
        }
        self.finishes
            .extend(choice["finish_reason"].as_str().map(str::to_owned));
    }

    fn call(&mut self, call: &Value) {
        let (index, id) = (
            call["index"].as_u64(),
            call["id"].as_str().unwrap_or_default(),
        );
        let body = ["function", "custom"]
            .iter()
            .map(|key| &call[*key])
            .find(|body| body.is_object());
        let field = |keys: [&str; 2]| {
            let value = keys.iter().filter_map(|key| body?.get(key)).next();
            value
                .map(|value| {
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                })
                .unwrap_or_default()
        };
        let (name, arguments) = (field(["name", "name"]), field(["arguments", "input"]));
        let known = self.calls.iter_mut().rev().find(|known| match index {
            Some(_) => known.0 == index,
            None => (id.is_empty() && name.is_empty()) || (known.1 == id && !id.is_empty()),
        });
        let Some(known) = known else {
            self.calls.push((index, id.to_owned(), name, arguments));
            return;
        };
        if known.1.is_empty() {
            known.1 = id.to_owned();
        }
        if known.2 != name {
            known.2.push_str(&name);
        }
        known.3.push_str(&arguments);
    }
}

/// What holds for every response that a client gets, and what this case expects.
pub(super) fn check(case: &Case, seen: &Seen, view: &View) {
    let name = case.name;
    assert_eq!(view.text, case.text, "{name}: text");
    let calls: Vec<(&str, &str)> = view
        .calls
        .iter()
        .map(|call| (call.2.as_str(), call.3.as_str()))
        .collect();
    assert_eq!(calls, case.calls, "{name}: calls");
    assert_eq!(
        view.finishes.first().map(String::as_str),
        case.finish,
        "{name}: finish"
    );
    assert!(
        view.finishes.len() <= 1,
        "{name}: {} ends",
        view.finishes.len()
    );
    assert_eq!(view.usage, case.usage, "{name}: usage");
    sound(case, seen, view);
    let texts: Vec<&str> = seen
        .answers
        .iter()
        .map(|answer| answer.text.as_str())
        .collect();
    let closed = view.text.ends_with(harness::LINE);
    if !closed {
        assert_eq!(
            join(texts.iter().copied()).0,
            view.text,
            "{name}: texts joined"
        );
    }
}

/// What holds for every response.
pub(super) fn sound(case: &Case, seen: &Seen, view: &View) {
    let name = case.name;
    if !case.passes_unchanged {
        let indexes: Vec<u64> = view.calls.iter().filter_map(|call| call.0).collect();
        let dense: Vec<u64> = (0..indexes.len() as u64).collect();
        assert_eq!(indexes, dense, "{name}: indexes");
        for hidden in case.spec.hidden.own() {
            let quoted = format!("{hidden:?}");
            let shown = String::from_utf8_lossy(&seen.client);
            assert!(!shown.contains(&quoted), "{name}: {hidden} shows");
        }
        assert!(view.roles <= 1, "{name}: {} roles", view.roles);
    }
    assert_eq!(view.late, 0, "{name}: said behind its end");
    assert!(view.dones <= 1, "{name}: dones");
    assert!(
        view.ids.iter().all(|id| *id == view.ids[0]),
        "{name}: ids {:?}",
        view.ids
    );
    let complete = seen.answers.last().is_some_and(|answer| answer.complete);
    assert_eq!(view.errors, usize::from(!complete), "{name}: errors");
    if !complete {
        assert_eq!(
            view.dones, 0,
            "{name}: a failed stream ended as if it had not"
        );
    }
    for answer in &seen.answers {
        let message: Value = serde_json::from_slice(&form::message(answer)).unwrap();
        let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
        assert_eq!(calls, answer.calls.len(), "{name}: calls of the message");
    }
}
