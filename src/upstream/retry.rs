//! How long to wait before another try. Owns the reading of `retry-after`; never tries anything.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// No wait before a retry is longer: past it the client is better told.
pub const LONGEST_WAIT: Duration = Duration::from_secs(20);

const FIRST_WAIT: Duration = Duration::from_millis(100);

/// What the upstream asks for: `retry-after-ms` before `retry-after` in seconds (fractions are
/// read). A date is not: it would need a clock that agrees with the upstream's.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|millis| millis / 1e3);
    let seconds = seconds.or_else(|| number(RETRY_AFTER.as_str()))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The wait before try `tries + 1`: what the upstream asks for, else doubling from 100 ms. `None`
/// if the upstream asks for more than [`LONGEST_WAIT`].
pub(super) fn wait(tries: u32, asked: Option<Duration>) -> Option<Duration> {
    let doubled = FIRST_WAIT.saturating_mul(1 << tries.min(8));
    match asked {
        Some(asked) => (asked <= LONGEST_WAIT).then_some(asked),
        None => Some(doubled.min(LONGEST_WAIT)),
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
