//! Edits of one unit of a Messages conversation by bytes.

use bytes::Bytes;

use crate::dialect::edit::AssistantEdit;
use crate::model::{Handed, TurnRecord};

/// An assistant's unit with the edit applied.
#[must_use]
pub fn assistant(_bytes: &[u8], _edit: &AssistantEdit<'_>) -> Option<Bytes> {
    None
}

/// How the client's unit of a turn relates to what the turn's earlier hops handed out.
#[must_use]
pub fn handed(_bytes: &[u8], _record: &TurnRecord) -> Handed {
    Handed::Nothing
}

/// A result with other content.
#[must_use]
pub fn result(_bytes: &[u8], _text: &str) -> Option<Bytes> {
    None
}

/// The result of a hidden call as a unit.
#[must_use]
pub fn hidden_result(_id: &str, _text: &str) -> Bytes {
    Bytes::new()
}

/// A system unit with a block of text appended.
#[must_use]
pub fn append_text(_bytes: &[u8], _block: &str) -> Option<Bytes> {
    None
}

/// A system unit of the proxy's own.
#[must_use]
pub fn system(_block: &str) -> Bytes {
    Bytes::new()
}
