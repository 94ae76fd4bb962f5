//! The counts in a Responses usage object. A table and nothing else.

use crate::usage::CountNames;

pub const COUNTS: CountNames = CountNames {
    prompt: "input_tokens",
    missed: None,
    cached: &[],
    written: [&[], &["cache_write_tokens", "cache_creation_tokens"]],
    hour: None,
    completion: "output_tokens",
    details: ["input_tokens_details", "output_tokens_details"],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Node, splice};
    use plimsoll_model::Usage;

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
            assert_eq!(COUNTS.read(&node), want, "{raw}");
            let edits = COUNTS.write(&node, &told);
            assert_eq!(splice(raw.as_bytes(), edits), written, "{raw}");
        }
    }
}
