//! Unpacks a compressed body, off the async workers. Owns what unpacking may cost: bytes, time and
//! the memory of the decoder. Never looks at what the bytes mean.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::buf::Reader;
use bytes::{Buf as _, Bytes};
use flate2::bufread::MultiGzDecoder;
use plimsoll_model::room::Held;
use plimsoll_proxy::pipeline::{ProxyError, ServingLimit};
use tokio::sync::Semaphore;
use zstd::stream::read::Decoder;

use super::body::Coding;
use super::pieces::PieceBuffer;
use super::waiting::BodyRoom;

/// How many bytes any body may unpack to.
const FREE_BYTES: usize = 1 << 20;

/// How many times its own size a body may unpack to besides. JSON packs five to twenty to one, and
/// what an agent repeats fifty to one.
const MAX_RATIO: usize = 100;

/// The memory of a zstd decoder, as a power of two. The format asks every decoder for this much,
/// and no level below 20 needs more.
const WINDOW_LOG: u32 = 23;

/// How long one body is worked on. Frames that unpack to nothing show in no count of bytes.
const WORK_TIME: Duration = Duration::from_secs(5);

/// How long a body waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// How many bytes are unpacked before more room is asked for.
const STEP_BYTES: usize = 256 << 10;

/// How many bytes a decoder gets before the time is checked.
const FEED_BYTES: usize = 4 << 10;

/// Limits how many bodies are unpacked at once: one per processor, because each takes one, and
/// memory for its window.
#[derive(Clone, Debug)]
pub(super) struct Unpackers(Arc<Semaphore>);

impl Unpackers {
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new(processors)))
    }

    /// Unpacks a body to at most `cap` bytes. Returns a body that is not packed as it is.
    ///
    /// # Errors
    /// [`ProxyError::TooLarge`] as soon as the output exceeds the limit, [`ProxyError::Unpacks`] as
    /// soon as it costs too much, [`ProxyError::Coding`] if the input is not in its coding,
    /// [`ProxyError::Overloaded`] if there is no room.
    pub(super) async fn unpack(
        &self,
        coding: Coding,
        raw: &Bytes,
        cap: usize,
        room: &BodyRoom,
    ) -> Result<Bytes, ProxyError> {
        let name = match coding {
            Coding::Identity | Coding::Unknown => return Ok(raw.clone()),
            Coding::Gzip => "gzip",
            Coding::Zstd => "zstd",
        };
        let mut held = room.enter();
        let busy = ProxyError::Overloaded(ServingLimit::Processors);
        let turn = tokio::time::timeout(TURN_WAIT, self.0.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(busy);
        };
        let mut work = match Unpacking::new(coding, raw.clone(), cap) {
            Ok(work) => work,
            Err(_) => return Err(ProxyError::Coding { coding: name }),
        };
        // The worker returns whenever it needs room, because only here it can be waited for.
        loop {
            room.grow(&mut held, STEP_BYTES).await?;
            let step = tokio::task::spawn_blocking(move || {
                let step = work.run(&mut held);
                (work, held, step)
            });
            let step = step.await.map_err(|_| ProxyError::panicked())?;
            match step {
                (_, held, UnpackStep::Done(body)) => return Ok(held.hold(body)),
                (same, grown, UnpackStep::Room) => (work, held) = (same, grown),
                (_, _, UnpackStep::Large) => return Err(ProxyError::TooLarge { cap }),
                (_, _, UnpackStep::Costly) => return Err(ProxyError::Unpacks),
                (_, _, UnpackStep::Broken) => return Err(ProxyError::Coding { coding: name }),
            }
        }
    }
}

/// How far unpacking came.
enum UnpackStep {
    /// It is done.
    Done(Bytes),
    /// It needs more room than there is.
    Room,
    /// The output exceeds the limit.
    Large,
    /// It costs more than such a body may.
    Costly,
    /// The input is not in this coding.
    Broken,
}

/// A body that is being unpacked.
struct Unpacking {
    input: PackedInput,
    output: PieceBuffer,
    /// The limit of a body, and the most that a body of this size may unpack to.
    cap: usize,
    most: usize,
    until: Instant,
}

