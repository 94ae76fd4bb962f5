//! Seals values under a key of the operator's, and opens them again. Owns the keys and the form of a
//! sealed value. Never knows where a value is kept, and never shows a key.
//!
//! A sealed value, with numbers in big-endian: `2 ‖ length of all that follows (u32) ‖ name of the key
//! (8) ‖ nonce (24) ‖ what is sealed, with its tag (16)`. The cipher is XChaCha20-Poly1305, and the
//! value is bound to its id: under another id it does not open.
//!
//! The nonce is a keyed hash of the id and of what is sealed. So no nonce ever stands for two texts,
//! however many processes write at once, and the same value is always sealed to the same bytes. That
//! shows nothing that its id does not show, and a store need not write again what it has.

use std::fmt;
use std::sync::Arc;

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use plimsoll_model::Digest;

use super::codec::CodecError;

/// The version byte of a sealed value.
pub(super) const SEALED: u8 = 2;
/// How many bytes stand before the name of the key.
const FRONT_BYTES: usize = 5;
const NAME_BYTES: usize = 8;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// Separate the uses of an operator's secret.
const CIPHER: &str = "plimsoll 2026-11 store seal";
const NONCE: &str = "plimsoll 2026-11 store nonce";
const NAME: &str = "plimsoll 2026-11 store key name";

/// What names a key where something is sealed under it. It says nothing about the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName([u8; NAME_BYTES]);

impl KeyName {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Reads what [`fmt::Display`] writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = u64::from_str_radix(text, 16).ok();
        number.map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The keys of a store. Without any, nothing is sealed.
#[derive(Clone, Default)]
pub struct Seals(Arc<Keys>);

#[derive(Default)]
struct Keys {
    /// What is written is sealed under this.
    current: Option<SealKey>,
    /// What was sealed under these can be read as well.
    previous: Vec<SealKey>,
}

struct SealKey {
    name: KeyName,
    cipher: XChaCha20Poly1305,
    nonces: [u8; 32],
}

impl SealKey {
    fn new(secret: &str) -> Self {
        let derived = |purpose| blake3::derive_key(purpose, secret.as_bytes());
        let mut name = [0; NAME_BYTES];
        for (to, from) in name.iter_mut().zip(derived(NAME)) {
            *to = from;
        }
        Self {
            name: KeyName(name),
            cipher: XChaCha20Poly1305::new(&derived(CIPHER).into()),
            nonces: derived(NONCE),
        }
    }

    fn nonce(&self, id: &Digest, plain: &[u8]) -> XNonce {
        let mut nonce = XNonce::default();
        let mut hasher = blake3::Hasher::new_keyed(&self.nonces);
        hasher.update(id.as_bytes()).update(plain);
        hasher.finalize_xof().fill(&mut nonce);
        nonce
    }
}

impl Seals {
    /// The keys that are made of an operator's secrets.
    #[must_use]
    pub fn new(current: Option<&str>, previous: &[&str]) -> Self {
        Self(Arc::new(Keys {
            current: current.map(SealKey::new),
            previous: previous.iter().map(|secret| SealKey::new(secret)).collect(),
        }))
    }

    /// The name of the key under which is sealed what is written. `None` if it is not sealed.
    #[must_use]
    pub fn current(&self) -> Option<KeyName> {
        self.0.current.as_ref().map(|key| key.name)
    }

    /// Those of some keys that were not given.
    pub(super) fn lacking(&self, names: &[KeyName]) -> Vec<KeyName> {
        let lacks = |name: &&KeyName| self.key(name).is_none();
        names.iter().filter(lacks).copied().collect()
    }

    fn key(&self, name: &KeyName) -> Option<&SealKey> {
        let mut keys = self.0.current.iter().chain(&self.0.previous);
        keys.find(|key| key.name == *name)
    }

