//! How fast a client's body has to come. Owns the clock, which runs only while the proxy waits for
//! the client. Never keeps or changes a byte.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use plimsoll_proxy::upstream::UploadFault;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a client is waited for in one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time that every body has.
    pub wait: Duration,
    /// The number of bytes that earn another second.
    pub rate: usize,
    /// The longest time in total.
    pub most: Duration,
}

impl Pace {
    /// How long a body is waited for after `bytes` of it have come.
    fn allows(&self, bytes: u64) -> Duration {
        let rate = u64::try_from(self.rate).unwrap_or(u64::MAX).max(1);
        let earned = Duration::from_millis(bytes.saturating_mul(1000) / rate);
        self.wait.saturating_add(earned).min(self.most)
    }
}

/// A body that has to keep a pace.
pub(super) struct Paced<B> {
    inner: B,
    pace: Pace,
    /// How long the client has been waited for so far.
    waited: Duration,
    /// Since when the client is waited for now.
    since: Option<Instant>,
    bytes: u64,
    /// One clock per body. A body only ever gains time, so the clock is read when it has run out,
    /// and not set with each piece.
    clock: Option<Pin<Box<Sleep>>>,
}

impl<B> Paced<B> {
    pub(super) fn new(inner: B, pace: Pace) -> Self {
        Self {
            inner,
            pace,
            waited: Duration::ZERO,
            since: None,
            bytes: 0,
            clock: None,
        }
    }

    /// Ready when the client has been waited for too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let left = self.pace.allows(self.bytes).saturating_sub(self.waited);
        let until = since + left;
        let clock = self
            .clock
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        loop {
            ready!(clock.as_mut().poll(cx));
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            clock.as_mut().reset(until);
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = UploadFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadFault>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            ready!(this.poll_late(cx));
            return Poll::Ready(Some(Err(UploadFault::Late)));
        };
        // The client has moved, so the time that it was waited for is final.
        if let Some(since) = this.since.take() {
            this.waited = this.waited.saturating_add(since.elapsed());
        }
        let length = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) | None => 0,
        };
        this.bytes = this.bytes.saturating_add(length as u64);
        Poll::Ready(frame.map(|frame| frame.map_err(|_| UploadFault::Broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_earned_by_bytes_and_has_an_end() {
        let pace = Pace {
            wait: Duration::from_secs(30),
            rate: 4096,
            most: Duration::from_secs(600),
        };
        for (bytes, seconds) in [
            (0, 30),
            (1, 30),
            (40_960, 40),
            (1 << 30, 600),
            (u64::MAX, 600),
        ] {
            assert_eq!(pace.allows(bytes).as_secs(), seconds, "{bytes}");
        }
    }
}
