//! Who calls: the tenant by its key and its header, the session by what the gateway says of it. Owns the ids
//! under which originals are found: keyed hashes, so that nobody can make the id of another tenant's text. Never
//! keeps a credential.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use plimsoll_model::{Digest, TenantId};

use crate::settings::CompressSettings;

/// Where a gateway says which conversation a call belongs to, the first of them that a call has.
const SESSIONS: [&str; 2] = ["x-plimsoll-session", "x-headroom-affinity"];
/// How many bytes of a hash are an id. LiteLLM takes ids of 12 to 24 hexadecimal digits.
const ID_BYTES: usize = 12;

/// Why a call is answered by nobody.
#[derive(Debug, PartialEq, Eq)]
pub enum Stranger {
    /// It has no key, or a wrong one.
    Key,
    /// It doesn't say which tenant it is for.
    Tenant,
}

/// Who calls, and for which conversation.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Whose rows these are.
    pub tenant: TenantId,
    /// The conversation as the gateway names it, within the tenant.
    pub session: Digest,
}

impl Caller {
    /// The caller of a request. `secret` is the installation's, so that nobody else can make its ids.
    ///
    /// # Errors
    /// [`Stranger`] if the key is wrong or names no tenant and no header does.
    pub fn of(
        settings: &CompressSettings,
        secret: &[u8; 32],
        headers: &HeaderMap,
    ) -> Result<Self, Stranger> {
        let sent = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        let sent = sent.map(bearer).unwrap_or_default();
        let named = settings.keys.tenant(sent).ok_or(Stranger::Key)?;
        let header = headers.get(&settings.tenant_header);
        let header = header.map_or(&b""[..], |value| value.as_bytes().trim_ascii());
        if named.is_empty() && header.is_empty() {
            return Err(Stranger::Tenant);
        }
        // A key that names its tenant may still be shared by several, which a header tells apart.
        let tenant = Digest::keyed(secret, &[b"compress tenant", named.as_bytes(), header]);
        let session = SESSIONS.iter().find_map(|name| headers.get(*name));
        let session = session.map(http::HeaderValue::as_bytes).unwrap_or_default();
        Ok(Self {
            tenant: TenantId(tenant),
            session: Digest::of(&[tenant.as_bytes(), session]),
        })
    }

    /// The id of a text of this tenant.
    pub fn id(&self, secret: &[u8; 32], text: &str) -> String {
        let parts = [
            b"compress id",
            &self.tenant.0.as_bytes()[..],
            text.as_bytes(),
        ];
        let hash = Digest::keyed(secret, &parts);
        let bytes = hash.as_bytes().iter().take(ID_BYTES);
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Whether a text could be an id.
pub fn is_id(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 2 * ID_BYTES && text.bytes().all(digit)
}

/// The token of a bearer; nothing else is one.
fn bearer(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token.trim_ascii(),
        _ => b"",
    }
}
