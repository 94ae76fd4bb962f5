//! Durations, days and sizes as people write them: `250ms`, `90d`, `64MiB`. Owns these notations.
//! Never guesses a unit.

use std::time::Duration;

/// Reads `250ms`, `10s`, `5m` or `1h`. A bare number is refused, because its unit would be a guess.
///
/// # Errors
/// What is allowed, in a sentence.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("`{text}` is not a duration; write one like \"250ms\", \"10s\", \"5m\" or \"1h\"")
    };
    let (number, unit) = split(text);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    millis.map(Duration::from_millis).ok_or_else(wrong)
}

/// Reads a number of days: `90d`.
///
/// # Errors
/// What is allowed, in a sentence.
pub fn days(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a number of days; write one like \"90d\", or \"forever\"");
    match split(text) {
        // More is no age that anything could reach, and would only have to be guarded against.
        (number, "d") => match number.parse() {
            Ok(days @ 0..=36_500) => Ok(days),
            Ok(_) => Err("must be at most \"36500d\", or \"forever\"".to_owned()),
            Err(_) => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// Reads a number of bytes: `65536`, `512KiB`, `64MiB` or `1GiB`.
///
/// # Errors
/// What is allowed, in a sentence.
pub fn bytes(text: &str) -> Result<usize, String> {
    let wrong = || {
        format!(
            "`{text}` is not a size; write bytes, or a size like \"512KiB\", \"64MiB\" or \"1GiB\""
        )
    };
    let (number, unit) = split(text);
    let number: usize = number.parse().map_err(|_| wrong())?;
    let size = match unit {
        "" | "B" => Some(number),
        "KiB" => number.checked_mul(1 << 10),
        "MiB" => number.checked_mul(1 << 20),
        "GiB" => number.checked_mul(1 << 30),
        _ => None,
    };
    size.ok_or_else(wrong)
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}
