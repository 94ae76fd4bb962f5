//! A text that nobody may print. Owns the redaction. Never decides what a secret is for.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};

/// A secret text. `Debug` and `Display` show that there is one, but never what it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Secret {
    /// Does not quote a value of the wrong type. The derived reader would.
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(reader)? {
            toml::Value::String(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("must be a text in quotes")),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
