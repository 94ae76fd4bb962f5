//! Which usage the client is told: what it asked for, and how the counts of several hops become one
//! report. Reading and writing usage on the wire belongs to the formats.

use crate::model::Usage;

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
