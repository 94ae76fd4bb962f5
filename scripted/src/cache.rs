//! The ideal exact-prefix cache of a provider, at message granularity.
//!
//! Owns what each credential sent before, as chain hashes of the tools and of each message as
//! serialised. Nothing ever expires and nothing has a minimum length: it is the best that any
//! provider could do, so that a lower share is always the client's doing.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::size::{Outline, Sizer};

/// Prefixes that were sent, by credential.
#[derive(Debug, Default)]
pub struct PrefixCache {
    seen: HashMap<String, HashSet<u64>>,
}

impl PrefixCache {
    /// The tokens of the longest prefix that an earlier request of the credential had, at most
    /// the request's size; the request's own prefixes are known from then on.
    pub fn admit(&mut self, credential: &str, outline: &Outline<'_>, sizer: &Sizer) -> usize {
        let seen = self.seen.entry(credential.to_owned()).or_default();
        let mut link = chained(0, outline.tools.unwrap_or("no tools"));
        let mut fresh = seen.insert(link);
        let mut cached = match outline.tools {
            Some(tools) if !fresh => sizer.text(tools),
            _ => 0,
        };
        for message in &outline.messages {
            link = chained(link, message);
            fresh |= seen.insert(link);
            if !fresh {
                cached += sizer.message(message);
            }
        }
        cached
    }
}

fn chained(link: u64, text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (link, text).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_common_prefix_with_any_earlier_request_is_cached() {
        let sizer = Sizer::new(Arc::new(str::len));
        let mut cache = PrefixCache::default();
        let user = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
        let mut admit = |key: &str, tools: Option<&str>, texts: &[&str]| {
            let messages: Vec<String> = texts.iter().map(|text| user(text)).collect();
            let outline = Outline {
                messages: messages.iter().map(String::as_str).collect(),
                tools,
            };
            cache.admit(key, &outline, &sizer)
        };
        assert_eq!(admit("k", None, &["aa", "b"]), 0);
        assert_eq!(admit("k", None, &["aa", "b", "c"]), 6 + 5);
        assert_eq!(
            admit("k", None, &["aa", "x", "c"]),
            6,
            "equal messages behind a change"
        );
        assert_eq!(
            admit("k", None, &["aa", "b", "c", "d"]),
            6 + 5 + 5,
            "any earlier request"
        );
        assert_eq!(
            admit("other", None, &["aa"]),
            0,
            "nothing crosses credentials"
        );
        assert_eq!(admit("k", Some("[1]"), &["aa"]), 0, "tools come first");
        assert_eq!(admit("k", Some("[1]"), &["aa"]), 3 + 6);
        assert_eq!(admit("k", Some("[2]"), &["aa"]), 0);
    }
}
