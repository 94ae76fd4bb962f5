//! What was given, setting by setting, and how a section takes its settings out of it. Owns the places of
//! settings, and what is said of a key that no section has. Never knows a setting, nor stops at the first
//! problem.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::form::{Form, Written};
use super::names;
use super::problem::{Problem, SettingSource, in_words};
use super::readers::word;

/// What was given under a key: itself, by one source after the other, and below it.
#[derive(Debug, Default)]
pub(super) struct Given {
    here: Vec<GivenValue>,
    below: BTreeMap<String, Given>,
}

/// What one source gave.
#[derive(Debug)]
struct GivenValue {
    origin: SettingSource,
    /// The ways to read it. The first one that the setting takes counts.
    readings: Vec<Value>,
}

impl GivenValue {
    fn read<R: DeserializeOwned>(&self) -> Result<R, String> {
        // The last reading is the plain text, and people understand its refusal best.
        let mut refusal = String::new();
        for reading in &self.readings {
            match reading.clone().try_into() {
                Ok(value) => return Ok(value),
                Err::<R, toml::de::Error>(error) => refusal = in_words(error.message()),
            }
        }
        Err(refusal)
    }
}

impl Given {
    /// Puts what a source gave behind what the sources before it gave under the same keys.
    pub(super) fn put(&mut self, keys: &[String], origin: SettingSource, readings: Vec<Value>) {
        let mut at = self;
        for key in keys {
            at = at.below.entry(key.clone()).or_default();
        }
        at.here.push(GivenValue { origin, readings });
    }

    /// Takes what was given under a key.
    pub(super) fn take(&mut self, key: &str) -> Option<Self> {
        self.below.remove(key)
    }

    /// Takes all that was given below, by key.
    pub(super) fn take_all(&mut self) -> BTreeMap<String, Self> {
        std::mem::take(&mut self.below)
    }

    /// Whether anything was given under these keys.
    pub(super) fn has(&self, keys: &[&str]) -> bool {
        match keys.split_first() {
            Some((key, rest)) => self.below.get(*key).is_some_and(|below| below.has(rest)),
            None => true,
        }
    }

    /// Calls `each` with the name and the source of all that was given here and below.
    fn each(&self, name: &str, each: &mut impl FnMut(&str, &SettingSource)) {
        for value in &self.here {
            each(name, &value.origin);
        }
        for (key, below) in &self.below {
            below.each(&join(name, key), each);
        }
    }

    /// The values of one setting. What was given below it is a table.
    fn values(self) -> Vec<GivenValue> {
        let mut origin = None;
        for below in self.below.values() {
            below.each("", &mut |_, first| {
                origin.get_or_insert_with(|| first.clone());
            });
        }
        let mut values = self.here;
        if let Some(origin) = origin {
            let readings = vec![Value::Table(table(self.below))];
            values.push(GivenValue { origin, readings });
        }
        values
    }
}

fn table(below: BTreeMap<String, Given>) -> Table {
    let value = |(key, given): (String, Given)| {
        let newest = given.values().pop()?;
        Some((key, newest.readings.into_iter().next()?))
    };
    below.into_iter().filter_map(value).collect()
}

/// The name of what stands under a key.
pub(super) fn join(name: &str, key: &str) -> String {
    if name.is_empty() {
        key.to_owned()
    } else {
        format!("{name}.{key}")
    }
}

/// What is known of a configuration while it is read.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// The newest source of each setting.
    origins: BTreeMap<String, SettingSource>,
    /// All keys that were asked for, with their sections, and how each is written.
    pub(super) known: BTreeMap<(String, String), Form>,
    pub(super) problems: Vec<Problem>,
}

impl Check {
    /// Begins with the whole of what was given, and the problems of its sources.
    pub(super) fn of(given: &Given, problems: Vec<Problem>) -> Self {
        let mut check = Self {
            problems,
            ..Self::default()
        };
        given.each("", &mut |name, origin| {
            check.origins.insert(name.to_owned(), origin.clone());
        });
        check
    }

    /// The section that holds all others.
    pub(super) fn root(&mut self, given: Given) -> Section<'_> {
        Section {
            name: String::new(),
            given,
            check: self,
        }
    }

    /// Notes what is wrong with a setting, or with a section, which is found by what is set in it.
    fn problem(&mut self, name: &str, message: &str) {
        let below = format!("{name}.");
        let mut all = self.origins.iter();
        let section = all.find(|(set, _)| set.starts_with(&below));
        let section = section.map(|(_, origin)| origin);
        let origin = self.origins.get(name).or(section);
        let origin = origin.cloned().unwrap_or(SettingSource::Default);
        self.add(origin, format!("`{name}`: {message}"));
    }

    fn add(&mut self, origin: SettingSource, message: String) {
        self.problems.push(Problem { origin, message });
    }

    /// Words that a section has no such key: with the nearest that it has, or else with the nearest of all
    /// variables, where the parts of a variable's name lead nowhere.
    fn unknown(&self, section: &str, key: &str, name: &str, origin: &SettingSource) -> String {
        let shown = self
            .known
            .iter()
            .filter(|(_, form)| **form != Form::OtherName);
        let known = shown
            .map(|(place, _)| place)
            .filter(|(of, _)| of == section);
        let nearest = known
            .map(|(_, known)| (strsim::damerau_levenshtein(key, known), known))
            .filter(|(distance, known)| *distance <= known.len().max(key.len()) / 2)
            .min();
        match (nearest, origin) {
            (Some((_, known)), _) if section.is_empty() => {
                format!("unknown section `{key}`; did you mean `{known}`?")
            }
            (Some((_, known)), _) => {
                format!("unknown key `{name}`; did you mean `{section}.{known}`?")
            }
            (None, SettingSource::Env(variable)) => match names::nearest(variable) {
                Some(variable) => format!("unknown key `{name}`; did you mean {variable}?"),
                None => nowhere(name),
            },
            (None, _) => nowhere(name),
        }
    }
}

