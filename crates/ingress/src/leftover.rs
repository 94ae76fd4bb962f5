//! What becomes of a forwarded body that was answered before it was read to its end. Owns the rest of
//! it. Never changes or keeps a byte.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use plimsoll_proxy::upstream::UploadFault;
use tokio::runtime::Handle;

use super::body;

/// A body whose rest is read and dropped when it is given up, as a provider does that refuses a request
/// for its headers. A client that still writes would meet a closed connection, and perhaps no answer.
pub(super) struct Leftover<B>
where
    B: Body<Data = Bytes, Error = UploadFault> + Unpin + Send + 'static,
{
    /// None when it has ended.
    inner: Option<B>,
    cap: usize,
}

impl<B> Leftover<B>
where
    B: Body<Data = Bytes, Error = UploadFault> + Unpin + Send + 'static,
{
    /// `cap` bounds how much of the rest is read: four times as many bytes, within five seconds.
    pub(super) fn new(inner: B, cap: usize) -> Self {
        Self {
            inner: Some(inner),
            cap,
        }
    }
}

impl<B> Body for Leftover<B>
where
    B: Body<Data = Bytes, Error = UploadFault> + Unpin + Send + 'static,
{
    type Data = Bytes;
    type Error = UploadFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadFault>>> {
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(inner).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.inner = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let ended = SizeHint::with_exact(0);
        self.inner.as_ref().map_or(ended, Body::size_hint)
    }
}

impl<B> Drop for Leftover<B>
where
    B: Body<Data = Bytes, Error = UploadFault> + Unpin + Send + 'static,
{
    fn drop(&mut self) {
        let left = self.inner.take().filter(|body| !body.is_end_stream());
        // Outside the runtime the process is ending.
        if let (Some(left), Ok(runtime)) = (left, Handle::try_current()) {
            runtime.spawn(body::discard(left, self.cap));
        }
    }
}
