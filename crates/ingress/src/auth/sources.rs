//! Where clients put their credentials: which headers and parameters are read, and what else in a
//! request looks like a credential. Owns these lists. Never hashes, compares or keeps what it
//! finds.

use std::borrow::Cow;

use http::header::{CONNECTION, HeaderMap, HeaderName};
use plimsoll_proxy::upstream::is_sent;

/// The headers in which providers and gateways look for keys.
const HEADERS: [&str; 10] = [
    "authorization",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
    "x-auth-token",
    "x-access-token",
    "x-portkey-api-key",
    "helicone-auth",
    "cf-aig-authorization",
];
/// The parameters in which they look for keys.
const QUERY: [&str; 5] = [
    "key",
    "api_key",
    "api-key",
    "subscription-key",
    "access_token",
];
/// Parts of names that suggest a credential.
const TELLING_PARTS: [&str; 7] = [
    "auth",
    "token",
    "secret",
    "passw",
    "credential",
    "signature",
    "api-key",
];
/// Whole names that suggest one.
const TELLING_NAMES: [&str; 3] = ["key", "sig", "apikey"];

/// Where credentials are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    headers: Vec<HeaderName>,
    /// In lower case.
    query: Vec<String>,
    /// Whether the claims of a token may stand for it.
    pub claims: bool,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            headers: HEADERS.map(HeaderName::from_static).to_vec(),
            query: QUERY.map(str::to_owned).to_vec(),
            claims: true,
        }
    }
}

impl Sources {
    /// Reads a list of headers.
    ///
    /// # Errors
    /// The mistake in the first entry that can't hold a credential.
    pub fn read_headers(list: &[String]) -> Result<Vec<HeaderName>, String> {
        let read = |entry: &String| {
            let name: HeaderName = entry
                .trim()
                .parse()
                .map_err(|_| format!("`{entry}` is not the name of a header"))?;
            if is_sent(&name) {
                Ok(name)
            } else {
                Err(format!(
                    "`{entry}` is not sent to the upstream, which alone can check it"
                ))
            }
        };
        list.iter().map(read).collect()
    }

    /// Sets the headers to look in.
    pub fn set_headers(&mut self, headers: Vec<HeaderName>) {
        self.headers = headers;
    }

    /// Sets the parameters to look in.
    pub fn set_query(&mut self, query: &[String]) {
        self.query = query.iter().map(|name| name.to_ascii_lowercase()).collect();
    }

    /// The values of all places, with the names of the places. A header that is not sent to the
    /// upstream proves nothing to it.
    pub(super) fn find(&self, headers: &HeaderMap, query: Option<&str>) -> Vec<(String, Vec<u8>)> {
        let sent = self
            .headers
            .iter()
            .filter(|name| headers.contains_key(*name) && !is_kept_back(headers, name));
        let values = sent.flat_map(|name| {
            let values = headers.get_all(name).iter();
            values.map(|value| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        });
        let asked = parameters(query).filter(|(name, _)| self.query.contains(name));
        let asked = asked.map(|(name, value)| (format!("?{name}"), decoded(value).into_owned()));
        values.chain(asked).collect()
    }

    /// Whether anything else looks like a credential. The upstream may look at that alone.
    pub(super) fn more(&self, headers: &HeaderMap, query: Option<&str>) -> bool {
        let named = headers
            .keys()
            .any(|name| is_likely(name.as_str()) && !self.headers.contains(name) && is_sent(name));
        let mut asked = parameters(query);
        named || asked.any(|(name, _)| is_likely(&name) && !self.query.contains(&name))
    }
}

fn is_likely(name: &str) -> bool {
    TELLING_NAMES.contains(&name) || TELLING_PARTS.iter().any(|part| name.contains(part))
}

/// Whether a header is not sent because the client names it in `connection`.
fn is_kept_back(headers: &HeaderMap, name: &HeaderName) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let mut named = values.flat_map(|value| value.split(','));
    named.any(|named| named.trim().eq_ignore_ascii_case(name.as_str()))
}

/// The parameters of a query. Names are decoded and in lower case, values are as they came.
fn parameters(query: Option<&str>) -> impl Iterator<Item = (String, &str)> {
    let pairs = query.unwrap_or_default().split('&');
    pairs.filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let name = String::from_utf8_lossy(&decoded(name)).to_ascii_lowercase();
        Some((name, value))
    })
}

/// Decodes percent signs. A plus stays, because only the upstream knows what it stands for.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('%') {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        // A percent sign without two digits stands for itself.
        let hex = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_as_they_stand() {
        let read = |query| -> Vec<(String, Vec<u8>)> {
            let all = parameters(Some(query));
            all.map(|(name, value)| (name, decoded(value).into_owned()))
                .collect()
        };
        let pair = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        assert_eq!(read("Key=a%2Fb+c&key"), [pair("key", b"a/b+c")]);
        assert_eq!(read("%4bey=%ff%zz%4"), [pair("key", b"\xff%zz%4")]);
        assert_eq!(read("=x&&a=b=c"), [pair("", b"x"), pair("a", b"b=c")]);
    }

    #[test]
    fn headers_that_no_upstream_sees_hold_no_credential() {
        let read = |name: &str| Sources::read_headers(&[name.to_owned()]);
        assert_eq!(read("X-My-Key").unwrap(), ["x-my-key"]);
        for name in [
            "",
            "a b",
            "cookie",
            "proxy-authorization",
            "x-plimsoll-session",
            "host",
        ] {
            assert!(read(name).is_err(), "{name}");
        }
    }
}
