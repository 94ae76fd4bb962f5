//! `[profiles.NAME]`: named sections over those that serve without a profile. Owns which sections a
//! profile may set, the profiles that are shipped, and how one is laid over the base. Never decides
//! what a single setting means.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use super::raw::{
    RawAdmit, RawBudget, RawCache, RawConfig, RawDelimiter, RawKeep, RawPartitions, RawRecall,
    RawRung, RawTools,
};
use super::readers::name_globs;
use super::settings::{Config, ProfileSection, TurnSections};
use super::validate::Check;
use crate::model::Globs;
use crate::turn::{Occasion, PAPER_PROFILE};

/// The profiles that always exist beside [`PAPER_PROFILE`].
const SHIPPED: &str = include_str!("../../config/profiles.toml");

/// `[profiles.NAME]`: the keys of `[budget]`, and the other sections of turns by their names.
#[derive(Debug, Default)]
pub struct RawProfile {
    /// The requests that it serves although they don't name it.
    pub when: Option<RawWhen>,
    /// The keys that stand in the profile itself.
    pub budget: RawBudget,
    /// `[profiles.NAME.keep]`
    pub keep: RawKeep,
    /// `[profiles.NAME.admit]`
    pub admit: RawAdmit,
    /// `[profiles.NAME.partitions]`
    pub partitions: RawPartitions,
    /// `[profiles.NAME.rungs.NAME]`
    pub rungs: BTreeMap<String, RawRung>,
    /// `[profiles.NAME.delimiter]`
    pub delimiter: RawDelimiter,
    /// `[profiles.NAME.recall]`
    pub recall: RawRecall,
    /// `[profiles.NAME.cache]`
    pub cache: RawCache,
    /// `[profiles.NAME.tools]`
    pub tools: RawTools,
}

/// `[profiles.NAME.when]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawWhen {
    /// Globs on the model.
    pub models: Option<Vec<String>>,
    /// Globs on the path of the URL.
    pub paths: Option<Vec<String>>,
    /// Globs on the header `user-agent`.
    pub agents: Option<Vec<String>>,
    /// Whether the session has a parent.
    pub child: Option<bool>,
}

/// The sections of a profile, beside its own keys.
const SECTIONS: &str =
    "`when`, `keep`, `admit`, `partitions`, `rungs`, `delimiter`, `recall`, `cache`, `tools`";

// By hand, because serde can't refuse unknown keys of a table that is spread over several types.
impl<'de> Deserialize<'de> for RawProfile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = Table::deserialize(deserializer)?;
        if table.contains_key("budget") {
            let message = "the keys of [budget] stand in the profile itself";
            return Err(D::Error::custom(message));
        }
        Ok(Self {
            when: section(&mut table, "when")?,
            keep: section(&mut table, "keep")?.unwrap_or_default(),
            admit: section(&mut table, "admit")?.unwrap_or_default(),
            partitions: section(&mut table, "partitions")?.unwrap_or_default(),
            rungs: section(&mut table, "rungs")?.unwrap_or_default(),
            delimiter: section(&mut table, "delimiter")?.unwrap_or_default(),
            recall: section(&mut table, "recall")?.unwrap_or_default(),
            cache: section(&mut table, "cache")?.unwrap_or_default(),
            tools: section(&mut table, "tools")?.unwrap_or_default(),
            budget: Value::Table(table).try_into().map_err(unknown)?,
        })
    }
}

/// Takes one section out of a profile.
fn section<T: DeserializeOwned, E: Error>(table: &mut Table, name: &str) -> Result<Option<T>, E> {
    let read = |value: Value| value.try_into();
    let section = table.remove(name).map(read).transpose();
    section.map_err(|error: toml::de::Error| E::custom(error.message()))
}

/// A refusal of one of the profile's own keys. An unknown one may be meant as a section.
fn unknown<E: Error>(error: toml::de::Error) -> E {
    let message = error.message();
    if message.starts_with("unknown field") {
        E::custom(format!("{message}, {SECTIONS}"))
    } else {
        E::custom(message)
    }
}

/// The profiles of the shipped file.
fn shipped() -> BTreeMap<String, RawProfile> {
    let file = toml::from_str::<RawConfig>(SHIPPED);
    file.map(|file| file.profiles).unwrap_or_default()
}

