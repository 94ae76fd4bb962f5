//! The validated settings that no module of the edge owns, and their defaults. Owns shapes and
//! defaults; never reads a file or a variable.

use std::path::PathBuf;
use std::time::Duration;

use super::secret::Secret;
use crate::turn::StoreContent;

/// Where records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// The backend.
    pub backend: Backend,
    /// The data directory.
    pub path: PathBuf,
    /// How long a final frame waits for its record.
    pub wait: Duration,
    /// How long a request waits to be found.
    pub read_wait: Duration,
    /// Cache of the backend, in MiB.
    pub cache_mb: u32,
    /// What of the client's content is stored.
    pub content: StoreContent,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            backend: Backend::Sled,
            path: PathBuf::from("./data"),
            wait: Duration::from_millis(250),
            read_wait: Duration::from_secs(2),
            cache_mb: 48,
            content: StoreContent::Asked,
        }
    }
}

/// A store backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// On disk, in this process.
    Sled,
    /// Lost with the process.
    Memory,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// A level, or directives by module.
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Where the key of the tenant hash comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantKey {
    /// Made at first start in the data directory.
    #[default]
    DataDirectory,
    /// Given; replicas that share a store must share it.
    Given(Secret),
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Globs on the model names that labels may hold; others are `other`.
    pub models: Vec<String>,
}

impl Default for Metrics {
    fn default() -> Self {
        let names = [
            "gpt-*",
            "o1*",
            "o3*",
            "o4*",
            "claude-*",
            "deepseek-*",
            "kimi-*",
            "qwen*",
            "glm-*",
            "gemini-*",
        ];
        Self {
            models: names.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Model families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models {
    /// A file of further families, where there is one.
    pub families: Option<PathBuf>,
}
