//! From syntax to meaning: reads each raw setting, checks its limits, and puts it in place of the
//! default. Owns the limits that concern several settings. Never stops at the first problem.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::level::log_level;
use super::problem::{Problem, SettingSource};
use super::raw::{
    RawAdmin, RawAdmit, RawBudget, RawCache, RawConfig, RawDelimiter, RawKeep, RawPartitions,
    RawRecall, RawRung, RawServer, RawStore, RawTenant, RawTools, RawUpstream,
};
use super::readers::{
    address, admin_token, admin_token_file, age, answer_cap, at_least, at_least_one, cache_memory,
    ceiling, families, file_names, floor, fraction, globs, guidance, guide_at, key_prefix, ladder,
    name_globs, none_or, protect_recent, retry_for, retry_statuses, rung_policy, seal_key,
    seal_keys, server_urls, share, size, store_bytes, store_cache, tenant_key, timeout, word,
};
use super::settings::{Config, LogFormat, StoreSection, TenantKey};
use super::units;
use crate::dialect::stream::UsageMode;
use crate::ingress::{AdminToken, Hosts, Origins, Sources};
use crate::pipeline::{ShownContent, StreamSettings};
use crate::policy::{AdmitSettings, Order, Partition, Partitions};
use crate::store::Backend;
use crate::turn::text_results::{TextProfile, TextResults, pattern};
use crate::turn::{
    Budget, CacheSettings, DelimiterSettings, Diagnose, FilterRole, KeepErrors, KeepSettings, Mode,
    Offer, ProtectRecent, RecallSettings, RungTable, SetBreakpoints, StoreContent, Thoughts,
    ToolClasses, Uncached, Unmet,
};
use crate::upstream::BaseUrl;
use crate::{ingress, upstream};

/// Reads a raw configuration. Returns the problems that it finds; if there are any, the
/// configuration is not valid.
pub fn validate(
    mut raw: RawConfig,
    origins: &BTreeMap<String, SettingSource>,
) -> (Config, Vec<Problem>) {
    let mut check = Check {
        origins,
        problems: Vec::new(),
        within: String::new(),
    };
    let mut config = Config::default();
    check.server(raw.server, &mut config.server);
    check.admin(raw.admin, &mut config.server.admin_token);
    check.upstream(raw.upstream, &mut config.upstream);
    check.loops(&config);
    // A profile overrides the guidance as well, but `[budget]` itself may not hold it.
    check.no_guide(&raw.budget);
    check.budget("budget", raw.budget, &mut config.budget);
    check.fits("budget", &config.budget);
    check.admit(raw.admit, &mut config.budget.admit);
    check.keep(raw.keep, &mut config.budget.keep);
    check.partitions(&raw.partitions, &mut config.partitions);
    check.shares("partitions", config.partitions);
    check.rungs(raw.rungs, &mut config.budget.rungs);
    let (offer, at) = (raw.delimiter.offer.clone(), raw.delimiter.guide_at);
    check.guide("delimiter", offer, at, &mut config.budget);
    check.streams(&mut raw.delimiter, &mut config.streams);
    check.delimiter(raw.delimiter, &mut config.delimiter);
    check.recall(raw.recall, &mut config.recall);
    check.cache(raw.cache, &mut config.cache);
    check.tools(raw.tools, &mut config.tools, &mut config.texts);
    check.store(raw.store, &mut config.store);
    check.set("log.level", raw.log.level, &mut config.log.level, log_level);
    check.set(
        "log.format",
        raw.log.format,
        &mut config.log.format,
        |text| {
            word(
                &text,
                &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            )
        },
    );
    check.tenant(raw.tenant, &mut config);
    check.shared_store(&config);
    check.set(
        "metrics.models",
        raw.metrics.models,
        &mut config.metrics.models,
        globs,
    );
    check.set(
        "models.families",
        raw.models.families,
        &mut config.models.families,
        families,
    );
    check.set(
        "console.content",
        raw.console.content,
        &mut config.console.content,
        |text| {
            let words = [
                ("auto", None),
                ("live", Some(ShownContent::Live)),
                ("stored", Some(ShownContent::Stored)),
                ("off", Some(ShownContent::Off)),
            ];
            word(&text, &words)
        },
    );
    // Profiles are laid over the other sections, so these come first.
    check.profiles(raw.profiles, &mut config);
    (config, check.problems)
}

