//! The ids by which clients, upstreams and other logs know a request. Owns which headers have them and how long they may be.
//! Never makes one.

use http::HeaderMap;

/// The headers in which clients and upstreams name a request.
const REQUEST_IDS: [&str; 3] = ["x-request-id", "request-id", "apim-request-id"];
/// The longest id that is kept, in bytes.
const REQUEST_ID_BYTES: usize = 128;

/// The id of a request, as its client or its upstream gives it.
pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    let name = REQUEST_IDS
        .iter()
        .find(|name| headers.contains_key(**name))?;
    text_of(headers, name)
}

/// The value of a header, if it is no longer than an id is.
pub(super) fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    (!text.is_empty() && text.len() <= REQUEST_ID_BYTES).then(|| text.to_owned())
}
