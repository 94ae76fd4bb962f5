//! Who sent a request: finds its credentials, hashes them under the tenant key, and forgets them.
//! Owns what counts as the same tenant. Never verifies a credential, because the upstream does
//! that, and never keeps or prints one.

mod sources;

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use plimsoll_model::{Digest, TenantId};
use plimsoll_proxy::pipeline::{Identity, Standing};
use serde_json::Value;

pub use sources::Sources;

/// Where a JWT may name the account of its subject, as JSON pointers.
const ACCOUNT_CLAIMS: [&str; 5] = [
    "/account_id",
    "/account",
    "/org_id",
    "/https:~1~1api.openai.com~1auth/chatgpt_account_id",
    "/https:~1~1api.openai.com~1auth/organization_id",
];

/// The credentials of a client. Printing them shows whether there are any, never what they are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential {
    /// Each place that holds a credential, with the credential. Sorted, so that the order in which
    /// they were sent does not change the tenant.
    found: Vec<(String, Vec<u8>)>,
    /// Whether claims may stand for a token. They may not if there is anything else that the
    /// upstream could look at.
    claims: bool,
}

impl Credential {
    /// The credentials of a request: in each place the token of a bearer, or else the whole value.
    /// No credential at all counts as one of its own, which is anonymous.
    #[must_use]
    pub fn of(sources: &Sources, headers: &HeaderMap, query: Option<&str>) -> Self {
        let mut found = sources.find(headers, query);
        for (_, value) in &mut found {
            *value = bearer(value).trim_ascii().to_vec();
        }
        found.retain(|(_, value)| !value.is_empty());
        found.sort_unstable();
        found.dedup();
        // Without a token there is nothing that claims could stand for.
        let claims = !found.is_empty() && sources.claims && !sources.more(headers, query);
        Self { found, claims }
    }

    /// The one secret that stands in all places, if there is only one.
    fn sole(&self) -> Option<&[u8]> {
        let (_, first) = self.found.first()?;
        let same = self.found.iter().all(|(_, value)| value == first);
        same.then_some(first)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.found.is_empty() {
            "anonymous"
        } else {
            "[redacted]"
        })
    }
}

/// The token of a bearer, or else the whole value.
pub(super) fn bearer(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
        _ => value,
    }
}

/// Who sent a request that came from `peer`. A JWT is identified by issuer, subject and account, so
/// that a renewed token is the same tenant, provided that the upstream could look at nothing else.
/// Anything else is identified by the whole credential. The claims are not verified here: what was
/// recorded is used only after the upstream has accepted the token.
#[must_use]
pub fn identity(key: &[u8; 32], credential: &Credential, peer: Option<IpAddr>) -> Identity {
    let sole = credential.sole();
    let digest = match (&credential.found[..], sole) {
        ([], _) => Digest::keyed(key, &[b"anonymous"]),
        (_, Some(whole)) => Digest::keyed(key, &[b"key", whole]),
        (several, None) => Digest::keyed(key, &parts(b"keys", several)),
    };
    // A renewed token has another digest but the same claims.
    let claims = sole.filter(|_| credential.claims).and_then(claims);
    let (tenant, standing) = match claims {
        Some([issuer, subject, account]) => {
            let claimed = [&issuer, &subject, &account].map(|text| text.as_bytes());
            let claimed = Digest::keyed(key, &[&[&b"jwt"[..]], &claimed[..]].concat());
            (TenantId(claimed), Standing::Claimed(TenantId(digest)))
        }
        None => (TenantId(digest), standing(credential, peer)),
    };
    // The credential is always hashed whole, because the upstream accepts or refuses it whole.
    let credential = match sole {
        Some(whole) => Digest::keyed(key, &[b"credential", whole]),
        None => Digest::keyed(key, &parts(b"credential", &credential.found)),
    };
    Identity {
        tenant,
        credential,
        standing,
    }
}

fn standing(credential: &Credential, peer: Option<IpAddr>) -> Standing {
    let local = peer.is_some_and(|peer| peer.to_canonical().is_loopback());
    if credential.found.is_empty() && !local {
        Standing::Anonymous
    } else {
        Standing::Own
    }
}

fn parts<'a>(kind: &'a [u8], found: &'a [(String, Vec<u8>)]) -> Vec<&'a [u8]> {
    let named = found
        .iter()
        .flat_map(|(name, value)| [name.as_bytes(), value]);
    [kind].into_iter().chain(named).collect()
}

/// Issuer, subject and account of a JWT. `None` if it is not a JWT, or does not name issuer and
/// subject.
fn claims(token: &[u8]) -> Option<[String; 3]> {
    let mut parts = std::str::from_utf8(token).ok()?.split('.');
    let (header, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
    // Only the shape of a signed token is checked. The upstream checks the signature.
    if parts.next().is_some() || header.is_empty() || signature.is_empty() {
        return None;
    }
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let payload: Value = serde_json::from_slice(&payload).ok()?;
    let text = |pointer: &str| {
        payload
            .pointer(pointer)?
            .as_str()
            .filter(|text| !text.is_empty())
    };
    let (issuer, subject) = (text("/iss")?.to_owned(), text("/sub")?.to_owned());
    // One person may have several accounts with one provider. These must not share sessions.
    let account = ACCOUNT_CLAIMS.iter().find_map(|pointer| text(pointer));
    Some([issuer, subject, account.unwrap_or_default().to_owned()])
}

#[cfg(test)]
mod tests;
