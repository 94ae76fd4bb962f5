//! Tests of `auth`.

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
        assert_eq!(
            tenant(&KEY, &credential),
            TenantId(Digest::keyed(&KEY, parts))
        );
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
