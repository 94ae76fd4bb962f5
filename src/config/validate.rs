//! From syntax to meaning: each raw setting is read, held to its limits and put in place of the
//! default. Owns limits across settings; never stops at the first problem.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::level::log_level;
use super::problem::{Origin, Problem};
use super::raw::{
    RawBudget, RawCache, RawConfig, RawDelimiter, RawServer, RawStore, RawTenant, RawTools,
    RawUpstream,
};
use super::readers::{
    address, at_least, at_least_one, cache_memory, ceiling, families, floor, fraction, globs,
    guidance, guide_at, protect_recent, size, tenant_key, timeout, word,
};
use super::settings::{Backend, LogFormat, StoreSettings};
use super::{Config, units};
use crate::dialect::stream::UsageMode;
use crate::ingress::{Hosts, Origins, Sources};
use crate::pipeline::StreamSettings;
use crate::policy::{Order, Policy};
use crate::turn::text_results::{TextProfile, TextResults, pattern};
use crate::turn::{
    Budget, CacheSettings, DelimiterSettings, Mode, Offer, PAPER_PROFILE, ProtectRecent,
    SetBreakpoints, StoreContent, ToolClasses, Unmet,
};
use crate::upstream::BaseUrl;
use crate::{ingress, upstream};

/// Reads a raw configuration. The problems are those found here; with one, the result is useless.
pub fn validate(raw: RawConfig, origins: &BTreeMap<String, Origin>) -> (Config, Vec<Problem>) {
    let mut check = Check {
        origins,
        problems: Vec::new(),
    };
    let mut config = Config::default();
    check.server(raw.server, &mut config.server);
    check.upstream(raw.upstream, &mut config.upstream);
    check.loops(&config);
    check.no_guide(&raw.budget);
    check.budget("budget", raw.budget, &mut config.budget);
    let (offer, at) = (raw.delimiter.offer.clone(), raw.delimiter.guide_at);
    check.guide("delimiter", offer, at, &mut config.budget);
    check.delimiter(raw.delimiter, &mut config.delimiter, &mut config.streams);
    let recall = raw.recall.enabled;
    check.set("recall.enabled", recall, &mut config.recall.enabled, Ok);
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
    for (name, profile) in raw.profiles {
        let mut budget = config.budget.clone();
        if name == PAPER_PROFILE {
            budget = budget.as_published();
        }
        let (offer, at) = (profile.offer.clone(), profile.guide_at);
        check.guide(&format!("profiles.{name}"), offer, at, &mut budget);
        check.budget(&format!("profiles.{name}"), profile, &mut budget);
        config.server.profiles.insert(name.clone());
        config.profiles.insert(name, budget);
    }
    (config, check.problems)
}

