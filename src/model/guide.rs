//! What a conversation was told of its hidden tools: whether they were offered, and whether the
//! guidance asks for them. Records keep it, because what is at the front of a conversation stays
//! there. Never decides when it changes.

use serde::{Deserialize, Serialize};

/// What a conversation was told of its hidden tools. Records of earlier versions don't say; their
/// guidance was in the first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guide {
    /// Whether the tools were offered before the guidance. Their descriptions say so.
    pub waited: bool,
    /// The guidance in the system message.
    pub given: Given,
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
    };

    /// Whether the model is not asked to mark its work yet.
    #[must_use]
    pub fn is_waiting(self) -> bool {
        self.given == Given::No
    }

    /// Whether it is what records of earlier versions mean. It is left out of new records then.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What a conversation was told after one more turn. Guidance stays once it was given.
    #[must_use]
    pub fn after(before: Option<Self>, turn: Self) -> Self {
        before.filter(|before| !before.is_waiting()).unwrap_or(turn)
    }
}
