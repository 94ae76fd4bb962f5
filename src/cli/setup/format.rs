//! One text in a settings file: read, set or taken out, with every other byte as it was. Owns the
//! three forms (JSON with comments, TOML, and lines of a `.env` file). Never touches a file.

mod dotenv;
mod json;
mod toml;

use std::path::Path;

/// Why a settings file can't be edited. Nothing was changed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FormatError {
    /// The text does not have the form that its file has.
    #[error("can't be read: {0}; correct it first")]
    Malformed(String),
    /// Something else stands where the setting belongs.
    #[error("{0} is {1} and can't be changed; correct it first")]
    Unexpected(String, &'static str),
    /// A name stands in the file twice, so it is not clear which one counts.
    #[error("{0} stands there twice; leave one of them")]
    Twice(String),
    /// A setting that has to be there is not.
    #[error("{0} is not there")]
    Absent(String),
    /// The edit would have changed something else.
    #[error("{0} can't be set without changing something else; set it by hand")]
    Unsafe(String),
}

/// The form of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, with comments and trailing commas.
    Json,
    /// TOML.
    Toml,
    /// Lines like `NAME='value'`.
    DotEnv,
}

/// A text as it became, and how many tables had to be made for the setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The new text.
    pub text: String,
    /// The tables that were made for it: the innermost ones of the path.
    pub made: usize,
}

impl Format {
    /// The form of a file, by its name.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        match file.extension().and_then(|end| end.to_str()) {
            Some("toml") => Self::Toml,
            Some("json" | "jsonc") => Self::Json,
            Some(_) | None => Self::DotEnv,
        }
    }

    /// The text of a setting. `None` if it is not there.
    ///
    /// # Errors
    /// If the file is malformed, or the setting is no text.
    pub fn get(self, text: &str, path: &[&str]) -> Result<Option<String>, FormatError> {
        match self {
            Self::Json => json::get(text, path),
            Self::Toml => toml::get(text, path),
            Self::DotEnv => dotenv::get(text, path),
        }
    }

    /// Sets a text.
    ///
    /// # Errors
    /// If the file is malformed, something else is in the way, or anything else would change.
    pub fn set(self, text: &str, path: &[&str], value: &str) -> Result<Edited, FormatError> {
        let edited = match self {
            Self::Json => json::set(text, path, value),
            Self::Toml => toml::set(text, path, value),
            Self::DotEnv => dotenv::set(text, path, value),
        }?;
        match self.get(&edited.text, path) {
            Ok(Some(read)) if read == value => Ok(edited),
            Ok(_) | Err(_) => Err(FormatError::Unsafe(path.join("."))),
        }
    }

    /// Takes a setting out, and of the tables around it the innermost `made`, if they are empty.
    ///
    /// # Errors
    /// If the file is malformed or the setting is not there.
    pub fn remove(self, text: &str, path: &[&str], made: usize) -> Result<String, FormatError> {
        match self {
            Self::Json => json::remove(text, path, made),
            Self::Toml => toml::remove(text, path),
            Self::DotEnv => dotenv::remove(text, path),
        }
    }

    /// Whether nothing is left in a file but its form.
    #[must_use]
    pub fn is_empty(self, text: &str) -> bool {
        match self {
            Self::Json => matches!(text.trim(), "" | "{}"),
            Self::Toml | Self::DotEnv => text.trim().is_empty(),
        }
    }
}

#[cfg(test)]
mod tests;
