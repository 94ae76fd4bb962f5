//! The body of a managed request, read whole and decompressed. Owns the cap, which holds before
//! and after decompression; never looks at what the bytes mean.

use std::io::Read;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::pipeline::ProxyError;

/// A client that sends nothing for so long has gone, or means harm.
const CLIENT_SILENCE: Duration = Duration::from_secs(60);

/// A body over the cap is read on for so long and no more, so that clients that write before they
/// read get the answer and not a reset.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// And to so many times the cap: past that a reset is fair.
const DISCARD_CAPS: usize = 4;

/// Bytes that a client is given on its word alone. Who has sent so much is given the rest.
const TRUSTED: usize = 1 << 20;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Not at all.
    Identity,
    /// `gzip`
    Gzip,
    /// `zstd`
    Zstd,
    /// Anything else, several codings included: we can't read it.
    Unknown,
}

impl Coding {
    /// What `content-encoding` says.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut coding = Self::Identity;
        for value in headers.get_all(CONTENT_ENCODING) {
            for name in value.to_str().unwrap_or("?").split(',') {
                let next = match name.trim().to_ascii_lowercase().as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "zstd" => Self::Zstd,
                    _ => Self::Unknown,
                };
                coding = if coding == Self::Identity {
                    next
                } else {
                    Self::Unknown
                };
            }
        }
        coding
    }
}

/// Reads a body whole, at most `cap` bytes.
///
/// # Errors
/// [`ProxyError::TooLarge`] over the cap; [`ProxyError::Body`] if it ends early or stalls.
pub async fn read<B>(mut body: B, headers: &HeaderMap, cap: usize) -> Result<Bytes, ProxyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > cap) {
        // Who asks first has not begun to send, and reading would tell it to.
        if !headers.contains_key(EXPECT) {
            discard(body, cap).await;
        }
        return Err(ProxyError::TooLarge { cap });
    }
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(data) = next(&mut body).await? {
        let so_far = if whole.is_empty() {
            first.len()
        } else {
            whole.len()
        };
        if so_far + data.len() > cap {
            discard(body, cap).await;
            return Err(ProxyError::TooLarge { cap });
        }
        // A body of one read is never copied.
        if so_far == 0 {
            first = data;
            continue;
        }
        if whole.is_empty() {
            whole.reserve(announced.unwrap_or(0).min(TRUSTED).max(so_far + data.len()));
            whole.extend_from_slice(&first);
        }
        if whole.capacity() < so_far + data.len() {
            // At once what is still to come: doubling would hold twice the body and copy it often.
            whole.reserve(
                announced
                    .unwrap_or(0)
                    .saturating_sub(so_far)
                    .max(data.len()),
            );
        }
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() {
        first
    } else {
        whole.freeze()
    })
}

/// The next bytes of a body, trailers left out.
async fn next<B>(body: &mut B) -> Result<Option<Bytes>, ProxyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    loop {
        let frame = tokio::time::timeout(CLIENT_SILENCE, body.frame());
        let Some(frame) = frame.await.map_err(|_| ProxyError::Body)? else {
            return Ok(None);
        };
        if let Ok(data) = frame.map_err(|_| ProxyError::Body)?.into_data() {
            return Ok(Some(data));
        }
    }
}

/// Reads on and throws away, bounded in time and in bytes.
async fn discard<B>(mut body: B, cap: usize)
where
    B: Body<Data = Bytes> + Unpin,
{
    let reading = async {
        let mut read = 0;
        while let Ok(Some(data)) = next(&mut body).await {
            read += data.len();
            if read > cap.saturating_mul(DISCARD_CAPS) {
                break;
            }
        }
    };
    let _late = tokio::time::timeout(DISCARD_TIME, reading).await;
}

/// Decompresses off the async workers; an uncompressed body is handed back as it is.
///
/// # Errors
/// [`ProxyError::TooLarge`] as soon as the output passes the cap; [`ProxyError::Coding`] if the
/// input is not what it is said to be.
pub async fn decompress(coding: Coding, raw: &Bytes, cap: usize) -> Result<Bytes, ProxyError> {
    let name = match coding {
        Coding::Identity | Coding::Unknown => return Ok(raw.clone()),
        Coding::Gzip => "gzip",
        Coding::Zstd => "zstd",
    };
    let input = raw.clone();
    let work = tokio::task::spawn_blocking(move || inflate(coding, &input, cap));
    let broken = ProxyError::Coding { coding: name };
    match work.await {
        Ok(Ok(Some(body))) => Ok(body.into()),
        Ok(Ok(None)) => Err(ProxyError::TooLarge { cap }),
        Ok(Err(_)) | Err(_) => Err(broken),
    }
}

