//! Which headers cross the proxy, and what they call a body's coding. Owns the filters of both
//! directions. Never adds a header.

use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, EXPECT, HOST, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

/// The prefix of Plimsoll's own headers, which cross the proxy in neither direction.
pub const OWN_PREFIX: &str = "x-plimsoll-";

/// Headers that belong to one connection (RFC 9110 §7.6.1), in either direction.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The headers in which clients send their keys.
const CREDENTIAL_HEADERS: [&str; 5] = [
    "authorization",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
];

/// Headers that never go to the upstream, besides those of the connection.
const WITHHELD: [HeaderName; 4] = [HOST, CONTENT_LENGTH, COOKIE, EXPECT];

/// Headers that are true of the client's own bytes alone: digests of the body (RFC 9530, RFC 1864).
const OF_OWN_BYTES: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// Headers that fit one call, and so the first of a turn alone.
const OF_ONE_CALL: [HeaderName; 8] = [
    // Whoever knows the key gives the first answer again, or refuses another body under it.
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("x-idempotency-key"),
    // How often the client has tried this call.
    HeaderName::from_static("x-stainless-retry-count"),
    // Conditions on what the client believes to be there (RFC 9110, section 13).
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    IF_RANGE,
];

/// Whether a header of this name goes to the upstream. It does not if the client names it in
/// `connection`.
#[must_use]
pub fn is_sent(name: &HeaderName) -> bool {
    let own = name.as_str().starts_with(OWN_PREFIX);
    !own && !HOP_BY_HOP.contains(name) && !WITHHELD.contains(name)
}

/// Removes the headers that do not go to the upstream: those of the connection, cookies and
/// Plimsoll's own. The connection sets host and length again, and `expect` was answered by the
/// proxy. Marks credentials as sensitive, so that no lower layer prints or indexes them.
pub fn to_upstream(headers: &mut HeaderMap) {
    strip(headers, &WITHHELD);
    for (name, value) in headers.iter_mut() {
        if CREDENTIAL_HEADERS.contains(&name.as_str()) {
            value.set_sensitive(true);
        }
    }
}

/// Removes what does not hold for a body that was written anew.
pub fn to_view(headers: &mut HeaderMap) {
    remove(headers, &OF_OWN_BYTES);
}

/// Removes what does not hold for a further call of the same turn.
pub fn to_next_call(headers: &mut HeaderMap) {
    remove(headers, &OF_ONE_CALL);
}

fn remove(headers: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}

/// The codings that an answer is packed in, in small letters. `identity` is none, however often it is
/// named.
#[must_use]
pub fn codings(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    // What is no text names a coding that nobody knows.
    let codings = values.flat_map(|value| value.to_str().unwrap_or("?").split(','));
    let codings = codings.map(|coding| coding.trim().to_ascii_lowercase());
    let real = |coding: &String| !matches!(coding.as_str(), "" | "identity");
    codings.filter(real).collect()
}

/// Removes the headers that do not go to the client. The length stays, because the body is not
/// changed, and it is all that a response to `HEAD` has.
pub fn to_client(headers: &mut HeaderMap) {
    strip(headers, &[SET_COOKIE]);
}

fn strip(headers: &mut HeaderMap, further: &[HeaderName]) {
    // A client may name further headers that belong to its connection.
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let own = headers
        .keys()
        .filter(|name| name.as_str().starts_with(OWN_PREFIX))
        .cloned();
    let own: Vec<HeaderName> = own.collect();
    for name in HOP_BY_HOP.iter().chain(further).chain(&named).chain(&own) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn each_direction_drops_its_own() {
        // (header, goes up, goes down)
        let table = [
            ("authorization", true, true),
            ("x-api-key", true, true),
            ("accept-encoding", true, true),
            ("content-encoding", true, true),
            ("content-type", true, true),
            ("x-request-id", true, true),
            ("retry-after", true, true),
            ("openai-organization", true, true),
            ("x-session-id", true, true),
            ("content-length", false, true),
            ("host", false, true),
            ("expect", false, true),
            ("cookie", false, true),
            ("set-cookie", true, false),
            ("x-plimsoll-session", false, false),
            ("x-plimsoll-anything", false, false),
            ("proxy-authorization", false, false),
            ("proxy-authenticate", false, false),
            ("proxy-connection", false, false),
            ("connection", false, false),
            ("keep-alive", false, false),
            ("te", false, false),
            ("trailer", false, false),
            ("transfer-encoding", false, false),
            ("upgrade", false, false),
        ];
        for (name, up, down) in table {
            let (mut a, mut b) = (map(&[(name, "1")]), map(&[(name, "1")]));
            to_upstream(&mut a);
            to_client(&mut b);
            assert_eq!(a.contains_key(name), up, "{name} up");
            assert_eq!(is_sent(&name.parse().unwrap()), up, "{name}");
            assert_eq!(b.contains_key(name), down, "{name} down");
        }
    }

    #[test]
    fn headers_that_connection_names_stay_behind() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Private"),
            ("connection", "x-other"),
            ("x-private", "1"),
            ("x-other", "1"),
            ("x-kept", "1"),
        ]);
        to_upstream(&mut headers);
        assert_eq!(headers, map(&[("x-kept", "1")]));
    }

    #[test]
    fn repeated_headers_keep_their_order() {
        let mut headers = map(&[
            ("x-a", "1"),
            ("x-a", "2"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ]);
        to_client(&mut headers);
        assert_eq!(headers, map(&[("x-a", "1"), ("x-a", "2")]));
    }
}
