//! Newtypes for everything that identifies something. Digests are blake3; they are compared and
//! stored, never taken apart.

use std::fmt;

/// A 32-byte blake3 digest.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of the given parts, each preceded by its length so that no two lists of parts
    /// collide by shifting bytes between them.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The bytes, for keys.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first eight bytes in hex: enough for a log line or a header, never for identity.
    #[must_use]
    pub fn short(&self) -> String {
        self.0
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl Digest {
    /// All bytes in hex, for whoever has to name the digest again.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads what [`Self::hex`] wrote. `None` for anything else.
    #[must_use]
    pub fn parse_hex(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok();
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Some(Self(bytes.filter(|_| rest.is_empty())?.try_into().ok()?))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// The id of a blob: the blake3 hash of its bytes, and of nothing else.
#[must_use]
pub fn blob_id(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// The wire format of a conversation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// Chat Completions.
    #[default]
    Chat,
    /// Responses.
    Responses,
    /// Messages.
    Messages,
}

macro_rules! digest_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub Digest);
    };
}

digest_newtype!(
    /// Whoever owns the API key of a request: a keyed hash of the credential.
    TenantId
);
digest_newtype!(
    /// The chain hash of a client-visible prefix.
    Head
);
digest_newtype!(
    /// The hash of a turn record's bytes.
    RecordId
);

/// The explicit session of a request; empty where the client names none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(pub String);

/// A tool call's id as the provider issued it.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct CallId(pub String);
