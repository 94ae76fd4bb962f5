//! Whose records are erased.

use super::ids::TenantId;

/// Whose records are erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erased {
    /// Those of the session that clients know by this name.
    Session(String),
    /// Those of a tenant.
    Tenant(TenantId),
}

impl Erased {
    /// Whether this tenant's session of this name is meant.
    #[must_use]
    pub fn means(&self, tenant: TenantId, session: &str) -> bool {
        match self {
            Self::Session(name) => name == session,
            Self::Tenant(erased) => *erased == tenant,
        }
    }
}
