//! Merges the sources of settings: flags over environment over file, setting by setting. Owns how
//! each source is read and which one wins. Never decides whether a value makes sense.
//!
//! Each setting is first read alone into a [`RawConfig`], so that one mistake hides no other.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::names::{self, ENV_PREFIX};
use super::problem::{Problem, SettingSource};
use super::raw::RawConfig;

/// The settings from all sources so far, with the place from which each came.
#[derive(Debug, Default)]
pub struct Layers {
    merged: Table,
    origins: BTreeMap<String, SettingSource>,
    problems: Vec<Problem>,
}

impl Layers {
    /// Puts a TOML file over what is there. `path` only names it in problems.
    pub fn file(&mut self, path: &Path, text: &str) {
        let at = |offset: usize| SettingSource::File {
            path: path.to_owned(),
            line: line_of(text, offset),
        };
        // The file is parsed twice: once for the places of its keys, and once for its values.
        let (spans, values) = match (DeTable::parse(text), text.parse::<Table>()) {
            (Ok(spans), Ok(values)) => (spans, values),
            (Err(error), _) | (_, Err(error)) => {
                let offset = error.span().map_or(0, |span| span.start);
                let message = error.message().to_owned();
                self.problems.push(Problem {
                    origin: at(offset),
                    message,
                });
                return;
            }
        };
        let mut leaves = Vec::new();
        collect(spans.get_ref(), &mut Vec::new(), &mut leaves);
        for (keys, offset) in leaves {
            if let Some(value) = look_up(&values, &keys) {
                self.set(&keys, std::slice::from_ref(value), &at(offset));
            }
        }
    }

    /// Puts variables over what is there. Those without the prefix are not settings.
    pub fn env(&mut self, vars: impl IntoIterator<Item = (String, String)>) {
        for (name, text) in vars {
            let Some(rest) = name.strip_prefix(ENV_PREFIX) else {
                continue;
            };
            let keys: Vec<String> = rest.split("__").map(str::to_ascii_lowercase).collect();
            // A list is read as TOML, unless the setting takes a text. A number is read as TOML only if
            // it doesn't: TOML has notations of its own for it, which no other source takes.
            let typed = format!("v = {text}")
                .parse::<Table>()
                .ok()
                .and_then(|mut t| t.remove("v"));
            let number = matches!(typed, Some(Value::Integer(_) | Value::Float(_)));
            let mut readings: Vec<Value> = typed.into_iter().chain([Value::String(text)]).collect();
            if number {
                readings.reverse();
            }
            self.set(&keys, &readings, &SettingSource::Env(name));
        }
    }

    /// Puts one flag over what is there. `key` is a section and a setting.
    pub fn flag(&mut self, flag: &'static str, key: [&str; 2], value: Value) {
        self.set(
            &key.map(str::to_owned),
            &[value],
            &SettingSource::Flag(flag),
        );
    }

    /// Sets what a setting is if no source names it.
    pub fn fallback(&mut self, key: [&str; 2], value: Value) {
        self.set(&key.map(str::to_owned), &[value], &SettingSource::Default);
    }

    /// Returns the raw configuration, the place of each setting, and the problems so far.
    #[must_use]
    pub fn finish(mut self) -> (RawConfig, BTreeMap<String, SettingSource>, Vec<Problem>) {
        let raw = Value::Table(self.merged)
            .try_into()
            .unwrap_or_else(|error: toml::de::Error| {
                // Each setting was read alone before, so this can't happen. If it does, running on
                // defaults would still be wrong.
                let message = error.message().to_owned();
                self.problems.push(Problem {
                    origin: SettingSource::Default,
                    message,
                });
                RawConfig::default()
            });
        (raw, self.origins, self.problems)
    }

    /// Takes the first reading that the setting accepts, or notes why none fits.
    fn set(&mut self, keys: &[String], readings: &[Value], origin: &SettingSource) {
        // The last reading is the plain text, and people understand its refusal best.
        let mut refusal = None;
        for reading in readings {
            let alone = nest(keys, reading.clone());
            match Value::Table(alone.clone()).try_into::<RawConfig>() {
                Ok(_) => {
                    merge(&mut self.merged, alone);
                    self.origins.insert(keys.join("."), origin.clone());
                    return;
                }
                Err(error) => refusal = Some(error.message().to_owned()),
            }
        }
        if let Some(refusal) = refusal {
            let message = match origin {
                SettingSource::Env(name) => explain(keys, &refusal, names::nearest(name)),
                SettingSource::File { .. } | SettingSource::Flag(_) | SettingSource::Default => {
                    explain(keys, &refusal, None)
                }
            };
            self.problems.push(Problem {
                origin: origin.clone(),
                message,
            });
        }
    }
}

/// Nests `a.b.c = value` into tables.
fn nest(keys: &[String], value: Value) -> Table {
    let inner = keys.iter().skip(1).rev().fold(value, |inner, key| {
        Value::Table(Table::from_iter([(key.clone(), inner)]))
    });
    keys.first()
        .map(|key| Table::from_iter([(key.clone(), inner)]))
        .unwrap_or_default()
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Collects every path of keys that ends in something else than a filled table, with its offset in
/// bytes.
fn collect(table: &DeTable<'_>, above: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, usize)>) {
    for (key, value) in table {
        above.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() => collect(inner, above, leaves),
            _ => leaves.push((above.clone(), Spanned::span(key).start)),
        }
        above.pop();
    }
}

fn look_up<'a>(table: &'a Table, keys: &[String]) -> Option<&'a Value> {
    let (first, rest) = keys.split_first()?;
    let value = table.get(first)?;
    if rest.is_empty() {
        Some(value)
    } else {
        look_up(value.as_table()?, rest)
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let head = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + head.iter().filter(|&&byte| byte == b'\n').count()
}

/// Words a refusal: the name of the setting, and for an unknown one the nearest that exists. If the
/// parts of a variable's name lead nowhere, the nearest is searched by the whole name.
fn explain(keys: &[String], refusal: &str, variable: Option<String>) -> String {
    let name = keys.join(".");
    let Some(rest) = refusal.strip_prefix("unknown field ") else {
        return format!("`{name}`: {refusal}");
    };
    // serde lists names in backticks: first the unknown one, and then the valid ones.
    let mut words = rest.split('`').skip(1).step_by(2);
    let unknown = words.next().unwrap_or_default();
    let nearest = words
        .map(|known| (strsim::damerau_levenshtein(unknown, known), known))
        .filter(|(distance, known)| *distance <= known.len().max(unknown.len()) / 2)
        .min();
    let place = keys.iter().position(|key| key == unknown).unwrap_or(0);
    let section = keys.get(..place).unwrap_or_default().join(".");
    match nearest {
        Some((_, known)) if section.is_empty() => {
            format!("unknown section `{unknown}`; did you mean `{known}`?")
        }
        Some((_, known)) => format!("unknown key `{name}`; did you mean `{section}.{known}`?"),
        None => match variable {
            Some(variable) => format!("unknown key `{name}`; did you mean {variable}?"),
            None => format!("unknown key `{name}`; config/plimsoll.toml lists every setting"),
        },
    }
}
