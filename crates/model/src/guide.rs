//! What a conversation was told of its hidden tools: whether they were offered, and whether the
//! guidance asks for them. Records keep it, because what is at the front of a conversation stays
//! there. Never decides when it changes.

use serde::{Deserialize, Serialize};

/// What a conversation was told of its hidden tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guide {
    /// Whether the tools were offered before the guidance. Their descriptions say so.
    pub waited: bool,
    /// The guidance in the system message.
    pub given: Given,
    /// Whether that is a system message among the others, before the answer of the turn that brought it in, and not in
    /// front.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub among: bool,
}

/// Which guidance a conversation has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Given {
    /// None yet: the model is not asked to mark anything.
    No,
    /// Guidance for messages with several calls. Also used if guidance is off, because then there
    /// is none to wait for.
    #[default]
    Parallel,
    /// Guidance for messages with one call, where every annotation costs a request.
    Serial,
}

impl Guide {
    /// Nothing yet.
    pub const WAITING: Self = Self {
        waited: true,
        given: Given::No,
        among: false,
    };

    /// Whether the model is not asked to mark its work yet.
    #[must_use]
    pub fn is_waiting(self) -> bool {
        self.given == Given::No
    }

    /// Whether it is the guidance that stood in front from the first request on. Records leave it out.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What a conversation was told after one more turn. Guidance stays once it was given, but that among the messages
    /// may move to the front, for a model that takes none there.
    #[must_use]
    pub fn after(before: Option<Self>, turn: Self) -> Self {
        let moves = |before: &Self| before.among && !turn.among && !turn.is_waiting();
        let stays = |before: &Self| !before.is_waiting() && !moves(before);
        before.filter(stays).unwrap_or(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guidance_stays_where_it_is_but_for_a_move_to_the_front() {
        let front = Guide {
            waited: true,
            given: Given::Serial,
            among: false,
        };
        let among = Guide {
            among: true,
            ..front
        };
        for (before, turn, after) in [
            (None, Guide::WAITING, Guide::WAITING),
            (Some(Guide::WAITING), among, among),
            (Some(Guide::WAITING), front, front),
            (Some(among), among, among),
            // A model that takes none there is not asked until its next pass.
            (Some(among), Guide::WAITING, among),
            (Some(among), front, front),
            (Some(front), among, front),
            (Some(front), Guide::WAITING, front),
        ] {
            assert_eq!(Guide::after(before, turn), after, "{before:?} {turn:?}");
        }
    }
}
