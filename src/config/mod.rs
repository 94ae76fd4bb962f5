//! Configuration: flags over `PLIMSOLL__SECTION__KEY` over a file over defaults. Owns what can be
//! set and what is valid; never hands out a value that was not checked. Modules that own a
//! `Config` of theirs find it filled here; no module imports this one.

mod layers;
mod level;
mod names;
mod problem;
mod raw;
mod readers;
mod secret;
mod settings;
mod units;
mod validate;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use names::{is_ours, unread};
pub use problem::{Error, Origin, Problem};
pub use secret::Secret;
pub use settings::{Backend, Log, LogFormat, Metrics, Models, StoreSettings, TenantKey};
pub use units::duration;

use crate::pipeline::StreamSettings;
use crate::turn::text_results::TextResults;
use crate::turn::{Budget, CacheSettings, DelimiterSettings, RecallSettings, ToolClasses};
use crate::{ingress, upstream};
use layers::Layers;

/// The file that is read where no other is named, if it is there.
pub const DEFAULT_FILE: &str = "config/plimsoll.toml";

/// Every setting, validated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `[server]`
    pub server: ingress::Config,
    /// `[upstream]`
    pub upstream: upstream::Config,
    /// `[budget]`
    pub budget: Budget,
    /// `[delimiter]`
    pub delimiter: DelimiterSettings,
    /// The rest of `[delimiter]`: how responses are streamed.
    pub streams: StreamSettings,
    /// `[recall]`
    pub recall: RecallSettings,
    /// `[cache]`
    pub cache: CacheSettings,
    /// `[tools]`
    pub tools: ToolClasses,
    /// The rest of `[tools]`: results that come as text.
    pub texts: TextResults,
    /// `[store]`
    pub store: StoreSettings,
    /// `[log]`
    pub log: Log,
    /// `[tenant]`
    pub tenant: TenantKey,
    /// `[metrics]`
    pub metrics: Metrics,
    /// `[models]`
    pub models: Models,
    /// `[profiles.NAME]`, each laid over `budget`.
    pub profiles: BTreeMap<String, Budget>,
}

/// What the command line may override. Here absence means "not given", so these are options.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`: must exist if given.
    pub config: Option<PathBuf>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--admin`
    pub admin: Option<String>,
    /// `--upstream`
    pub upstream: Option<String>,
    /// `--data`
    pub data: Option<String>,
    /// Where data is kept if no source says it: a command's own place in that of the default.
    pub fallback_data: Option<PathBuf>,
    /// `--budget`, in tokens.
    pub budget: Option<String>,
    /// `--log`
    pub log: Option<String>,
}

impl Config {
    /// Reads all sources. `env` is the process's variables, or a test's.
    ///
    /// # Errors
    /// Every problem of every source, each with its place; or that a named file can't be read.
    pub fn load(
        flags: &Flags,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        let mut layers = Layers::default();
        if let Some(path) = &flags.fallback_data {
            layers.fallback(["store", "path"], path.to_string_lossy().as_ref().into());
        }
        let path = flags.config.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
        if flags.config.is_some() || path.exists() {
            layers.file(path, &read(path)?);
        }
        layers.env(env);
        lay_flags(&mut layers, flags);
        Self::build(layers)
    }

    /// Reads one file over the defaults and nothing else: what `plimsoll check` does.
    ///
    /// # Errors
    /// Every problem of the file, each with its line; or that the file can't be read.
    pub fn check(path: &Path) -> Result<Self, Error> {
        let mut layers = Layers::default();
        layers.file(path, &read(path)?);
        Self::build(layers)
    }

    fn build(layers: Layers) -> Result<Self, Error> {
        let (raw, origins, mut problems) = layers.finish();
        let (config, found) = validate::validate(raw, &origins);
        problems.extend(found);
        problems.sort();
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(Error::Invalid(problems))
        }
    }
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|cause| Error::Read {
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
        ("--budget", ["budget", "ceiling"], &flags.budget),
        ("--log", ["log", "level"], &flags.log),
    ];
    for (flag, key, value) in texts {
        if let Some(text) = value {
            layers.flag(flag, key, toml::Value::String(text.clone()));
        }
    }
}
