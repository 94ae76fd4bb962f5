//! How many requests are served at once. Owns the count, from a request's arrival to the last byte
//! of its response; never queues.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::record::InFlight;

/// The places there are.
#[derive(Clone, Debug)]
pub struct Limit(Arc<Semaphore>);

impl Limit {
    /// So many places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))))
    }

    /// Takes a place, if there is one. Dropping it gives it back.
    #[must_use]
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

/// A response's body that holds its place until it ends or is dropped.
#[derive(Debug)]
pub struct Counted {
    inner: Body,
    _place: OwnedSemaphorePermit,
    _flight: InFlight,
}

impl Counted {
    /// Ties a place, and the gauge that counts it, to a body.
    #[must_use]
    pub fn new(inner: Body, place: OwnedSemaphorePermit, flight: InFlight) -> Self {
        Self {
            inner,
            _place: place,
            _flight: flight,
        }
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
