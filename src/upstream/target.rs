//! The base URL and how a client's path is laid under it. Owns the mapping; never lets a client
//! choose a host or leave the base.

use std::fmt;

use http::uri::PathAndQuery;
use reqwest::Url;

use super::Error;

/// The proxy's own base: a client's `/v1/x` and `/x` both mean `BASE_URL/x`.
const OWN_BASE: &str = "/v1";

/// A base URL that was checked: http or https, a host, no user, query or fragment; kept without a
/// slash at its end.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

/// Why a text is no base URL.
#[derive(Debug, thiserror::Error)]
pub enum BaseUrlError {
    /// It does not parse, or has another scheme.
    #[error("must be a URL like \"https://api.openai.com/v1\"")]
    Url,
    /// It carries credentials, a query or a fragment.
    #[error("must have no user, password, query or fragment; clients bring their own credentials")]
    Extra,
}

impl BaseUrl {
    /// Whether it names this machine by a loopback address or `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let url = Url::parse(&self.0).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let host = host.trim_matches(['[', ']']);
        let address = host.parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// Checks a text.
    ///
    /// # Errors
    /// If it is no http or https URL, or holds more than scheme, host, port and path.
    pub fn parse(text: &str) -> Result<Self, BaseUrlError> {
        let url = Url::parse(text).map_err(|_| BaseUrlError::Url)?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(BaseUrlError::Url);
        }
        let extra = url.query().is_some() || url.fragment().is_some();
        if extra || !url.username().is_empty() || url.password().is_some() {
            return Err(BaseUrlError::Extra);
        }
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }

    /// The text, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Lays a client's path under the base; the query goes along as it is.
    ///
    /// # Errors
    /// [`Error::Path`] where the path has dot segments (they would leave the base) or can't be
    /// part of a URL.
    pub fn join(&self, asked: &PathAndQuery) -> Result<Url, Error> {
        let path = match asked.path().strip_prefix(OWN_BASE) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            _ => asked.path(),
        };
        if path.split(['/', '\\']).any(is_dots) || !(path.is_empty() || path.starts_with('/')) {
            return Err(Error::Path);
        }
        let query = asked
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        Url::parse(&format!("{}{path}{query}", self.0)).map_err(|_| Error::Path)
    }
}

impl Default for BaseUrl {
    fn default() -> Self {
        Self("https://api.openai.com/v1".to_owned())
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a segment is `.` or `..`, percent-encoded dots included, as URL parsers see it.
fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(base: &str, asked: &str) -> Result<String, Error> {
        let asked = PathAndQuery::try_from(asked).unwrap();
        BaseUrl::parse(base)
            .unwrap()
            .join(&asked)
            .map(|url| url.to_string())
    }

    #[test]
    fn client_paths_stand_under_the_base() {
        let table = [
            ("https://h/v1", "/v1/models", "https://h/v1/models"),
            ("https://h/v1", "/models", "https://h/v1/models"),
            ("https://h/v1/", "/v1", "https://h/v1"),
            ("https://h/v1", "/v1beta/x", "https://h/v1/v1beta/x"),
            (
                "https://h/api/paas/v4",
                "/v1/chat/completions",
                "https://h/api/paas/v4/chat/completions",
            ),
            (
                "https://h",
                "/openai/deployments/d/chat/completions?api-version=1",
                "https://h/openai/deployments/d/chat/completions?api-version=1",
            ),
            (
                "http://h:1/v1",
                "//evil.example/x",
                "http://h:1/v1//evil.example/x",
            ),
            (
                "https://h/v1",
                "/v1/files/a%2Fb?x=%20&y",
                "https://h/v1/files/a%2Fb?x=%20&y",
            ),
        ];
        for (base, asked, wanted) in table {
            assert_eq!(join(base, asked).unwrap(), wanted, "{base} + {asked}");
        }
    }

    #[test]
    fn dot_segments_never_leave_the_base() {
        for asked in [
            "/v1/../admin",
            "/..",
            "/v1/%2e%2E/x",
            "/a/./b",
            "/v1/.%2e/x",
            "/a/..?q",
        ] {
            assert!(
                matches!(join("https://h/v1", asked), Err(Error::Path)),
                "{asked}"
            );
        }
    }

    #[test]
    fn base_urls_hold_no_more_than_they_must() {
        for text in ["ftp://h", "h/v1", "", "https://"] {
            assert!(
                matches!(BaseUrl::parse(text), Err(BaseUrlError::Url)),
                "{text}"
            );
        }
        for text in ["https://u:p@h", "https://h/?a", "https://h/#a"] {
            assert!(
                matches!(BaseUrl::parse(text), Err(BaseUrlError::Extra)),
                "{text}"
            );
        }
    }
}
