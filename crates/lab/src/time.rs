//! Times as recordings hold them: RFC 3339, or a number of seconds or milliseconds since 1970.
//! Never reads a clock.

use jiff::tz::Offset;
use jiff::{Timestamp, civil};
use plimsoll_model::raw;

/// A number above this is one of milliseconds: as seconds it would lie past the year 5000.
const MILLISECONDS: f64 = 1e11;

/// The time that a JSON value tells, in milliseconds since 1970; none where it tells none.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be positive and finite; a float beyond a u64 is cut to its most"
)]
pub fn read(json: &[u8]) -> Option<u64> {
    if json.first() == Some(&b'"') {
        return rfc3339(raw::string(json)?.as_ref());
    }
    let number: f64 = std::str::from_utf8(json).ok()?.trim().parse().ok()?;
    if !number.is_finite() || number < 0.0 {
        return None;
    }
    let seconds = number < MILLISECONDS;
    Some((if seconds { number * 1000.0 } else { number }) as u64)
}

/// `2026-01-02T03:04:05.678Z`, or with an offset such as `+02:00`; UTC where there is none.
fn rfc3339(text: &str) -> Option<u64> {
    // A date alone is no time.
    text.split_once(['T', 't', ' '])?;
    let time = text.parse::<Timestamp>().or_else(|_| {
        let time: civil::DateTime = text.parse()?;
        Offset::UTC.to_timestamp(time)
    });
    u64::try_from(time.ok()?.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_forms_that_recordings_have() {
        for (json, expect) in [
            ("\"1970-01-01T00:00:00Z\"", Some(0)),
            ("\"2026-02-18T10:12:10.133015Z\"", Some(1_771_409_530_133)),
            ("\"2024-02-29T23:59:59+01:30\"", Some(1_709_245_799_000)),
            ("\"2024-03-01 00:00:00-00:30\"", Some(1_709_253_000_000)),
            ("1771409530", Some(1_771_409_530_000)),
            ("1771409530.5", Some(1_771_409_530_500)),
            ("1771409530133", Some(1_771_409_530_133)),
            ("\"2024-02-29T23:59:59.5+0130\"", Some(1_709_245_799_500)),
            ("\"2024-02-29t23:59:59\"", Some(1_709_251_199_000)),
            ("\"2016-12-31T23:59:60Z\"", Some(1_483_228_799_000)),
            ("\"2026-02-30T00:00:00Z\"", None),
            ("\"1969-12-31T23:59:59Z\"", None),
            ("\"2026-02-18\"", None),
            ("\"yesterday\"", None),
            ("\"2026-13-01T00:00:00Z\"", None),
            ("-5", None),
            ("null", None),
            ("{}", None),
        ] {
            assert_eq!(read(json.as_bytes()), expect, "{json}");
        }
    }
}
