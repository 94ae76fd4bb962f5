//! Who is compared: a policy at a ceiling under the terms that would serve it. Owns the mapping of
//! names to terms, and which policies need annotations; never plays anything.

use plimsoll_core::commit::Floor;
use plimsoll_core::policy::{Ladder, Policy};
use plimsoll_core::turn::{
    Budget, CacheSettings, DelimiterSettings, Overrides, RecallSettings, Settings, Terms,
    TermsError, Thoughts,
};

use super::Options;

/// Whether a ladder has a policy that builds on episodes that the model marks.
#[must_use]
pub fn is_annotated(ladder: &Ladder) -> bool {
    ladder.has(Policy::CwlPaper) || ladder.has(Policy::Cwl)
}

/// Tokens of the summary that `compaction` has a model write with each pass, and that stands in
/// every view from then on, and no more than a tenth of the ceiling. The code that serves calls no
/// model, so that the lab puts it in.
#[must_use]
pub fn summary(ladder: &Ladder, ceiling: u32) -> u32 {
    if ladder.has(Policy::Compaction) {
        (ceiling / 10).min(2_000)
    } else {
        0
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
    /// A scripted model that does what the guidance asks marks them, and all that this takes is charged.
    Obedient,
}

impl Annotate {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("inferred", Self::Inferred),
        ("scripted", Self::Scripted),
        ("obedient", Self::Obedient),
    ];

    /// Whether a model makes the marks, and is charged for them.
    #[must_use]
    pub fn is_charged(self) -> bool {
        match self {
            Self::None | Self::Inferred => false,
            Self::Scripted | Self::Obedient => true,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let word = Self::WORDS.iter().find(|(_, annotate)| *annotate == self);
        word.map_or("", |(name, _)| name)
    }
}

/// One ladder at one ceiling.
#[derive(Clone, Debug)]
pub struct Contender {
    /// The policies.
    pub ladder: Ladder,
    /// The ceiling that it is held to.
    pub ceiling: u32,
    /// The terms of its requests.
    pub terms: Terms,
    /// Where its episodes come from.
    pub annotate: Annotate,
}

impl Contender {
    /// A ladder under the terms of the settings that serve by default.
    ///
    /// # Errors
    /// [`TermsError`] where there are none for it.
    pub fn new(
        ladder: Ladder,
        ceiling: u32,
        floor: Floor,
        options: &Options,
    ) -> Result<Self, TermsError> {
        let annotate = if is_annotated(&ladder) {
            options.annotate
        } else {
            Annotate::None
        };
        let charged = annotate.is_charged();
        let settings = Settings {
            budget: Budget {
                ladder: ladder.clone(),
                // Nothing is asked of it below a ceiling that no session reaches.
                ceiling: if ladder.main() == Policy::None {
                    u32::MAX
                } else {
                    ceiling.saturating_sub(summary(&ladder, ceiling))
                },
                floor,
                // As under a provider that refuses what lost its place.
                thoughts: Thoughts::Strip,
                offer: options.offer,
                guide_at: options.guide_at,
                admit: options.admit.clone(),
                keep: options.keep.clone(),
                rungs: options.rungs.clone(),
                ..Budget::default()
            },
            delimiter: DelimiterSettings {
                enabled: charged,
                nudge: charged,
                ..DelimiterSettings::default()
            },
            // No recorded agent knows `recall`, and its schema weighs the same for every policy that is compared.
            recall: RecallSettings {
                enabled: options.bill && ladder.main() != Policy::None,
                ..RecallSettings::default()
            },
            cache: CacheSettings {
                none: options.uncached,
                ..CacheSettings::default()
            },
            ..Settings::default()
        };
        // Prices are a model's, ceilings are the lab's own: no window holds them.
        let mut terms = Terms::of(&settings, &Overrides::default(), None, "")?;
        // Marks that nobody was asked for stand from the first request on.
        terms.prologue_until_start = annotate == Annotate::Inferred;
        Ok(Self {
            ladder,
            ceiling,
            terms,
            annotate,
        })
    }
}
