//! The counts in a Responses usage object. It reads and replaces numbers; fields that it does
//! not know, and those that are absent, stay as they are.

use crate::dialect::json::Node;
use crate::model::Usage;
use crate::model::raw::Edit;

/// The names of the tokens that were written to the cache, in the order in which they are believed.
const WRITTEN: [&str; 2] = ["cache_write_tokens", "cache_creation_tokens"];

/// The counts that a usage object reports; a count that it leaves out is zero.
pub fn read(usage: &Node<'_>) -> Usage {
    let detail = |of: &str, keys: &[&str]| {
        let of = usage.child(of)?;
        keys.iter().find_map(|key| of.object.number(key))
    };
    let own = |key: &str| usage.object.number(key).unwrap_or(0);
    Usage {
        prompt: own("input_tokens"),
        cached: detail("input_tokens_details", &["cached_tokens"]).unwrap_or(0),
        cache_write: detail("input_tokens_details", &WRITTEN).unwrap_or(0),
        hour_write: None,
        completion: own("output_tokens"),
        reasoning: detail("output_tokens_details", &["reasoning_tokens"]).unwrap_or(0),
    }
}

/// The edits that replace the counts of a usage object.
pub fn write(usage: &Node<'_>, counts: &Usage) -> Vec<Edit> {
    let total = counts.prompt.saturating_add(counts.completion);
    let mut edits: Vec<Edit> = [
        usage.replace_number("input_tokens", counts.prompt),
        usage.replace_number("output_tokens", counts.completion),
        usage.replace_number("total_tokens", total),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let Some(input) = usage.child("input_tokens_details") {
        edits.extend(input.replace_number("cached_tokens", counts.cached));
        edits.extend(
            WRITTEN
                .iter()
                .filter_map(|key| input.replace_number(key, counts.cache_write)),
        );
    }
    if let Some(output) = usage.child("output_tokens_details") {
        edits.extend(output.replace_number("reasoning_tokens", counts.reasoning));
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::json::splice;

    #[test]
    fn counts_are_read_and_replaced_where_they_stand() {
        let told = Usage {
            prompt: 1,
            cached: 2,
            cache_write: 3,
            hour_write: None,
            completion: 4,
            reasoning: 5,
        };
        let table = [
            (
                r#"{"input_tokens": 90, "input_tokens_details":{"cached_tokens":80,"cache_write_tokens":7},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":96,"x":1e3}"#,
                [90, 80, 7, 6, 5],
                r#"{"input_tokens": 1, "input_tokens_details":{"cached_tokens":2,"cache_write_tokens":3},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":5,"x":1e3}"#,
            ),
            (
                r#"{"output_tokens":6,"input_tokens":9,"input_tokens_details":null}"#,
                [9, 0, 0, 6, 0],
                r#"{"output_tokens":4,"input_tokens":1,"input_tokens_details":null}"#,
            ),
            ("{}", [0; 5], "{}"),
        ];
        for (raw, [prompt, cached, cache_write, completion, reasoning], written) in table {
            let node = Node::root(raw.as_bytes()).unwrap();
            let want = Usage {
                prompt,
                cached,
                cache_write,
                hour_write: None,
                completion,
                reasoning,
            };
            assert_eq!(read(&node), want, "{raw}");
            let edits = write(&node, &told);
            assert_eq!(splice(raw.as_bytes(), edits), written, "{raw}");
        }
    }
}
