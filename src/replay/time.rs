//! Times as recordings hold them: RFC 3339, or a number of seconds or milliseconds since 1970.
//! Never reads a clock.

use crate::model::raw;

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

/// `2026-01-02T03:04:05.678Z`, or with an offset such as `+02:00`.
fn rfc3339(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at_checked(zone)?;
    let mut clock = clock.splitn(3, ':');
    let hour: i64 = clock.next()?.parse().ok()?;
    let minute: i64 = clock.next()?.parse().ok()?;
    let second: f64 = clock.next()?.parse().ok()?;
    let dated = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    let timed = (0..=24).contains(&hour) && (0..=59).contains(&minute) && second.is_finite();
    if !dated || !timed || !(1..=31).contains(&day) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below 61,000 in a valid time"
    )]
    let milliseconds = (second.clamp(0.0, 61.0) * 1000.0) as i64;
    let minutes = (days(year, month, day) * 24 + hour) * 60 + minute - offset(zone)?;
    u64::try_from(minutes * 60_000 + milliseconds).ok()
}

/// Minutes east of Greenwich.
fn offset(zone: &str) -> Option<i64> {
    let (sign, rest) = match zone.split_at_checked(1) {
        None | Some(("Z" | "z", _)) => return Some(0),
        Some(("-", rest)) => (-1, rest),
        Some((_, rest)) => (1, rest),
    };
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "0"));
    let (hours, minutes): (i16, i16) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some(sign * (i64::from(hours) * 60 + i64::from(minutes)))
}

/// Days from 1970-01-01, in the calendar of today at all times. Years are counted from March, so
/// that a leap day is a year's last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
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