enum PackedInput {
    Gzip(MultiGzDecoder<Timed>),
    Zstd(Decoder<'static, Timed>),
}

impl Unpacking {
    fn new(coding: Coding, raw: Bytes, cap: usize) -> io::Result<Self> {
        let most = FREE_BYTES.saturating_add(raw.len().saturating_mul(MAX_RATIO));
        let until = Instant::now() + WORK_TIME;
        let input = Timed {
            input: raw.reader(),
            until,
        };
        let input = if coding == Coding::Gzip {
            PackedInput::Gzip(MultiGzDecoder::new(input))
        } else {
            let mut decoder = Decoder::with_buffer(input)?;
            // A frame names the window that it needs, and a hostile one names a huge one.
            decoder.window_log_max(WINDOW_LOG)?;
            PackedInput::Zstd(decoder)
        };
        Ok(Self {
            input,
            output: PieceBuffer::default(),
            cap,
            most,
            until,
        })
    }

    /// Unpacks step by step while there is room. The caller has made room for the first step.
    fn run(&mut self, held: &mut Held) -> UnpackStep {
        loop {
            // One byte more than is allowed shows that the limit is exceeded.
            let most = self.cap.min(self.most).saturating_add(1);
            let step = STEP_BYTES.min(most.saturating_sub(self.output.len()));
            let mut piece = Vec::with_capacity(step);
            let read = match &mut self.input {
                PackedInput::Gzip(input) => input.take(step as u64).read_to_end(&mut piece),
                PackedInput::Zstd(input) => input.take(step as u64).read_to_end(&mut piece),
            };
            let length = piece.len();
            self.output.push_piece(piece);
            if self.output.len() > self.cap {
                return UnpackStep::Large;
            }
            if self.output.len() > self.most || Instant::now() > self.until {
                return UnpackStep::Costly;
            }
            match read {
                Err(error) if costly(&error) => return UnpackStep::Costly,
                Err(_) => return UnpackStep::Broken,
                Ok(_) if length < step => {
                    return UnpackStep::Done(std::mem::take(&mut self.output).join());
                }
                Ok(_) if !held.try_grow(STEP_BYTES) => return UnpackStep::Room,
                Ok(_) => {}
            }
        }
    }
}

/// Whether a decoder stopped because of its cost: for the time, or for the size of the window, for
/// which zstd has no error kind.
fn costly(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut || error.to_string().contains("too much memory")
}

/// Hands out bytes in small portions and for a limited time. A decoder asks for more after each
/// frame, even if the frame unpacks to nothing.
struct Timed {
    input: Reader<Bytes>,
    until: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let portion = self.fill_buf()?;
        let length = portion.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(portion) {
            *to = *from;
        }
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Timed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if Instant::now() > self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let rest = self.input.get_ref().chunk();
        Ok(rest.get(..FEED_BYTES.min(rest.len())).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.input.consume(amount);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;
    use plimsoll_model::room::Room;

    fn gzip(data: &[u8]) -> Bytes {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap().into()
    }

    fn zstd(data: &[u8]) -> Bytes {
        zstd::encode_all(data, 1).unwrap().into()
    }

    fn unpack(coding: Coding, raw: &Bytes, cap: usize) -> Result<Bytes, ProxyError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let room = BodyRoom::new(&Room::of(STEP_BYTES.saturating_add(cap)));
        let unpacked = runtime.block_on(Unpackers::new().unpack(coding, raw, cap, &room));
        assert!(
            unpacked.is_ok() || room.enter().try_grow(STEP_BYTES + cap),
            "what is refused holds nothing"
        );
        unpacked
    }

    #[test]
    fn bombs_stop_at_the_cap() {
        let zeros = vec![0; 1 << 20];
        for (coding, raw) in [(Coding::Gzip, gzip(&zeros)), (Coding::Zstd, zstd(&zeros))] {
            assert!(unpack(coding, &raw, 1 << 20).is_ok());
            let over = unpack(coding, &raw, (1 << 20) - 1);
            assert!(
                matches!(over, Err(ProxyError::TooLarge { .. })),
                "{coding:?}"
            );
        }
    }

    #[test]
    fn a_body_may_unpack_to_so_many_times_its_size() {
        let zeros = vec![0; 2 * FREE_BYTES];
        for (coding, raw) in [(Coding::Gzip, gzip(&zeros)), (Coding::Zstd, zstd(&zeros))] {
            let over = unpack(coding, &raw, 4 * FREE_BYTES);
            assert!(matches!(over, Err(ProxyError::Unpacks)), "{coding:?}");
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
                let outcome = unpack(coding, &input, 1024);
                assert!(
                    matches!(outcome, Err(ProxyError::Coding { .. })),
                    "{coding:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(data: Vec<u8>) {
            for (coding, raw) in [
                (Coding::Identity, Bytes::from(data.clone())),
                (Coding::Gzip, gzip(&data)),
                (Coding::Zstd, zstd(&data)),
            ] {
                prop_assert_eq!(&unpack(coding, &raw, data.len()).unwrap(), &data);
            }
        }
    }
}