impl Check<'_> {
    /// Lays every profile over the base: the shipped ones, and the operator's, which start from the
    /// shipped one of their name if there is one.
    pub(super) fn profiles(
        &mut self,
        mut given: BTreeMap<String, RawProfile>,
        config: &mut Config,
    ) {
        let mut shipped = shipped();
        let names = shipped.keys().chain(given.keys()).cloned();
        let paper = std::iter::once(PAPER_PROFILE.to_owned());
        let names: BTreeSet<String> = names.chain(paper).collect();
        for name in names {
            let mut profile = ProfileSection {
                when: None,
                turns: config.turns(),
            };
            if name == PAPER_PROFILE {
                profile.turns.budget = profile.turns.budget.as_published();
            }
            if let Some(raw) = shipped.remove(&name) {
                self.profile(&name, raw, &mut profile);
            }
            if let Some(raw) = given.remove(&name) {
                self.profile(&name, raw, &mut profile);
                self.fits(&format!("profiles.{name}"), &profile.turns.budget);
                let section = format!("profiles.{name}.partitions");
                self.shares(&section, profile.turns.partitions);
            }
            config.profiles.insert(name, profile);
        }
    }

    /// Lays one profile over what is there. What it leaves out stays.
    fn profile(&mut self, name: &str, mut raw: RawProfile, profile: &mut ProfileSection) {
        let TurnSections {
            budget,
            delimiter,
            recall,
            cache,
            tools,
            texts,
            partitions,
        } = &mut profile.turns;
        let section = format!("profiles.{name}");
        let by_model = raw.when.as_ref().is_some_and(|when| when.models.is_some());
        if by_model && raw.budget.mode.is_some() {
            self.problem(
                &format!("{section}.mode"),
                "can't be set where `when` has `models`: the mode is decided before the body is read, and \
                 the model is in the body; match by `paths` or `agents`, or name the profile in the header",
            );
        }
        let (offer, at) = (raw.budget.offer.clone(), raw.budget.guide_at);
        let twice = [
            ("offer", offer.is_some() && raw.delimiter.offer.is_some()),
            ("guide_at", at.is_some() && raw.delimiter.guide_at.is_some()),
        ];
        for (key, _) in twice.into_iter().filter(|(_, twice)| *twice) {
            let key = format!("{section}.{key}");
            self.problem(
                &key,
                "is set in the profile's `delimiter` as well; set it once",
            );
        }
        self.guide(&section, offer, at, budget);
        self.budget(&section, raw.budget, budget);
        // From here on all keys are those of the profile's own sections.
        let outer = std::mem::replace(&mut self.within, format!("{section}."));
        self.of_the_process(&mut raw.delimiter);
        let (offer, at) = (raw.delimiter.offer.clone(), raw.delimiter.guide_at);
        self.guide("delimiter", offer, at, budget);
        self.delimiter(raw.delimiter, delimiter);
        self.admit(raw.admit, &mut budget.admit);
        self.keep(raw.keep, &mut budget.keep);
        self.partitions(&raw.partitions, partitions);
        self.rungs(raw.rungs, &mut budget.rungs);
        self.recall(raw.recall, recall);
        self.cache(raw.cache, cache);
        self.tools(raw.tools, tools, texts);
        if let Some(when) = raw.when {
            self.when(when, profile.when.get_or_insert_default());
        }
        self.within = outer;
    }

    /// Refuses what is decided once for the whole process.
    fn of_the_process(&mut self, raw: &mut RawDelimiter) {
        for (key, given) in [
            ("delimiter.heartbeat", raw.heartbeat.take().is_some()),
            ("delimiter.usage", raw.usage.take().is_some()),
            (
                "delimiter.finish_cancelled",
                raw.finish_cancelled.take().is_some(),
            ),
        ] {
            if given {
                let message = format!(
                    "is decided for the whole process and not per turn; set it in [delimiter], as `{key}`"
                );
                self.problem(key, &message);
            }
        }
    }

    fn when(&mut self, raw: RawWhen, when: &mut Occasion) {
        let lists = [&raw.models, &raw.paths, &raw.agents];
        if raw.child.is_none() && lists.iter().all(|list| list.is_none()) {
            self.problem("when", "must have `models`, `paths`, `agents` or `child`");
        }
        self.set("when.models", raw.models, &mut when.models, some_globs);
        self.set("when.paths", raw.paths, &mut when.paths, some_globs);
        self.set("when.agents", raw.agents, &mut when.agents, some_globs);
        self.set("when.child", raw.child.map(Some), &mut when.child, Ok);
    }
}

/// Reads globs of which there is at least one.
fn some_globs(list: Vec<String>) -> Result<Globs, String> {
    if list.is_empty() {
        return Err("must have at least one glob; leave it out to match everything".to_owned());
    }
    name_globs(list)
}

#[cfg(test)]
mod tests;
