//! The counts in a Messages usage object. It reads and replaces numbers; members that it does not
//! know stay as they are.

use bytes::Bytes;
use plimsoll_model::Usage;
use plimsoll_model::raw::{self, Edit, Object};

use crate::json;

/// The counts as on the wire: tokens that were read from a cache or written to it are no part of
/// the input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    input: u64,
    cached: u64,
    written: u64,
    hour: Option<u64>,
    output: u64,
    reasoning: u64,
}

const INPUT: &str = "input_tokens";
const CACHED: &str = "cache_read_input_tokens";
const WRITTEN: &str = "cache_creation_input_tokens";
/// The written tokens by how long they are kept.
const CREATION: &str = "cache_creation";
const MINUTES: &str = "ephemeral_5m_input_tokens";
const HOUR: &str = "ephemeral_1h_input_tokens";
const OUTPUT: &str = "output_tokens";
const DETAILS: &str = "output_tokens_details";
/// The names of the reasoning tokens among the details, by provider.
const REASONING: [&str; 2] = ["thinking_tokens", "reasoning_tokens"];

impl Counts {
    /// Replaces these counts by those of a newer usage object. Counts are sums so far, so one that
    /// is absent or zero brings nothing new.
    pub fn update(&mut self, usage: &Object<'_>) {
        let update = |count: &mut u64, new: Option<u64>| {
            *count = new.filter(|new| *new > 0).unwrap_or(*count);
        };
        update(&mut self.input, usage.number(INPUT));
        update(&mut self.cached, usage.number(CACHED));
        update(&mut self.written, usage.number(WRITTEN));
        update(&mut self.output, usage.number(OUTPUT));
        if let Some(creation) = usage.child(CREATION) {
            self.hour = self.hour.max(creation.number(HOUR));
        }
        if let Some(details) = usage.child(DETAILS) {
            let known = REASONING.iter().find_map(|key| details.number(key));
            update(&mut self.reasoning, known);
        }
    }

    /// The usage that they add up to.
    pub fn usage(self) -> Usage {
        let prompt = self.input.saturating_add(self.cached);
        Usage {
            prompt: prompt.saturating_add(self.written),
            cached: self.cached,
            cache_write: self.written,
            hour_write: self.hour,
            completion: self.output,
            reasoning: self.reasoning,
        }
    }
}

/// The edit that makes the usage of this object, a message or an event, tell these counts. The
/// client may have been told other counts before, so each is named even if it is zero.
pub fn tell(object: &Object<'_>, usage: &Usage) -> Edit {
    let apart = usage.cached.saturating_add(usage.cache_write);
    let counts = [
        (INPUT, usage.prompt.saturating_sub(apart)),
        (WRITTEN, usage.cache_write),
        (CACHED, usage.cached),
        (OUTPUT, usage.completion),
    ];
    let old = object.child("usage");
    let Some(old) = old.filter(|old| !old.members().is_empty()) else {
        let members = counts.map(|(key, count)| format!("{}:{count}", raw::quote(key)));
        return object.set("usage", format!("{{{}}}", members.join(",")).as_bytes());
    };
    let mut edits: Vec<Edit> = counts
        .iter()
        .map(|(key, count)| old.set(key, count.to_string().as_bytes()))
        .collect();
    if let (Some(at), Some(creation)) = (old.get(CREATION), old.child(CREATION)) {
        let hour = usage.hour_write.unwrap_or(0).min(usage.cache_write);
        let kept = [(MINUTES, usage.cache_write - hour), (HOUR, hour)];
        let kept = kept.map(|(key, count)| creation.set(key, count.to_string().as_bytes()));
        edits.extend(kept.map(|(span, count)| (raw::shift(&span, at.start), count)));
    }
    if let (Some(at), Some(details)) = (old.get(DETAILS), old.child(DETAILS)) {
        let known = REASONING.iter().find_map(|key| details.get(key));
        let reasoning = Bytes::from(usage.reasoning.to_string());
        edits.extend(known.map(|span| (raw::shift(&span, at.start), reasoning)));
    }
    object.set("usage", &json::splice(old.bytes(), edits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_for_an_hour_is_read_and_told() {
        let first = r#"{"input_tokens":5,"cache_creation_input_tokens":30,"cache_read_input_tokens":9,
            "cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":1}"#;
        let mut counts = Counts::default();
        counts.update(&Object::parse(first.as_bytes()).unwrap());
        // A later event tells the output alone.
        counts.update(&Object::parse(br#"{"output_tokens":7}"#).unwrap());
        let usage = counts.usage();
        assert_eq!((usage.cache_write, usage.hour_write), (30, Some(20)));
        assert_eq!((usage.prompt, usage.completion), (44, 7));
        let both = usage.plus(&usage);
        let message = format!(r#"{{"usage":{first}}}"#);
        let message = Object::parse(message.as_bytes()).unwrap();
        let told = raw::splice(message.bytes(), &[tell(&message, &both)]);
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
        let kept = &told["usage"]["cache_creation"];
        assert_eq!(kept["ephemeral_5m_input_tokens"], 20);
        assert_eq!(kept["ephemeral_1h_input_tokens"], 40);
        assert_eq!(told["usage"]["cache_creation_input_tokens"], 60);
        let silent = Counts::default().usage();
        assert_eq!(silent.hour_write, None);
    }
}
