//! Why the console can't answer: a status, a word for programs and a sentence for people. Owns the
//! words. Never holds content.

use plimsoll_proxy::history::FindError;
use plimsoll_store::StoreError;
use serde_json::{Value, json};

use super::inspect::ArchiveError;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConsoleError {
    /// The status of the answer.
    pub status: u16,
    /// A word that never changes.
    pub code: &'static str,
    /// What to do.
    pub message: String,
}

impl ConsoleError {
    /// A refusal with a status, a word and a sentence.
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    /// A parameter that is not understood.
    pub fn parameter(message: impl Into<String>) -> Self {
        Self::new(400, "bad_parameter", message)
    }

    /// No session has this name.
    #[must_use]
    pub fn unknown_session(name: &str) -> Self {
        let message = format!("no session is named {name}: the list of sessions has all");
        Self::new(404, "unknown_session", message)
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Value {
        json!({"error": {"message": self.message, "code": self.code}})
    }
}

impl From<StoreError> for ConsoleError {
    fn from(error: StoreError) -> Self {
        Self::new(503, "store_unavailable", error.to_string())
    }
}

impl From<ArchiveError> for ConsoleError {
    fn from(error: ArchiveError) -> Self {
        Self::new(503, "store_unavailable", error.to_string())
    }
}

impl From<FindError> for ConsoleError {
    fn from(error: FindError) -> Self {
        Self::new(503, "store_unavailable", error.to_string())
    }
}
