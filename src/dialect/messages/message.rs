//! One unit of a Messages conversation taken apart.

use crate::dialect::message::{MessageError, Parsed, ParsedCall};
use crate::model::Digest;

/// Takes a unit apart.
///
/// # Errors
/// [`MessageError`] where it is not what the dialect allows.
pub fn parse(_bytes: &[u8]) -> Result<Parsed<'_>, MessageError> {
    Err(MessageError::Field("role"))
}

/// The canonical digest of a turn's visible response.
#[must_use]
pub fn canonical_of_answer(_text: &str, _calls: &[ParsedCall<'_>]) -> Digest {
    Digest([0; 32])
}