    /// Seals a value, if there is a key for it.
    pub(super) fn seal(&self, id: &Digest, plain: Vec<u8>) -> Result<Vec<u8>, CodecError> {
        let Some(key) = &self.0.current else {
            return Ok(plain);
        };
        let nonce = key.nonce(id, &plain);
        let payload = Payload {
            msg: &plain,
            aad: id.as_bytes(),
        };
        let sealed = key.cipher.encrypt(&nonce, payload);
        let sealed = sealed.map_err(|_| CodecError::TooLarge(plain.len()))?;
        let behind = NAME_BYTES + NONCE_BYTES + sealed.len();
        let length = u32::try_from(behind).map_err(|_| CodecError::TooLarge(plain.len()))?;
        let mut out = Vec::with_capacity(FRONT_BYTES + behind);
        out.push(SEALED);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(key.name.bytes());
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// Opens a sealed value. What was sealed under another id, or changed since, is damaged.
    pub(super) fn open(&self, id: &Digest, stored: &[u8]) -> Result<Vec<u8>, CodecError> {
        let behind = front(stored)?.1;
        let (name, behind) = behind
            .split_first_chunk::<NAME_BYTES>()
            .ok_or(CodecError::Damaged)?;
        let (nonce, sealed) = behind
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or(CodecError::Damaged)?;
        // A chunk may be missing.
        if stored.len() != stored_len(stored)? {
            return Err(CodecError::Damaged);
        }
        let name = KeyName(*name);
        let key = self.key(&name).ok_or(CodecError::Key(name))?;
        let payload = Payload {
            msg: sealed,
            aad: id.as_bytes(),
        };
        let opened = key.cipher.decrypt(&XNonce::from(*nonce), payload);
        opened.map_err(|_| CodecError::Damaged)
    }

    /// A value as it would be written now. `None` if it is stored so.
    pub(super) fn renew(&self, id: &Digest, stored: &[u8]) -> Result<Option<Vec<u8>>, CodecError> {
        let under = (stored.first() == Some(&SEALED))
            .then(|| stored.get(FRONT_BYTES..FRONT_BYTES + NAME_BYTES))
            .flatten()
            .and_then(KeyName::read);
        if under == self.current() {
            return Ok(None);
        }
        let plain = match under {
            Some(_) => self.open(id, stored)?,
            None => stored.to_vec(),
        };
        self.seal(id, plain).map(Some)
    }
}

/// How long a sealed value is, read from its first bytes.
pub(super) fn stored_len(start: &[u8]) -> Result<usize, CodecError> {
    front(start).map(|(length, _)| FRONT_BYTES + length)
}

fn front(stored: &[u8]) -> Result<(usize, &[u8]), CodecError> {
    let (head, behind) = stored
        .split_first_chunk::<FRONT_BYTES>()
        .ok_or(CodecError::Damaged)?;
    let [_, a, b, c, d] = *head;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if !(NAME_BYTES + NONCE_BYTES + TAG_BYTES..=super::codec::MOST_STORED).contains(&length) {
        return Err(CodecError::Damaged);
    }
    Ok((length, behind))
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let previous: Vec<KeyName> = self.0.previous.iter().map(|key| key.name).collect();
        f.debug_struct("Seals")
            .field("current", &self.current())
            .field("previous", &previous)
            .finish()
    }
}

impl PartialEq for Seals {
    /// Names of keys are as different as the keys.
    fn eq(&self, other: &Self) -> bool {
        let names = |seals: &Self| {
            seals
                .0
                .previous
                .iter()
                .map(|key| key.name)
                .collect::<Vec<_>>()
        };
        self.current() == other.current() && names(self) == names(other)
    }
}

impl Eq for Seals {}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::blob_id;

    fn seals(current: &str, previous: &[&str]) -> Seals {
        Seals::new(Some(current), previous)
    }

    #[test]
    fn a_value_opens_under_its_id_and_its_key_alone() {
        let (one, two) = (seals("one", &[]), seals("two", &[]));
        let (id, other) = (blob_id(b"a"), blob_id(b"b"));
        let sealed = one.seal(&id, b"text".to_vec()).unwrap();
        assert_eq!(one.open(&id, &sealed).unwrap(), b"text");
        assert_eq!(one.open(&other, &sealed), Err(CodecError::Damaged));
        let name = one.current().unwrap();
        assert_eq!(two.open(&id, &sealed), Err(CodecError::Key(name)));
        let both = seals("two", &["one"]);
        assert_eq!(both.open(&id, &sealed).unwrap(), b"text");
        assert_eq!(
            Seals::new(None, &["one"]).open(&id, &sealed).unwrap(),
            b"text"
        );
        assert!(!format!("{both:?}").contains("one"));
    }

    #[test]
    fn what_is_sealed_is_the_same_each_time_and_shares_no_nonce_with_another_text() {
        let keys = seals("one", &[]);
        let id = blob_id(b"a");
        let sealed = keys.seal(&id, b"text".to_vec()).unwrap();
        assert_eq!(sealed, keys.seal(&id, b"text".to_vec()).unwrap());
        let nonce = FRONT_BYTES + NAME_BYTES..FRONT_BYTES + NAME_BYTES + NONCE_BYTES;
        for (id, text) in [(id, b"next"), (blob_id(b"b"), b"text")] {
            let other = keys.seal(&id, text.to_vec()).unwrap();
            assert_ne!(sealed[nonce.clone()], other[nonce.clone()]);
        }
    }

    #[test]
    fn no_byte_can_be_changed_or_cut_off() {
        let keys = seals("one", &[]);
        let id = blob_id(b"a");
        let sealed = keys.seal(&id, b"some text".to_vec()).unwrap();
        for at in 1..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(keys.open(&id, &changed).is_err(), "{at}");
            assert!(keys.open(&id, &sealed[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn a_value_is_renewed_under_the_key_of_now() {
        let (one, two) = (seals("one", &[]), seals("two", &["one"]));
        let id = blob_id(b"a");
        let plain = vec![1, 0, 7];
        let sealed = one.seal(&id, plain.clone()).unwrap();
        let renewed = two.renew(&id, &sealed).unwrap().unwrap();
        assert_eq!(renewed, seals("two", &[]).seal(&id, plain.clone()).unwrap());
        assert_eq!(two.renew(&id, &renewed).unwrap(), None);
        assert_eq!(one.renew(&id, &plain).unwrap().unwrap(), sealed);
        let none = Seals::new(None, &["one"]);
        assert_eq!(none.renew(&id, &sealed).unwrap().unwrap(), plain);
        assert_eq!(none.renew(&id, &plain).unwrap(), None);
        assert!(one.renew(&id, &renewed).is_err(), "its key is not there");
    }

    /// The form is a promise: the bytes that this version wrote must always open.
    #[test]
    fn every_sealed_form_ever_written_opens() {
        let dir =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/store");
        let stored = std::fs::read(dir.join("v2-sealed.bin")).unwrap();
        let keys = seals("0123456789abcdef0123456789abcdef", &[]);
        let value = b"a value that was sealed";
        let decoded = super::super::codec::decode(&keys, &blob_id(value), &stored);
        assert_eq!(decoded.unwrap(), &value[..]);
    }
}
