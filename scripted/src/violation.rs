//! What an audit or a rule found to be broken. Never finds anything itself.

/// A rule that was broken, with enough text to look into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule's name, to filter by.
    pub rule: &'static str,
    /// Where: session, turn, number of the request.
    pub place: String,
    /// What was found.
    pub text: String,
}

impl Violation {
    /// A violation.
    pub fn new(rule: &'static str, place: impl std::fmt::Display, text: impl Into<String>) -> Self {
        Self {
            rule,
            place: place.to_string(),
            text: text.into(),
        }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.rule, self.place, self.text)
    }
}