/// The output, or `None` where it passes the cap.
fn inflate(coding: Coding, input: &[u8], cap: usize) -> std::io::Result<Option<Vec<u8>>> {
    let mut output = Vec::new();
    let limit = cap as u64 + 1;
    match coding {
        Coding::Identity | Coding::Unknown => input.take(limit).read_to_end(&mut output)?,
        Coding::Gzip => flate2::read::MultiGzDecoder::new(input)
            .take(limit)
            .read_to_end(&mut output)?,
        Coding::Zstd => zstd::stream::read::Decoder::with_buffer(input)?
            .take(limit)
            .read_to_end(&mut output)?,
    };
    Ok((output.len() <= cap).then_some(output))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http_body_util::StreamBody;
    use proptest::prelude::*;

    use super::*;

    fn gzip(data: &[u8]) -> Bytes {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap().into()
    }

    fn zstd(data: &[u8]) -> Bytes {
        zstd::encode_all(data, 1).unwrap().into()
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    fn headers(codings: &[&str]) -> HeaderMap {
        codings
            .iter()
            .map(|coding| (CONTENT_ENCODING, coding.parse().unwrap()))
            .collect()
    }

    #[test]
    fn codings_are_told_apart() {
        let table: [(&[&str], Coding); 9] = [
            (&[], Coding::Identity),
            (&["identity"], Coding::Identity),
            (&["GZIP"], Coding::Gzip),
            (&["x-gzip"], Coding::Gzip),
            (&["zstd, identity"], Coding::Zstd),
            (&["br"], Coding::Unknown),
            (&["gzip, zstd"], Coding::Unknown),
            (&["gzip", "gzip"], Coding::Unknown),
            (&["deflate"], Coding::Unknown),
        ];
        for (names, coding) in table {
            assert_eq!(Coding::of(&headers(names)), coding, "{names:?}");
        }
    }

    #[test]
    fn bombs_stop_at_the_cap() {
        let zeros = vec![0; 1 << 20];
        for (coding, raw) in [(Coding::Gzip, gzip(&zeros)), (Coding::Zstd, zstd(&zeros))] {
            assert!(run(decompress(coding, &raw, 1 << 20)).is_ok());
            let over = run(decompress(coding, &raw, (1 << 20) - 1));
            assert!(
                matches!(over, Err(ProxyError::TooLarge { .. })),
                "{coding:?}"
            );
        }
    }

    #[test]
    fn broken_input_is_the_callers_fault() {
        for (coding, raw) in [
            (Coding::Gzip, gzip(b"hello")),
            (Coding::Zstd, zstd(b"hello")),
        ] {
            for input in [
                Bytes::from_static(b"{}"),
                raw.slice(..raw.len() - 3),
                raw.slice(1..),
            ] {
                let outcome = run(decompress(coding, &input, 1024));
                assert!(
                    matches!(outcome, Err(ProxyError::Coding { .. })),
                    "{coding:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn reading_joins_whatever_the_cuts(chunks: Vec<Vec<u8>>, cap in 0_usize..200) {
            let whole = chunks.concat();
            let frames = chunks.into_iter().map(|chunk| {
                Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(chunk)))
            });
            let body = StreamBody::new(futures_util::stream::iter(frames));
            match run(read(body, &HeaderMap::new(), cap)) {
                Ok(bytes) => prop_assert!(whole.len() <= cap && bytes == whole),
                Err(error) => {
                    prop_assert!(whole.len() > cap);
                    let too_large = matches!(error, ProxyError::TooLarge { .. });
                    prop_assert!(too_large);
                }
            }
        }

        #[test]
        fn what_was_compressed_comes_back(data: Vec<u8>) {
            for (coding, raw) in [
                (Coding::Identity, Bytes::from(data.clone())),
                (Coding::Gzip, gzip(&data)),
                (Coding::Zstd, zstd(&data)),
            ] {
                prop_assert_eq!(&run(decompress(coding, &raw, data.len())).unwrap(), &data);
            }
        }
    }
}
