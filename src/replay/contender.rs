//! Who is compared: a policy at a ceiling under the terms that would serve it. Owns the mapping of
//! names to terms, and which policies need annotations; never plays anything.

use crate::commit::Floor;
use crate::pipeline::{Budget, Delimiter, Overrides, Settings, Terms, TermsError};
use crate::tokens::Family;

/// A policy that can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Everything is sent.
    None,
    /// The paper's order, down to the ceiling.
    CwlPaper,
    /// The order that is the default.
    Cwl,
}

impl Policy {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("cwl-paper", Self::CwlPaper),
        ("cwl", Self::Cwl),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let word = Self::WORDS.iter().find(|(_, policy)| *policy == self);
        word.map_or("", |(name, _)| name)
    }

    /// Whether it builds on episodes that the model marks.
    #[must_use]
    pub fn is_annotated(self) -> bool {
        match self {
            Self::None => false,
            Self::CwlPaper | Self::Cwl => true,
        }
    }

    /// Whether a model is asked for a summary with each pass.
    #[must_use]
    pub fn sums_up(self) -> bool {
        match self {
            Self::None | Self::CwlPaper | Self::Cwl => false,
        }
    }

    /// Where its passes end, where that is part of the policy.
    fn floor(self, asked: Floor) -> Floor {
        match self {
            Self::CwlPaper => Floor::Ceiling,
            Self::None | Self::Cwl => asked,
        }
    }
}

/// Where episodes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Annotate {
    /// Nobody marks any: all content is implicit exploration.
    None,
    /// They follow from the classes of the tools that are called, and cost nothing.
    #[default]
    Inferred,
    /// The scripted model marks them, and all that this takes is charged.
    Scripted,
}

impl Annotate {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("inferred", Self::Inferred),
        ("scripted", Self::Scripted),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let word = Self::WORDS.iter().find(|(_, annotate)| *annotate == self);
        word.map_or("", |(name, _)| name)
    }
}

/// One policy at one ceiling.
#[derive(Clone, Debug)]
pub struct Contender {
    /// The policy.
    pub policy: Policy,
    /// The ceiling that it is held to.
    pub ceiling: u32,
    /// The terms of its requests.
    pub terms: Terms,
    /// Where its episodes come from.
    pub annotate: Annotate,
}

impl Contender {
    /// A policy under the terms of the settings that serve by default.
    ///
    /// # Errors
    /// [`TermsError`] where there are none for it.
    pub fn new(
        policy: Policy,
        ceiling: u32,
        floor: Floor,
        annotate: Annotate,
        family: &Family,
    ) -> Result<Self, TermsError> {
        let annotate = if policy.is_annotated() {
            annotate
        } else {
            Annotate::None
        };
        let scripted = annotate == Annotate::Scripted;
        let settings = Settings {
            budget: Budget {
                // Nothing is ever evicted below a ceiling that no session reaches.
                ceiling: if policy == Policy::None {
                    u32::MAX
                } else {
                    ceiling
                },
                floor: policy.floor(floor),
                ..Budget::default()
            },
            delimiter: Delimiter {
                enabled: scripted,
                nudge: scripted,
                ..Delimiter::default()
            },
            ..Settings::default()
        };
        Ok(Self {
            policy,
            ceiling,
            terms: Terms::of(&settings, &Overrides::default(), family, "")?,
            annotate,
        })
    }
}
