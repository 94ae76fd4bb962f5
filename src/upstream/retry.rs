//! Whether an upstream call is tried again, and when. Owns the rule and the reading of
//! `retry-after`. Never sends anything.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Response};
use parking_lot::Mutex;
use tokio::time::Sleep;
use tower::retry::Policy;

use super::error::UpstreamError;
use super::outbound::{Outbound, Payload};
use super::settings::UpstreamSettings;

/// The longest wait before a retry. If the upstream asks for more, the client should hear of it.
pub const LONGEST_WAIT: Duration = Duration::from_secs(20);

const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The wait that the upstream asks for: `retry-after-ms`, or else `retry-after` in seconds, which
/// may have a fraction. A date is not read, because it needs a clock that agrees with the
/// upstream's.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|millis| millis / 1e3);
    let seconds = seconds.or_else(|| number(RETRY_AFTER.as_str()))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The wait before the next try: what the upstream asks for, or else a time that doubles from 100
/// ms. `None` if the upstream asks for more than [`LONGEST_WAIT`].
fn wait(tries: u32, asked: Option<Duration>) -> Option<Duration> {
    let doubled = FIRST_WAIT.saturating_mul(1 << tries.min(8));
    match asked {
        Some(asked) => (asked <= LONGEST_WAIT).then_some(asked),
        None => Some(doubled.min(LONGEST_WAIT)),
    }
}

/// Why an upstream call is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// There was no connection.
    Connect,
    /// The upstream answered with a status that the settings name.
    Status,
}

/// The tries of one call. A body that is held whole is sent again as often as the settings allow, a
/// streamed one never. `told` is called before each retry.
pub(super) struct Tries<'a, F> {
    settings: &'a UpstreamSettings,
    told: &'a Mutex<F>,
    made: u32,
}

impl<'a, F> Tries<'a, F> {
    pub(super) fn new(settings: &'a UpstreamSettings, told: &'a Mutex<F>) -> Self {
        Self {
            settings,
            told,
            made: 0,
        }
    }
}

impl<F> Clone for Tries<'_, F> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<F: FnMut(RetryCause), B> Policy<Outbound, Response<B>, UpstreamError> for Tries<'_, F> {
    type Future = Sleep;

    fn retry(
        &mut self,
        _: &mut Outbound,
        outcome: &mut Result<Response<B>, UpstreamError>,
    ) -> Option<Sleep> {
        let listed = |status: &u16| self.settings.retry_statuses.contains(status);
        // Only a call that cannot have reached the model is repeated, apart from statuses that the
        // operator names.
        let (why, asked) = match outcome {
            Ok(response) if listed(&response.status().as_u16()) => {
                (RetryCause::Status, retry_after(response.headers()))
            }
            Err(UpstreamError::Connect { .. } | UpstreamError::ConnectTimeout) => {
                (RetryCause::Connect, None)
            }
            Ok(_)
            | Err(
                UpstreamError::Path
                | UpstreamError::FirstByteTimeout
                | UpstreamError::Upload(_)
                | UpstreamError::Broken { .. },
            ) => {
                return None;
            }
        };
        let wait = wait(self.made, asked)?;
        self.made += 1;
        (self.told.lock())(why);
        Some(tokio::time::sleep(wait))
    }

    fn clone_request(&mut self, outbound: &Outbound) -> Option<Outbound> {
        let rope = match &outbound.payload {
            Payload::Whole(rope) if self.made < self.settings.retries => rope,
            Payload::Whole(_) | Payload::Streamed(_) => return None,
        };
        Some(Outbound {
            method: outbound.method.clone(),
            url: outbound.url.clone(),
            headers: outbound.headers.clone(),
            payload: Payload::Whole(rope.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_both_units() {
        type Row = (&'static [(&'static str, &'static str)], Option<u64>);
        let table: [Row; 7] = [
            (&[("retry-after", "2")], Some(2_000)),
            (&[("retry-after", "0.25")], Some(250)),
            (
                &[("retry-after-ms", "300"), ("retry-after", "9")],
                Some(300),
            ),
            (
                &[("retry-after-ms", "soon"), ("retry-after", "9")],
                Some(9_000),
            ),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], None),
            (&[], None),
        ];
        for (pairs, wanted) in table {
            let headers = pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect::<HeaderMap>();
            assert_eq!(
                retry_after(&headers),
                wanted.map(Duration::from_millis),
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn waits_double_and_are_bounded() {
        assert_eq!(wait(0, None), Some(Duration::from_millis(100)));
        assert_eq!(wait(2, None), Some(Duration::from_millis(400)));
        assert_eq!(wait(u32::MAX, None), Some(LONGEST_WAIT));
        assert_eq!(wait(0, Some(LONGEST_WAIT)), Some(LONGEST_WAIT));
        assert_eq!(wait(0, Some(LONGEST_WAIT + Duration::from_millis(1))), None);
    }
}
