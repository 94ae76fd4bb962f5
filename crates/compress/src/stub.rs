//! The words in place of a result: its id, its size, how to bring it back, and of a long one what the proxy would
//! clip it to. Pure functions of the text. Never chooses what is replaced.

use plimsoll_core::clip::{ClipLimits, clip, written};
use plimsoll_core::session::tombstone::thousands;

use crate::passes::shown_most;
use crate::rows::Count;

/// A result that has fewer tokens is named and not shown.
const NAMED_BELOW: u32 = 1_000;
/// How many tokens of [`shown_most`] the words take that are ours.
const OWN_TOKENS: u32 = 60;

/// What stands in place of a text that has so many tokens. `retrieve` says whether it can be brought back.
pub fn stub(id: &str, original: &str, tokens: u32, retrieve: bool, count: Count<'_>) -> String {
    let size = thousands(tokens);
    // LiteLLM's tool takes the id as `hash`, and its description says to look for a marker with one.
    let way = if retrieve {
        format!("Retrieve more: hash={id}")
    } else {
        String::new()
    };
    let limits = ClipLimits {
        tokens: shown_most(tokens).saturating_sub(OWN_TOKENS),
        lines: 0,
        bytes: 0,
    };
    let clipped = (tokens >= NAMED_BELOW).then(|| clip(original, &limits, count));
    match (clipped.flatten(), way.is_empty()) {
        (Some(clip), false) => {
            let text = written(id, &size, clip.shape, &clip.spans, original);
            format!("{}\n[{way}]", text.trim_end())
        }
        (Some(clip), true) => written(id, &size, clip.shape, &clip.spans, original),
        (None, false) => format!("[evicted {id}, {size} tokens. {way}]"),
        (None, true) => format!("[evicted {id}, {size} tokens]"),
    }
}
