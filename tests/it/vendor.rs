//! What a vendor keeps of the requests that it may compare, and what it says of those that ask why their cache missed.
//! Asserts only that it is asked for what it has.

use std::collections::HashMap;

use serde_json::Value;

use super::dialects::{Dialect, Sent};

/// What differs between two requests: the model, the system text, or the tools.
type Kept = [Value; 3];

/// The requests that may be compared, by the id of their answer.
#[derive(Default)]
pub struct Vendor(HashMap<String, Kept>);

/// Whether a request asks, and with which answer's request it is to be compared.
pub fn asked(sent: &Sent) -> Option<Value> {
    let body = &sent.body;
    let asked = match sent.dialect() {
        Dialect::Chat => None,
        Dialect::Messages => body["diagnostics"].get("previous_message_id"),
        Dialect::Responses => body["prompt_cache_options"].get("comparison_response_id"),
    };
    asked.cloned()
}

impl Vendor {
    /// Whether the request of this number asks, and what is said to it.
    pub fn said(&mut self, number: usize, sent: &Sent) -> (bool, Option<&'static str>) {
        let body = &sent.body;
        let system = match sent.dialect() {
            Dialect::Responses => &body["instructions"],
            Dialect::Chat | Dialect::Messages => &body["system"],
        };
        let now = [body["model"].clone(), system.clone(), body["tools"].clone()];
        let asked = asked(sent);
        let id = match sent.dialect() {
            Dialect::Responses => format!("resp_{number}"),
            Dialect::Chat | Dialect::Messages => format!("msg_{number}"),
        };
        let before = asked.as_ref().and_then(Value::as_str).map(|id| {
            let known = self.0.get(id);
            known.unwrap_or_else(|| panic!("asked for {id}, which is not kept"))
        });
        let differs = before.and_then(|before| {
            let parts = ["model_changed", "system_changed", "tools_changed"];
            let mut parts = parts.into_iter().zip(before.iter().zip(&now));
            parts
                .find(|(_, (before, now))| before != now)
                .map(|(part, _)| part)
        });
        // Anthropic keeps nothing of a request that does not ask.
        if asked.is_some() || sent.dialect() == Dialect::Responses {
            self.0.insert(id, now);
        }
        (asked.is_some(), differs)
    }
}
