//! A request to the upstream. Owns its shape. Never sends it.

use http::{HeaderMap, Method};
use plimsoll_model::Rope;
use reqwest::Url;

use super::body::Upload;

/// A request to the upstream. Its headers must have passed [`to_upstream`](super::to_upstream).
#[derive(Debug)]
pub struct Outbound {
    /// The client's method.
    pub method: Method,
    /// The address, from `UpstreamClient::target`.
    pub url: Url,
    /// The headers. The connection adds host and length.
    pub headers: HeaderMap,
    /// The body.
    pub payload: Payload,
}

/// The body of a request to the upstream.
#[derive(Debug)]
pub enum Payload {
    /// A body that is held whole, so the request can be sent again.
    Whole(Rope),
    /// A body that is streamed from the client, so the request is sent only once.
    Streamed(Upload),
}
