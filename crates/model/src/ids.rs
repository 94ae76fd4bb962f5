//! Newtypes for everything that identifies something. Digests are blake3; the ids of records begin with
//! a time, and the keys of a tenant with the tenant. They are compared and stored, never taken apart.

use std::fmt;

/// A 32-byte blake3 digest.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of the given parts, each preceded by its length so that no two lists of parts
    /// collide by shifting bytes between them.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        Self::over(parts.iter().copied())
    }

    /// The same under a key, so that nobody without it can make the digest of a text.
    #[must_use]
    pub fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> Self {
        Self::by(blake3::Hasher::new_keyed(key), parts.iter().copied())
    }

    fn over<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Self {
        Self::by(blake3::Hasher::new(), parts)
    }

    fn by<'a>(mut hasher: blake3::Hasher, parts: impl Iterator<Item = &'a [u8]>) -> Self {
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The bytes, for keys.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first eight bytes in hex: enough for a log line or a header, never for identity.
    #[must_use]
    pub fn short(&self) -> String {
        self.0
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl Digest {
    /// The first four bytes: enough to see that two are unlike, never for identity.
    #[must_use]
    pub fn mark(&self) -> u32 {
        let Self([one, two, three, four, ..]) = self;
        u32::from_le_bytes([*one, *two, *three, *four])
    }

    /// All bytes in hex, for whoever has to name the digest again.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads what [`Self::hex`] wrote. `None` for anything else.
    #[must_use]
    pub fn parse_hex(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok();
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Some(Self(bytes.filter(|_| rest.is_empty())?.try_into().ok()?))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// The id of a blob: the blake3 hash of its bytes, and of nothing else.
#[must_use]
pub fn blob_id(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// How many bytes of a [`dated_id`] tell the time.
const TIME_BYTES: usize = 6;

/// The id of a blob that is written once, such as a record: the time in milliseconds since 1970 as six bytes,
/// big-endian, and then what [`blob_id`] has behind its first six.
///
/// An engine sorts blobs by their ids. Those of dated ids lie in the order of their writing, so a new one
/// changes the page that was changed last. In the order of their hashes each would change another page, and
/// the engine remembers in memory which pages were changed where.
#[must_use]
pub fn dated_id(bytes: &[u8], at: u64) -> Digest {
    let Digest(mut id) = blob_id(bytes);
    let [_, _, time @ ..] = at.to_be_bytes();
    for (to, from) in id.iter_mut().zip(time) {
        *to = from;
    }
    Digest(id)
}

/// Whether an id is that of these bytes: their [`blob_id`], or a [`dated_id`] of any time.
#[must_use]
pub fn is_id_of(id: &Digest, bytes: &[u8]) -> bool {
    let hash = blob_id(bytes);
    id.0.get(TIME_BYTES..) == hash.0.get(TIME_BYTES..)
}

macro_rules! digest_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub Digest);
    };
}

digest_newtype!(
    /// Whoever owns the API key of a request: a keyed hash of the credential.
    TenantId
);
digest_newtype!(
    /// The chain hash of a client-visible prefix.
    Head
);
digest_newtype!(
    /// The [`dated_id`] of a turn record's bytes and of the time at which the turn ended.
    RecordId
);

/// How many bytes of a tenant its keys begin with.
const OWNER_BYTES: usize = 8;

impl TenantId {
    /// A key under which something of this tenant is found: the digest of the parts and of the tenant, behind the
    /// tenant's first eight bytes.
    ///
    /// An engine sorts keys. A tenant's keys lie side by side, so a small tenant's fill few pages. Each of its
    /// look-ups uses these pages, and so they seldom leave the cache. Keys in the order of their hashes would each
    /// lie on another page. The highest bit of these bytes is set: a `{` among them would be read as the beginning
    /// of a hash tag by a Redis cluster, which then keeps all keys of the tenant in one slot.
    #[must_use]
    pub fn key(&self, parts: &[&[u8]]) -> Digest {
        let Self(tenant) = self;
        let whole = parts.iter().copied().chain([&tenant.0[..]]);
        let Digest(mut key) = Digest::over(whole);
        for (to, from) in key.iter_mut().zip(&tenant.0).take(OWNER_BYTES) {
            *to = *from | 0x80;
        }
        Digest(key)
    }
}

impl RecordId {
    /// The last eight bytes in hex, because the first ones only tell the time: enough to name a branch.
    #[must_use]
    pub fn short(&self) -> String {
        let Digest([.., one, two, three, four, five, six, seven, eight]) = self.0;
        format!(
            "{:016x}",
            u64::from_be_bytes([one, two, three, four, five, six, seven, eight])
        )
    }
}

/// The explicit session of a request; empty where the client names none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(pub String);

/// A tool call's id as the provider issued it.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct CallId(pub String);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dated_ids_lie_in_the_order_of_their_times_and_are_held_to_their_bytes() {
        let times = [0, 1, 255, 256, 1_795_544_590_070, (1 << 48) - 1];
        let ids = times.map(|at| dated_id(b"record", at));
        assert!(ids.is_sorted());
        assert!(
            ids.iter()
                .all(|id| is_id_of(id, b"record") && !is_id_of(id, b"other"))
        );
        assert!(is_id_of(&blob_id(b"record"), b"record"));
        // What names a branch is in the hash, so two records of one moment differ in it.
        let [one, other] = [b"record", b"second"].map(|bytes| RecordId(dated_id(bytes, 7)).short());
        assert_ne!(one, other);
        assert_eq!(one, RecordId(blob_id(b"record")).short());
    }

    proptest! {
        #[test]
        fn the_keys_of_a_tenant_lie_together_and_differ_in_every_part(
            (one, other) in any::<([u8; 32], [u8; 32])>(),
            (left, right) in any::<(Vec<u8>, Vec<u8>)>(),
        ) {
            let tenant = |bytes: [u8; 32]| TenantId(Digest(bytes));
            let key = tenant(one).key(&[b"what", &left]);
            for (front, owner) in key.0.iter().zip(&one[..8]) {
                prop_assert_eq!(*front, owner | 0x80);
                prop_assert_ne!(*front, b'{');
            }
            prop_assert_eq!(key == tenant(one).key(&[b"what", &right]), left == right);
            prop_assert_eq!(key == tenant(other).key(&[b"what", &left]), one == other);
            // The whole tenant counts, and not only what the key begins with.
            let mut neighbour = one;
            neighbour[31] ^= 1;
            prop_assert_ne!(key, tenant(neighbour).key(&[b"what", &left]));
        }
    }
}
