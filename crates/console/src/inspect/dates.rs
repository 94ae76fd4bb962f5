//! Times for people and for files. Owns their form. Never reads a clock.

use jiff::Timestamp;

/// Milliseconds since 1970 as RFC 3339 in UTC. The form ends with the year 9999.
#[must_use]
pub fn date(milliseconds: u64) -> String {
    let time = i64::try_from(milliseconds).map(Timestamp::from_millisecond);
    let time = time.ok().and_then(Result::ok).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (milliseconds, expect) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_771_409_530_133, "2026-02-18T10:12:10.133Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_798_761_599_000, "2026-12-31T23:59:59.000Z"),
            (u64::MAX, "9999-12-30T22:00:00.999Z"),
        ] {
            assert_eq!(date(milliseconds), expect);
        }
    }
}
