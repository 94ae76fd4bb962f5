//! What a provider makes of the thoughts of earlier answers that are sent back to it: which of them must come,
//! and which of them its model reads. Never decides what becomes of a thought.

use serde::Deserialize;

use super::item::Role;

/// Which thoughts must come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningBack {
    /// None: any of them may be left out.
    #[default]
    None,
    /// That of the newest answer with calls.
    Newest,
    /// Those since the newest message of the user.
    Turn,
    /// That of each answer that keeps a call.
    Calls,
    /// That of each answer that keeps a call, and a thought is valid only behind the very tools, system text and
    /// messages that were before it when the model thought. Their provider refuses or drops it after a change of any of these.
    Bound,
}

impl ReasoningBack {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("newest", Self::Newest),
        ("turn", Self::Turn),
        ("calls", Self::Calls),
        ("bound", Self::Bound),
    ];

    /// Whether any thought must come back.
    #[must_use]
    pub const fn demands(self) -> bool {
        match self {
            Self::None => false,
            Self::Newest | Self::Turn | Self::Calls | Self::Bound => true,
        }
    }

    /// Whether a call must come back with the thought that it followed from, however old both are.
    #[must_use]
    pub const fn is_paired(self) -> bool {
        match self {
            Self::None | Self::Newest | Self::Turn => false,
            Self::Calls | Self::Bound => true,
        }
    }
}

/// Which thoughts that come back a model reads. Its provider drops all others by itself, and bills none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningRead {
    /// All of them.
    #[default]
    All,
    /// Those since the newest message of the user.
    Turn,
    /// Those of turns with calls. A turn goes from one message of the user to the next.
    Calls,
}

impl ReasoningRead {
    /// For each message of a conversation whether its thought is dropped. Each is given with who speaks and whether
    /// it has calls.
    #[must_use]
    pub fn dropped(self, messages: &[(Role, bool)]) -> Vec<bool> {
        let mut dropped = vec![false; messages.len()];
        let newest = messages.iter().rposition(|(role, _)| *role == Role::User);
        match self {
            Self::All => {}
            Self::Turn => {
                let earlier = dropped.iter_mut().take(newest.unwrap_or_default());
                earlier.for_each(|one| *one = true);
            }
            Self::Calls => {
                let turns = messages.chunk_by(|_, (role, _)| *role != Role::User);
                let without = turns.flat_map(|turn| {
                    let called = turn.iter().any(|(_, calls)| *calls);
                    std::iter::repeat_n(!called, turn.len())
                });
                dropped
                    .iter_mut()
                    .zip(without)
                    .for_each(|(one, new)| *one = new);
            }
        }
        dropped
    }
}

/// What a provider makes of the thoughts of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThoughtRules {
    /// Whether a thought is valid only beside all that was said with it.
    pub whole: bool,
    /// Which of them must come back.
    pub back: ReasoningBack,
    /// Which of them the model reads.
    pub read: ReasoningRead,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_drop_thoughts_turn_by_turn() {
        use Role::{Assistant, System, Tool, User};
        let said = [
            (System, false),
            (User, false),
            (Assistant, true),
            (Tool, false),
            (Assistant, false),
            (User, false),
            (Assistant, false),
            (User, false),
            (Assistant, true),
        ];
        let dropped = |read: ReasoningRead| -> Vec<usize> {
            let dropped = read.dropped(&said);
            let answers = said.iter().zip(dropped).enumerate();
            let answers = answers.filter(|(_, ((role, _), gone))| *role == Assistant && *gone);
            answers.map(|(at, _)| at).collect()
        };
        assert_eq!(dropped(ReasoningRead::All), [0; 0]);
        assert_eq!(dropped(ReasoningRead::Turn), [2, 4, 6]);
        assert_eq!(dropped(ReasoningRead::Calls), [6]);
    }
}
