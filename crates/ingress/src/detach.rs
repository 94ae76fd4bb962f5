//! Copies of what a connection has read. Owns nothing. Never changes a byte.
//!
//! The server hands out slices of its read buffer, and one slice keeps all 8 KB of it in memory. A request
//! lives as long as its answer, which can be an hour.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

/// The headers with values of their own, which share one buffer of their length.
pub(super) fn headers(mut headers: HeaderMap) -> HeaderMap {
    let all: Vec<&[u8]> = headers.values().map(HeaderValue::as_bytes).collect();
    let mut all = Bytes::from(all.concat());
    for value in headers.values_mut() {
        // What was a value once is one again. If not, the slice does as well.
        if let Ok(mut copy) = HeaderValue::from_maybe_shared(all.split_to(value.len())) {
            copy.set_sensitive(value.is_sensitive());
            *value = copy;
        }
    }
    headers
}

/// The path and query with bytes of their own.
pub(super) fn asked(asked: &PathAndQuery) -> PathAndQuery {
    PathAndQuery::try_from(asked.as_str()).unwrap_or_else(|_| asked.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_read_buffer_is_kept() {
        let read = Bytes::from("/v1/models?key=k\u{e9}sk-1".to_owned());
        let query = PathAndQuery::from_maybe_shared(read.slice(..15)).unwrap();
        let mut all = HeaderMap::new();
        let mut secret = HeaderValue::from_maybe_shared(read.slice(18..)).unwrap();
        secret.set_sensitive(true);
        all.append(
            "x-odd",
            HeaderValue::from_maybe_shared(read.slice(15..)).unwrap(),
        );
        all.append("x-odd", secret);
        assert!(!read.is_unique());
        let (copy, path) = (headers(all.clone()), asked(&query));
        assert_eq!((&copy, &path), (&all, &query));
        let sensitive = copy.get_all("x-odd").iter().map(HeaderValue::is_sensitive);
        assert!(sensitive.eq([false, true]));
        drop((all, query));
        assert!(read.is_unique());
    }
}
