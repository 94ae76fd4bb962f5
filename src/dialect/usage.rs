//! The rule for the usage that a client is told after several hops. Reading and writing it on the
//! wire is `wire`'s.

use super::stream::UsageMode;
use crate::model::Usage;

/// The usage to tell the client, given each hop's in order; `None` if no hop reported any.
///
/// A last hop without a report is told with the prompt of the last hop that has one.
#[must_use]
pub fn told<'a>(mode: UsageMode, hops: impl IntoIterator<Item = &'a Usage>) -> Option<Usage> {
    hops.into_iter().fold(None, |before, hop| match before {
        None => Some(*hop),
        Some(spent) => Some(after(mode, &spent, hop)),
    })
}

/// What is told after one more hop.
fn after(mode: UsageMode, spent: &Usage, hop: &Usage) -> Usage {
    let generated = Usage {
        completion: spent.completion.saturating_add(hop.completion),
        reasoning: spent.reasoning.saturating_add(hop.reasoning),
        ..*hop
    };
    match mode {
        UsageMode::Last => generated,
        UsageMode::Sum => Usage {
            prompt: spent.prompt.saturating_add(hop.prompt),
            cached: spent.cached.saturating_add(hop.cached),
            cache_write: spent.cache_write.saturating_add(hop.cache_write),
            ..generated
        },
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
                completion: 7,
                reasoning: 2,
            },
            Usage {
                prompt: 130,
                cached: 90,
                cache_write: 0,
                completion: 11,
                reasoning: 1,
            },
        ];
        let last = Usage {
            prompt: 130,
            cached: 90,
            cache_write: 0,
            completion: 18,
            reasoning: 3,
        };
        let sum = Usage {
            prompt: 230,
            cached: 100,
            cache_write: 5,
            completion: 18,
            reasoning: 3,
        };
        assert_eq!(told(UsageMode::Last, &hops), Some(last));
        assert_eq!(told(UsageMode::Sum, &hops), Some(sum));
        assert_eq!(told(UsageMode::Sum, &hops[..1]), Some(hops[0]));
        assert_eq!(told(UsageMode::Last, &[]), None);
    }
}
