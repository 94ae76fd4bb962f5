//! What the proxy itself writes in a Messages conversation: messages, calls, tools, errors.

use bytes::Bytes;

use crate::dialect::ErrorText;
use crate::dialect::answer::{Answer, Call};

/// The message of a hop in the one form in which it is stored and sent back.
#[must_use]
pub fn message(_answer: &Answer) -> Bytes {
    Bytes::new()
}

/// A hidden call in the form in which it goes back into its message.
#[must_use]
pub fn call(_call: &Call) -> String {
    String::new()
}

/// The visible response of a turn as one unit.
#[must_use]
pub fn said(_answers: &[Answer], _line: Option<&str>) -> Bytes {
    Bytes::new()
}

/// A function as one element of the tools array; `parameters` are the members of its schema.
#[must_use]
pub fn tool(_name: &str, _description: &str, _parameters: &str) -> String {
    String::new()
}

/// An error in the API's shape.
#[must_use]
pub fn error(_error: &ErrorText<'_>) -> Bytes {
    Bytes::new()
}