fn nowhere(name: &str) -> String {
    format!("unknown key `{name}`; config/plimsoll.toml lists every setting")
}

/// A section while it is read. Whatever nobody took out of it by its end is unknown.
pub(super) struct Section<'a> {
    /// Its name, behind those of the sections around it.
    name: String,
    given: Given,
    check: &'a mut Check,
}

impl Section<'_> {
    /// Puts a setting in place of the default, or notes why that is not possible. All values that sources give
    /// must be of its kind, and the newest one counts.
    pub(super) fn read<R: Written, T>(
        &mut self,
        key: &str,
        slot: &mut T,
        read: impl FnOnce(R) -> Result<T, String>,
    ) {
        self.knows(key, R::form());
        self.take(key, slot, read);
    }

    /// Does the same for one of a closed set of words.
    pub(super) fn word<T: Copy>(&mut self, key: &str, slot: &mut T, words: &[(&'static str, T)]) {
        let names = words.iter().map(|(name, _)| (*name).to_owned());
        self.knows(key, Form::Word(names.collect()));
        self.take(key, slot, |text: String| word(&text, words));
    }

    fn take<R: DeserializeOwned, T>(
        &mut self,
        key: &str,
        slot: &mut T,
        read: impl FnOnce(R) -> Result<T, String>,
    ) {
        let Some(given) = self.given.take(key) else {
            return;
        };
        let name = join(&self.name, key);
        let mut newest = None;
        for value in given.values() {
            let raw = value.read();
            newest = Some((raw, value.origin));
            if let Some((Err(message), origin)) = &newest {
                self.check
                    .add(origin.clone(), format!("`{name}`: {message}"));
            }
        }
        let Some((Ok(raw), origin)) = newest else {
            return;
        };
        match read(raw) {
            Ok(value) => *slot = value,
            Err(message) => self.check.add(origin, format!("`{name}`: {message}")),
        }
    }

    /// Reads what is also written under another key.
    pub(super) fn rename(&mut self, other: &str, key: &str) {
        self.knows(other, Form::OtherName);
        if let Some(given) = self.given.take(other) {
            let there = self.given.below.entry(key.to_owned()).or_default();
            there.here.extend(given.values());
            // The one that counts is of the last source, whichever name it gave.
            there
                .here
                .sort_by(|one, other| one.origin.cmp(&other.origin));
        }
    }

    /// A section in this one.
    pub(super) fn section(&mut self, key: &str) -> Section<'_> {
        self.knows(key, Form::Section);
        let given = self.given.take(key).unwrap_or_default();
        self.named(key, given)
    }

    /// A section in this one, whose name an operator chose.
    pub(super) fn named(&mut self, key: &str, given: Given) -> Section<'_> {
        let name = join(&self.name, key);
        for value in &given.here {
            if let Err(message) = value.read::<Table>() {
                let message = format!("`{name}`: {message}");
                self.check.add(value.origin.clone(), message);
            }
        }
        Section {
            name,
            given,
            check: self.check,
        }
    }

    /// Takes all that was given, by key.
    pub(super) fn take_all(&mut self) -> BTreeMap<String, Given> {
        self.given.take_all()
    }

    /// Whether anything was given under these keys.
    pub(super) fn has(&self, keys: &[&str]) -> bool {
        self.given.has(keys)
    }

    /// Whether nothing is left of what was given.
    pub(super) fn is_empty(&self) -> bool {
        self.given.below.is_empty()
    }

    /// Refuses what is a setting elsewhere, or by another name.
    pub(super) fn refuse(&mut self, key: &str, message: &str) {
        if let Some(given) = self.given.take(key) {
            given.each(&join(&self.name, key), &mut |name, origin| {
                self.check
                    .add(origin.clone(), format!("`{name}`: {message}"));
            });
        }
    }

    /// Notes what is wrong with a setting of this section.
    pub(super) fn problem(&mut self, key: &str, message: &str) {
        self.check.problem(&join(&self.name, key), message);
    }

    /// Notes what is wrong with this section.
    pub(super) fn wrong(&mut self, message: &str) {
        self.check.problem(&self.name, message);
    }

    fn knows(&mut self, key: &str, form: Form) {
        let place = (self.name.clone(), key.to_owned());
        self.check.known.insert(place, form);
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        for (key, given) in self.take_all() {
            given.each(&join(&self.name, &key), &mut |name, origin| {
                let message = self.check.unknown(&self.name, &key, name, origin);
                self.check.add(origin.clone(), message);
            });
        }
    }
}
