//! Unpacks an answer piece by piece: one that passes on packed, because a client whose request is passed on as
//! it came may ask for a coding, and one that an upstream packs although it was asked not to. Owns which codings
//! are unpacked. Never changes the packed bytes.

use std::fmt;
use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use zstd::stream::write::Decoder;

use crate::upstream;

/// How an answer is packed.
pub(super) enum Unpack {
    /// Not at all.
    Plain,
    /// gzip
    Gzip(Box<MultiGzDecoder<Unpacked>>),
    /// deflate, in the format of zlib.
    Deflate(Box<ZlibDecoder<Unpacked>>),
    /// zstd
    Zstd(Box<Decoder<'static, Unpacked>>),
    /// In a way that can't be read.
    Unknown,
}

/// Takes what was unpacked, up to a bound.
#[derive(Default)]
pub(super) struct Unpacked {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Unpacked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.room = self
            .room
            .checked_sub(bytes.len())
            .ok_or_else(|| io::Error::other("no room"))?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Unpack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Gzip(_) => "gzip",
            Self::Deflate(_) => "deflate",
            Self::Zstd(_) => "zstd",
            Self::Unknown => "unknown",
        })
    }
}

impl Unpack {
    /// Chooses by the headers of an answer. `identity` is no coding, however often it is named.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let codings = upstream::codings(headers);
        let coding = match codings.as_slice() {
            [] => return Self::Plain,
            [coding] => coding.as_str(),
            [_, _, ..] => return Self::Unknown,
        };
        match coding {
            "gzip" | "x-gzip" => Self::Gzip(Box::new(MultiGzDecoder::new(Unpacked::default()))),
            "deflate" => Self::Deflate(Box::new(ZlibDecoder::new(Unpacked::default()))),
            "zstd" => match Decoder::new(Unpacked::default()) {
                Ok(decoder) => Self::Zstd(Box::new(decoder)),
                Err(_) => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    /// Unpacks a whole body, as [`Unpack::push`] does.
    pub(super) fn whole(headers: &HeaderMap, body: &Bytes, room: usize) -> Option<Bytes> {
        Self::of(headers).push(body, room)
    }

    /// Whether the answer is packed in a way that can't be read.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Whether the answer is read as it comes.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Unpacks a piece. Returns `None` if it can't be read, or unpacks to more than `room` bytes.
    pub(super) fn push(&mut self, piece: &Bytes, room: usize) -> Option<Bytes> {
        match self {
            Self::Plain => Some(piece.clone()),
            Self::Gzip(decoder) => step(decoder.as_mut(), MultiGzDecoder::get_mut, piece, room),
            Self::Deflate(decoder) => step(decoder.as_mut(), ZlibDecoder::get_mut, piece, room),
            Self::Zstd(decoder) => step(decoder.as_mut(), Decoder::get_mut, piece, room),
            Self::Unknown => None,
        }
    }
}

/// Has a decoder unpack a piece into its sink, and takes what came out.
fn step<D: Write>(
    decoder: &mut D,
    sink: impl Fn(&mut D) -> &mut Unpacked,
    piece: &[u8],
    room: usize,
) -> Option<Bytes> {
    sink(decoder).room = room;
    decoder.write_all(piece).ok()?;
    decoder.flush().ok()?;
    Some(std::mem::take(&mut sink(decoder).bytes).into())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http::header::CONTENT_ENCODING;

    use super::*;

    fn packed(coding: &str, text: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::default();
        let mut packed = Vec::new();
        match coding {
            "gzip" => drop(flate2::read::GzEncoder::new(text, level).read_to_end(&mut packed)),
            "deflate" => drop(flate2::read::ZlibEncoder::new(text, level).read_to_end(&mut packed)),
            "zstd" => packed = zstd::encode_all(text, 3).unwrap(),
            _ => packed.extend_from_slice(text),
        }
        packed
    }

    fn unpack(coding: &str) -> Unpack {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, coding.parse().unwrap());
        Unpack::of(&headers)
    }

    #[test]
    fn what_is_packed_is_read_however_it_is_cut() {
        let text = b"data: {\"a\":1}\n\ndata: [DONE]\n\n".repeat(40);
        for coding in ["gzip", "deflate", "zstd", "identity"] {
            let packed = packed(coding, &text);
            for size in [1, 2, 7, packed.len()] {
                let mut unpack = unpack(coding);
                let mut all = Vec::new();
                for piece in packed.chunks(size) {
                    let piece = Bytes::copy_from_slice(piece);
                    all.extend_from_slice(&unpack.push(&piece, 1 << 20).unwrap());
                }
                assert_eq!(all, text, "{coding} by {size}");
            }
        }
    }

    #[test]
    fn identity_is_no_coding() {
        let values = |values: &[&str]| {
            let named = values
                .iter()
                .map(|value| (CONTENT_ENCODING, value.parse().unwrap()));
            Unpack::of(&named.collect::<HeaderMap>())
        };
        for plain in [
            &[][..],
            &["identity"],
            &[" Identity "],
            &["identity, IDENTITY"],
            &["", " , identity,"],
            &["identity", "identity"],
        ] {
            assert!(values(plain).is_plain(), "{plain:?}");
        }
        assert!(matches!(values(&["identity, gzip"]), Unpack::Gzip(_)));
        assert!(matches!(values(&["zstd", "identity"]), Unpack::Zstd(_)));
        for unknown in [
            &["gzip, gzip"][..],
            &["br"],
            &["identity, none"],
            &["gzip", "br"],
        ] {
            assert!(values(unknown).is_unknown(), "{unknown:?}");
        }
    }

    #[test]
    fn what_can_not_be_read_is_none() {
        let bomb = Bytes::from(packed("gzip", &vec![0; 1 << 20]));
        assert!(unpack("gzip").push(&bomb, 1 << 10).is_none());
        for coding in ["gzip", "deflate", "zstd", "br", "gzip, zstd"] {
            let garbage = Bytes::from_static(b"no such coding at all, whatever it is called");
            assert!(unpack(coding).push(&garbage, 1 << 20).is_none(), "{coding}");
        }
    }
}
