//! Reads the sources of settings, each over those before it: flags over environment over file. Owns how each
//! source is read. Never decides whether a value makes sense.

use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::given::Given;
use super::names::ENV_PREFIX;
use super::problem::{Problem, SettingSource};

/// What all sources have given so far.
#[derive(Debug, Default)]
pub struct Layers {
    given: Given,
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
                self.given.put(&keys, at(offset), vec![value.clone()]);
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
            self.given.put(&keys, SettingSource::Env(name), readings);
        }
    }

    /// Puts one flag over what is there. `key` is a section and a setting.
    pub fn flag(&mut self, flag: &'static str, key: [&str; 2], value: Value) {
        let keys = key.map(str::to_owned);
        self.given
            .put(&keys, SettingSource::Flag(flag), vec![value]);
    }

    /// Returns what was given, and what in the sources can't be read.
    #[must_use]
    pub(super) fn finish(self) -> (Given, Vec<Problem>) {
        (self.given, self.problems)
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
