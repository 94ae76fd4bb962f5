//! The chain of a client-visible prefix (design §3): `h[0] = H(tenant)`,
//! `h[i] = H(h[i-1], canonical(message i))`, and the keys under which records are found. Never
//! looks at bytes: it is given canonical digests.

use std::sync::Arc;

use plimsoll_model::{CallId, Digest, Head, RecordId, Role, Scope, Shape, TenantId};

/// The heads of all prefixes: one more than there are messages. System and developer messages
/// before the first user message leave the head as it is, because agents put clocks there.
#[must_use]
pub fn heads(tenant: TenantId, shapes: &[Arc<Shape>]) -> Vec<Head> {
    let first = Head(Digest::of(&[b"head", tenant.0.as_bytes()]));
    chain(first, shapes, |shape| shape.canonical)
}

/// The heads of all prefixes with the ids of all calls left blank, so that results are told apart by their order. They
/// begin where `heads` begin.
#[must_use]
pub fn nameless(heads: &[Head], shapes: &[Arc<Shape>]) -> Vec<Head> {
    let Some(first) = heads.first() else {
        return Vec::new();
    };
    chain(*first, shapes, |shape| shape.nameless)
}

fn chain(first: Head, shapes: &[Arc<Shape>], digest: impl Fn(&Shape) -> Digest) -> Vec<Head> {
    let mut head = first;
    let mut heads = Vec::with_capacity(shapes.len() + 1);
    heads.push(head);
    let mut leading = true;
    for shape in shapes {
        leading &= shape.role == Role::System;
        if !leading {
            head = extend(head, digest(shape));
        }
        heads.push(head);
    }
    heads
}

/// The head after one more message.
#[must_use]
pub fn extend(head: Head, canonical: Digest) -> Head {
    // Two fixed-size digests need no length prefixes, and one compression does for both.
    let mut bytes = [0_u8; 64];
    let (left, right) = bytes.split_at_mut(32);
    left.copy_from_slice(head.0.as_bytes());
    right.copy_from_slice(canonical.as_bytes());
    Head(Digest(*blake3::hash(&bytes).as_bytes()))
}

/// The ways in which a record is found.
#[derive(Clone, Copy, Debug)]
pub enum RecordKey<'a> {
    /// The head after its visible response.
    After(Head),
    /// The head before its visible response, for clients that trim text.
    Before(Head),
    /// The digest of a visible response without calls, and the nearest call id before it.
    Text(Digest, &'a CallId),
    /// A call id of its visible response.
    Call(&'a CallId, &'a str),
    /// The head after its visible response in any scope, for forks and resumed sessions.
    Fork(Head),
    /// The head after its visible response with all ids left blank, for clients that rename them.
    Nameless(Head),
    /// The record that it goes on from, in the same session. It tells whether another turn has gone on from there.
    Next(RecordId),
    /// The name of its session, for the first record of a conversation.
    First(&'a str),
    /// The name of its session, for a turn up to which something was evicted.
    Evicted(&'a str),
}

impl RecordKey<'_> {
    /// The digest that the store knows.
    #[must_use]
    pub fn digest(self, tenant: TenantId, scope: &Scope) -> Digest {
        let scope = scope.0.as_bytes();
        match self {
            Self::After(head) => tenant.key(&[b"after", scope, head.0.as_bytes()]),
            Self::Before(head) => tenant.key(&[b"before", scope, head.0.as_bytes()]),
            Self::Call(id, name) => tenant.key(&[b"call", scope, id.0.as_bytes(), name.as_bytes()]),
            Self::Text(visible, before) => {
                tenant.key(&[b"text", scope, visible.as_bytes(), before.0.as_bytes()])
            }
            Self::Fork(head) => tenant.key(&[b"fork", head.0.as_bytes()]),
            Self::Nameless(head) => tenant.key(&[b"nameless", scope, head.0.as_bytes()]),
            // A session has these rows however its requests are looked up.
            Self::Next(before) => tenant.key(&[b"next", before.0.as_bytes()]),
            Self::First(session) => tenant.key(&[b"first", session.as_bytes()]),
            Self::Evicted(session) => tenant.key(&[b"evicted", scope, session.as_bytes()]),
        }
    }
}

/// The nearest call id before a message. An answer without calls is found by it.
#[must_use]
pub fn call_before(shapes: &[Arc<Shape>], message: usize) -> Option<&CallId> {
    let before = shapes.get(..message)?.iter().rev();
    let mut ids = before
        .flat_map(|shape| shape.calls.iter().rev())
        .map(|call| &call.id);
    ids.find(|id| !id.0.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(role: Role, canonical: u8) -> Arc<Shape> {
        Arc::new(Shape {
            role,
            canonical: Digest([canonical; 32]),
            nameless: Digest([canonical; 32]),
            calls: vec![],
            result_of: None,
            text: 1,
            reasoning: 0,
            opaque: false,
            whole: false,
            blank: false,
        })
    }

    #[test]
    fn leading_system_text_is_not_in_the_chain_and_later_one_is() {
        let tenant = TenantId(Digest([1; 32]));
        let run = |system: u8, later: u8| {
            heads(
                tenant,
                &[
                    shape(Role::System, system),
                    shape(Role::User, 2),
                    shape(Role::System, later),
                ],
            )
        };
        assert_eq!(run(3, 4), run(5, 4));
        assert_ne!(run(3, 4).last(), run(3, 5).last());
        assert_ne!(heads(tenant, &[]), heads(TenantId(Digest([2; 32])), &[]));
    }
}
