//! Why a turn read less from the provider's cache than the turn before left there. Owns the words, what of them a record
//! keeps, and how much of a prompt was missed. Never knows what was sent.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Usage, label_set};

/// In steps of how many tokens caches hold prefixes, in most families.
const STEP: u64 = 128;

label_set!(
    /// What made a provider read less from its cache than it held.
    #[derive(Hash)]
    MissCause {
        /// A pass changed what stands in the view, or what was learned of the upstream did.
        Pass => "pass",
        /// The guidance or the hidden tools came in.
        Guidance => "guidance",
        /// Nobody asked for so long that the provider held nothing any more.
        Expired => "expired",
        /// The client changed its system text.
        ClientSystem => "client_system",
        /// The client changed its tools.
        ClientTools => "client_tools",
        /// The client changed its history.
        ClientHistory => "client_history",
        /// Another model was asked.
        Model => "model",
        /// The client changed how much the model thinks, or which tool it has to call.
        Effort => "effort",
        /// Nothing changed: the provider dropped it.
        Provider => "provider",
    }
);

/// What a request had in common with the one before it, as far as its provider's cache depends on that. A record keeps it
/// under short names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheFacts {
    /// The client's system text, its tools, and how much the model is to think: the first bytes of their digests.
    #[serde(rename = "of", skip_serializing_if = "is_default")]
    pub front: (u32, u32, u32),
    /// The client's messages before the answer: the first bytes of the head there.
    #[serde(rename = "head", skip_serializing_if = "is_default")]
    pub head: u32,
    /// How many tokens the turn before left in the cache, as the provider reported; 0 if it has not been seen to cache.
    #[serde(rename = "left", skip_serializing_if = "is_default")]
    pub left: u64,
    /// What changed. None if nothing did.
    #[serde(
        rename = "why",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known"
    )]
    pub cause: Option<MissCause>,
    /// For how many seconds nobody had asked, and for how many the provider keeps what it caches, where that is the cause.
    #[serde(rename = "idle", skip_serializing_if = "is_default")]
    pub idle: (u32, u32),
    /// The index of the first message that the client may have changed, where that is the cause. Those before it are as
    /// they were. A system text is message 0, wherever the dialect has it.
    #[serde(rename = "at", skip_serializing_if = "Option::is_none")]
    pub message: Option<u32>,
    /// The id of the turn's answer, if the provider may be asked to compare the next request with it.
    #[serde(rename = "id", skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What the provider said of why its cache missed, in its own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

impl CacheFacts {
    /// Whether there is nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How many tokens of the turn's first prompt the provider read anew although the turn before had left them in its
    /// cache. `None` if there are none. What is below a step of a cache, or below a fiftieth, is no miss: caches hold
    /// prefixes in steps, and agents set breakpoints a little before the end.
    #[must_use]
    pub fn missed(&self, usage: &Usage) -> Option<u64> {
        let due = self.left.min(usage.prompt);
        let missed = due.saturating_sub(usage.cached);
        (missed > STEP.max(due / 50)).then_some(missed)
    }

    /// Why tokens were missed, if any were.
    #[must_use]
    pub fn why(&self) -> MissCause {
        self.cause.unwrap_or(MissCause::Provider)
    }
}

impl Serialize for MissCause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The cause of a word. A word of a later version is none.
fn known<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Option<MissCause>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    let known = |word: String| {
        MissCause::ALL
            .into_iter()
            .find(|cause| cause.name() == word)
    };
    Ok(word.and_then(known))
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_of_a_step_is_no_miss() {
        let usage = |prompt, cached| Usage {
            prompt,
            cached,
            ..Usage::default()
        };
        for (left, prompt, cached, expect) in [
            (1_000, 1_200, 1_000, 0),
            (1_000, 1_200, 896, 0),
            (1_000, 1_200, 0, 1_000),
            (1_000, 400, 100, 300),
            (90_000, 91_000, 88_300, 0),
            (90_000, 91_000, 80_000, 10_000),
            (0, 500, 0, 0),
        ] {
            let facts = CacheFacts {
                left,
                ..CacheFacts::default()
            };
            let missed = facts.missed(&usage(prompt, cached)).unwrap_or(0);
            assert_eq!(missed, expect, "{left} {prompt} {cached}");
        }
    }

    #[test]
    fn a_word_of_a_later_version_is_no_cause() {
        let stored = |facts: &CacheFacts| rmp_serde::to_vec_named(facts).unwrap();
        for cause in MissCause::ALL {
            let facts = CacheFacts {
                cause: Some(cause),
                idle: (4_200, 3_600),
                message: Some(7),
                ..CacheFacts::default()
            };
            let read: CacheFacts = rmp_serde::from_slice(&stored(&facts)).unwrap();
            assert_eq!(read, facts);
        }
        let later = rmp_serde::to_vec_named(&serde_json::json!({"why": "weather"})).unwrap();
        let read: CacheFacts = rmp_serde::from_slice(&later).unwrap();
        assert_eq!(read.why(), MissCause::Provider);
    }
}
