//! What is chosen for a conversation when it begins, and holds for all of it: the profile, and the place in a split.
//! Owns the form of the latter in records, which every later version must read. Never chooses.

use serde::{Deserialize, Serialize};

use super::label_set;

/// What a conversation is served under.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The profile; none without one.
    pub profile: Option<String>,
    /// The place of its session in a split; none if it is in no split.
    pub split: Option<SplitPlace>,
}

/// The place of a session in a split, in which some sessions are served under a profile that is tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPlace {
    /// The profile that is tried.
    #[serde(rename = "of")]
    pub profile: String,
    /// Whether it is served under that profile.
    #[serde(rename = "in", default, skip_serializing_if = "std::ops::Not::not")]
    pub tried: bool,
}

label_set!(
    /// The arms of a split.
    Arm {
        /// Sessions that are compared with those under the profile that is tried.
        Base => "base",
        /// Sessions that are served under the profile that is tried.
        Tried => "tried",
    }
);

impl SplitPlace {
    /// The arm.
    #[must_use]
    pub const fn arm(&self) -> Arm {
        if self.tried { Arm::Tried } else { Arm::Base }
    }
}
