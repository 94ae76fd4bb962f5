//! Unstreamed Responses responses.

use bytes::Bytes;

use crate::dialect::answer::Answer;
use crate::dialect::stream::{Config, Spec};

/// Reads a hop's body.
#[must_use]
pub fn read(_body: &Bytes, _spec: &Spec) -> Option<Answer> {
    None
}

/// The body that the client gets, made of the last hop's.
#[must_use]
pub fn compose(
    _config: &Config,
    _spec: &Spec,
    _first: &Bytes,
    last: &Bytes,
    _hops: &[Answer],
    _closed: Option<Option<&str>>,
) -> Bytes {
    last.clone()
}
