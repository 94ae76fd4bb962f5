//! What `pipeline` is given. Owns the shape of a request once its headers have been read; never
//! reads a header itself.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use crate::dialect::Purpose;
use crate::model::{Dialect, Digest, Scope, TenantId};
use crate::turn::Overrides;
use crate::upstream::Payload;

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

impl TurnRequest {
    /// The request as it came, for forwarding.
    #[must_use]
    pub fn untouched(&self) -> Untouched {
        Untouched {
            method: self.method.clone(),
            asked: self.asked.clone(),
            headers: self.headers.clone(),
            payload: Payload::Whole(self.raw.clone().into()),
        }
    }
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
