//! Bodies on their way through: an upload that notes when it last moved, and a response that ends
//! with an error when the upstream falls silent. Owns these two wrappers, and how long a silence may be. Never buffers a body and
//! never changes its frames.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use parking_lot::Mutex;
use plimsoll_model::Rope;
use plimsoll_wire::opening::Opening;
use tokio::time::{Instant, Sleep};

use super::error::{BodyError, UploadFault};
use super::settings::UpstreamSettings;

/// The error of a body, whatever its type.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client's body that is streamed to the upstream.
pub type Upload = BoxBody<Bytes, UploadFault>;

/// When an upload last moved, and how it failed. The timeout of the first byte counts from there.
#[derive(Clone, Debug)]
pub(super) struct UploadProgress(Arc<Mutex<(Instant, Option<UploadFault>)>>);

impl UploadProgress {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new((Instant::now(), None))))
    }

    pub(super) fn last(&self) -> Instant {
        self.0.lock().0
    }

    /// Why the client's body stopped before its end, if it did.
    pub(super) fn fault(&self) -> Option<UploadFault> {
        self.0.lock().1
    }
}

/// Up to this many bytes it is cheaper to join the pieces of a body than to send them one by one.
const JOIN_BELOW: usize = 64 * 1024;

/// A body that is held whole. The pieces of a long one are not joined.
pub(super) fn whole(rope: Rope) -> reqwest::Body {
    let left = rope.len();
    if left <= JOIN_BELOW {
        return reqwest::Body::from(rope.to_bytes());
    }
    let mut pieces = rope.into_pieces();
    match (pieces.pop_front(), pieces.is_empty()) {
        (None, _) => reqwest::Body::default(),
        (Some(only), true) => reqwest::Body::from(only),
        (Some(first), false) => {
            pieces.push_front(first);
            reqwest::Body::wrap(RopeBody { pieces, left })
        }
    }
}

/// The pieces of one body. Its length is known, so it is not sent chunked.
struct RopeBody {
    pieces: VecDeque<Bytes>,
    left: usize,
}

impl Body for RopeBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let piece = self.pieces.pop_front();
        self.left = self
            .left
            .saturating_sub(piece.as_ref().map_or(0, Bytes::len));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// An upload that notes each frame.
pub(super) struct WatchedUpload {
    inner: Upload,
    progress: UploadProgress,
}

impl WatchedUpload {
    pub(super) fn new(inner: Upload, progress: UploadProgress) -> Self {
        Self { inner, progress }
    }
}

impl Body for WatchedUpload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let fault = frame.as_ref().and_then(|frame| frame.as_ref().err());
        *self.progress.0.lock() = (Instant::now(), fault.copied());
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a response: the upstream's frames as they come, and then the end or the reason why
/// there is none. Dropping it cancels the upstream's request.
#[derive(Debug)]
pub struct ResponseBody {
    inner: reqwest::Body,
    /// How long it may be silent once it says something.
    idle: Duration,
    /// What came so far and says nothing, and how long it may be silent meanwhile. Boxed, because most
    /// of the time there is none.
    opening: Option<Box<(Opening, Duration)>>,
    silence: Pin<Box<Sleep>>,
}

impl ResponseBody {
    /// The body behind a head. Until it says something, the upstream may be at work on its first byte.
    pub(super) fn new(inner: reqwest::Body, packed: bool, settings: &UpstreamSettings) -> Self {
        let idle = settings.idle_timeout;
        let first = settings.first_byte_timeout.max(idle);
        Self {
            inner,
            idle,
            opening: Some(Box::new((Opening::new(packed), first))),
            silence: Box::pin(tokio::time::sleep(first)),
        }
    }

    /// Takes in a frame. Returns how long the next one may take.
    fn heard(&mut self, frame: &Frame<Bytes>) -> Duration {
        let Some(opening) = &mut self.opening else {
            return self.idle;
        };
        let (opening, first) = opening.as_mut();
        if !frame.data_ref().is_some_and(|data| opening.says(data)) {
            return *first;
        }
        self.opening = None;
        self.idle
    }

    /// Drops the body, and leaves an empty one.
    pub fn close(&mut self) {
        self.inner = reqwest::Body::default();
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                // A client that reads slowly does not make the upstream silent. So the clock starts
                // again with each poll that finds a frame.
                let next = this.heard(&frame);
                this.silence.as_mut().reset(Instant::now() + next);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(BodyError::cut(&error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match this.silence.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Some(Err(match this.opening {
                    Some(_) => BodyError::Unbegun,
                    None => BodyError::Idle,
                }))),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
