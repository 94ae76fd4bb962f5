//! Units, edits and lists of the Messages dialect, held to goldens, to what agents really send, and
//! to the rules of the API under random edits.

mod breakpoints;
mod captures;
mod edits;
mod hops;
mod lists;
mod random;
mod units;

use bytes::Bytes;

use crate::Dialect;
use crate::request::{Request, Rewrite, UpstreamView};

/// A body that is a request.
fn request(body: &str) -> Request {
    let body = Bytes::copy_from_slice(body.as_bytes());
    Dialect::Messages.decode(body).unwrap()
}

/// The body with another view.
fn body(request: &Request, view: UpstreamView) -> String {
    let rope = request.with(Rewrite {
        view,
        tools: None,
        ask_usage: false,
        compared: None,
        later: None,
    });
    String::from_utf8(rope.to_bytes().to_vec()).unwrap()
}
