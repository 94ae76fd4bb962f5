//! The body of a Responses request.

use bytes::Bytes;

use crate::dialect::request::{Request, RequestError};

/// Reads a body.
///
/// # Errors
/// [`RequestError`] where the body is no request.
pub fn decode(_body: Bytes) -> Result<Request, RequestError> {
    Err(RequestError::DuplicateKey)
}
