//! Where records belong: the tenant, the session, and the session that it is a child of. Owns how these are
//! named towards the client; never finds one.

use crate::model::{Dialect, Digest, Role, Scope, TenantId};
use crate::turn::state::TurnState;

/// Where a record belongs.
#[derive(Clone, Debug)]
pub struct Place {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its explicit session.
    pub scope: Scope,
    /// The session's records of this dialect: an agent that changes its dialect in the middle
    /// begins anew, because bytes of one are none of the other's. What is only watched has records of
    /// its own, because nothing of it was sent.
    pub keys: Scope,
    /// The session that this one is a child of, where the client names it.
    pub parent: Option<Scope>,
}

impl Place {
    /// The place of a tenant's session in a dialect.
    #[must_use]
    pub fn new(tenant: TenantId, scope: Scope, parent: Option<Scope>, dialect: Dialect) -> Self {
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
            parent,
        }
    }

    /// The same for what is only watched.
    #[must_use]
    pub fn watched(self) -> Self {
        let keys = Scope(format!("watched\u{1e}{}", self.keys.0));
        Self { keys, ..self }
    }
}

/// The session's name towards the client: its scope, else the root of its chain, hashed.
#[must_use]
pub fn session(place: &Place, state: &TurnState) -> String {
    let tenant = place.tenant.0;
    if place.scope.0.is_empty() {
        let first = state
            .shapes
            .iter()
            .position(|shape| shape.role == Role::User);
        let root = first.and_then(|at| state.heads.get(at + 1)).copied();
        let root = root.map_or(Digest([0; 32]), |head| head.0);
        return Digest::of(&[b"session", tenant.as_bytes(), root.as_bytes()]).short();
    }
    explicit(place.tenant, &place.scope)
}

/// The name of the session that this one is a child of: the one under which the client knows that.
#[must_use]
pub fn parent_session(place: &Place) -> Option<String> {
    let parent = place.parent.as_ref()?;
    Some(explicit(place.tenant, parent))
}

fn explicit(tenant: TenantId, scope: &Scope) -> String {
    Digest::of(&[b"session", tenant.0.as_bytes(), scope.0.as_bytes()]).short()
}
