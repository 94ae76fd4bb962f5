//! Which usage the client is told: what it asked for, and how the counts of several hops become one
//! report. The names of the counts on the wire belong to the formats.

use plimsoll_model::Usage;
use plimsoll_model::raw::Edit;

use super::json::Node;

/// Which usage the client is told when a turn had several hops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsageMode {
    /// Prompt and cached tokens of the last hop, completion tokens of all hops: agents read usage
    /// as the fill of their context and compact by it.
    #[default]
    Last,
    /// The sums of all hops, for those who bill by them.
    Sum,
}

/// Whether the client wants a usage chunk at the end of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageWish {
    /// The client asked for the usage chunk.
    Asked,
    /// The client left it open and the proxy asks: the chunk is removed again.
    Added,
    /// The client refused it, or the format has no such wish: usage that the upstream sends all the
    /// same is passed on.
    Refused,
}

/// The usage that the client is told, given each hop's in order; `None` if no hop reported any.
///
/// If the last hop reported none, the prompt is that of the last hop that did.
#[must_use]
pub fn combined<'a>(mode: UsageMode, hops: impl IntoIterator<Item = &'a Usage>) -> Option<Usage> {
    hops.into_iter().fold(None, |before, hop| match before {
        None => Some(*hop),
        Some(spent) => Some(add(mode, &spent, hop)),
    })
}

/// The usage after one more hop.
fn add(mode: UsageMode, spent: &Usage, hop: &Usage) -> Usage {
    let sum = spent.plus(hop);
    match mode {
        UsageMode::Last => Usage {
            completion: sum.completion,
            reasoning: sum.reasoning,
            ..*hop
        },
        UsageMode::Sum => sum,
    }
}

/// The names of the counts in a usage object of OpenAI's, or of one like it.
pub struct CountNames {
    /// The tokens of the prompt.
    pub prompt: &'static str,
    /// Those of them that were not read from a cache.
    pub missed: Option<&'static str>,
    /// The cached tokens where they stand beside the prompt, in the order in which they are believed. Among its
    /// details they have one name.
    pub cached: &'static [&'static str],
    /// The tokens that were written to a cache, beside the prompt and among its details, in the same order.
    pub written: [&'static [&'static str]; 2],
    /// Where the details tell those of them that are kept for an hour.
    pub hour: Option<[&'static str; 2]>,
    /// The tokens of the completion.
    pub completion: &'static str,
    /// The members that hold the details of the prompt and of the completion.
    pub details: [&'static str; 2],
}

const CACHED: &[&str] = &["cached_tokens"];
const REASONING: &[&str] = &["reasoning_tokens"];

impl CountNames {
    /// The counts that a usage object reports; a count that it leaves out is zero.
    pub fn read(&self, usage: &Node<'_>) -> Usage {
        let [prompt, completion] = self.details.map(|key| usage.child(key));
        let first = |node: Option<&Node<'_>>, keys: &[&str]| {
            let node = node?;
            keys.iter().find_map(|key| node.object.number(key))
        };
        let (own, inner) = (Some(usage), prompt.as_ref());
        let [beside, among] = self.written;
        let cached = first(inner, CACHED).or_else(|| first(own, self.cached));
        let written = first(inner, among).or_else(|| first(own, beside));
        let hour = |[list, key]: [&str; 2]| inner?.child(list)?.object.number(key);
        Usage {
            prompt: first(own, &[self.prompt]).unwrap_or(0),
            cached: cached.unwrap_or(0),
            cache_write: written.unwrap_or(0),
            hour_write: self.hour.and_then(hour),
            completion: first(own, &[self.completion]).unwrap_or(0),
            reasoning: first(completion.as_ref(), REASONING).unwrap_or(0),
        }
    }

    /// The edits that replace the counts of a usage object. Fields that have no name here, and those that are
    /// absent, stay as they are.
    pub fn write(&self, usage: &Node<'_>, counts: &Usage) -> Vec<Edit> {
        let [prompt, completion] = self.details.map(|key| usage.child(key));
        let (own, inner) = (Some(usage), prompt.as_ref());
        let [beside, among] = self.written;
        let total = counts.prompt.saturating_add(counts.completion);
        let missed = counts.prompt.saturating_sub(counts.cached);
        let all: [(Option<&Node<'_>>, &[&str], u64); 9] = [
            (own, &[self.prompt], counts.prompt),
            (own, &[self.completion], counts.completion),
            (own, &["total_tokens"], total),
            (own, self.missed.as_slice(), missed),
            (own, self.cached, counts.cached),
            (own, beside, counts.cache_write),
            (inner, CACHED, counts.cached),
            (inner, among, counts.cache_write),
            (completion.as_ref(), REASONING, counts.reasoning),
        ];
        let edits = all.into_iter().flat_map(|(node, keys, count)| {
            let found = keys.iter().map(move |key| node?.replace_number(key, count));
            found.flatten()
        });
        edits.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_of_the_last_completion_of_all() {
        let hops = [
            Usage {
                prompt: 100,
                cached: 10,
                cache_write: 5,
                hour_write: Some(5),
                completion: 7,
                reasoning: 2,
            },
            Usage {
                prompt: 130,
                cached: 90,
                cache_write: 0,
                hour_write: None,
                completion: 11,
                reasoning: 1,
            },
        ];
        let last = Usage {
            prompt: 130,
            cached: 90,
            cache_write: 0,
            hour_write: None,
            completion: 18,
            reasoning: 3,
        };
        let sum = Usage {
            prompt: 230,
            cached: 100,
            cache_write: 5,
            hour_write: Some(5),
            completion: 18,
            reasoning: 3,
        };
        assert_eq!(combined(UsageMode::Last, &hops), Some(last));
        assert_eq!(combined(UsageMode::Sum, &hops), Some(sum));
        assert_eq!(combined(UsageMode::Sum, &hops[..1]), Some(hops[0]));
        assert_eq!(combined(UsageMode::Last, &[]), None);
    }
}
