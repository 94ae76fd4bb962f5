//! How many requests are served at once, in total and per tenant. Owns that count, from the arrival
//! of a request to the last byte of its response. Never queues a request.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use plimsoll_model::TenantId;

/// One place in this many is kept in addition, for tenants that hold few.
const SPARE_SHARE: usize = 8;

/// The places for requests.
#[derive(Clone, Debug)]
pub struct RequestLimit(Arc<Places>);

#[derive(Debug)]
struct Places {
    most: usize,
    spare: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<TenantId, usize>,
}

/// A place that a request holds. Dropping it gives it back.
#[derive(Debug)]
pub struct RequestPlace {
    places: Arc<Places>,
    tenant: TenantId,
}

impl RequestLimit {
    /// Has this many places, and some more for tenants that would otherwise be crowded out.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self(Arc::new(Places {
            most: places,
            spare: (places / SPARE_SHARE).max(1),
            taken: Mutex::default(),
        }))
    }

    /// Takes a place, if there is one for this tenant. When the ordinary places are taken, the
    /// spare ones go to tenants that hold fewer places than there are spare ones left. So a tenant
    /// without a place gets one as long as there is any, and the more a tenant holds, the sooner it
    /// is refused.
    #[must_use]
    pub fn enter(&self, tenant: TenantId) -> Option<RequestPlace> {
        let places = &self.0;
        let mut taken = places.taken.lock();
        let held = taken.by.get(&tenant).copied().unwrap_or_default();
        let spare = (places.most + places.spare).saturating_sub(taken.all);
        if taken.all >= places.most && held >= spare {
            return None;
        }
        taken.all += 1;
        taken.by.insert(tenant, held + 1);
        Some(RequestPlace {
            places: Arc::clone(places),
            tenant,
        })
    }
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.all = taken.all.saturating_sub(1);
        if let Some(held) = taken.by.get_mut(&self.tenant) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                taken.by.remove(&self.tenant);
            }
        }
    }
}

/// The body of a response, which holds what it was given, such as a place, until it ends or is dropped.
#[derive(Debug)]
pub(super) struct HeldBody<H> {
    inner: Body,
    /// With what it failed, if that was not told yet. When a body fails, the server drops what it has not
    /// written, the head among it. It writes when the body makes it wait, so the body does that once.
    failed: Option<axum::Error>,
    _held: H,
}

impl<H> HeldBody<H> {
    /// Ties what is held to a body.
    pub(super) fn new(inner: Body, held: H) -> Self {
        Self {
            inner,
            failed: None,
            _held: held,
        }
    }
}

impl<H: Unpin> http_body::Body for HeldBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(Err(error)) => {
                self.failed = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            frame => Poll::Ready(frame),
        }
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
    use proptest::prelude::*;

    use super::*;
    use plimsoll_model::Digest;

    fn tenant(number: u8) -> TenantId {
        TenantId(Digest([number; 32]))
    }

    proptest! {
        #[test]
        fn whoever_holds_nothing_gets_a_place_while_there_is_one(
            most in 1_usize..40,
            asks in proptest::collection::vec((0_u8..6, any::<bool>()), 0..200),
        ) {
            let limit = RequestLimit::new(most);
            let all = most + (most / SPARE_SHARE).max(1);
            let mut held: Vec<(u8, RequestPlace)> = Vec::new();
            for (who, enters) in asks {
                if enters {
                    let before = held.len();
                    let own = held.iter().filter(|(other, _)| *other == who).count();
                    let place = limit.enter(tenant(who));
                    // All are anybody's, as the setting says, and the spare ones newcomers'.
                    prop_assert!(place.is_some() || before >= most);
                    prop_assert!(place.is_some() || own > 0 || before == all);
                    held.extend(place.map(|place| (who, place)));
                } else if let Some(at) = held.iter().position(|(other, _)| *other == who) {
                    held.swap_remove(at);
                }
                prop_assert!(held.len() <= all);
            }
            held.clear();
            let taken = limit.0.taken.lock();
            prop_assert!(taken.all == 0 && taken.by.is_empty());
        }

        #[test]
        fn one_tenant_alone_gets_what_the_setting_says(most in 1_usize..40) {
            let limit = RequestLimit::new(most);
            let held: Vec<RequestPlace> = std::iter::from_fn(|| limit.enter(tenant(1))).take(100).collect();
            prop_assert_eq!(held.len(), most);
            prop_assert!(limit.enter(tenant(2)).is_some());
        }
    }
}
