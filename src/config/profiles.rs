//! `[profiles.NAME]`: named sections over those that serve without a profile. Owns which sections a
//! profile may set, the profiles that are shipped, how one is laid over the base, and which one is tried with a share of
//! the sessions. Never decides what a single setting means.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::turn::{Occasion, PAPER_PROFILE, Split};
use plimsoll_model::Globs;

use super::given::{Given, Section};
use super::layers::Layers;
use super::readers::name_globs;
use super::sections::{
    OF_THE_PROCESS, admit, budget, cache, compaction, delimiter, fits, guide, keep, partitions,
    recall, repeat, rungs, shares, tools,
};
use super::settings::{Config, ProfileSection};

/// The profiles that always exist beside [`PAPER_PROFILE`].
const SHIPPED: &str = include_str!("../../config/profiles.toml");

/// The profiles of the shipped file.
fn shipped() -> BTreeMap<String, Given> {
    let mut layers = Layers::default();
    layers.file("config/profiles.toml".as_ref(), SHIPPED);
    let profiles = layers.finish().0.take("profiles");
    profiles.unwrap_or_default().take_all()
}

/// Lays every profile over the base: the shipped ones, and the operator's, which start from the shipped one of their
/// name if there is one.
pub(super) fn read(mut section: Section<'_>, config: &mut Config) {
    let (mut shipped, mut given) = (shipped(), section.take_all());
    let names = shipped.keys().chain(given.keys()).cloned();
    let paper = std::iter::once(PAPER_PROFILE.to_owned());
    let names: BTreeSet<String> = names.chain(paper).collect();
    for name in names {
        let mut laid = ProfileSection {
            when: None,
            turns: config.turns(),
        };
        if name == PAPER_PROFILE {
            laid.turns.budget = laid.turns.budget.as_published();
        }
        if let Some(given) = shipped.remove(&name) {
            profile(&mut section.named(&name, given), &mut laid);
        }
        if let Some(given) = given.remove(&name) {
            let mut section = section.named(&name, given);
            profile(&mut section, &mut laid);
            fits(&mut section, &laid.turns.budget);
            shares(&mut section.section("partitions"), laid.turns.partitions);
        }
        config.profiles.insert(name, laid);
    }
}

/// Lays one profile over what is there. What it leaves out stays.
fn profile(section: &mut Section<'_>, profile: &mut ProfileSection) {
    let turns = &mut profile.turns;
    section.refuse("budget", "the keys of [budget] stand in the profile itself");
    if section.has(&["when", "models"]) && section.has(&["mode"]) {
        section.problem(
            "mode",
            "can't be set where `when` has `models`: the mode is decided before the body is read, and \
             the model is in the body; match by `paths` or `agents`, or name the profile in the header",
        );
    }
    for key in ["offer", "guide_at"] {
        if section.has(&[key]) && section.has(&["delimiter", key]) {
            let message = "is set in the profile's `delimiter` as well; set it once";
            section.problem(key, message);
        }
    }
    guide(section, &mut turns.budget);
    budget(section, &mut turns.budget);
    let mut marks = section.section("delimiter");
    for key in OF_THE_PROCESS {
        let message = format!(
            "is decided for the whole process and not per turn; set it in [delimiter], as `delimiter.{key}`"
        );
        marks.refuse(key, &message);
    }
    guide(&mut marks, &mut turns.budget);
    delimiter(marks, &mut turns.delimiter);
    repeat(section.section("repeat"), &mut turns.budget);
    admit(section.section("admit"), &mut turns.budget.admit);
    keep(section.section("keep"), &mut turns.budget.keep);
    partitions(&mut section.section("partitions"), &mut turns.partitions);
    rungs(section.section("rungs"), &mut turns.budget.rungs);
    recall(section.section("recall"), &mut turns.recall);
    compaction(section.section("compaction"), &mut turns.compaction);
    cache(section.section("cache"), &mut turns.cache);
    tools(section.section("tools"), &mut turns.tools, &mut turns.texts);
    let is_matched = section.has(&["when"]);
    let occasion = section.section("when");
    if is_matched {
        when(occasion, profile.when.get_or_insert_default());
    }
}

fn when(mut section: Section<'_>, when: &mut Occasion) {
    if section.is_empty() {
        section.wrong("must have `models`, `paths`, `agents` or `child`");
    }
    section.read("models", &mut when.models, some_globs);
    section.read("paths", &mut when.paths, some_globs);
    section.read("agents", &mut when.agents, some_globs);
    section.read("child", &mut when.child, |child| Ok(Some(child)));
}

/// Reads which profile is tried with a share of the sessions.
pub(super) fn split(mut section: Section<'_>, config: &mut Config) {
    let mut split = Split {
        profile: String::new(),
        share: 0.1,
    };
    section.read("profile", &mut split.profile, Ok);
    section.read("share", &mut split.share, |share: f64| {
        let some = share > 0.0 && share < 1.0;
        some.then_some(share)
            .ok_or_else(|| "must be a share above 0 and below 1".to_owned())
    });
    if split.profile.is_empty() {
        return;
    }
    let problem = match config.profiles.get(&split.profile) {
        None => Some("is none of the profiles"),
        Some(profile) if profile.turns.budget.mode != config.budget.mode => Some(
            "has another `mode` than `budget.mode`, which is decided before the session of a request is known; to compare with \
             sessions that are left as they are, give it `policies = [\"none\"]`",
        ),
        Some(profile)
            if profile
                .when
                .as_ref()
                .is_some_and(|when| when.child.is_some()) =>
        {
            Some("asks for `child` in its `when`, but sub-agents follow their parents in a split")
        }
        Some(_) => None,
    };
    if let Some(problem) = problem {
        section.problem("profile", problem);
    }
    config.split = Some(split);
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