/// Puts a setting in place of the default by [`Check::set`]. Its key is the section and the name of
/// the raw field, so that neither is written twice.
macro_rules! take {
    ($check:ident, $section:ident: $raw:ident.$field:ident => $slot:expr, $read:expr) => {
        $check.set(
            concat!(stringify!($section), ".", stringify!($field)),
            $raw.$field,
            &mut $slot,
            $read,
        )
    };
    ($check:ident, ($section:expr): $raw:ident.$field:ident => $slot:expr, $read:expr) => {
        $check.set(
            &format!("{}.{}", $section, stringify!($field)),
            $raw.$field,
            &mut $slot,
            $read,
        )
    };
}

/// Reads section after section and gathers the problems.
pub(super) struct Check<'a> {
    origins: &'a BTreeMap<String, SettingSource>,
    problems: Vec<Problem>,
    /// What the names of all settings begin with: nothing, or the profile that is read.
    pub(super) within: String,
}

impl Check<'_> {
    pub(super) fn problem(&mut self, key: &str, message: &str) {
        let key = format!("{}{key}", self.within);
        // A whole section is found by what is set in it.
        let below = format!("{key}.");
        let mut all = self.origins.iter();
        let section = all.find(|(set, _)| set.starts_with(&below));
        let section = section.map(|(_, origin)| origin);
        let origin = self.origins.get(&key).or(section);
        let origin = origin.cloned().unwrap_or(SettingSource::Default);
        let message = format!("`{key}`: {message}");
        self.problems.push(Problem { origin, message });
    }

    /// Puts a setting in place of the default, or notes why that is not possible.
    pub(super) fn set<R, T>(
        &mut self,
        key: &str,
        raw: Option<R>,
        slot: &mut T,
        read: impl FnOnce(R) -> Result<T, String>,
    ) {
        match raw.map(read) {
            Some(Ok(value)) => *slot = value,
            Some(Err(message)) => self.problem(key, &message),
            None => {}
        }
    }

    fn server(&mut self, raw: RawServer, server: &mut ingress::ServerSettings) {
        take!(self, server: raw.listen => server.listen, address);
        take!(self, server: raw.admin => server.admin, address);
        take!(self, server: raw.body_cap => server.body_cap, size);
        take!(self, server: raw.body_budget => server.body_budget, size);
        take!(self, server: raw.body_wait => server.pace.wait, timeout);
        take!(self, server: raw.body_rate => server.pace.rate, size);
        take!(self, server: raw.body_timeout => server.pace.most, timeout);
        take!(self, server: raw.write_timeout => server.write_timeout, timeout);
        take!(self, server: raw.cache_memory => server.cache_memory, cache_memory);
        take!(self, server: raw.drain => server.drain, |text: String| units::duration(&text));
        take!(self, server: raw.max_in_flight => server.max_in_flight, at_least_one);
        take!(self, server: raw.hosts => server.hosts, |list: Vec<_>| Hosts::read(&list));
        take!(self, server: raw.origins => server.origins, |list: Vec<_>| Origins::read(&list));
        if server.listen == server.admin && server.listen.port() != 0 {
            self.problem("server.admin", "must not be the address of `server.listen`");
        }
    }

    fn admin(&mut self, raw: RawAdmin, token: &mut Option<AdminToken>) {
        let mut filed = None;
        take!(self, admin: raw.token => *token, admin_token);
        take!(self, admin: raw.token_file => filed, admin_token_file);
        if token.is_some() && filed.is_some() {
            self.problem(
                "admin.token_file",
                "stands beside `admin.token`; give one of them",
            );
        }
        *token = token.take().or(filed);
    }

    fn tenant(&mut self, raw: RawTenant, config: &mut Config) {
        take!(self, tenant: raw.key => config.tenant, tenant_key);
        // The two lists are read first and set afterwards, because a list that is not given keeps
        // the default.
        let sources = &mut config.server.sources;
        let mut headers = None;
        self.set("tenant.headers", raw.headers, &mut headers, |list| {
            Sources::read_headers(&list).map(Some)
        });
        if let Some(headers) = headers {
            sources.set_headers(headers);
        }
        if let Some(query) = raw.query {
            sources.set_query(&query);
        }
        take!(self, tenant: raw.claims => sources.claims, Ok);
    }

    /// Refuses a proxy that would send requests to itself without end.
    fn loops(&mut self, config: &Config) {
        // Both listeners count, because the admin port would answer as well.
        let own = [
            ("server.listen", config.server.listen),
            ("server.admin", config.server.admin),
        ];
        for (key, address) in own {
            if config.upstream.base_url.reaches(address) {
                let message = format!(
                    "is the proxy's own address (`{key}`); give the provider's, like \"https://api.openai.com/v1\""
                );
                self.problem("upstream.base_url", &message);
            }
        }
    }

    fn upstream(&mut self, raw: RawUpstream, up: &mut upstream::UpstreamSettings) {
        self.set(
            "upstream.base_url",
            raw.base_url,
            &mut up.base_url,
            |text| BaseUrl::parse(&text).map_err(|error| error.to_string()),
        );
        take!(self, upstream: raw.connect_timeout => up.connect_timeout, timeout);
        take!(self, upstream: raw.first_byte_timeout => up.first_byte_timeout, timeout);
        take!(self, upstream: raw.idle_timeout => up.idle_timeout, timeout);
        self.set("upstream.retries", raw.retries, &mut up.retries, |n| {
            if n <= 10 {
                Ok(n)
            } else {
                Err("must be at most 10".to_owned())
            }
        });
        take!(self, upstream: raw.retry_statuses => up.retry_statuses, retry_statuses);
        take!(self, upstream: raw.retry_for => up.retry_for, retry_for);
        take!(self, upstream: raw.pool_idle => up.pool_idle, Ok);
        take!(self, upstream: raw.pool_idle_timeout => up.pool_idle_timeout, timeout);
        take!(self, upstream: raw.ask_models => up.ask_models, Ok);
    }

    pub(super) fn budget(&mut self, section: &str, raw: RawBudget, budget: &mut Budget) {
        let key = |name: &str| format!("{section}.{name}");
        self.set(&key("mode"), raw.mode, &mut budget.mode, |text| {
            word(&text, Mode::WORDS)
        });
        take!(self, (section): raw.ceiling => budget.ceiling, ceiling);
        take!(self, (section): raw.floor => budget.floor, floor);
        take!(self, (section): raw.min_floor => budget.min_floor, fraction);
        take!(self, (section): raw.protect_recent => budget.protect_recent, protect_recent);
        self.set(
            &key("implicit_tokens"),
            raw.implicit_tokens,
            &mut budget.implicit_tokens,
            |value| at_least(500, value),
        );
        self.set(&key("unmet"), raw.unmet, &mut budget.unmet, |text| {
            word(
                &text,
                &[("surface", Unmet::Surface), ("refuse", Unmet::Refuse)],
            )
        });
        take!(self, (section): raw.strict_active => budget.strict_active, Ok);
        self.set(
            &key("thoughts"),
            raw.thoughts,
            &mut budget.thoughts,
            |text| word(&text, Thoughts::WORDS),
        );
        take!(self, (section): raw.thought_value => budget.thought_value, share);
        take!(self, (section): raw.policies => budget.ladder, ladder);
        self.set(&key("order"), raw.order, &mut budget.order, |text| {
            word(&text, Order::WORDS)
        });
    }

    /// Refuses a tail that leaves nothing to evict.
    pub(super) fn fits(&mut self, section: &str, budget: &Budget) {
        if let ProtectRecent::Tokens(tokens) = budget.protect_recent
            && tokens >= budget.ceiling
        {
            self.problem(
                &format!("{section}.protect_recent"),
                "must be below the ceiling, or nothing could be evicted",
            );
        }
    }

    pub(super) fn admit(&mut self, raw: RawAdmit, admit: &mut AdmitSettings) {
        let limits = &mut admit.limits;
        take!(self, admit: raw.tokens => limits.tokens, |value| none_or(200, value));
        self.set(
            "admit.lines",
            raw.lines,
            &mut limits.lines,
            |lines| match lines {
                1..10 => Err("must be 0 or at least 10".to_owned()),
                _ => Ok(lines),
            },
        );
        take!(self, admit: raw.bytes => limits.bytes, |value| match value {
            toml::Value::Integer(0) => Ok(0),
            _ => size(value).map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
        });
        take!(self, admit: raw.reads => admit.reads, Ok);
        take!(self, admit: raw.except => admit.except, name_globs);
    }

    pub(super) fn keep(&mut self, raw: RawKeep, keep: &mut KeepSettings) {
        take!(self, keep: raw.tools => keep.tools, name_globs);
        take!(self, keep: raw.files => keep.files, file_names);
        self.set("keep.errors", raw.errors, &mut keep.errors, |text| {
            word(&text, KeepErrors::WORDS)
        });
        take!(self, keep: raw.texts => keep.texts, |texts: Vec<String>| {
            let short = texts.iter().any(|text| text.trim().len() < 3);
            if short {
                Err("a text must have at least 3 characters, or it keeps nearly everything".to_owned())
            } else {
                Ok(texts)
            }
        });
        take!(self, keep: raw.newest => keep.newest, |pairs: usize| match pairs {
            1 | 2 => Err("must be 0 or at least 3".to_owned()),
            _ => Ok(pairs),
        });
        take!(self, keep: raw.share => keep.share, |share: f64| {
            if (0.0..=0.5).contains(&share) {
                Ok(share)
            } else {
                Err("must be a share of the ceiling from 0 to 0.5".to_owned())
            }
        });
    }

    pub(super) fn partitions(&mut self, raw: &RawPartitions, parted: &mut Partitions) {
        let share = |share: f64| {
            if (0.0..=1.0).contains(&share) {
                Ok(share)
            } else {
                Err("must be a share of the window from 0 to 1".to_owned())
            }
        };
        take!(self, partitions: raw.system => *parted.share(Partition::System), share);
        take!(self, partitions: raw.tools => *parted.share(Partition::Tools), share);
        take!(self, partitions: raw.messages => *parted.share(Partition::Messages), share);
        take!(self, partitions: raw.auxiliary => *parted.share(Partition::Auxiliary), share);
        take!(self, partitions: raw.reserve => parted.reserve, share);
        take!(self, partitions: raw.margin => parted.margin, share);
    }

    /// Refuses shares that don't go together.
    pub(super) fn shares(&mut self, section: &str, mut parted: Partitions) {
        let messages = *parted.share(Partition::Messages);
        let kept = parted.reserve + parted.margin > 0.0;
        if parted.sum() > 1.0 + 1e-9 {
            self.problem(section, "the shares must come to at most 1");
        } else if messages <= 0.0 && (parted.is_on() || kept) {
            let message = "must be above 0 where another share is; without partitions all are 0";
            self.problem(&format!("{section}.messages"), message);
        }
    }

    /// What single rungs may touch, and how far down they evict.
    pub(super) fn rungs(&mut self, raw: BTreeMap<String, RawRung>, rungs: &mut RungTable) {
        for (name, raw) in raw {
            let section = format!("rungs.{name}");
            let policy = match rung_policy(&name) {
                Ok(policy) => policy,
                Err(message) => {
                    self.problem(&section, &message);
                    continue;
                }
            };
            let rung = rungs.entry(policy).or_default();
            take!(self, (section): raw.tools => rung.tools, name_globs);
            take!(self, (section): raw.files => rung.files, file_names);
            take!(self, (section): raw.roles => rung.roles, |names: Vec<String>| {
                names.iter().map(|name| word(name, FilterRole::WORDS)).collect()
            });
            take!(self, (section): raw.floor => rung.floor, |share| {
                if policy.evicts() {
                    fraction(share).map(Some)
                } else {
                    Err(format!("`{name}` evicts nothing in passes, so it has no floor"))
                }
            });
        }
    }

    /// Guidance and budget are two sections, although a profile may override both.
    fn no_guide(&mut self, raw: &RawBudget) {
        for (name, given) in [
            ("offer", raw.offer.is_some()),
            ("guide_at", raw.guide_at.is_some()),
        ] {
            if given {
                let message = format!("belongs into [delimiter]: set `delimiter.{name}`");
                self.problem(&format!("budget.{name}"), &message);
            }
        }
    }

    pub(super) fn guide(
        &mut self,
        section: &str,
        offer: Option<String>,
        at: Option<f64>,
        budget: &mut Budget,
    ) {
        let key = format!("{section}.offer");
        self.set(&key, offer, &mut budget.offer, |text| {
            word(&text, Offer::WORDS)
        });
        let key = format!("{section}.guide_at");
        self.set(&key, at, &mut budget.guide_at, guide_at);
    }

    /// The part of `[delimiter]` that is decided once for the process.
    fn streams(&mut self, raw: &mut RawDelimiter, streams: &mut StreamSettings) {
        let (heartbeat, usage) = (raw.heartbeat.take(), raw.usage.take());
        let slot = &mut streams.heartbeat;
        self.set("delimiter.heartbeat", heartbeat, slot, timeout);
        self.set("delimiter.usage", usage, &mut streams.usage, |text| {
            word(&text, &[("last", UsageMode::Last), ("sum", UsageMode::Sum)])
        });
        let slot = &mut streams.finish_cancelled;
        let finish = raw.finish_cancelled.take();
        self.set("delimiter.finish_cancelled", finish, slot, Ok);
    }

    pub(super) fn delimiter(&mut self, raw: RawDelimiter, delimiter: &mut DelimiterSettings) {
        take!(self, delimiter: raw.enabled => delimiter.enabled, Ok);
        take!(self, delimiter: raw.auto_close => delimiter.auto_close, Ok);
        self.set("delimiter.hops", raw.hops, &mut delimiter.hops, |hops| {
            if (1..=64).contains(&hops) {
                Ok(hops)
            } else {
                Err("must be between 1 and 64".to_owned())
            }
        });
        take!(self, delimiter: raw.guidance => delimiter.guidance, guidance);
        take!(self, delimiter: raw.nudge => delimiter.nudge, Ok);
    }

    pub(super) fn recall(&mut self, raw: RawRecall, recall: &mut RecallSettings) {
        take!(self, recall: raw.enabled => recall.enabled, Ok);
    }

    pub(super) fn cache(&mut self, raw: RawCache, cache: &mut CacheSettings) {
        let words = &[("auto", SetBreakpoints::Auto), ("off", SetBreakpoints::Off)];
        self.set(
            "cache.breakpoints",
            raw.breakpoints,
            &mut cache.breakpoints,
            |text| word(&text, words),
        );
        let words = &[("wait", Uncached::Wait), ("pass", Uncached::Pass)];
        take!(self, cache: raw.none => cache.none, |text: String| word(&text, words));
        let words = &[("off", Diagnose::Off), ("after_miss", Diagnose::AfterMiss)];
        take!(self, cache: raw.diagnose => cache.diagnose, |text: String| word(&text, words));
    }

    pub(super) fn tools(
        &mut self,
        raw: RawTools,
        tools: &mut ToolClasses,
        texts: &mut TextResults,
    ) {
        take!(self, tools: raw.bulk => tools.bulk, globs);
        take!(self, tools: raw.read => tools.read, globs);
        take!(self, tools: raw.shell => tools.shell, globs);
        take!(self, tools: raw.write => tools.write, globs);
        let results = raw.text_results;
        self.set("tools.text_results", results, &mut texts.patterns, |list| {
            list.iter().map(|text| pattern(text)).collect()
        });
        // `none` is the word for the default, so it is the same as an absent setting.
        let profile = raw.profile.filter(|name| name != "none");
        self.set("tools.profile", profile, &mut texts.profile, |name| {
            word(&name, TextProfile::WORDS).map(Some)
        });
    }

    /// A store that several proxies share needs a server, and a tenant key that they share too.
    fn shared_store(&mut self, config: &Config) {
        if config.store.backend != Backend::Redis {
            return;
        }
        if config.store.urls.is_empty() {
            let example = "must name the server, like redis://127.0.0.1:6379, where store.backend is \"redis\"";
            self.problem("store.url", example);
        } else if config.tenant == TenantKey::DataDirectory {
            let message = "must be given where store.backend is \"redis\", the same for all proxies that \
                           share the store: set PLIMSOLL__TENANT__KEY";
            self.problem("tenant.key", message);
        }
    }

    fn store(&mut self, raw: RawStore, store: &mut StoreSection) {
        self.set("store.backend", raw.backend, &mut store.backend, |text| {
            word(
                &text,
                &[
                    ("sled", Backend::Sled),
                    ("memory", Backend::Memory),
                    ("redis", Backend::Redis),
                ],
            )
        });
        self.set("store.path", raw.path, &mut store.path, |text| {
            if text.is_empty() {
                Err("must name a directory".to_owned())
            } else {
                Ok(PathBuf::from(text))
            }
        });
        take!(self, store: raw.url => store.urls, server_urls);
        take!(self, store: raw.prefix => store.prefix, key_prefix);
        take!(self, store: raw.replicas => store.replicas, Ok);
        self.set("store.wait", raw.wait, &mut store.wait, |text| {
            units::duration(&text)
        });
        take!(self, store: raw.read_wait => store.read_wait, timeout);
        take!(self, store: raw.cache_mb => store.cache_mb, store_cache);
        take!(self, store: raw.answer_cap => store.answer_cap, answer_cap);
        self.set("store.content", raw.content, &mut store.content, |text| {
            word(
                &text,
                &[
                    ("off", StoreContent::Off),
                    ("asked", StoreContent::Asked),
                    ("all", StoreContent::All),
                ],
            )
        });
        self.set(
            "store.snapshots",
            raw.snapshots,
            &mut store.snapshots,
            |text| Ok((!text.is_empty()).then(|| PathBuf::from(text))),
        );
        take!(self, store: raw.seal_key => store.seal_key, seal_key);
        take!(self, store: raw.seal_key_previous => store.seal_key_previous, seal_keys);
        let kept = &mut store.retention;
        take!(self, store: raw.keep_records => kept.records, age);
        take!(self, store: raw.keep_content => kept.content, age);
        take!(self, store: raw.max_bytes => kept.most_bytes, store_bytes);
    }
}
