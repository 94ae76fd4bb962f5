//! Whether an upstream call is tried again, and when. Owns the rule and the reading of
//! `retry-after`. Never sends anything.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, Response};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tower::retry::Policy;
use tower::util::rng::{HasherRng, Rng as _};

use super::error::UpstreamError;
use super::outbound::{Outbound, Payload};
use super::settings::UpstreamSettings;

/// The longest wait before a retry. If the upstream asks for more, the client should hear of it, unless the
/// settings give the retries a time of their own.
pub const LONGEST_WAIT: Duration = Duration::from_secs(20);

const FIRST_WAIT: Duration = Duration::from_millis(100);

/// Statuses of an upstream that is overloaded or down, or of a gateway before one. They are tried again where
/// the settings give the retries a time. A 500 is not among them: servers answer it to requests that they
/// will never take.
const PASSING: [u16; 5] = [429, 502, 503, 504, 529];

/// The wait that the upstream asks for: `retry-after-ms`, or else `retry-after` in seconds, which may have a
/// fraction, or as a date.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    retry_after_at(headers, SystemTime::now())
}

fn retry_after_at(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|millis| millis / 1e3);
    match seconds.or_else(|| number(RETRY_AFTER.as_str())) {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => until(text(RETRY_AFTER.as_str())?, date(headers).unwrap_or(now)),
    }
}

/// What the upstream's own clock says. A date of its making is compared with that, because the proxy's clock
/// may differ.
fn date(headers: &HeaderMap) -> Option<SystemTime> {
    moment(headers.get(http::header::DATE)?.to_str().ok()?)
}

/// How long it is to a date: no time if that has passed. None if it is no date.
fn until(date: &str, now: SystemTime) -> Option<Duration> {
    let wait = moment(date)?.duration_since(now);
    Some(wait.unwrap_or_default())
}

fn moment(date: &str) -> Option<SystemTime> {
    let time: Timestamp = rfc2822::DateTimeParser::new()
        .parse_timestamp(date.trim())
        .ok()?;
    Some(time.into())
}

/// The most that is waited before a try: a time that doubles from 100 ms.
fn longest(made: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << made.min(8));
    doubled.min(LONGEST_WAIT)
}

/// A random part of a time, so that callers that failed together do not come back together.
fn random_part(of: Duration) -> Duration {
    of.mul_f64(HasherRng::default().next_f64())
}

/// The wait before another try, after so many were made: what the upstream asks for, and on top of that a random part of a
/// time that doubles. Callers that it told the same do not come back together either.
#[must_use]
pub fn wait_before(asked: Option<Duration>, made: u32) -> Duration {
    let asked = asked.unwrap_or_default();
    asked.saturating_add(random_part(longest(made)))
}

/// Until when calls that share the time for retries are tried again, if the settings give that a time.
pub type RetryUntil = Option<Instant>;

/// Why an upstream call is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// There was no connection.
    Connect,
    /// The upstream answered with a status that the settings name.
    Status,
    /// A connection had died while it was idle.
    Idle,
}

/// A request, and whether a connection is made for it.
pub(super) struct Call {
    pub(super) outbound: Outbound,
    pub(super) anew: bool,
}

/// The tries of one call. A body that is held whole is sent again as often as the settings allow, a
/// streamed one never. `told` is called before each retry.
pub(super) struct Tries<'a, F> {
    settings: &'a UpstreamSettings,
    told: &'a Mutex<F>,
    made: u32,
    /// Whether a connection that had died was replaced. The new one has no such excuse.
    replaced: bool,
    /// Until when calls are tried again, if not only so often.
    until: RetryUntil,
}

impl<'a, F> Tries<'a, F> {
    pub(super) fn new(
        settings: &'a UpstreamSettings,
        until: RetryUntil,
        told: &'a Mutex<F>,
    ) -> Self {
        Self {
            settings,
            told,
            made: 0,
            replaced: false,
            until,
        }
    }

    /// Why a call may be made again. Only one that can't have reached the model is, apart from statuses that
    /// the operator names, and of one that a connection took with it.
    fn cause<B>(&self, outcome: &Result<Response<B>, UpstreamError>) -> Option<RetryCause> {
        match outcome {
            Ok(response) => {
                let status = response.status().as_u16();
                let passing = self.until.is_some() && PASSING.contains(&status);
                let listed = self.settings.retry_statuses.contains(&status);
                (passing || listed).then_some(RetryCause::Status)
            }
            Err(UpstreamError::Connect { .. } | UpstreamError::ConnectTimeout) => {
                Some(RetryCause::Connect)
            }
            Err(UpstreamError::Dropped { .. }) => (!self.replaced).then_some(RetryCause::Idle),
            Err(
                UpstreamError::Path
                | UpstreamError::FirstByteTimeout
                | UpstreamError::Upload(_)
                | UpstreamError::Broken { .. },
            ) => None,
        }
    }

    /// The wait before the next try. `None` if there is none, because the settings allow no more or the
    /// upstream asks for more than they do: the client should hear of that.
    fn wait(&self, asked: Option<Duration>, now: Instant) -> Option<Duration> {
        let most = match self.until {
            Some(until) => until.checked_duration_since(now)?,
            None if self.made < self.settings.retries => LONGEST_WAIT,
            None => return None,
        };
        let wait = wait_before(asked, self.made);
        (asked.unwrap_or_default() <= most).then(|| wait.min(most))
    }
}

