//! The original texts of one unit of a Messages conversation.

use std::borrow::Cow;

/// The text of a unit.
#[must_use]
pub fn text(_bytes: &[u8]) -> Option<Cow<'_, str>> {
    None
}

/// The parts of a unit one after the other.
#[must_use]
pub fn parts(_bytes: &[u8]) -> Option<String> {
    None
}

/// The reasoning of a unit.
#[must_use]
pub fn reasoning(_bytes: &[u8]) -> Option<String> {
    None
}

/// The name and the arguments of the call at this index.
#[must_use]
pub fn call(_bytes: &[u8], _place: usize) -> Option<String> {
    None
}

/// The arguments of the call at this index, where they may be replaced.
#[must_use]
pub fn arguments(_bytes: &[u8], _place: usize) -> Option<Cow<'_, str>> {
    None
}

/// The text of an assistant's unit, where it is text alone.
#[must_use]
pub fn assistant_text(_bytes: &[u8]) -> Option<String> {
    None
}
