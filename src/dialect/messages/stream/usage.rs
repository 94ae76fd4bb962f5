//! The counts in a Messages usage object. It reads and replaces numbers; members that it doesn't
//! know stay as they are.

use bytes::Bytes;

use crate::model::Usage;
use crate::model::raw::{self, Edit, Object};

/// The counts as the wire has them: what was read from a cache and what was written to it is not
/// part of the input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
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
/// What reasoning is called among the details, by provider.
const REASONING: [&str; 2] = ["thinking_tokens", "reasoning_tokens"];

impl Counts {
    /// Lays the counts of a usage object over these. They are sums so far, so what is absent or
    /// zero says nothing new.
    pub(super) fn overlay(&mut self, usage: &Object<'_>) {
        let lay = |count: &mut u64, new: Option<u64>| {
            *count = new.filter(|new| *new > 0).unwrap_or(*count);
        };
        lay(&mut self.input, usage.number(INPUT));
        lay(&mut self.cached, usage.number(CACHED));
        lay(&mut self.written, usage.number(WRITTEN));
        lay(&mut self.output, usage.number(OUTPUT));
        if let Some(details) = details(usage) {
            let known = REASONING.iter().find_map(|key| details.number(key));
            lay(&mut self.reasoning, known);
        }
    }

    /// The usage that they come to.
    pub(super) fn usage(self) -> Usage {
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
/// client may have been told others before, so each is named even where it is zero.
pub(super) fn tell(object: &Object<'_>, usage: &Usage) -> Edit {
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
    object.set("usage", &splice(old.bytes(), edits))
}

/// As [`raw::splice`], for edits in any order.
pub(super) fn splice(bytes: &[u8], mut edits: Vec<Edit>) -> Bytes {
    edits.sort_by_key(|(span, _)| (span.start, span.end));
    raw::splice(bytes, &edits)
}
