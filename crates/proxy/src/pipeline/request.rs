//! What `pipeline` is given: a request whose headers have been read. Owns its shape. Never reads a
//! header itself.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use plimsoll_core::turn::{Envelope, Overrides};
use plimsoll_model::{Digest, Scope, TenantId};
use plimsoll_wire::Dialect;
use plimsoll_wire::Purpose;

use super::kept_headers::KeptHeaders;
use crate::upstream::Payload;

/// A request that is only forwarded.
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
    /// The conversation in it, with the format: of a request to a managed path, read whole.
    pub conversation: Option<(Dialect, Bytes)>,
}

/// A request to manage, with its whole body.
#[derive(Debug)]
pub struct TurnRequest {
    /// The wire format.
    pub dialect: Dialect,
    /// What the request asks for.
    pub purpose: Purpose,
    /// The client's method.
    pub method: Method,
    /// The client's path and query.
    pub asked: PathAndQuery,
    /// All headers of the client. `content-encoding` describes `raw`.
    pub headers: KeptHeaders,
    /// The body as it came.
    pub raw: Bytes,
    /// The client's `user-agent`; empty if it has none.
    pub agent: String,
    /// The decompressed body. The same bytes as `raw` if it was not compressed.
    pub body: Bytes,
    /// Who sent the request.
    pub identity: Identity,
    /// What the headers say about the session.
    pub session: SessionHeaders,
    /// What this request sets for itself.
    pub overrides: Overrides,
}

impl TurnRequest {
    /// What is known of the request before its body is read.
    #[must_use]
    pub fn envelope(&self) -> Envelope<'_> {
        Envelope {
            path: self.asked.path(),
            agent: &self.agent,
            child: self.session.parent.is_some(),
        }
    }

    /// The request as it came, to be forwarded.
    #[must_use]
    pub fn untouched(&self) -> Untouched {
        Untouched {
            method: self.method.clone(),
            asked: self.asked.clone(),
            headers: self.headers.to_map(),
            payload: Payload::Whole(self.raw.clone().into()),
            conversation: Some((self.dialect, self.body.clone())),
        }
    }
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The owner of the credential. It stays the same when tokens of one account are renewed.
    pub tenant: TenantId,
    /// The hash of the whole credential, which the upstream accepts or refuses.
    pub credential: Digest,
    /// How certain it is that the tenant sent the request.
    pub standing: Standing,
}

/// How certain the tenant is before the upstream has seen the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Only the tenant has this credential, or all who have it are on this machine.
    Own,
    /// There is no credential, so all such callers from elsewhere share a tenant.
    Anonymous,
    /// The token claims to belong to the tenant. The value is a tenant that stands for this token
    /// alone.
    Claimed(TenantId),
}

/// What the headers say about the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionHeaders {
    /// The explicit session, with the thread or agent if one is named.
    pub explicit: Option<Scope>,
    /// The parent of the session, with its thread or agent.
    pub parent: Option<Scope>,
}

impl SessionHeaders {
    /// The scope of the request: what the headers say, or else `prompt_cache_key` of the body, or
    /// else empty.
    #[must_use]
    pub fn scope(&self, prompt_cache_key: Option<&str>) -> Scope {
        match (&self.explicit, prompt_cache_key) {
            (Some(scope), _) => scope.clone(),
            (None, Some(key)) => Scope(key.to_owned()),
            (None, None) => Scope::default(),
        }
    }
}
