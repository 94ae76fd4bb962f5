//! Lines like `NAME='value'`, as python-dotenv writes and reads them. Owns how one is recognised.
//! Never changes another line.

use super::{Edited, FormatError};

/// The lines with their ends, and the value of the name in each that sets it.
fn lines<'a>(text: &'a str, name: &str) -> Vec<(&'a str, Option<&'a str>)> {
    let lines = text.split_inclusive('\n');
    lines.map(|line| (line, value(line, name))).collect()
}

fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let line = line.trim_start_matches('\u{feff}').trim();
    let line = line.strip_prefix("export ").map_or(line, str::trim_start);
    let (key, value) = line.split_once('=')?;
    (key.trim() == name).then(|| value.trim())
}

fn name<'a>(path: &[&'a str]) -> Result<&'a str, FormatError> {
    match path {
        [name] => Ok(name),
        _ => Err(FormatError::Absent(path.join("."))),
    }
}

/// The value as it stands, without the comment behind it.
fn token(value: &str) -> &str {
    let quote = value
        .chars()
        .next()
        .filter(|first| matches!(first, '\'' | '"'));
    let inner = quote.and_then(|quote| value.get(1..)?.find(quote));
    match inner {
        Some(inner) => value.get(..inner + 2).unwrap_or(value),
        // A comment begins behind a blank.
        None => value.split(" #").next().unwrap_or(value).trim_end(),
    }
}

fn plain(value: &str) -> String {
    let token = token(value);
    let quoted = |quote| token.strip_prefix(quote)?.strip_suffix(quote);
    quoted('\'')
        .or_else(|| quoted('"'))
        .unwrap_or(token)
        .to_owned()
}

pub fn get(text: &str, path: &[&str]) -> Result<Option<String>, FormatError> {
    let name = name(path)?;
    let lines = lines(text, name);
    let mut found = lines.iter().filter_map(|(_, value)| *value);
    let first = found.next();
    if found.next().is_some() {
        return Err(FormatError::Twice(name.to_owned()));
    }
    Ok(first.map(plain))
}

pub fn set(text: &str, path: &[&str], value: &str) -> Result<Edited, FormatError> {
    let name = name(path)?;
    let there = get(text, path)?.is_some();
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let new = format!("{name}='{value}'");
    let text = if there {
        let change = |(line, old): (&str, Option<&str>)| match old {
            Some(old) => changed(line, token(old), value),
            None => line.to_owned(),
        };
        lines(text, name).into_iter().map(change).collect()
    } else if text.is_empty() || text.ends_with('\n') {
        format!("{text}{new}{end}")
    } else {
        format!("{text}{end}{new}")
    };
    Ok(Edited { text, made: 0 })
}

/// A line with another value. What stands before and behind it stays.
fn changed(line: &str, old: &str, value: &str) -> String {
    let (key, rest) = line.split_once('=').unwrap_or((line, ""));
    let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let (blank, rest) = rest.split_at_checked(blank).unwrap_or(("", rest));
    let behind = rest.strip_prefix(old).unwrap_or_default();
    format!("{key}={blank}'{value}'{behind}")
}

pub fn remove(text: &str, path: &[&str]) -> Result<String, FormatError> {
    let name = name(path)?;
    get(text, path)?.ok_or_else(|| FormatError::Absent(name.to_owned()))?;
    let lines = lines(text, name).into_iter();
    let kept = lines.filter(|(_, value)| value.is_none());
    Ok(kept.map(|(line, _)| line).collect())
}
