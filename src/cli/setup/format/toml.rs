//! A text in TOML, edited at the place that the parser gives. Owns where a new setting of the file
//! itself goes; makes no tables. Never changes another value.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Edited, FormatError};

fn read(text: &str) -> Result<Spanned<DeTable<'_>>, FormatError> {
    DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line(text, span.start));
        FormatError::Malformed(format!("line {line}: {}", error.message()))
    })
}

fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// The value of a path, and where it stands.
fn find<'a, 'i>(
    table: &'a DeTable<'i>,
    path: &[&str],
) -> Result<Option<&'a Spanned<DeValue<'i>>>, FormatError> {
    let Some((name, below)) = path.split_first() else {
        return Ok(None);
    };
    let found = table.iter().find(|(key, _)| key.get_ref() == name);
    let Some((_, value)) = found else {
        return Ok(None);
    };
    if below.is_empty() {
        return Ok(Some(value));
    }
    match value.get_ref() {
        DeValue::Table(inner) => find(inner, below),
        _ => Err(FormatError::Unexpected((*name).to_owned(), "no table")),
    }
}

/// A text, and where it stands with its quotes.
fn text_of(
    table: &DeTable<'_>,
    path: &[&str],
) -> Result<Option<(String, Range<usize>)>, FormatError> {
    match find(table, path)? {
        None => Ok(None),
        Some(value) => match value.get_ref() {
            DeValue::String(text) => Ok(Some((text.to_string(), value.span()))),
            _ => Err(FormatError::Unexpected(path.join("."), "no text")),
        },
    }
}

pub fn get(text: &str, path: &[&str]) -> Result<Option<String>, FormatError> {
    let document = read(text)?;
    let found = text_of(document.get_ref(), path)?;
    Ok(found.map(|(value, _)| value))
}

pub fn set(text: &str, path: &[&str], value: &str) -> Result<Edited, FormatError> {
    let document = read(text)?;
    let table = document.get_ref();
    let quoted = toml::Value::from(value).to_string();
    let text = if let Some((_, place)) = text_of(table, path)? {
        spliced(text, place, &quoted)
    } else {
        let [name] = path else {
            return Err(FormatError::Absent(path.join(".")));
        };
        let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let at = behind_the_last(table, text);
        // The last line of a file may have no end of its own.
        let before = text
            .get(..at)
            .is_some_and(|before| before.ends_with('\n') || at == mark(text));
        let first = if before { "" } else { end };
        let last = if before { end } else { "" };
        spliced(text, at..at, &format!("{first}{name} = {quoted}{last}"))
    };
    Ok(Edited { text, made: 0 })
}

/// The beginning of the line behind the last setting of the file itself, or of the file.
fn behind_the_last(table: &DeTable<'_>, text: &str) -> usize {
    let own = table.values().filter(|value| !is_table(value.get_ref()));
    let last = own.map(|value| value.span().end).max();
    let Some(last) = last else {
        return mark(text);
    };
    let rest = text.get(last..).unwrap_or_default();
    rest.find('\n').map_or(text.len(), |at| last + at + 1)
}

/// Where a text begins behind the mark that some editors put there.
fn mark(text: &str) -> usize {
    if text.starts_with('\u{feff}') { 3 } else { 0 }
}

/// Whether a value may stand below a header of its own.
fn is_table(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(items) => items.iter().any(|item| is_table(item.get_ref())),
        _ => false,
    }
}

pub fn remove(text: &str, path: &[&str]) -> Result<String, FormatError> {
    let document = read(text)?;
    let absent = || FormatError::Absent(path.join("."));
    let (_, place) = text_of(document.get_ref(), path)?.ok_or_else(absent)?;
    let start = text
        .get(..place.start)
        .and_then(|before| before.rfind('\n'));
    let start = start.map_or(mark(text), |at| at + 1);
    let rest = text.get(place.end..).unwrap_or_default();
    let end = rest.find('\n').map_or(text.len(), |at| place.end + at + 1);
    Ok(spliced(text, start..end, ""))
}

fn spliced(text: &str, place: Range<usize>, new: &str) -> String {
    let (before, behind) = (text.get(..place.start), text.get(place.end..));
    [before.unwrap_or_default(), new, behind.unwrap_or_default()].concat()
}
