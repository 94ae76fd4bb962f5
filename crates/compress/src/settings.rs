//! `[compress]`: where the listener is, who may use it, and when it replaces something. Owns the defaults. Never
//! reads a configuration.

use std::fmt;
use std::net::SocketAddr;

use http::HeaderName;

/// The least memory that a listener is given of `server.cache_memory`: one part in so many.
const MEMORY_SHARE: usize = 8;

/// `[compress]`.
#[derive(Clone, Debug, PartialEq)]
pub struct CompressSettings {
    /// The address; none means that nothing listens.
    pub listen: Option<SocketAddr>,
    /// What callers prove themselves by.
    pub keys: CompressKeys,
    /// The header that names the tenant of a caller whose key names none.
    pub tenant_header: HeaderName,
    /// The most tokens that the rows of a call may come to before a pass.
    pub tokens: u32,
    /// The fraction of them down to which a pass replaces.
    pub floor: f64,
    /// Whether originals are kept, so that they can be brought back.
    pub keep: bool,
}

impl CompressSettings {
    /// What of the memory for caches is this listener's. The other caches share the rest.
    #[must_use]
    pub const fn memory(&self, all: usize) -> usize {
        match self.listen {
            Some(_) => all / MEMORY_SHARE,
            None => 0,
        }
    }
}

impl Default for CompressSettings {
    fn default() -> Self {
        Self {
            listen: None,
            keys: CompressKeys::default(),
            tenant_header: HeaderName::from_static("x-plimsoll-tenant"),
            tokens: 60_000,
            floor: 0.5,
            keep: true,
        }
    }
}

/// The keys of callers, as hashes: comparing hashes takes equally long wherever they differ.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CompressKeys(Vec<(String, blake3::Hash)>);

impl CompressKeys {
    /// Adds a key whose callers say by a header which tenant they call for.
    pub fn add(&mut self, key: &str) {
        self.add_named("", key);
    }

    /// Adds the key of one tenant.
    pub fn add_named(&mut self, tenant: &str, key: &str) {
        let hash = blake3::hash(key.as_bytes());
        self.0.push((tenant.to_owned(), hash));
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a key stands there twice, so that it would name two tenants.
    #[must_use]
    pub fn has_twins(&self) -> bool {
        let twin = |(place, (_, key)): (usize, &(String, blake3::Hash))| {
            self.0.iter().skip(place + 1).any(|(_, other)| other == key)
        };
        self.0.iter().enumerate().any(twin)
    }

    /// The tenant that a key names, which is empty if it names none. `None` if it is no key.
    pub(crate) fn tenant(&self, sent: &[u8]) -> Option<&str> {
        let sent = blake3::hash(sent);
        let found = self.0.iter().find(|(_, key)| *key == sent);
        found.map(|(tenant, _)| tenant.as_str())
    }
}

impl fmt::Debug for CompressKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} redacted]", self.0.len())
    }
}
