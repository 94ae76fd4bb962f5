//! How a value is stored: a version byte, then what that version says. Owns the form. Never looks
//! into a value and never verifies a hash; the store does that with the id.
//!
//! Version 1, big-endian: `1 ‖ kind (0 plain, 1 zstd) ‖ length of the value u32 ‖ length of the
//! payload u32 ‖ payload`. Version 2 is a version 1 that is sealed (see `sealing`). Every form
//! that was ever written has a fixture, which must always decode.

use bytes::Bytes;
use plimsoll_model::Digest;
use thiserror::Error;

use super::sealing::{self, KeyName, SEALED, Seals};

/// The version of what is not sealed.
const VERSION: u8 = 1;
/// How many bytes stand before the payload in version 1.
pub const HEADER: usize = 10;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
const ZSTD_LEVEL: i32 = 1;
/// Below this many bytes compression costs more than it saves.
const WORTH_COMPRESSING: usize = 512;
/// The largest value. A longer one is a mistake, and a longer length in a header is damage. It
/// limits what a read allocates.
const MAX_BYTES: usize = 256 << 20;
/// The longest stored form: the largest value, and what stands before and behind it.
pub(super) const MOST_STORED: usize = MAX_BYTES + 1024;

/// Why a value could not be encoded or decoded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CodecError {
    /// A version of the program wrote it that this one does not know.
    #[error(
        "a stored value has version {0} and this program reads versions 1 and 2: start the newer program"
    )]
    Version(u8),
    /// It is sealed under a key that was not given.
    #[error(
        "a stored value is sealed under the key {0}, which was not given: set it as PLIMSOLL__STORE__SEAL_KEY, or among PLIMSOLL__STORE__SEAL_KEY_PREVIOUS"
    )]
    Key(KeyName),
    /// The value is too large to store.
    #[error("a value of {0} bytes is over the store's limit of 256 MiB: store less content")]
    TooLarge(usize),
    /// The bytes are cut short, or no encoder wrote them.
    #[error("a stored value is damaged: commit it again")]
    Damaged,
    /// The compressor failed.
    #[error("a value could not be compressed: check the memory limit")]
    Compressor,
}

impl CodecError {
    /// Whether the bytes are to blame, so that the value counts as not stored. What another program
    /// or another key can read is not lost.
    pub(super) fn is_damage(self) -> bool {
        match self {
            Self::Damaged | Self::TooLarge(_) | Self::Compressor => true,
            Self::Version(_) | Self::Key(_) => false,
        }
    }
}

/// Encodes values, with one compression context for all of them.
pub struct Encoder {
    zstd: zstd::bulk::Compressor<'static>,
    seals: Seals,
}

impl Encoder {
    /// Makes an encoder that seals by these keys. Fails if the compressor gets no memory.
    pub fn new(seals: Seals) -> Result<Self, CodecError> {
        let zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|_| CodecError::Compressor)?;
        Ok(Self { zstd, seals })
    }

    /// The stored form of the value with this id. It is compressed if that makes it smaller, and sealed
    /// if there is a key for it.
    pub fn encode(&mut self, id: &Digest, value: &[u8]) -> Result<Vec<u8>, CodecError> {
        let packed = self.pack(value)?;
        self.seals.seal(id, packed)
    }

    /// The form of version 1.
    fn pack(&mut self, value: &[u8]) -> Result<Vec<u8>, CodecError> {
        if value.len() > MAX_BYTES {
            return Err(CodecError::TooLarge(value.len()));
        }
        if value.len() >= WORTH_COMPRESSING {
            let packed = self
                .zstd
                .compress(value)
                .map_err(|_| CodecError::Compressor)?;
            if packed.len() < value.len() {
                return framed(ZSTD, value.len(), &packed);
            }
        }
        framed(PLAIN, value.len(), value)
    }
}

fn framed(kind: u8, length: usize, payload: &[u8]) -> Result<Vec<u8>, CodecError> {
    let length = u32::try_from(length).map_err(|_| CodecError::TooLarge(length))?;
    let stored = u32::try_from(payload.len()).map_err(|_| CodecError::TooLarge(payload.len()))?;
    let mut out = Vec::with_capacity(HEADER + payload.len());
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&stored.to_be_bytes());
    out.extend_from_slice(payload);
    Ok(out)
}

struct Header {
    kind: u8,
    length: usize,
    payload: usize,
}

