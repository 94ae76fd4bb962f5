//! How long a request asks its provider to keep what it caches. Never sets a marker, and never says what is cached.

use std::time::Duration;

use memchr::memmem;
use plimsoll_model::raw::Object;

use super::json;

/// The member that is a marker of what is cached
/// (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>, 2026-11).
pub const MARKER: &str = "cache_control";

/// For how long a marker keeps what stands before it if it does not say.
const MINUTES: Duration = Duration::from_secs(300);

const HOUR: Duration = Duration::from_secs(3_600);

/// How deep markers stand in a message: in a block, and in a block of a result.
const DEPTH: usize = 3;

/// For how long a request asks to keep its prefix, where it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedFor {
    /// The longest time for any part of it.
    pub longest: Option<Duration>,
    /// The time for its end, where what is new stands.
    pub end: Option<Duration>,
}

impl CachedFor {
    /// What a request with these messages asks for by the markers in it or, where OpenAI's models cache by themselves,
    /// by its options (<https://developers.openai.com/api/docs/guides/prompt-caching>, 2026-11).
    pub fn of<'a>(request: &Object<'_>, messages: impl Iterator<Item = &'a [u8]>) -> Self {
        let retention = request.text("prompt_cache_retention");
        let retention = retention.and_then(|time| read(&time));
        let options = request.child("prompt_cache_options");
        let options = options.and_then(|options| read(&options.text("ttl")?));
        let mut found = Self::default();
        found.add(retention.max(options));
        let front = ["tools", "system"].map(|list| request.present(list).unwrap_or_default());
        for list in front.into_iter().filter(|list| may_hold(list)) {
            found.add_all(json::elements(list));
        }
        found.add_all(messages);
        found.add(marker(request));
        found
    }

    /// The longest time in seconds; 0 if the request asks for none.
    #[must_use]
    pub fn seconds(self) -> u32 {
        let seconds = self.longest.map_or(0, |time| time.as_secs());
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// Whether what is new is kept for an hour or longer.
    #[must_use]
    pub fn ends_hourly(self) -> bool {
        self.end.is_some_and(|time| time >= HOUR)
    }

    fn add(&mut self, time: Option<Duration>) {
        self.longest = self.longest.max(time);
        self.end = time.or(self.end);
    }

    /// Adds the markers in all of these.
    fn add_all<'a>(&mut self, elements: impl Iterator<Item = &'a [u8]>) {
        for one in elements.filter(|one| may_hold(one)) {
            self.add_within(one, DEPTH);
        }
    }

    /// Adds the marker of an element, and those in its content.
    fn add_within(&mut self, element: &[u8], depth: usize) {
        let Ok(object) = Object::parse(element) else {
            return;
        };
        if let Some(content) = object.present("content").filter(|_| depth > 1) {
            for block in json::objects(content) {
                self.add_within(block.bytes(), depth - 1);
            }
        }
        self.add(object.child("function").as_ref().and_then(marker));
        self.add(marker(&object));
    }
}

/// Whether a marker may be in there. Histories are long and markers few, so this saves parsing.
pub fn may_hold(bytes: &[u8]) -> bool {
    memmem::find(bytes, MARKER.as_bytes()).is_some()
}

/// The time that the marker of an object says: five minutes if it says none.
fn marker(object: &Object<'_>) -> Option<Duration> {
    let marker = object.child(MARKER)?;
    let time = marker.text("ttl").and_then(|time| read(&time));
    Some(time.unwrap_or(MINUTES))
}

/// A time as `5m`, `1h` or `24h`.
pub fn read(time: &str) -> Option<Duration> {
    let unit = match time.chars().next_back()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let count: u64 = time.get(..time.len() - 1)?.parse().ok()?;
    // No provider keeps anything for longer than some days.
    (count <= 1_000).then(|| Duration::from_secs(count * unit))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(body: &Value) -> CachedFor {
        let body = body.to_string();
        let request = Object::parse(body.as_bytes()).unwrap();
        let messages = request.present("messages").unwrap_or_default();
        CachedFor::of(&request, json::elements(messages))
    }

    #[test]
    fn the_longest_marker_counts_wherever_it_stands() {
        let hour = json!({"type": "ephemeral", "ttl": "1h"});
        let minutes = json!({"type": "ephemeral"});
        let block =
            |marker: &Value| json!({"type": "text", "text": "hello", "cache_control": marker});
        for (body, expect) in [
            (json!({"messages": []}), None),
            (
                json!({"messages": [{"role": "user", "content": "cache_control"}]}),
                None,
            ),
            (
                json!({"messages": [{"role": "user", "content": [block(&minutes)]}]}),
                Some(300),
            ),
            (
                json!({"system": [block(&hour)], "messages": [{"role": "user", "content": [block(&minutes)]}]}),
                Some(3600),
            ),
            (
                json!({"tools": [{"name": "a", "input_schema": {}, "cache_control": hour}], "messages": []}),
                Some(3600),
            ),
            (
                json!({"tools": [{"type": "function", "function": {"name": "a", "cache_control": hour}}]}),
                Some(3600),
            ),
            (json!({"messages": [], "cache_control": hour}), Some(3600)),
            (
                json!({"messages": [{"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [block(&hour)]}]}]}),
                Some(3600),
            ),
            // What a tool is called with is no marker.
            (
                json!({"messages": [{"role": "assistant", "content": [
                    {"type": "tool_use", "id": "a", "name": "b", "input": {"cache_control": hour}}]}]}),
                None,
            ),
            (
                json!({"input": [], "prompt_cache_retention": "24h"}),
                Some(86_400),
            ),
            (
                json!({"input": [], "prompt_cache_retention": "in_memory"}),
                None,
            ),
            (
                json!({"input": [], "prompt_cache_options": {"ttl": "30m"}}),
                Some(1800),
            ),
            (
                json!({"input": [], "prompt_cache_options": {"ttl": "99999999999999999999h"}}),
                None,
            ),
            (
                json!({"input": [], "prompt_cache_options": {"ttl": "é"}}),
                None,
            ),
        ] {
            let longest = found(&body).longest.map(|time| time.as_secs());
            assert_eq!(longest, expect, "{body}");
        }
    }

    #[test]
    fn what_is_new_is_kept_as_the_last_marker_says() {
        let (hour, minutes) = (
            json!({"type": "ephemeral", "ttl": "1h"}),
            json!({"type": "ephemeral"}),
        );
        let block =
            |marker: &Value| json!([{"type": "text", "text": "hello", "cache_control": marker}]);
        for (system, tail, expect) in [
            (&hour, &minutes, false),
            (&hour, &hour, true),
            (&minutes, &minutes, false),
        ] {
            let messages = json!([{"role": "user", "content": block(tail)}]);
            let body = json!({"messages": messages, "system": block(system)});
            assert_eq!(found(&body).ends_hourly(), expect, "{body}");
        }
        assert!(!found(&json!({"messages": []})).ends_hourly());
    }
}