struct Check<'a> {
    origins: &'a BTreeMap<String, Origin>,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn problem(&mut self, key: &str, message: &str) {
        let origin = self.origins.get(key).cloned().unwrap_or(Origin::Default);
        let message = format!("`{key}`: {message}");
        self.problems.push(Problem { origin, message });
    }

    /// Puts a given setting in place of the default, or notes why it can't be.
    fn set<R, T>(
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

    fn server(&mut self, raw: RawServer, server: &mut ingress::Config) {
        self.set("server.listen", raw.listen, &mut server.listen, address);
        self.set("server.admin", raw.admin, &mut server.admin, address);
        self.set("server.body_cap", raw.body_cap, &mut server.body_cap, size);
        let budget = raw.body_budget;
        self.set("server.body_budget", budget, &mut server.body_budget, size);
        let wait = raw.body_wait;
        self.set("server.body_wait", wait, &mut server.pace.wait, timeout);
        let rate = raw.body_rate;
        self.set("server.body_rate", rate, &mut server.pace.rate, size);
        let most = raw.body_timeout;
        self.set("server.body_timeout", most, &mut server.pace.most, timeout);
        self.set(
            "server.write_timeout",
            raw.write_timeout,
            &mut server.write_timeout,
            timeout,
        );
        self.set(
            "server.cache_memory",
            raw.cache_memory,
            &mut server.cache_memory,
            cache_memory,
        );
        self.set("server.drain", raw.drain, &mut server.drain, |text| {
            units::duration(&text)
        });
        self.set(
            "server.max_in_flight",
            raw.max_in_flight,
            &mut server.max_in_flight,
            at_least_one,
        );
        self.set("server.hosts", raw.hosts, &mut server.hosts, |list| {
            Hosts::read(&list)
        });
        self.set("server.origins", raw.origins, &mut server.origins, |list| {
            Origins::read(&list)
        });
        if server.listen == server.admin && server.listen.port() != 0 {
            self.problem("server.admin", "must not be the address of `server.listen`");
        }
    }

    fn tenant(&mut self, raw: RawTenant, config: &mut Config) {
        self.set("tenant.key", raw.key, &mut config.tenant, tenant_key);
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
        self.set("tenant.claims", raw.claims, &mut sources.claims, Ok);
    }

    /// A proxy that asks itself would do so until nothing is left to ask with.
    fn loops(&mut self, config: &Config) {
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

    fn upstream(&mut self, raw: RawUpstream, up: &mut upstream::Config) {
        self.set(
            "upstream.base_url",
            raw.base_url,
            &mut up.base_url,
            |text| BaseUrl::parse(&text).map_err(|error| error.to_string()),
        );
        self.set(
            "upstream.connect_timeout",
            raw.connect_timeout,
            &mut up.connect_timeout,
            timeout,
        );
        self.set(
            "upstream.first_byte_timeout",
            raw.first_byte_timeout,
            &mut up.first_byte_timeout,
            timeout,
        );
        self.set(
            "upstream.idle_timeout",
            raw.idle_timeout,
            &mut up.idle_timeout,
            timeout,
        );
        self.set("upstream.retries", raw.retries, &mut up.retries, |n| {
            if n <= 10 {
                Ok(n)
            } else {
                Err("must be at most 10".to_owned())
            }
        });
        self.set(
            "upstream.retry_statuses",
            raw.retry_statuses,
            &mut up.retry_statuses,
            |list| {
                let fits = list
                    .iter()
                    .all(|&status| status == 408 || status == 429 || (500..600).contains(&status));
                if fits {
                    Ok(list)
                } else {
                    Err("may hold 408, 429 and 5xx only".to_owned())
                }
            },
        );
        self.set("upstream.pool_idle", raw.pool_idle, &mut up.pool_idle, Ok);
        self.set(
            "upstream.pool_idle_timeout",
            raw.pool_idle_timeout,
            &mut up.pool_idle_timeout,
            timeout,
        );
        self.set(
            "upstream.ask_models",
            raw.ask_models,
            &mut up.ask_models,
            Ok,
        );
    }

    fn budget(&mut self, section: &str, raw: RawBudget, budget: &mut Budget) {
        let key = |name: &str| format!("{section}.{name}");
        self.set(&key("mode"), raw.mode, &mut budget.mode, |text| {
            word(&text, Mode::WORDS)
        });
        self.set(&key("ceiling"), raw.ceiling, &mut budget.ceiling, ceiling);
        self.set(&key("floor"), raw.floor, &mut budget.floor, floor);
        self.set(
            &key("min_floor"),
            raw.min_floor,
            &mut budget.min_floor,
            fraction,
        );
        self.set(
            &key("protect_recent"),
            raw.protect_recent,
            &mut budget.protect_recent,
            protect_recent,
        );
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
        self.set(
            &key("strict_active"),
            raw.strict_active,
            &mut budget.strict_active,
            Ok,
        );
        self.set(&key("policy"), raw.policy, &mut budget.policy, |text| {
            word(&text, Policy::WORDS)
        });
        self.set(&key("order"), raw.order, &mut budget.order, |text| {
            word(&text, Order::WORDS)
        });
        if let ProtectRecent::Tokens(tokens) = budget.protect_recent
            && tokens >= budget.ceiling
        {
            self.problem(
                &key("protect_recent"),
                "must be below the ceiling, or nothing could be evicted",
            );
        }
    }

    /// The sections of the guidance and of the budget are two, though a profile overrides both.
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

    fn guide(
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

    fn delimiter(
        &mut self,
        raw: RawDelimiter,
        delimiter: &mut DelimiterSettings,
        streams: &mut StreamSettings,
    ) {
        self.set("delimiter.enabled", raw.enabled, &mut delimiter.enabled, Ok);
        self.set(
            "delimiter.auto_close",
            raw.auto_close,
            &mut delimiter.auto_close,
            Ok,
        );
        self.set("delimiter.hops", raw.hops, &mut delimiter.hops, |hops| {
            if (1..=64).contains(&hops) {
                Ok(hops)
            } else {
                Err("must be between 1 and 64".to_owned())
            }
        });
        self.set(
            "delimiter.guidance",
            raw.guidance,
            &mut delimiter.guidance,
            guidance,
        );
        self.set(
            "delimiter.heartbeat",
            raw.heartbeat,
            &mut streams.heartbeat,
            timeout,
        );
        self.set("delimiter.nudge", raw.nudge, &mut delimiter.nudge, Ok);
        self.set("delimiter.usage", raw.usage, &mut streams.usage, |text| {
            word(&text, &[("last", UsageMode::Last), ("sum", UsageMode::Sum)])
        });
        self.set(
            "delimiter.finish_cancelled",
            raw.finish_cancelled,
            &mut streams.finish_cancelled,
            Ok,
        );
    }

    fn cache(&mut self, raw: RawCache, cache: &mut CacheSettings) {
        let words = &[("auto", SetBreakpoints::Auto), ("off", SetBreakpoints::Off)];
        self.set(
            "cache.breakpoints",
            raw.breakpoints,
            &mut cache.breakpoints,
            |text| word(&text, words),
        );
    }

    fn tools(&mut self, raw: RawTools, tools: &mut ToolClasses, texts: &mut TextResults) {
        self.set("tools.bulk", raw.bulk, &mut tools.bulk, globs);
        self.set("tools.read", raw.read, &mut tools.read, globs);
        self.set("tools.shell", raw.shell, &mut tools.shell, globs);
        self.set("tools.write", raw.write, &mut tools.write, globs);
        let results = raw.text_results;
        self.set("tools.text_results", results, &mut texts.patterns, |list| {
            list.iter().map(|text| pattern(text)).collect()
        });
        let profile = raw.profile.filter(|name| name != "none");
        self.set("tools.profile", profile, &mut texts.profile, |name| {
            word(&name, TextProfile::WORDS).map(Some)
        });
    }

    fn store(&mut self, raw: RawStore, store: &mut StoreSettings) {
        self.set("store.backend", raw.backend, &mut store.backend, |text| {
            word(
                &text,
                &[("sled", Backend::Sled), ("memory", Backend::Memory)],
            )
        });
        self.set("store.path", raw.path, &mut store.path, |text| {
            if text.is_empty() {
                Err("must name a directory".to_owned())
            } else {
                Ok(PathBuf::from(text))
            }
        });
        self.set("store.wait", raw.wait, &mut store.wait, |text| {
            units::duration(&text)
        });
        self.set(
            "store.read_wait",
            raw.read_wait,
            &mut store.read_wait,
            timeout,
        );
        self.set(
            "store.cache_mb",
            raw.cache_mb,
            &mut store.cache_mb,
            |size| {
                if (8..=65_536).contains(&size) {
                    Ok(size)
                } else {
                    Err("must be between 8 and 65536 MiB".to_owned())
                }
            },
        );
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
    }
}
