//! The configuration: flags over `PLIMSOLL__SECTION__KEY` over a file over defaults. Owns what can
//! be set and what is valid. Never hands out a value that was not checked. A module that owns
//! settings of its own finds them filled here, and imports nothing from here.

mod form;
mod given;
mod layers;
mod level;
mod names;
mod problem;
mod profiles;
mod readers;
mod schema;
mod secret;
mod sections;
mod settings;
mod units;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use names::{is_ours, unread};
pub use problem::{ConfigError, Problem, SettingSource};
pub use schema::schema;
pub use secret::Secret;
pub use settings::{
    Config, LogFormat, LogSection, MetricsSection, ModelsSection, ProfileSection, StoreSection,
    TenantKey, TurnSections,
};
pub use units::duration;

pub use plimsoll_store::Backend;

use layers::Layers;

/// The file that is read if no other is named and it exists.
pub const DEFAULT_FILE: &str = "config/plimsoll.toml";

/// What the command line may override. `None` means that the flag was not given.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`. A file that is named must exist.
    pub config: Option<PathBuf>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--admin`
    pub admin: Option<String>,
    /// `--upstream`
    pub upstream: Option<String>,
    /// `--data`
    pub data: Option<String>,
    /// The directory for data if no source names one.
    pub fallback_data: Option<PathBuf>,
    /// `--budget`, in tokens.
    pub budget: Option<String>,
    /// `--log`
    pub log: Option<String>,
}

impl Config {
    /// Reads all sources. `env` are the variables of the process, or of a test.
    ///
    /// # Errors
    /// Every problem of every source with its place, or that a named file can't be read.
    pub fn load(
        flags: &Flags,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut layers = Layers::default();
        let path = flags.config.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
        if flags.config.is_some() || path.exists() {
            layers.file(path, &read(path)?);
        }
        // The order of these lines is the order of precedence: what comes later wins.
        layers.env(env);
        lay_flags(&mut layers, flags);
        let mut config = Self::build(layers)?;
        if let Some(path) = &flags.fallback_data
            && config.store.path.as_os_str().is_empty()
        {
            config.store.path.clone_from(path);
        }
        Ok(config)
    }

    /// Reads one file over the defaults and nothing else, for `plimsoll check`.
    ///
    /// # Errors
    /// Every problem of the file with its line, or that the file can't be read.
    pub fn check(path: &Path) -> Result<Self, ConfigError> {
        let mut layers = Layers::default();
        layers.file(path, &read(path)?);
        Self::build(layers)
    }

    fn build(layers: Layers) -> Result<Self, ConfigError> {
        let (given, problems) = layers.finish();
        let (config, check) = sections::read(given, problems);
        let mut problems = check.problems;
        problems.sort();
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::Invalid(problems))
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|cause| ConfigError::Read {
        path: path.to_owned(),
        cause,
    })
}

fn lay_flags(layers: &mut Layers, flags: &Flags) {
    let texts = [
        ("--listen", ["server", "listen"], &flags.listen),
        ("--admin", ["server", "admin"], &flags.admin),
        ("--upstream", ["upstream", "base_url"], &flags.upstream),
        ("--data", ["store", "path"], &flags.data),
        ("--budget", ["budget", "tokens"], &flags.budget),
        ("--log", ["log", "level"], &flags.log),
    ];
    for (flag, key, value) in texts {
        if let Some(text) = value {
            layers.flag(flag, key, toml::Value::String(text.clone()));
        }
    }
}
