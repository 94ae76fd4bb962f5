//! Named sets of the settings of turns, and which of them serves a request. Owns what a request is
//! matched by, and the order in which a header, a conversation's first decision, a draw and a match count.
//! Never reads a header or a body.

use std::collections::BTreeMap;

use plimsoll_model::{Choice, Globs};

use super::overrides::{Mode, Overrides};
use super::settings::{Settings, Terms, TermsError};
use super::split::{Joins, Split};
use super::text_results::TextProfile;
use crate::session::path::Path;

/// The name of the profile with the published terms: [`super::Budget::as_published`].
pub const PAPER_PROFILE: &str = "paper";

/// The operator's settings of turns, by profile.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    /// What is served without a profile.
    pub base: Settings,
    /// All profiles by their names.
    pub named: BTreeMap<String, Profile>,
    /// The profile that is tried with a share of the sessions.
    pub split: Option<Split>,
}

/// A named set of settings.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The requests that it serves although they don't name it; none if it has to be named.
    pub when: Option<Occasion>,
    /// The settings: those of the base, and the profile's own over them.
    pub settings: Settings,
}

/// The requests for which a profile is chosen that they don't name. All lists that are not empty
/// have to match, and `child` if it is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occasion {
    /// Globs on the model.
    pub models: Globs,
    /// Globs on the path of the URL.
    pub paths: Globs,
    /// Globs on the header `user-agent`.
    pub agents: Globs,
    /// Whether the session has a parent, if that counts.
    pub child: Option<bool>,
}

/// What is known of a request before its body is read.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// The path of its URL.
    pub path: &'a str,
    /// Its `user-agent`; empty if it has none.
    pub agent: &'a str,
    /// Whether its headers name a parent of its session, as those of sub-agents do.
    pub child: bool,
}

impl Occasion {
    /// Whether a request is meant. Without its model, one that asks for a model is not.
    fn fits(&self, envelope: Envelope<'_>, model: Option<&str>) -> bool {
        let fits = |globs: &Globs, name| globs.is_empty() || globs.match_name(name);
        fits(&self.paths, envelope.path)
            && fits(&self.agents, envelope.agent)
            && self.child.is_none_or(|child| child == envelope.child)
            && (self.models.is_empty() || model.is_some_and(|name| self.models.match_name(name)))
    }
}

impl Profiles {
    /// Whether a request may name a profile: one of these, or that of an agent whose results come as
    /// text.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.named.contains_key(name) || TextProfile::named(name).is_some()
    }

    /// The names that a request may use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let own = self.named.keys().map(String::as_str);
        let agents = TextProfile::WORDS.iter().map(|(name, _)| *name);
        own.chain(agents.filter(|name| !self.named.contains_key(*name)))
    }

    /// The settings under a profile, or those of the base if there is none of that name.
    #[must_use]
    pub fn settings(&self, name: Option<&str>) -> &Settings {
        let profile = name.and_then(|name| self.named.get(name));
        profile.map_or(&self.base, |profile| &profile.settings)
    }

    /// The mode of a request. It is known before the body is read, so the profiles that ask for a
    /// model don't count, and neither does what a conversation began with.
    #[must_use]
    pub fn mode(&self, overrides: &Overrides, envelope: Envelope<'_>) -> Mode {
        let profile = self.chosen(overrides, envelope, None);
        overrides.mode.unwrap_or(self.settings(profile).budget.mode)
    }

    /// The profile of a request that begins a conversation: the one that it names, or the first that
    /// it matches.
    #[must_use]
    pub fn chosen<'a>(
        &'a self,
        overrides: &'a Overrides,
        envelope: Envelope<'_>,
        model: Option<&str>,
    ) -> Option<&'a str> {
        let fits = |profile: &Profile| {
            let when = profile.when.as_ref();
            when.is_some_and(|when| when.fits(envelope, model))
        };
        // The profile that is tried serves those that are drawn for it, and no others that fit it.
        let tried = self.split.as_ref().map(|split| &split.profile);
        let others = || self.named.iter().filter(|(name, _)| tried != Some(name));
        let matched = || others().find(|(_, profile)| fits(profile));
        let named = overrides.profile.as_deref();
        named.or_else(|| matched().map(|(name, _)| name.as_str()))
    }

    /// Whether the session of a request joins the split if it begins here.
    #[must_use]
    pub fn joins(
        &self,
        overrides: &Overrides,
        envelope: Envelope<'_>,
        model: &str,
        mode: Mode,
    ) -> Joins {
        let Some(split) = self.split.as_ref().filter(|_| mode == Mode::Manage) else {
            return Joins::Not;
        };
        let profile = self.named.get(&split.profile);
        let when = profile.and_then(|profile| profile.when.as_ref());
        let fits = when.is_none_or(|when| when.fits(envelope, Some(model)));
        match fits && overrides.profile.is_none() {
            true => Joins::Drawn,
            false => Joins::Known,
        }
    }

    /// What a request is served under: what its conversation began with, or `begins` if it begins here. A profile that the
    /// request names comes first, and holds for it alone in a conversation that has begun; one that it matches comes too
    /// late for that.
    #[must_use]
    pub fn choice(&self, overrides: &Overrides, path: &Path, begins: Choice) -> Choice {
        let begun = match path.has_begun() {
            true => path.choice.clone(),
            false => begins,
        };
        // A profile that the configuration no longer has counts as none.
        let known = begun.profile.filter(|name| self.has(name));
        Choice {
            profile: overrides.profile.clone().or(known),
            split: begun.split,
        }
    }

    /// The terms of a request under a profile.
    ///
    /// # Errors
    /// As [`Terms::of`].
    pub fn terms(
        &self,
        profile: Option<&str>,
        overrides: &Overrides,
        window: Option<u32>,
        model: &str,
    ) -> Result<Terms, TermsError> {
        let mut terms = Terms::of(self.settings(profile), overrides, window, model)?;
        terms.choice.profile = profile.map(str::to_owned);
        Ok(terms)
    }
}

#[cfg(test)]
mod tests;
