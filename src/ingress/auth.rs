//! Who sent a request: finds its credentials, hashes them under the tenant key, and forgets them.
//! Owns what counts as the same tenant. Never verifies a credential, because the upstream does
//! that, and never keeps or prints one.

mod sources;

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde_json::Value;

pub use sources::Sources;

use crate::model::{Digest, TenantId};
use crate::pipeline::{Identity, Standing};

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

fn bearer(value: &[u8]) -> &[u8] {
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
        ([], _) => hash(key, &[b"anonymous"]),
        (_, Some(whole)) => hash(key, &[b"key", whole]),
        (several, None) => hash(key, &parts(b"keys", several)),
    };
    // A renewed token has another digest but the same claims.
    let claims = sole.filter(|_| credential.claims).and_then(claims);
    let (tenant, standing) = match claims {
        Some([issuer, subject, account]) => {
            let claimed = [&issuer, &subject, &account].map(|text| text.as_bytes());
            let claimed = hash(key, &[&[&b"jwt"[..]], &claimed[..]].concat());
            (TenantId(claimed), Standing::Claimed(TenantId(digest)))
        }
        None => (TenantId(digest), standing(credential, peer)),
    };
    // The credential is always hashed whole, because the upstream accepts or refuses it whole.
    let credential = match sole {
        Some(whole) => hash(key, &[b"credential", whole]),
        None => hash(key, &parts(b"credential", &credential.found)),
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

/// A keyed hash of parts. Each part is preceded by its length, so that no two lists collide.
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
    const LOCAL: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    fn of(pairs: &[(&str, &str)], query: Option<&str>) -> Credential {
        let pair = |(name, value): &(&str, &str)| {
            let name: http::HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        Credential::of(&Sources::default(), &headers, query)
    }

    fn credential(name: &str, value: &str) -> Credential {
        of(&[(name, value)], None)
    }

    fn whose(key: &[u8; 32], credential: &Credential) -> Identity {
        identity(key, credential, LOCAL)
    }

    fn tenant(key: &[u8; 32], credential: &Credential) -> TenantId {
        whose(key, credential).tenant
    }

    fn jwt(payload: &str, signature: &str) -> Credential {
        let payload = URL_SAFE_NO_PAD.encode(payload);
        credential(
            "authorization",
            &format!("Bearer eyJhbGciOiJub25lIn0.{payload}.{signature}"),
        )
    }

    #[test]
    fn stores_of_before_stay_readable() {
        let known: [(_, &[&[u8]]); 4] = [
            (of(&[], None), &[b"anonymous"]),
            (credential("x-api-key", "sk-1"), &[b"key", b"sk-1"]),
            (
                credential("authorization", "Basic YTpi"),
                &[b"key", b"Basic YTpi"],
            ),
            (
                jwt(r#"{"iss":"i","sub":"s","org_id":"o"}"#, "x"),
                &[b"jwt", b"i", b"s", b"o"],
            ),
        ];
        for (credential, parts) in known {
            assert_eq!(tenant(&KEY, &credential), TenantId(hash(&KEY, parts)));
        }
    }

    #[test]
    fn the_same_key_is_the_same_tenant_wherever_it_stands() {
        let bearer = credential("authorization", "Bearer sk-1");
        for other in [
            of(&[("authorization", "bearer sk-1 ")], None),
            of(&[("api-key", "sk-1")], None),
            of(&[("x-api-key", "sk-1")], None),
            of(&[("x-goog-api-key", "sk-1")], None),
            of(&[("ocp-apim-subscription-key", "sk-1")], None),
            of(&[], Some("key=sk-1")),
            of(&[], Some("a=b&k%65y=sk%2d1&key=")),
            of(
                &[("x-api-key", "sk-1"), ("authorization", "Bearer sk-1")],
                Some("key=sk-1&key=sk-1"),
            ),
        ] {
            assert_eq!(whose(&KEY, &bearer), whose(&KEY, &other));
        }
    }

    #[test]
    fn different_credentials_and_keys_are_different_tenants() {
        let all = [
            of(&[], None),
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
            of(&[("api-key", "a"), ("x-api-key", "b")], None),
            of(&[("api-key", "b"), ("x-api-key", "a")], None),
            of(&[("api-key", "a"), ("api-key", "b")], None),
            of(&[("api-key", "a")], Some("key=b")),
            of(&[("key", "a"), ("api-key", "a")], Some("key=b&key=c")),
        ];
        for (i, one) in all.iter().enumerate() {
            assert_ne!(tenant(&KEY, one), tenant(&[8; 32], one), "{i}");
            for other in all.iter().skip(i + 1) {
                assert_ne!(tenant(&KEY, one), tenant(&KEY, other), "{i}");
                let credentials = [one, other].map(|one| whose(&KEY, one).credential);
                assert_ne!(credentials[0], credentials[1], "{i}");
            }
        }
    }

    #[test]
    fn several_credentials_are_one_tenant_in_any_order() {
        let one = of(
            &[("api-key", "a"), ("api-key", "b"), ("x-api-key", "c")],
            None,
        );
        let other = of(
            &[("x-api-key", "c"), ("api-key", "b"), ("api-key", "a")],
            None,
        );
        assert_eq!(whose(&KEY, &one), whose(&KEY, &other));
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
        let (old, new) = (whose(&KEY, &old), whose(&KEY, &new));
        assert_eq!(old.tenant, new.tenant);
        assert_ne!(old.credential, new.credential);
        // What it is before it was taken is its own alone.
        assert_ne!(old.standing, new.standing);
        assert!(matches!(old.standing, Standing::Claimed(own) if own != old.tenant));
    }

    #[test]
    fn claims_count_only_where_nothing_else_could_be_looked_at() {
        let token = jwt(r#"{"iss":"i","sub":"s"}"#, "x");
        let token = String::from_utf8(token.found[0].1.clone()).unwrap();
        let beside = |name: &str, query| of(&[("authorization", &token), (name, "1")], query);
        for (other, claimed) in [
            (beside("accept", None), true),
            (beside("session_id", None), true),
            (beside("cookie", None), true),
            (beside("x-plimsoll-auth", None), true),
            (beside("x-api-key", None), false),
            (beside("x-forwarded-access-token", None), false),
            (beside("x-goog-iam-authorization", None), false),
            (beside("accept", Some("a=b")), true),
            (beside("accept", Some("key=b")), false),
            (beside("accept", Some("sig=b")), false),
            (beside("accept", Some("X-Amz-Security-Token=b")), false),
        ] {
            let standing = whose(&KEY, &other).standing;
            assert_eq!(
                matches!(standing, Standing::Claimed(_)),
                claimed,
                "{other:?}"
            );
        }
        let kept_back = of(
            &[("authorization", &token), ("connection", "Authorization")],
            None,
        );
        assert_eq!(tenant(&KEY, &kept_back), tenant(&KEY, &of(&[], None)));
    }

    #[test]
    fn empty_credentials_are_anonymous() {
        let anonymous = whose(&KEY, &of(&[], None));
        for empty in [
            credential("authorization", "Bearer "),
            credential("x-api-key", ""),
            of(&[], Some("key=&key")),
        ] {
            assert_eq!(whose(&KEY, &empty), anonymous);
        }
    }

    #[test]
    fn who_has_no_credential_stands_for_itself_on_this_machine_only() {
        for (peer, standing) in [
            ("127.0.0.1", Standing::Own),
            ("::1", Standing::Own),
            ("::ffff:127.0.0.1", Standing::Own),
            ("10.0.0.7", Standing::Anonymous),
            ("fe80::1", Standing::Anonymous),
        ] {
            let peer = Some(peer.parse().unwrap());
            assert_eq!(identity(&KEY, &of(&[], None), peer).standing, standing);
            let keyed = credential("x-api-key", "k");
            assert_eq!(identity(&KEY, &keyed, peer).standing, Standing::Own);
        }
        assert_eq!(
            identity(&KEY, &of(&[], None), None).standing,
            Standing::Anonymous
        );
    }

    #[test]
    fn debug_shows_no_credential() {
        let shown = format!("{:?}", credential("authorization", "Bearer sk-secret"));
        assert_eq!(shown, "[redacted]");
    }
}
