//! The body of a managed request, read whole. Owns its limit, and how much memory a client gets
//! because it announced a length. Never looks at what the bytes mean.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use http_body::Body;
use http_body_util::BodyExt as _;
use plimsoll_proxy::pipeline::ProxyError;
use plimsoll_proxy::upstream::UploadFault;

use super::pieces::PieceBuffer;
use super::waiting::BodyRoom;

/// How long a body that is too long is still read. Clients that write before they read then get the
/// answer and not a reset.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// How many times the limit is read of such a body. After that a reset is fair.
const DISCARD_CAPS: usize = 4;

/// How much memory a client gets because it announced a length. After it has sent this much, it
/// gets the rest.
const TRUSTED_LENGTH: usize = 1 << 20;

/// A body in one read that is shorter than this is copied. It came in a buffer of 8 KB or more, and the
/// whole buffer would stay in memory as long as the body does.
const COPIED_BELOW: usize = 16 << 10;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// It is not.
    Identity,
    /// `gzip`
    Gzip,
    /// `zstd`
    Zstd,
    /// In another way, or in several. The proxy can't read it.
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
                // Two codings on top of each other are possible but unheard of, so they are not
                // unpacked.
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

/// Reads a body whole, up to `cap` bytes. Its bytes take of the room that all bodies share.
///
/// # Errors
/// [`ProxyError::TooLarge`] over the limit, [`ProxyError::Body`] if the body stops early or stalls,
/// [`ProxyError::Overloaded`] if there is no room for it.
pub(super) async fn read<B>(
    mut body: B,
    headers: &HeaderMap,
    cap: usize,
    room: &BodyRoom,
) -> Result<Bytes, ProxyError>
where
    B: Body<Data = Bytes, Error = UploadFault> + Unpin,
{
    let mut held = room.enter();
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > cap) {
        turn_away(body, headers, cap).await;
        return Err(ProxyError::TooLarge { cap });
    }
    let announced = announced.unwrap_or(0);
    let mut first = Bytes::new();
    let mut whole = PieceBuffer::default();
    while let Some(data) = next(&mut body).await? {
        let so_far = first.len() + whole.len();
        if so_far + data.len() > cap {
            discard(body, cap).await;
            return Err(ProxyError::TooLarge { cap });
        }
        if let Err(full) = room.grow(&mut held, data.len()).await {
            // It makes room for the rest at once, however long the client goes on sending.
            drop((held, first, whole, data));
            discard(body, cap).await;
            return Err(full.into());
        }
        // A long body that came in one read is never copied.
        if so_far == 0 {
            first = data;
            continue;
        }
        if whole.len() == 0 {
            whole = PieceBuffer::with_room(announced.min(TRUSTED_LENGTH).max(so_far + data.len()));
            whole.push(&std::mem::take(&mut first));
        }
        if so_far + data.len() > TRUSTED_LENGTH {
            // Reserves the rest at once. It costs no memory before it is filled.
            whole.expect(announced);
        }
        whole.push(&data);
    }
    let whole = if whole.len() == 0 {
        match first.len() {
            ..COPIED_BELOW => Bytes::copy_from_slice(&first),
            _ => first,
        }
    } else {
        whole.join()
    };
    Ok(held.hold(whole))
}

/// The next bytes of a body, without trailers.
async fn next<B>(body: &mut B) -> Result<Option<Bytes>, UploadFault>
where
    B: Body<Data = Bytes, Error = UploadFault> + Unpin,
{
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads and drops the body of a request that is refused because of its headers. Many clients send the
/// headers, then the body, and read only then: they would meet a closed connection, and no answer.
pub(super) async fn turn_away<B>(body: B, headers: &HeaderMap, cap: usize)
where
    B: Body<Data = Bytes, Error = UploadFault> + Unpin,
{
    // A client that sent `expect` has not begun to send. Reading would tell it to.
    if !headers.contains_key(EXPECT) {
        discard(body, cap).await;
    }
}

/// Reads on and drops what comes, within limits of time and bytes.
pub(super) async fn discard<B>(mut body: B, cap: usize)
where
    B: Body<Data = Bytes, Error = UploadFault> + Unpin,
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

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use proptest::prelude::*;

    use super::*;
    use plimsoll_model::room::Room;

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

    proptest! {
        #[test]
        fn reading_joins_whatever_the_cuts(
            chunks: Vec<Vec<u8>>,
            announced: bool,
            cap in 0_usize..200,
        ) {
            let whole = chunks.concat();
            let mut headers = HeaderMap::new();
            if announced {
                headers.insert(CONTENT_LENGTH, whole.len().into());
            }
            let frames = chunks.into_iter().map(|chunk| {
                Ok::<_, UploadFault>(http_body::Frame::data(Bytes::from(chunk)))
            });
            let body = StreamBody::new(futures_util::stream::iter(frames));
            let room = Room::of(200);
            let bodies = BodyRoom::new(&room);
            match run(read(body, &headers, cap, &bodies)) {
                Ok(bytes) => prop_assert!(whole.len() <= cap && bytes == whole),
                Err(error) => {
                    prop_assert!(whole.len() > cap);
                    let too_large = matches!(error, ProxyError::TooLarge { .. });
                    prop_assert!(too_large);
                }
            }
            prop_assert!(room.enter().try_grow(200), "all of it is given back");
        }
    }
}
