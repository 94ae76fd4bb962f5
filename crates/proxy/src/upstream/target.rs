//! The base URL, and how a client's path is put under it or under the root of the same server. Owns
//! that mapping. Never lets a client choose a host, or leave either by dot segments.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::uri::PathAndQuery;
use plimsoll_wire::Dialect;
use reqwest::Url;

use super::error::UpstreamError;

/// The proxy's own base. `/v1/x` and `/x` of a client both mean `BASE_URL/x`.
const OWN_BASE: &str = "/v1";

/// The ends of endpoints' addresses, the longest first. People copy such an address as a base URL.
const ENDPOINTS: [&str; 7] = [
    "/messages/count_tokens",
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/responses",
    "/messages",
    "/models",
];

/// The first segments of paths that the APIs of OpenAI, Anthropic and OpenRouter have under their
/// version. A client whose base URL lacks `/v1` asks for them without it. Any other path is one of
/// the server's own, such as Ollama's `/api/tags`
/// (<https://github.com/ollama/ollama/blob/main/docs/api.md>), and is put under its root.
const UNDER_BASE: [&str; 33] = [
    "assistants",
    "audio",
    "auth",
    "batches",
    "chat",
    "completions",
    "complete",
    "containers",
    "conversations",
    "credits",
    "edits",
    "embeddings",
    "engines",
    "evals",
    "files",
    "fine-tunes",
    "fine_tuning",
    "generation",
    "images",
    "key",
    "keys",
    "messages",
    "models",
    "moderations",
    "organization",
    "providers",
    "realtime",
    "rerank",
    "responses",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
];

/// The host of OpenAI's API.
const OPENAI: &str = "api.openai.com";

/// The bases of hosts that people often give without a path.
const BASES: [(&str, &str); 5] = [
    (OPENAI, OWN_BASE),
    ("api.anthropic.com", OWN_BASE),
    ("openrouter.ai", "/api/v1"),
    ("api.groq.com", "/openai/v1"),
    ("api.githubcopilot.com", ""),
];

/// A base URL that was checked: http or https, a host, and no user, query or fragment. It is kept
/// without an endpoint and without a slash at its end.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl {
    text: String,
    /// Whether it has no path and its host is not known. Then clients' paths stay as they are,
    /// because most such hosts have a `/v1` of their own.
    bare: bool,
}

/// Why a text is not a base URL.
#[derive(Debug, thiserror::Error)]
pub enum BaseUrlError {
    /// It is not a URL, or it has another scheme.
    #[error(
        "must be a URL that begins with https:// or http://, like \"https://api.openai.com/v1\""
    )]
    Url,
    /// It has credentials, a query or a fragment.
    #[error("must have no user, password, query or fragment; clients bring their own credentials")]
    Extra,
}

