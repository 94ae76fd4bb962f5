//! What `pipeline` is given. Owns the shape of a request once its headers have been read; never
//! reads a header itself.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use crate::dialect::Purpose;
use crate::model::{Dialect, Digest, Scope, TenantId};
use crate::policy::Policy;
use crate::upstream::Payload;

/// The smallest ceiling that is accepted, in tokens.
pub const MIN_CEILING: u32 = 4_000;

/// A request that is only passed through.
#[derive(Debug)]
pub struct Untouched {
    /// The client's method.
    pub method: Method,
    /// The client's path and query.
    pub asked: PathAndQuery,
    /// The client's headers, all of them.
    pub headers: HeaderMap,
    /// The client's body.
    pub payload: Payload,
}

/// A managed request, its body held whole.
#[derive(Debug)]
pub struct TurnRequest {
    /// Its wire format.
    pub dialect: Dialect,
    /// What it asks for.
    pub purpose: Purpose,
    /// The client's method.
    pub method: Method,
    /// The client's path and query.
    pub asked: PathAndQuery,
    /// The client's headers, all of them; `content-encoding` describes `raw`.
    pub headers: HeaderMap,
    /// The body as it came.
    pub raw: Bytes,
    /// The body, decompressed; the same bytes as `raw` where it was not compressed.
    pub body: Bytes,
    /// Whose request it is.
    pub identity: Identity,
    /// What the headers say about the session.
    pub session: Session,
    /// What this request sets for itself.
    pub overrides: Overrides,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who owns the credential: stable over renewed tokens of one account.
    pub tenant: TenantId,
    /// The credentials themselves, hashed whole: what an upstream has accepted or not.
    pub credential: Digest,
    /// How sure it is that the tenant is whose the request is.
    pub standing: Standing,
}

/// How sure it is whose a request is, before the upstream has looked at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody else has what the tenant was made of, or all who have are on this machine.
    Own,
    /// There is no credential, so that all such callers from elsewhere are one tenant.
    Anonymous,
    /// The tenant is what a token says of itself. This one is the token's alone.
    Claimed(TenantId),
}

/// What the headers say about the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The explicit session, with the thread or agent where one is named.
    pub explicit: Option<Scope>,
    /// The session that this one is a child of, with its thread or agent.
    pub parent: Option<Scope>,
}

impl Session {
    /// The scope of the request: the headers' word, else `prompt_cache_key` of the body, else
    /// empty.
    #[must_use]
    pub fn scope(&self, prompt_cache_key: Option<&str>) -> Scope {
        match (&self.explicit, prompt_cache_key) {
            (Some(scope), _) => scope.clone(),
            (None, Some(key)) => Scope(key.to_owned()),
            (None, None) => Scope::default(),
        }
    }
}

/// What a request sets for itself; what it leaves out is as configured. Never remembered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// `x-plimsoll-mode`
    pub mode: Option<Mode>,
    /// `x-plimsoll-budget`
    pub budget: Option<AskedBudget>,
    /// `x-plimsoll-profile`: a name that the configuration has.
    pub profile: Option<String>,
    /// `x-plimsoll-policy`
    pub policy: Option<Policy>,
    /// `x-plimsoll-recall`: whether `recall` is injected into a conversation that begins here.
    pub recall: Option<bool>,
    /// `x-plimsoll-guide`: whether the guidance comes with this request.
    pub guide: bool,
}

/// What is done with a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Held under the ceiling.
    Manage,
    /// Computed and reported, forwarded untouched.
    Observe,
    /// Forwarded untouched.
    Off,
}

impl Mode {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("manage", Self::Manage),
        ("observe", Self::Observe),
        ("off", Self::Off),
    ];
}

/// Reads a number of tokens as people write it: `80000`, `80_000`, `40k`, `1.5k` or `1M`. None if it is
/// no such number.
#[must_use]
pub fn tokens(text: &str) -> Option<u32> {
    let text = text.trim();
    let (number, digits) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 6),
            None => (text, 0),
        },
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > digits.max(1) {
        return None;
    }
    let whole: u32 = whole.replace('_', "").parse().ok()?;
    let of_part: u32 = format!("{part:0<digits$}").parse().ok()?;
    let scale = 10_u32.pow(u32::try_from(digits).ok()?);
    whole.checked_mul(scale)?.checked_add(of_part)
}

/// A ceiling that a request names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AskedBudget {
    /// Tokens, at least [`MIN_CEILING`].
    Tokens(u32),
    /// A share of the model's window, in (0, 1].
    WindowShare(f64),
}