fn header(stored: &[u8]) -> Result<(Header, &[u8]), CodecError> {
    // The version comes first, so that a newer form is named and not called damaged.
    match stored.first() {
        None => return Err(CodecError::Damaged),
        Some(&VERSION) => {}
        Some(&other) => return Err(CodecError::Version(other)),
    }
    let (head, rest) = stored
        .split_first_chunk::<HEADER>()
        .ok_or(CodecError::Damaged)?;
    let [_, kind, a, b, c, d, e, f, g, h] = *head;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let payload = u32::from_be_bytes([e, f, g, h]) as usize;
    if length > MAX_BYTES || payload > MAX_BYTES {
        return Err(CodecError::Damaged);
    }
    Ok((
        Header {
            kind,
            length,
            payload,
        },
        rest,
    ))
}

/// The length of a whole stored form, read from its first bytes. A reader of a value in chunks
/// needs it to ask for the rest.
pub fn stored_len(start: &[u8]) -> Result<usize, CodecError> {
    if start.first() == Some(&SEALED) {
        return sealing::stored_len(start);
    }
    header(start).map(|(header, _)| HEADER + header.payload)
}

/// The value of the stored form with this id.
pub fn decode(seals: &Seals, id: &Digest, stored: &[u8]) -> Result<Bytes, CodecError> {
    if stored.first() == Some(&SEALED) {
        return unpack(&seals.open(id, stored)?);
    }
    unpack(stored)
}

/// The value of a form of version 1.
fn unpack(stored: &[u8]) -> Result<Bytes, CodecError> {
    let (header, payload) = header(stored)?;
    // A chunk may be missing, or a length may be damaged: either shows here.
    if payload.len() != header.payload {
        return Err(CodecError::Damaged);
    }
    let value = match header.kind {
        PLAIN => Bytes::copy_from_slice(payload),
        ZSTD => zstd::bulk::decompress(payload, header.length)
            .map_err(|_| CodecError::Damaged)?
            .into(),
        _ => return Err(CodecError::Damaged),
    };
    if value.len() == header.length {
        Ok(value)
    } else {
        Err(CodecError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use plimsoll_model::blob_id;

    fn stored(value: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::new(Seals::default()).unwrap();
        encoder.encode(&blob_id(value), value).unwrap()
    }

    /// Decodes what is not sealed, whatever its id.
    fn decode(stored: &[u8]) -> Result<Bytes, CodecError> {
        super::decode(&Seals::default(), &blob_id(b""), stored)
    }

    /// The values of the fixtures, by file name. The files are never written again: a new form
    /// gets new files beside the old ones.
    fn fixtures() -> Vec<(&'static str, Vec<u8>)> {
        let record = br#"{"turn":7,"hops":[{"prompt":1200,"cached":1024}],"marks":["live"]}"#;
        vec![
            ("v1-empty.bin", Vec::new()),
            ("v1-plain.bin", record.to_vec()),
            ("v1-zstd.bin", record.repeat(40)),
        ]
    }

    #[test]
    fn every_form_ever_written_decodes() {
        let dir =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/store");
        for (name, value) in fixtures() {
            let bytes = std::fs::read(dir.join(name)).unwrap();
            assert_eq!(decode(&bytes).unwrap(), value, "{name}");
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let mut bytes = stored(b"value");
        bytes[0] = 9;
        assert_eq!(decode(&bytes), Err(CodecError::Version(9)));
        assert!(CodecError::Version(9).to_string().contains("version 9"));
    }

    #[test]
    fn small_values_stay_plain_and_large_ones_shrink() {
        assert_eq!(
            stored(&[7; WORTH_COMPRESSING - 1]).len(),
            HEADER + WORTH_COMPRESSING - 1
        );
        assert!(stored(&[7; 50_000]).len() < 200);
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        let mut bytes = stored(&[7; 50_000]);
        bytes[2..6].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(decode(&bytes), Err(CodecError::Damaged));
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(value in proptest::collection::vec(0u8..4, 0..4000)) {
            let bytes = stored(&value);
            prop_assert_eq!(stored_len(&bytes[..HEADER]).unwrap(), bytes.len());
            prop_assert_eq!(decode(&bytes).unwrap(), value);
        }

        #[test]
        fn decode_undoes_encode_of_what_is_sealed(value in proptest::collection::vec(0u8..4, 0..4000)) {
            let seals = Seals::new(Some("a key"), &[]);
            let id = blob_id(&value);
            let bytes = Encoder::new(seals.clone()).unwrap().encode(&id, &value).unwrap();
            prop_assert_eq!(stored_len(&bytes[..HEADER]).unwrap(), bytes.len());
            prop_assert_eq!(super::decode(&seals, &id, &bytes).unwrap(), value);
        }

        #[test]
        fn damage_is_an_error_or_another_value_and_never_a_panic(
            value in proptest::collection::vec(any::<u8>(), 0..2000),
            at in any::<proptest::sample::Index>(),
            flip in 1u8..,
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut bytes = stored(&value);
            let end = cut.index(bytes.len());
            prop_assert!(decode(&bytes[..end]).is_err());
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let _ = decode(&bytes);
        }
    }
}
