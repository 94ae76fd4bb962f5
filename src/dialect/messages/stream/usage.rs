//! The counts in a Messages usage object. It reads and replaces numbers; members that it does not
//! know stay as they are.

use bytes::Bytes;

use crate::dialect::json;
use crate::model::Usage;
use crate::model::raw::{self, Edit, Object};

/// The counts as on the wire: tokens that were read from a cache or written to it are no part of
/// the input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    input: u64,
    cached: u64,
    written: u64,
    output: u64,
    reasoning: u64,
}

const INPUT: &str = "input_tokens";
const CACHED: &str = "cache_read_input_tokens";
const WRITTEN: &str = "cache_creation_input_tokens";
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
        if let Some(details) = details(usage) {
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
            completion: self.output,
            reasoning: self.reasoning,
        }
    }
}

fn details<'a>(usage: &Object<'a>) -> Option<Object<'a>> {
    Object::parse(usage.present(DETAILS)?).ok()
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
    let old = object
        .present("usage")
        .and_then(|raw| Object::parse(raw).ok());
    let Some(old) = old.filter(|old| !old.members().is_empty()) else {
        let members = counts.map(|(key, count)| format!("{}:{count}", raw::quote(key)));
        return object.set("usage", format!("{{{}}}", members.join(",")).as_bytes());
    };
    let mut edits: Vec<Edit> = counts
        .iter()
        .map(|(key, count)| old.set(key, count.to_string().as_bytes()))
        .collect();
    if let (Some(at), Some(details)) = (old.get(DETAILS), details(&old)) {
        let known = REASONING.iter().find_map(|key| details.get(key));
        let reasoning = Bytes::from(usage.reasoning.to_string());
        edits.extend(known.map(|span| (raw::shift(&span, at.start), reasoning)));
    }
    object.set("usage", &json::splice(old.bytes(), edits))
}
