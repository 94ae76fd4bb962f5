//! Who owns a request: the credential is found, hashed under the tenant key, and forgotten. Owns
//! what counts as the same tenant; never verifies a credential (the upstream does) and never keeps
//! or prints one.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::Value;

use crate::model::{Digest, TenantId};
use crate::pipeline::Identity;

/// Where a JWT may name the account under its subject (JSON pointers).
const ACCOUNT_CLAIMS: [&str; 5] = [
    "/account_id",
    "/account",
    "/org_id",
    "/https:~1~1api.openai.com~1auth/chatgpt_account_id",
    "/https:~1~1api.openai.com~1auth/organization_id",
];

/// What a client proves itself with. Printing it shows whether there is one, never what it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(Option<Vec<u8>>);

impl Credential {
    /// The credential of a request: `authorization` (a bearer's token, else the whole value), then
    /// `api-key`, then `x-api-key`. None is a credential of its own: anonymous.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let found = [AUTHORIZATION.as_str(), "api-key", "x-api-key"]
            .iter()
            .filter_map(|name| headers.get(*name))
            .map(|value| bearer(value.as_bytes()).trim_ascii())
            .find(|value| !value.is_empty());
        Self(found.map(<[u8]>::to_vec))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "[redacted]"
        } else {
            "anonymous"
        })
    }
}

fn bearer(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
        _ => value,
    }
}

/// The tenant and the credential's own hash.
#[must_use]
pub fn identity(key: &[u8; 32], credential: &Credential) -> Identity {
    let whole = credential.0.as_deref().unwrap_or_default();
    Identity {
        tenant: tenant(key, credential),
        credential: hash(key, &[b"credential", whole]),
    }
}

/// The tenant: a JWT by issuer, subject and account claims (so a renewed token is the same
/// tenant), anything else whole. The claims are not verified: nothing recorded may be served
/// until the upstream has accepted the credential itself.
#[must_use]
pub fn tenant(key: &[u8; 32], credential: &Credential) -> TenantId {
    let digest = match &credential.0 {
        None => hash(key, &[b"anonymous"]),
        Some(whole) => match claims(whole) {
            Some([issuer, subject, account]) => hash(
                key,
                &[
                    b"jwt",
                    issuer.as_bytes(),
                    subject.as_bytes(),
                    account.as_bytes(),
                ],
            ),
            None => hash(key, &[b"key", whole]),
        },
    };
    TenantId(digest)
}

/// Issuer, subject and account of a JWT; `None` if it is none, or names no issuer or subject.
fn claims(token: &[u8]) -> Option<[String; 3]> {
    let mut parts = std::str::from_utf8(token).ok()?.split('.');
    let (header, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
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
    let account = ACCOUNT_CLAIMS.iter().find_map(|pointer| text(pointer));
    Some([issuer, subject, account.unwrap_or_default().to_owned()])
}

/// A keyed hash of parts, each preceded by its length.
fn hash(key: &[u8; 32], parts: &[&[u8]]) -> Digest {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Digest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn credential(name: &str, value: &str) -> Credential {
        let pair = (
            name.parse::<http::HeaderName>().unwrap(),
            value.parse().unwrap(),
        );
        Credential::of(&HeaderMap::from_iter([pair]))
    }

    fn jwt(payload: &str, signature: &str) -> Credential {
        let payload = URL_SAFE_NO_PAD.encode(payload);
        credential(
            "authorization",
            &format!("Bearer eyJhbGciOiJub25lIn0.{payload}.{signature}"),
        )
    }

    #[test]
    fn the_same_key_is_the_same_tenant_wherever_it_stands() {
        let bearer = credential("authorization", "Bearer sk-1");
        for other in [
            ("authorization", "bearer sk-1 "),
            ("api-key", "sk-1"),
            ("x-api-key", "sk-1"),
        ] {
            assert_eq!(
                identity(&KEY, &bearer),
                identity(&KEY, &credential(other.0, other.1))
            );
        }
    }

    #[test]
    fn different_credentials_and_keys_are_different_tenants() {
        let all = [
            Credential::of(&HeaderMap::new()),
            credential("authorization", "Bearer sk-1"),
            credential("authorization", "Bearer sk-2"),
            credential("authorization", "Basic sk-1"),
            credential("authorization", "Bearer a.b.c"),
            credential("authorization", "anonymous"),
            jwt(r#"{"iss":"i","sub":"s"}"#, "x"),
            jwt(r#"{"iss":"i","sub":"t"}"#, "x"),
            jwt(r#"{"iss":"is","sub":""}"#, "x"),
            jwt(r#"{"iss":"i","sub":"s","account_id":"a"}"#, "x"),
            jwt(r#"{"sub":"s"}"#, "x"),
            jwt(r#"["iss"]"#, "x"),
        ];
        for (i, one) in all.iter().enumerate() {
            assert_ne!(tenant(&KEY, one), tenant(&[8; 32], one), "{i}");
            for other in all.iter().skip(i + 1) {
                assert_ne!(tenant(&KEY, one), tenant(&KEY, other), "{i}");
            }
        }
    }

    #[test]
    fn a_renewed_token_is_the_same_tenant_but_another_credential() {
        let account = r#""https://api.openai.com/auth":{"chatgpt_account_id":"acct"}"#;
        let old = jwt(
            &format!(r#"{{"iss":"i","sub":"s","exp":1,{account}}}"#),
            "x",
        );
        let new = jwt(
            &format!(r#"{{"exp":2,{account},"sub":"s","iss":"i"}}"#),
            "y",
        );
        assert_eq!(tenant(&KEY, &old), tenant(&KEY, &new));
        assert_ne!(
            identity(&KEY, &old).credential,
            identity(&KEY, &new).credential
        );
    }

    #[test]
    fn empty_credentials_are_anonymous() {
        let anonymous = tenant(&KEY, &Credential::of(&HeaderMap::new()));
        assert_eq!(
            tenant(&KEY, &credential("authorization", "Bearer ")),
            anonymous
        );
        assert_eq!(tenant(&KEY, &credential("x-api-key", "")), anonymous);
    }

    #[test]
    fn debug_shows_no_credential() {
        let shown = format!("{:?}", credential("authorization", "Bearer sk-secret"));
        assert_eq!(shown, "[redacted]");
    }
}
