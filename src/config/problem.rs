//! What is wrong with a configuration, and where. Owns how places are worded. Never decides what is
//! valid.

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

fn list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
