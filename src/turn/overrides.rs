//! What a request asks for instead of the configuration: mode, budget, profile, policy. Never reads
//! a header.

use super::pins::PinAsk;
use crate::policy::Ladder;

/// The smallest ceiling that is accepted, in tokens.
pub const MIN_CEILING: u32 = 4_000;

/// What a request sets for itself. The configuration decides the rest. Never remembered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// `x-plimsoll-mode`
    pub mode: Option<Mode>,
    /// `x-plimsoll-budget`
    pub budget: Option<AskedBudget>,
    /// `x-plimsoll-profile`: a profile of the configuration.
    pub profile: Option<String>,
    /// `x-plimsoll-policy`: one policy, or several joined by `+`.
    pub ladder: Option<Ladder>,
    /// `x-plimsoll-recall`: whether `recall` is injected into a conversation that begins here.
    pub recall: Option<bool>,
    /// `x-plimsoll-guide`: whether the guidance comes with this request.
    pub guide: bool,
    /// `x-plimsoll-pin`: what is to be kept in view, or no longer.
    pub pins: Vec<PinAsk>,
}

/// What is done with a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Held under the ceiling.
    Manage,
    /// Computed and reported, forwarded untouched.
    Observe,
    /// Forwarded untouched.
    Off,
}

impl Mode {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("manage", Self::Manage),
        ("observe", Self::Observe),
        ("off", Self::Off),
    ];
}

/// Reads a number of tokens as people write it: `80000`, `80_000`, `40k`, `1.5k` or `1M`. `None` if
/// it is no such number.
#[must_use]
pub fn tokens(text: &str) -> Option<u32> {
    let text = text.trim();
    let (number, digits) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 6),
            None => (text, 0),
        },
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > digits.max(1) {
        return None;
    }
    let whole: u32 = whole.replace('_', "").parse().ok()?;
    let of_part: u32 = format!("{part:0<digits$}").parse().ok()?;
    let scale = 10_u32.pow(u32::try_from(digits).ok()?);
    whole.checked_mul(scale)?.checked_add(of_part)
}

/// A ceiling that a request names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AskedBudget {
    /// Tokens, at least [`MIN_CEILING`].
    Tokens(u32),
    /// A share of the model's window, in (0, 1].
    WindowShare(f64),
}
