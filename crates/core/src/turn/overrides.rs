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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Held under the ceiling.
    #[default]
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

/// A ceiling that a request names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AskedBudget {
    /// Tokens, at least [`MIN_CEILING`].
    Tokens(u32),
    /// A share of the model's window, in (0, 1].
    WindowShare(f64),
}
