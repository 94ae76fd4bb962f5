//! How often an answer needed what had left its view, and how, in closed words. Never decides that anything was
//! needed.

use serde::{Deserialize, Serialize};

use super::label_set;

label_set!(
    /// How what had left the view was needed.
    Need {
        /// A call uses a string of it, and the view still had that string.
        Held => "in_view",
        /// A call uses a string of it, and the view had that string no more.
        Missed => "missed",
        /// A tool that reads was called for the same again.
        ReadAgain => "read_again",
        /// Another tool was called for the same again.
        AskedAgain => "asked_again",
        /// The model recalled it.
        Recalled => "recalled",
    }
);

/// How often an answer needed what had left its view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NeededCounts {
    /// Strings, once for each call that uses them.
    #[serde(skip_serializing_if = "is_zero")]
    pub held: u32,
    /// Strings, once for each call that uses them.
    #[serde(skip_serializing_if = "is_zero")]
    pub missed: u32,
    /// Calls.
    #[serde(rename = "read", skip_serializing_if = "is_zero")]
    pub read_again: u32,
    /// Calls.
    #[serde(rename = "asked", skip_serializing_if = "is_zero")]
    pub asked_again: u32,
    /// Recalls that brought something back.
    #[serde(skip_serializing_if = "is_zero")]
    pub recalled: u32,
}

impl NeededCounts {
    /// How often it was needed in one way.
    #[must_use]
    pub const fn of(&self, how: Need) -> u32 {
        match how {
            Need::Held => self.held,
            Need::Missed => self.missed,
            Need::ReadAgain => self.read_again,
            Need::AskedAgain => self.asked_again,
            Need::Recalled => self.recalled,
        }
    }

    /// Calls that ask again for what had left the view.
    #[must_use]
    pub const fn again(&self) -> u32 {
        self.read_again + self.asked_again
    }

    /// Adds what other answers needed.
    pub fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.missed += other.missed;
        self.read_again += other.read_again;
        self.asked_again += other.asked_again;
        self.recalled += other.recalled;
    }

    /// Whether nothing was needed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands on references"
)]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_takes_no_room_in_a_record() {
        let mut counts = NeededCounts::default();
        assert_eq!(serde_json::to_string(&counts).unwrap(), "{}");
        counts.add(&NeededCounts {
            missed: 2,
            asked_again: 1,
            ..NeededCounts::default()
        });
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(text, r#"{"missed":2,"asked":1}"#);
        assert_eq!(serde_json::from_str::<NeededCounts>(&text).unwrap(), counts);
        let all = Need::ALL.map(|how| counts.of(how));
        assert_eq!((all, counts.again()), ([0, 2, 0, 1, 0], 1));
    }
}
