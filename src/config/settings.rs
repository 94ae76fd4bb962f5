//! All settings, and the sections that no other module owns, with their defaults. Owns shapes and
//! defaults. Never reads a file or a variable.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_compress::CompressSettings;
use plimsoll_core::policy::Partitions;
use plimsoll_core::turn::StoreContent;
use plimsoll_core::turn::text_results::TextResults;
use plimsoll_core::turn::{
    Budget, CacheSettings, CompactionSettings, DelimiterSettings, Occasion, RecallSettings, Split,
    ToolClasses,
};
use plimsoll_proxy::pipeline::{ShownContent, StreamSettings};
use plimsoll_proxy::upstream;
use plimsoll_store::{Backend, Retention};
use plimsoll_wire::stream::ANSWER_CAP;

use super::secret::Secret;

/// All settings, validated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `[server]`
    pub server: plimsoll_ingress::ServerSettings,
    /// `[upstream]`
    pub upstream: upstream::UpstreamSettings,
    /// `[budget]`
    pub budget: Budget,
    /// `[partitions]`
    pub partitions: Partitions,
    /// `[delimiter]`
    pub delimiter: DelimiterSettings,
    /// The part of `[delimiter]` about how responses are streamed.
    pub streams: StreamSettings,
    /// `[recall]`
    pub recall: RecallSettings,
    /// `[compaction]`
    pub compaction: CompactionSettings,
    /// `[cache]`
    pub cache: CacheSettings,
    /// `[tools]`
    pub tools: ToolClasses,
    /// The part of `[tools]` about results that come as text.
    pub texts: TextResults,
    /// `[store]`
    pub store: StoreSection,
    /// `[log]`
    pub log: LogSection,
    /// `[tenant]`
    pub tenant: TenantKey,
    /// `[metrics]`
    pub metrics: MetricsSection,
    /// `[models]`
    pub models: ModelsSection,
    /// `[console]`
    pub console: ConsoleSection,
    /// `[compress]`
    pub compress: CompressSettings,
    /// `[profiles.NAME]`, each one laid over the sections of turns. Reading a configuration adds those
    /// that are shipped.
    pub profiles: BTreeMap<String, ProfileSection>,
    /// `[split]`
    pub split: Option<Split>,
}

impl Config {
    /// The sections of turns that serve without a profile.
    #[must_use]
    pub fn turns(&self) -> TurnSections {
        TurnSections {
            budget: self.budget.clone(),
            delimiter: self.delimiter.clone(),
            recall: self.recall,
            compaction: self.compaction.clone(),
            cache: self.cache,
            tools: self.tools.clone(),
            texts: self.texts.clone(),
            partitions: self.partitions,
        }
    }
}

/// The sections that are decided per turn, of the base or of one profile.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnSections {
    /// `[budget]`, `[keep]`, `[admit]`, `[rungs.NAME]`, and when the hidden tools are offered.
    pub budget: Budget,
    /// `[delimiter]`
    pub delimiter: DelimiterSettings,
    /// `[recall]`
    pub recall: RecallSettings,
    /// `[compaction]`
    pub compaction: CompactionSettings,
    /// `[cache]`
    pub cache: CacheSettings,
    /// `[tools]`
    pub tools: ToolClasses,
    /// The part of `[tools]` about results that come as text.
    pub texts: TextResults,
    /// `[partitions]`
    pub partitions: Partitions,
}

/// `[profiles.NAME]`: a named set of the sections of turns.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSection {
    /// The requests that it serves although they don't name it.
    pub when: Option<Occasion>,
    /// Its sections: those of the base, and its own over them.
    pub turns: TurnSections,
}

/// `[store]`: where records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSection {
    /// The backend.
    pub backend: Backend,
    /// The data directory. Empty if nothing names one, as long as no command has said where it is then.
    pub path: PathBuf,
    /// The URLs of the servers of a store that others share.
    pub urls: Vec<Secret>,
    /// What the names of all keys in such a store begin with.
    pub prefix: String,
    /// How many replicas must have a write before it counts as durable.
    pub replicas: u8,
    /// How long a final frame waits for its record.
    pub wait: Duration,
    /// How long a request waits for its look-up.
    pub read_wait: Duration,
    /// The cache of the backend, in MiB.
    pub cache_mb: u32,
    /// How many bytes one answer may say and still be recorded.
    pub answer_cap: usize,
    /// How much of the client's content is stored.
    pub content: StoreContent,
    /// Whether the content of turns up to which something was evicted is stored in any case.
    pub keep_evicted: bool,
    /// How long and how much is kept.
    pub retention: Retention,
    /// The directory below which a live server writes snapshots.
    pub snapshots: Option<PathBuf>,
    /// What the key is made of under which values are sealed. `None` if they are not.
    pub seal_key: Option<Secret>,
    /// What the keys were made of under which values were sealed before.
    pub seal_key_previous: Vec<Secret>,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            backend: Backend::Sled,
            path: PathBuf::new(),
            urls: Vec::new(),
            prefix: "plimsoll".to_owned(),
            replicas: 0,
            wait: Duration::from_millis(250),
            read_wait: Duration::from_secs(2),
            cache_mb: 48,
            answer_cap: ANSWER_CAP,
            content: StoreContent::Asked,
            keep_evicted: false,
            retention: Retention::default(),
            snapshots: None,
            seal_key: None,
            seal_key_previous: Vec::new(),
        }
    }
}

/// `[console]`: what the console shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleSection {
    /// Which content it may show. None: what fits the admin listener's address.
    pub content: Option<ShownContent>,
}

impl ConsoleSection {
    /// Which content may be shown by an admin listener at an address. On any other address than
    /// loopback others than the machine's users may look.
    #[must_use]
    pub fn shown(&self, admin: IpAddr) -> ShownContent {
        let here = admin.to_canonical().is_loopback();
        let fitting = if here {
            ShownContent::Live
        } else {
            ShownContent::Off
        };
        self.content.unwrap_or(fitting)
    }
}

/// `[log]`: what is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSection {
    /// A level, or directives by module.
    pub level: String,
    /// The form of a line.
    pub format: LogFormat,
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

/// The form of a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Where the key of the tenant hash comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantKey {
    /// The key is made at the first start and kept in the data directory.
    #[default]
    DataDirectory,
    /// The key is given. Replicas that share a store must have the same key.
    Given(Secret),
}

/// `[metrics]`: what is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSection {
    /// Globs on the names of models that labels may hold. All other names become `other`.
    pub models: Vec<String>,
}

impl Default for MetricsSection {
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

/// `[models]`: model families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelsSection {
    /// A file with further families.
    pub families: Option<PathBuf>,
}
