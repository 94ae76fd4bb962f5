//! How far the hidden tools of a conversation have come: offered, or asked for as well. A record
//! keeps it, because what stands in front of a conversation once stands there for good. Never says
//! when that changes.

use serde::{Deserialize, Serialize};

/// What a conversation was told of its hidden tools. Records of earlier versions don't say: there
/// the guidance stood from the first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guide {
    /// Whether the tools were offered before they were asked for, which their descriptions say.
    pub waited: bool,
    /// The guidance that stands in the system message.
    pub given: Given,
}

/// Which guidance a conversation has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Given {
    /// None yet: nobody asks the model to mark anything.
    No,
    /// That for messages of several calls; where guidance is turned off, there is none to wait for.
    #[default]
    Parallel,
    /// That for messages of one call, of which every annotation costs a request.
    Serial,
}

impl Guide {
    /// Whether the model is not asked to mark its work yet.
    #[must_use]
    pub fn is_waiting(self) -> bool {
        self.given == Given::No
    }

    /// Whether it is what records of earlier versions mean, and is left out of new ones.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What a conversation has after another turn. Guidance that was given once stays.
    #[must_use]
    pub fn after(before: Option<Self>, turn: Self) -> Self {
        before.filter(|before| !before.is_waiting()).unwrap_or(turn)
    }
}
