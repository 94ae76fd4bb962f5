//! The kinds of edits in which a view differs from what the client sent, and sets of them. Some
//! upstreams refuse a kind of edit; a set says which ones. Never makes an edit itself.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::label_set;

label_set!(
    /// A kind of edit.
    #[derive(Hash)]
    EditKind {
        /// Breakpoints of the provider's cache that the client did not set.
        Breakpoints => "breakpoints",
        /// Reasoning that is removed from a message that stays.
        Reasoning => "reasoning",
        /// Reasoning in the message of a hidden hop.
        HopReasoning => "hop_reasoning",
        /// Long strings that are cut out of a call's arguments.
        Arguments => "arguments",
        /// A result whose text differs from the client's.
        Results => "results",
        /// Text that is removed from a message that stays for its calls.
        Text => "text",
        /// Calls of hidden tools and their results.
        Hidden => "hidden",
        /// Hidden tools in the tools array.
        Tools => "tools",
        /// Reasoning that stands behind something other than what its model had before it.
        Thoughts => "thoughts",
        /// The question why the provider's cache missed.
        Diagnosis => "diagnosis",
        /// The wish that a stream reports its usage.
        Usage => "usage",
        /// The guidance, as a system text of the proxy's own or a part of the client's.
        Guidance => "guidance",
        /// The guidance, as a system message among the others.
        GuidanceAmong => "guidance_among",
    }
);

/// A set of kinds of edits. Records keep it as a list of words; words of newer versions are dropped
/// when it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Edits(u16);

impl Edits {
    /// Whether it has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Whether a kind is in it.
    #[must_use]
    pub fn has(self, kind: EditKind) -> bool {
        self.0 & bit(kind) != 0
    }

    /// Adds a kind.
    pub fn put(&mut self, kind: EditKind) {
        self.0 |= bit(kind);
    }

    /// The members of either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The members that another set lacks.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those that change what the model reads. Breakpoints, questions to the provider and wishes change nothing of that,
    /// and where guidance stands the conversation's [`Guide`](super::Guide) says.
    #[must_use]
    pub fn shown(self) -> Self {
        let unread = [
            EditKind::Breakpoints,
            EditKind::Diagnosis,
            EditKind::Usage,
            EditKind::GuidanceAmong,
        ];
        self.without(unread.into_iter().collect())
    }

    /// The members, in the order in which they are declared.
    pub fn iter(self) -> impl Iterator<Item = EditKind> {
        EditKind::ALL
            .into_iter()
            .filter(move |kind| self.has(*kind))
    }
}

fn bit(kind: EditKind) -> u16 {
    1 << kind as u8
}

impl FromIterator<EditKind> for Edits {
    fn from_iter<T: IntoIterator<Item = EditKind>>(kinds: T) -> Self {
        let mut edits = Self::default();
        kinds.into_iter().for_each(|kind| edits.put(kind));
        edits
    }
}

impl Serialize for Edits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(EditKind::name))
    }
}

impl<'de> Deserialize<'de> for Edits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        let known = |word: &String| EditKind::ALL.into_iter().find(|kind| kind.name() == word);
        Ok(words.iter().filter_map(known).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_written_as_its_words_and_reads_past_what_it_does_not_know() {
        let edits: Edits = [EditKind::Text, EditKind::Reasoning].into_iter().collect();
        let written = serde_json::to_string(&edits).unwrap();
        assert_eq!(written, r#"["reasoning","text"]"#);
        let newer = r#"["reasoning","smells","text"]"#;
        assert_eq!(serde_json::from_str::<Edits>(newer).unwrap(), edits);
    }

    #[test]
    fn every_kind_has_a_place_of_its_own() {
        let all: Edits = EditKind::ALL.into_iter().collect();
        assert_eq!(all.iter().collect::<Vec<_>>(), EditKind::ALL);
        for kind in EditKind::ALL {
            let alone: Edits = [kind].into_iter().collect();
            assert!(!all.without(alone).has(kind) && all.and(alone) == alone);
        }
    }
}
