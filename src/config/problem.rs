//! What is wrong with a configuration, and where. Owns how places and values of a wrong kind are worded.
//! Never decides what is valid.

use std::fmt;
use std::path::PathBuf;

/// Where a setting was given. A later source wins, and problems are listed in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingSource {
    /// A line of a file, counted from 1.
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// The line of the key.
        line: usize,
    },
    /// An environment variable, by name.
    Env(String),
    /// A command line flag, with its dashes.
    Flag(&'static str),
    /// Nowhere, so the built-in default holds.
    Default,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => write!(f, "{name} in the environment"),
            Self::Flag(name) => f.write_str(name),
            Self::Default => f.write_str("defaults"),
        }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{origin}: {message}")]
pub struct Problem {
    /// Where the setting was given.
    pub origin: SettingSource,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// Why there is no configuration. Lists every problem that was found, and not just the first.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that was named can't be read.
    #[error("can't read {}: {cause}; give --config the path of a readable file", path.display())]
    Read {
        /// The file, as it was named.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// One or more settings are wrong.
    #[error("{}", list(.0))]
    Invalid(Vec<Problem>),
}

/// What a reader says of a value of a wrong kind, without the names that the program has for kinds.
pub(super) fn in_words(message: &str) -> String {
    let heads = ["invalid type: ", "invalid value: "];
    let wrong = heads.iter().find_map(|head| message.strip_prefix(head));
    let Some((found, expected)) = wrong.and_then(|wrong| wrong.split_once(", expected ")) else {
        return message.to_owned();
    };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, not a negative one",
        "f64" => "a number",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a section",
        other => other,
    };
    let value = found.find(['"', '`']).and_then(|at| found.get(at..));
    let found = match (value, found) {
        (Some(value), _) => value.trim_matches('`'),
        (None, "map") => "a section",
        (None, "sequence") => "a list",
        (None, other) => other,
    };
    format!("must be {expected}, not {found}")
}

fn list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
