//! Sizes as people write them: numbers of tokens, shares, floors. Owns these notations and what is
//! said to a text that is none, so that a file, a variable, a flag, a header and the console read
//! one text alike. Never rounds, and never guesses what is meant.

use super::overrides::{AskedBudget, MIN_CEILING};
use crate::commit::Floor;

/// Why a text is not the size that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a number of tokens, or too few.
    #[error(
        "must be a whole number of tokens, at least {least}, such as 80000, 80_000, 80k or 0.1M"
    )]
    Tokens {
        /// The fewest that are taken.
        least: u32,
    },
    /// Neither a number of tokens nor a share of the model's window.
    #[error("{}, or a share of the model's window, such as 40%", Self::CEILING)]
    Budget,
    /// A share of the model's window, where only tokens are taken.
    #[error(
        "{}; a share of the model's window goes with a request, as x-plimsoll-budget: 40%",
        Self::CEILING
    )]
    WindowShare,
    /// Not a share.
    #[error("must be a share from 0 to 1, such as 0.5")]
    Share,
    /// Not a share, or none of the whole.
    #[error("must be a fraction greater than 0 and at most 1, such as 0.7")]
    Fraction,
    /// Not a floor.
    #[error("must be auto, budget, or a fraction greater than 0 and at most 1, such as 0.7")]
    Floor,
    /// A floor by the name that it had once.
    #[error("`ceiling` is called `budget` now")]
    OldFloor,
}

impl SizeError {
    const CEILING: Self = Self::Tokens { least: MIN_CEILING };
}

/// Reads a number of tokens that is not below `least`: `80000`, `80_000`, `40k`, `1.5k` or `1M`.
///
/// # Errors
/// If it is no such number.
pub fn tokens(text: &str, least: u32) -> Result<u32, SizeError> {
    whole(text.trim())
        .ok_or(SizeError::Tokens { least })
        .and_then(|number| not_below(number, least))
}

/// A number of tokens that is not below `least`.
///
/// # Errors
/// If it is.
pub const fn not_below(number: u32, least: u32) -> Result<u32, SizeError> {
    match number < least {
        true => Err(SizeError::Tokens { least }),
        false => Ok(number),
    }
}

/// Reads a ceiling.
///
/// # Errors
/// If it is no number of tokens, or below [`MIN_CEILING`].
pub fn ceiling(text: &str) -> Result<u32, SizeError> {
    match budget(text) {
        Ok(AskedBudget::Tokens(tokens)) => Ok(tokens),
        Ok(AskedBudget::WindowShare(_)) => Err(SizeError::WindowShare),
        Err(_) => Err(SizeError::CEILING),
    }
}

/// Reads what a request names as its ceiling: tokens, or a share of the model's window like `40%`.
///
/// # Errors
/// If it is neither, or below [`MIN_CEILING`]. A share is of a window that is only known later, so
/// its tokens can't be checked yet.
pub fn budget(text: &str) -> Result<AskedBudget, SizeError> {
    let text = text.trim();
    match text.strip_suffix('%') {
        Some(percent) => decimal(percent)
            .map(|percent| percent / 100.0)
            .and_then(|share| fraction(share).ok())
            .map(AskedBudget::WindowShare)
            .ok_or(SizeError::Budget),
        None => tokens(text, MIN_CEILING)
            .map(AskedBudget::Tokens)
            .map_err(|_| SizeError::Budget),
    }
}

/// Reads a floor: `auto`, `budget`, or a fraction of the budget like `0.7`.
///
/// # Errors
/// If it is none of them.
pub fn floor(text: &str) -> Result<Floor, SizeError> {
    match text.trim() {
        "auto" => Ok(Floor::Auto),
        "budget" => Ok(Floor::Ceiling),
        "ceiling" => Err(SizeError::OldFloor),
        text => decimal(text)
            .and_then(|part| fraction(part).ok())
            .map(Floor::Fraction)
            .ok_or(SizeError::Floor),
    }
}

/// Reads a share of something, which may be none of it.
///
/// # Errors
/// If it is not within 0..=1.
pub fn share(text: &str) -> Result<f64, SizeError> {
    decimal(text.trim())
        .ok_or(SizeError::Share)
        .and_then(within)
}

/// A share of something, which may be none of it.
///
/// # Errors
/// If it is not within 0..=1.
pub fn within(part: f64) -> Result<f64, SizeError> {
    if (0.0..=1.0).contains(&part) {
        Ok(part)
    } else {
        Err(SizeError::Share)
    }
}

/// A fraction in (0, 1].
///
/// # Errors
/// If it is not.
pub fn fraction(part: f64) -> Result<f64, SizeError> {
    match within(part) {
        Ok(part) if part > 0.0 => Ok(part),
        Ok(_) | Err(_) => Err(SizeError::Fraction),
    }
}

/// A whole number, as digits or in thousands or millions.
fn whole(text: &str) -> Option<u32> {
    let (number, places) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 6),
            None => (text, 0),
        },
    };
    let scale = 10_u32.checked_pow(u32::try_from(places).ok()?)?;
    let (number, part) = match number.split_once('.') {
        // More places than the unit has would be a part of a token.
        Some((number, part)) if (1..=places).contains(&part.len()) => {
            (number, digits(&format!("{part:0<places$}"))?)
        }
        Some(_) => return None,
        None => (number, 0),
    };
    // An underscore stands between digits, as in TOML.
    let groups = number.split('_');
    if groups.clone().any(str::is_empty) {
        return None;
    }
    let number = digits(&groups.collect::<String>())?;
    number.checked_mul(scale)?.checked_add(part)
}

/// Digits only: `parse` alone takes a sign.
fn digits(text: &str) -> Option<u32> {
    let only = text.bytes().all(|byte| byte.is_ascii_digit());
    only.then(|| text.parse().ok()).flatten()
}

/// A decimal number without a sign or an exponent. Words like `nan` are none.
fn decimal(text: &str) -> Option<f64> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    text.bytes().all(plain).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_window_are_percents_and_others_are_fractions() {
        assert_eq!(budget("40%"), Ok(AskedBudget::WindowShare(0.4)));
        assert_eq!(budget("12.5%"), Ok(AskedBudget::WindowShare(0.125)));
        for wrong in [
            "0%", "101%", "%", "40 %", "-40%", "4e1%", "inf%", "NaN%", "0.4",
        ] {
            assert_eq!(budget(wrong), Err(SizeError::Budget), "{wrong}");
        }
        assert_eq!(ceiling("40%"), Err(SizeError::WindowShare));
        assert_eq!(ceiling("400%"), Err(SizeError::CEILING));
        assert_eq!((share("0"), share("0.5")), (Ok(0.0), Ok(0.5)));
        for wrong in ["1.1", "-0.5", "5e-1", "50%", "nan", ".", ""] {
            assert_eq!(share(wrong), Err(SizeError::Share), "{wrong}");
        }
    }

    #[test]
    fn floors_are_words_or_fractions() {
        assert_eq!(floor("auto"), Ok(Floor::Auto));
        assert_eq!(floor("budget"), Ok(Floor::Ceiling));
        assert_eq!(floor("ceiling"), Err(SizeError::OldFloor));
        assert_eq!(floor("0.7"), Ok(Floor::Fraction(0.7)));
        for wrong in ["0", "1.1", "-0.5", "7e-1", "70%", "nan", "low", ""] {
            assert_eq!(floor(wrong), Err(SizeError::Floor), "{wrong}");
        }
    }
}
