//! Which host a request names, and which page sent it. A page of the web can send requests to this
//! machine, and can read the answers under a name that it points here (DNS rebinding). It can
//! choose neither the host nor the origin that its browser sends. Owns which hosts and origins are
//! allowed. Never reads more of a request than these.

use std::net::{IpAddr, Ipv6Addr};

use http::Request;
use http::header::{HOST, HeaderValue, ORIGIN};
use plimsoll_proxy::pipeline::ProxyError;

/// A host that a request may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name, in lower case.
    Name(String),
}

impl Host {
    /// The host in `host` or `host:port`. `None` if the text is neither.
    #[must_use]
    pub fn parse(authority: &str) -> Option<Self> {
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                let address: Ipv6Addr = address.parse().ok()?;
                (Self::Address(IpAddr::V6(address).to_canonical()), port)
            }
            None => {
                let end = authority.find(':').unwrap_or(authority.len());
                let (name, port) = authority.split_at(end);
                (Self::named(name)?, port)
            }
        };
        let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let bare = port.is_empty() || port.strip_prefix(':').is_some_and(digits);
        bare.then_some(host)
    }

    fn named(name: &str) -> Option<Self> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(fits) {
            return None;
        }
        Some(match name.parse() {
            Ok(address) => Self::Address(address),
            Err(_) => Self::Name(name.to_ascii_lowercase()),
        })
    }

    /// Whether it is this machine, whatever a name server says.
    fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }
}

/// The hosts that requests may name, besides those of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Whether any host is allowed.
    pub any: bool,
    /// The hosts that are allowed otherwise.
    pub named: Vec<Host>,
}

impl Hosts {
    /// Reads a list of hosts. `*` allows any.
    ///
    /// # Errors
    /// The mistake in the first entry that is not a host.
    pub fn read(list: &[String]) -> Result<Self, String> {
        let mut hosts = Self::default();
        for entry in list {
            let text = entry.trim();
            let host = match text.parse::<Ipv6Addr>() {
                Ok(address) => Some(Host::Address(IpAddr::V6(address).to_canonical())),
                // A colon outside of brackets begins a port, which a host must not have.
                Err(_) => Host::parse(text).filter(|_| text.ends_with(']') || !text.contains(':')),
            };
            match host {
                _ if text == "*" => hosts.any = true,
                Some(host) => hosts.named.push(host),
                None => {
                    return Err(format!(
                        "`{entry}` is not a host; write its name or address alone, without a scheme \
                         or a port, or \"*\" for any"
                    ));
                }
            }
        }
        Ok(hosts)
    }
}

/// The origins of pages that may send requests, besides those of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// Whether any origin is allowed.
    any: bool,
    /// The origins that are allowed otherwise. An entry that ends with `://` is a scheme.
    named: Vec<String>,
}

impl Origins {
    /// Reads a list of origins. `*` allows any, and `scheme://*` allows all of a scheme.
    ///
    /// # Errors
    /// The mistake in the first entry that is not an origin.
    pub fn read(list: &[String]) -> Result<Self, String> {
        let mut origins = Self::default();
        for entry in list {
            match entry.trim() {
                "*" => origins.any = true,
                "null" => origins.named.push("null".to_owned()),
                text => origins.named.push(named_origin(text).ok_or_else(|| {
                    format!(
                        "`{entry}` is not an origin; write it like \"https://app.example\", \
                         \"app://*\" for all of a scheme, or \"*\" for any"
                    )
                })?),
            }
        }
        Ok(origins)
    }

    fn has(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else {
            return false;
        };
        if self.any || is_local(origin) {
            return true;
        }
        let origin = normal(origin);
        let scheme = origin.find("://").and_then(|at| origin.get(..at + 3));
        let is = |named: &String| *named == origin || Some(named.as_str()) == scheme;
        self.named.iter().any(is)
    }
}

/// An entry of the list in the form in which it is compared.
fn named_origin(text: &str) -> Option<String> {
    let text = text
        .strip_suffix('/')
        .filter(|text| !text.ends_with('/'))
        .unwrap_or(text);
    let (scheme, rest) = text.split_once("://")?;
    let first = scheme
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    if !first || !scheme.bytes().all(inner) {
        return None;
    }
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'*' | b',' | b'@');
    match rest {
        // Many sites share a scheme of the web, so it can't be allowed as a whole.
        "*" if scheme.starts_with("http") => None,
        "*" => Some(normal(&format!("{scheme}://"))),
        "" => None,
        rest => rest.bytes().all(fits).then(|| normal(text)),
    }
}

/// An origin in the form in which browsers write it.
fn normal(origin: &str) -> String {
    let origin = origin.to_ascii_lowercase();
    let port = match origin.split_once("://") {
        Some(("http", _)) => ":80",
        Some(("https", _)) => ":443",
        _ => return origin,
    };
    origin
        .strip_suffix(port)
        .map_or(origin.clone(), str::to_owned)
}

/// Whether an origin is a page that this machine serves.
fn is_local(origin: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    web && Host::parse(authority).is_some_and(|host| host.is_loopback())
}

/// What a listener checks in its requests.
#[derive(Clone, Debug)]
pub struct OriginGuard {
    /// The hosts that requests may name. `None` allows any.
    hosts: Option<Vec<Host>>,
    origins: Origins,
}

impl OriginGuard {
    /// The guard of a listener. On a loopback address only this machine can be meant. On any other
    /// address only the operator knows the names of the proxy.
    #[must_use]
    pub fn new(listen: IpAddr, hosts: &Hosts, origins: &Origins) -> Self {
        let checked = listen.to_canonical().is_loopback() || !hosts.named.is_empty();
        Self {
            hosts: (checked && !hosts.any).then(|| hosts.named.clone()),
            origins: origins.clone(),
        }
    }

    /// Checks whether a request may be served at all.
    ///
    /// # Errors
    /// [`ProxyError::Host`] or [`ProxyError::Origin`].
    pub fn admit<B>(&self, request: &Request<B>) -> Result<(), ProxyError> {
        if !self.is_meant(request) {
            return Err(ProxyError::Host);
        }
        let mut origins = request.headers().get_all(ORIGIN).iter();
        if origins.all(|origin| self.origins.has(origin)) {
            Ok(())
        } else {
            Err(ProxyError::Origin)
        }
    }

    /// Whether the request names this proxy. A request without a host does not come from a browser.
    fn is_meant<B>(&self, request: &Request<B>) -> bool {
        let Some(allowed) = &self.hosts else {
            return true;
        };
        let own = |authority: &str| {
            let host = Host::parse(authority);
            host.is_some_and(|host| host.is_loopback() || allowed.contains(&host))
        };
        // A target in absolute form takes precedence over the header, but a later reader may look
        // at either.
        let target = request.uri().authority().map(http::uri::Authority::as_str);
        let mut headers = request.headers().get_all(HOST).iter();
        let (first, second) = (headers.next(), headers.next());
        let named = first.map(|host| host.to_str().is_ok_and(|host| own(host.trim())));
        second.is_none() && target.is_none_or(own) && named.unwrap_or(true)
    }
}

#[cfg(test)]
mod tests;
