//! Where a record belongs: the tenant, the session, and the parent of the session. Owns the names
//! of sessions that clients see. Never looks anything up.

use std::sync::Arc;

use plimsoll_model::{Digest, Head, Role, Scope, Shape, TenantId};
use plimsoll_wire::Dialect;

use super::erasing::Began;

/// The longest name of a program that is kept, in bytes.
const AGENT_BYTES: usize = 40;

/// Where a record belongs.
#[derive(Clone, Debug)]
pub struct RecordPlace {
    /// The tenant that owns the record.
    pub tenant: TenantId,
    /// The explicit session.
    pub scope: Scope,
    /// The session's records in this dialect. An agent that changes its dialect in the middle
    /// begins anew, because one dialect can't use the bytes of another. Watched turns have records
    /// of their own, because their views were never sent.
    pub keys: Scope,
    /// The name of the session that the client sees. Empty until [`Self::named`].
    pub session: String,
    /// The name of the parent session, as the client sees it in that session, if it names one.
    pub parent: Option<String>,
    /// When the turn began, which decides whether it is recorded if its session is erased.
    pub began: Began,
    /// The program that asks: what stands before the version in its `user-agent`. None if it does not say.
    pub agent: Option<String>,
}

impl RecordPlace {
    /// The place of a tenant's session in a dialect.
    #[must_use]
    pub fn new(
        tenant: TenantId,
        (scope, parent): (Scope, Option<String>),
        dialect: Dialect,
        began: Began,
    ) -> Self {
        let keys = match dialect {
            Dialect::Chat => scope.clone(),
            Dialect::Responses | Dialect::Messages => {
                Scope(format!("{}\u{1e}{}", dialect.name(), scope.0))
            }
        };
        Self {
            tenant,
            scope,
            keys,
            session: String::new(),
            parent,
            began,
            agent: None,
        }
    }

    /// The place of what this program asks, by its `user-agent`.
    #[must_use]
    pub fn asked_by(self, user_agent: &str) -> Self {
        let agent = user_agent.split(['/', ' ', '(']).next().unwrap_or_default();
        let is_name = !agent.is_empty() && agent.len() <= AGENT_BYTES;
        let is_name = is_name && agent.bytes().all(|byte| byte.is_ascii_graphic());
        Self {
            agent: is_name.then(|| agent.to_owned()),
            ..self
        }
    }

    /// The place of the same session's watched turns.
    #[must_use]
    pub fn watched(self) -> Self {
        let keys = Scope(format!("watched\u{1e}{}", self.keys.0));
        Self { keys, ..self }
    }

    /// The place with the name of its session: a hash of its scope, or else of the root of its chain.
    #[must_use]
    pub fn named(self, shapes: &[Arc<Shape>], heads: &[Head]) -> Self {
        let session = if self.scope.0.is_empty() {
            let tenant = self.tenant.0;
            let first = shapes.iter().position(|shape| shape.role == Role::User);
            let root = first.and_then(|at| heads.get(at + 1)).copied();
            let root = root.map_or(Digest([0; 32]), |head| head.0);
            Digest::of(&[b"session", tenant.as_bytes(), root.as_bytes()]).short()
        } else {
            explicit(self.tenant, &self.scope)
        };
        Self { session, ..self }
    }
}

/// The name of a parent session, as the client sees it in that session. The client gives the name that it gave the parent,
/// or the one that it was told in the parent's responses. `began` says whether a session of such a name has begun here: what
/// looks like one of ours may be the client's own.
#[must_use]
pub fn parent_session(tenant: TenantId, given: &Scope, began: impl Fn(&str) -> bool) -> String {
    let named = explicit(tenant, given);
    if looks_like_ours(&given.0) && !began(&named) {
        return given.0.clone();
    }
    named
}

/// Whether a text could be [`Digest::short`].
fn looks_like_ours(text: &str) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == Digest([0; 32]).short().len() && text.bytes().all(digit)
}

fn explicit(tenant: TenantId, scope: &Scope) -> String {
    Digest::of(&[b"session", tenant.0.as_bytes(), scope.0.as_bytes()]).short()
}