impl BaseUrl {
    /// Whether it names this machine, by a loopback address or by `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let (addresses, _) = self.addresses();
        !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback)
    }

    /// Whether it is OpenAI's API, in any of its regions.
    #[must_use]
    pub fn is_openai(&self) -> bool {
        let host = self.host_and_port().map(|(host, _)| host);
        host.is_some_and(|host| host == OPENAI || host.ends_with(".api.openai.com"))
    }

    /// Whether it is reached without TLS.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.text.starts_with("http://")
    }

    /// Whether it names an address on which this proxy listens, as far as that is known without a
    /// look-up.
    #[must_use]
    pub fn reaches(&self, own: SocketAddr) -> bool {
        let (addresses, port) = self.addresses();
        let meets = |there: &IpAddr| {
            let here = own.ip();
            *there == here
                || here.is_unspecified() && there.is_loopback()
                || there.is_unspecified() && (here.is_loopback() || here.is_unspecified())
        };
        own.port() != 0 && port == Some(own.port()) && addresses.iter().any(meets)
    }

    /// The host and the port, for a look-up of the host.
    #[must_use]
    pub fn host_and_port(&self) -> Option<(String, u16)> {
        let url = Url::parse(&self.text).ok()?;
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some((host, url.port_or_known_default()?))
    }

    /// The addresses that the host is written as, and the port.
    fn addresses(&self) -> (Vec<IpAddr>, Option<u16>) {
        let Some((host, port)) = self.host_and_port() else {
            return (Vec::new(), None);
        };
        let addresses = match host.parse() {
            Ok(address) => vec![address],
            Err(_) if host == "localhost" => {
                vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
            }
            Err(_) => Vec::new(),
        };
        (addresses, Some(port))
    }

    /// Checks a text. The address of an endpoint counts as its base, and a well-known host as the
    /// base that it serves.
    ///
    /// # Errors
    /// [`BaseUrlError`] if it is not an http or https URL, or holds more than scheme, host, port
    /// and path.
    pub fn parse(text: &str) -> Result<Self, BaseUrlError> {
        let url = Url::parse(text.trim()).map_err(|_| BaseUrlError::Url)?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(BaseUrlError::Url);
        }
        let extra = url.query().is_some() || url.fragment().is_some();
        if extra || !url.username().is_empty() || url.password().is_some() {
            return Err(BaseUrlError::Extra);
        }
        let text = url.as_str().trim_end_matches('/');
        let path = url.path().trim_end_matches('/');
        let host = url.host_str().unwrap_or_default();
        let known = BASES.iter().find(|(name, _)| *name == host);
        // People copy the address of an endpoint from the documentation of a provider.
        if let Some(endpoint) = ENDPOINTS.iter().find(|end| path.ends_with(*end)) {
            let base = text.strip_suffix(endpoint).unwrap_or(text);
            return Ok(Self::of(base.trim_end_matches('/'), false));
        }
        match known {
            Some((_, base)) if path.is_empty() => Ok(Self::of(&format!("{text}{base}"), false)),
            _ => Ok(Self::of(text, path.is_empty())),
        }
    }

    fn of(text: &str, bare: bool) -> Self {
        let text = text.to_owned();
        Self { text, bare }
    }

    /// The text, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Puts a client's path under the base, or under the server's root if no API has it under its
    /// version. The query is kept as it is.
    ///
    /// # Errors
    /// [`UpstreamError::Path`] if the path has dot segments, which would leave the base, or can't be part
    /// of a URL.
    pub fn join(&self, asked: &PathAndQuery) -> Result<Url, UpstreamError> {
        let path = asked.path();
        if path.split(['/', '\\']).any(is_dots) || !(path.is_empty() || path.starts_with('/')) {
            return Err(UpstreamError::Path);
        }
        let (before, path) = self.place(path);
        let query = asked
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        Url::parse(&format!("{before}{path}{query}")).map_err(|_| UpstreamError::Path)
    }

    /// The base that a path is put under, and what is left of the path.
    fn place<'a>(&'a self, path: &'a str) -> (&'a str, &'a str) {
        if self.bare {
            return (&self.text, path);
        }
        if let Some(rest) = below(path, OWN_BASE) {
            return (&self.text, rest);
        }
        let first = path
            .strip_prefix('/')
            .and_then(|path| path.split('/').next());
        if first.is_some_and(|first| UNDER_BASE.contains(&first)) {
            return (&self.text, path);
        }
        // A client that writes the upstream's whole path means exactly that path.
        let root = self.root();
        let origin = self.origin();
        let above = root.get(origin.len()..).unwrap_or_default();
        if !above.is_empty() && below(path, above).is_some() {
            return (origin, path);
        }
        // A managed path is recognised by its end, whatever stands before that.
        if Dialect::of_path(path).is_some() {
            return (&self.text, path);
        }
        (root, path)
    }

    /// The scheme and the authority.
    fn origin(&self) -> &str {
        let host = self.text.find("://").map_or(0, |at| at + 3);
        let rest = self.text.get(host..).unwrap_or_default();
        let end = rest.find('/').map_or(self.text.len(), |at| host + at);
        self.text.get(..end).unwrap_or(&self.text)
    }

    /// The base up to its version, if that is its last or last but one segment. The server's other
    /// paths stand beside the version. Any other base is its own root, because what stands before
    /// it may belong to somebody else.
    fn root(&self) -> &str {
        let origin = self.origin().len();
        let path = self
            .text
            .get(origin..)
            .unwrap_or_default()
            .trim_end_matches('/');
        let mut end = origin + path.len();
        // Some bases end in the version, as `/v1`, and some have one segment after it.
        for segment in path.rsplit('/').take(2) {
            let begin = end.saturating_sub(segment.len());
            if is_version(segment) {
                return self
                    .text
                    .get(..begin.saturating_sub(1))
                    .unwrap_or(&self.text);
            }
            end = begin.saturating_sub(1);
        }
        &self.text
    }
}

/// The part of a path below another path. `None` if it is not below it.
fn below<'a>(path: &'a str, above: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(above)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Whether a segment names a version, such as `v1` or `v1beta`.
fn is_version(segment: &str) -> bool {
    let number = segment.strip_prefix('v');
    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

impl Default for BaseUrl {
    fn default() -> Self {
        Self::of("https://api.openai.com/v1", false)
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether a segment is `.` or `..`, also with percent-encoded dots, as parsers of URLs read it.
fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

#[cfg(test)]
mod tests;