impl<F> Clone for Tries<'_, F> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<F: FnMut(RetryCause), B> Policy<Call, Response<B>, UpstreamError> for Tries<'_, F> {
    type Future = Sleep;

    fn retry(
        &mut self,
        call: &mut Call,
        outcome: &mut Result<Response<B>, UpstreamError>,
    ) -> Option<Sleep> {
        let why = self.cause(outcome)?;
        let wait = match why {
            RetryCause::Idle => Duration::ZERO,
            RetryCause::Connect | RetryCause::Status => {
                let answer = outcome.as_ref().ok();
                let asked = answer.and_then(|answer| retry_after(answer.headers()));
                let wait = self.wait(asked, Instant::now())?;
                self.made += 1;
                wait
            }
        };
        // Its siblings in the pool have most likely died with it.
        self.replaced |= why == RetryCause::Idle;
        call.anew = self.replaced;
        (self.told.lock())(why);
        Some(tokio::time::sleep(wait))
    }

    fn clone_request(&mut self, call: &Call) -> Option<Call> {
        let outbound = &call.outbound;
        let rope = match &outbound.payload {
            Payload::Whole(rope) => rope,
            Payload::Streamed(_) => return None,
        };
        let outbound = Outbound {
            method: outbound.method.clone(),
            url: outbound.url.clone(),
            headers: outbound.headers.clone(),
            payload: Payload::Whole(rope.clone()),
        };
        Some(Call {
            outbound,
            anew: call.anew,
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
            (&[("retry-after", "soon")], None),
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
    fn dates_are_read_by_the_clock_that_made_them() {
        let headers = |pairs: &[(&'static str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            pairs.collect::<HeaderMap>()
        };
        let now = moment("Wed, 21 Oct 2026 07:27:00 GMT").unwrap();
        for (date, wanted) in [
            ("Wed, 21 Oct 2026 07:28:00 GMT", Some(60)),
            ("Wed, 21 Oct 2026 07:26:00 GMT", Some(0)),
            ("Wed, 41 Oct 2026 07:28:00 GMT", None),
            ("tomorrow", None),
        ] {
            let wait = retry_after_at(&headers(&[("retry-after", date)]), now);
            assert_eq!(wait, wanted.map(Duration::from_secs), "{date}");
        }
        let fast = headers(&[
            ("date", "Wed, 21 Oct 2026 09:27:30 GMT"),
            ("retry-after", "Wed, 21 Oct 2026 09:28:00 GMT"),
        ]);
        assert_eq!(retry_after_at(&fast, now), Some(Duration::from_secs(30)));
    }

    fn until(settings: &UpstreamSettings) -> Option<Instant> {
        settings.retry_for.map(|time| Instant::now() + time)
    }

    fn tries(settings: &UpstreamSettings, made: u32) -> Tries<'_, fn(RetryCause)> {
        static TOLD: Mutex<fn(RetryCause)> = Mutex::new(|_| ());
        Tries {
            made,
            ..Tries::new(settings, until(settings), &TOLD)
        }
    }

    #[test]
    fn waits_double_at_random_and_are_bounded() {
        assert_eq!(longest(0), Duration::from_millis(100));
        assert_eq!(longest(2), Duration::from_millis(400));
        assert_eq!(longest(u32::MAX), LONGEST_WAIT);
        let settings = UpstreamSettings {
            retries: 9,
            ..UpstreamSettings::default()
        };
        let now = Instant::now();
        let wait = |made, asked| tries(&settings, made).wait(asked, now);
        let waits: Vec<Duration> = (0..50).map(|_| wait(3, None).unwrap()).collect();
        assert!(waits.iter().all(|wait| *wait <= longest(3)), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        // What the upstream names is kept, and those who were told the same come apart.
        let told = Duration::from_secs(2);
        let waits: Vec<Duration> = (0..50).map(|_| wait(3, Some(told)).unwrap()).collect();
        let kept = |wait: &Duration| *wait >= told && *wait <= told + longest(3);
        assert!(waits.iter().all(kept), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        assert_eq!(wait(0, Some(LONGEST_WAIT)), Some(LONGEST_WAIT));
        let more = LONGEST_WAIT + Duration::from_millis(1);
        assert_eq!(wait(0, Some(more)), None);
        assert_eq!(wait(9, None), None);
    }

    #[test]
    fn a_time_for_retries_bounds_them_and_not_their_number() {
        let minute = Duration::from_secs(60);
        let settings = UpstreamSettings {
            retries: 0,
            retry_for: Some(minute),
            ..UpstreamSettings::default()
        };
        let tries = tries(&settings, 99);
        let end = tries.until.unwrap();
        let wait = |asked, left| tries.wait(asked, end.checked_sub(left).unwrap());
        assert_eq!(wait(Some(minute), minute), Some(minute));
        assert!(wait(None, minute).is_some());
        let half = minute / 2;
        assert_eq!(
            wait(Some(minute), half),
            None,
            "the client hears what was asked"
        );
        assert_eq!(wait(Some(half), half), Some(half));
        assert_eq!(
            tries.wait(None, end + Duration::from_millis(1)),
            None,
            "the time is over"
        );
    }
}
