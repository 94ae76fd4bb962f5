//! Reads the settings, section after section: each has its name, its place and its reader in one line here.
//! Owns the limits that concern several settings. Never stops at the first problem.

use std::path::PathBuf;

use plimsoll_core::policy::{AdmitSettings, Order, Partition, Partitions};
use plimsoll_core::turn::text_results::{TextProfile, TextResults, pattern};
use plimsoll_core::turn::{
    Budget, CacheSettings, CompactionSettings, CompactionView, DelimiterSettings, Diagnose,
    FilterRole, KeepErrors, KeepSettings, Mode, Offer, ProtectRecent, RecallSettings, RungTable,
    SetBreakpoints, StoreContent, Thoughts, ToolClasses, Uncached, Unmet,
};
use plimsoll_ingress::{AdminToken, Hosts, Origins, ServerSettings, Sources};
use plimsoll_proxy::pipeline::{ShownContent, StreamSettings};
use plimsoll_proxy::upstream::{BaseUrl, UpstreamSettings};
use plimsoll_store::Backend;
use plimsoll_wire::stream::UsageMode;

use super::given::{Check, Given, Section};
use super::level::log_level;
use super::problem::Problem;
use super::profiles;
use super::readers::{
    address, admin_token, admin_token_file, age, answer_cap, at_least, at_least_one, cache_memory,
    caller_key, caller_keys, ceiling, duration, families, file_names, floor, fraction, globs,
    guidance, guide_at, header_name, key_prefix, ladder, listen_or_none, name_globs, none_or,
    protect_recent, retry_for, retry_statuses, rung_policy, seal_key, seal_keys, server_urls,
    share, size, store_bytes, store_cache, tenant_key, timeout, word,
};
use super::settings::{Config, LogFormat, StoreSection, TenantKey};

/// The settings of `[delimiter]` that are decided once for the process.
pub(super) const OF_THE_PROCESS: [&str; 3] = ["heartbeat", "usage", "finish_cancelled"];

/// Reads a configuration. Returns it with all problems, those of its sources among them; if there are any, it is not
/// valid.
pub(super) fn read(given: Given, problems: Vec<Problem>) -> (Config, Check) {
    let mut check = Check::of(&given, problems);
    let mut config = Config::default();
    let mut root = check.root(given);
    server(root.section("server"), &mut config.server);
    admin(root.section("admin"), &mut config.server.admin_token);
    upstream(root.section("upstream"), &mut config.upstream);
    let mut base = root.section("budget");
    // A profile overrides the guidance as well, but `[budget]` itself may not hold it.
    for key in ["offer", "guide_at"] {
        let message = format!("belongs into [delimiter]: set `delimiter.{key}`");
        base.refuse(key, &message);
    }
    budget(&mut base, &mut config.budget);
    fits(&mut base, &config.budget);
    drop(base);
    repeat(root.section("repeat"), &mut config.budget);
    admit(root.section("admit"), &mut config.budget.admit);
    keep(root.section("keep"), &mut config.budget.keep);
    let mut parts = root.section("partitions");
    partitions(&mut parts, &mut config.partitions);
    shares(&mut parts, config.partitions);
    drop(parts);
    rungs(root.section("rungs"), &mut config.budget.rungs);
    let mut marks = root.section("delimiter");
    guide(&mut marks, &mut config.budget);
    streams(&mut marks, &mut config.streams);
    delimiter(marks, &mut config.delimiter);
    recall(root.section("recall"), &mut config.recall);
    compaction(root.section("compaction"), &mut config.compaction);
    cache(root.section("cache"), &mut config.cache);
    tools(root.section("tools"), &mut config.tools, &mut config.texts);
    store(root.section("store"), &mut config.store);
    let mut log = root.section("log");
    log.read("level", &mut config.log.level, log_level);
    let forms = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
    log.word("format", &mut config.log.format, forms);
    drop(log);
    tenant(root.section("tenant"), &mut config);
    let mut metrics = root.section("metrics");
    metrics.read("models", &mut config.metrics.models, globs);
    drop(metrics);
    let mut models = root.section("models");
    models.read("families", &mut config.models.families, families);
    drop(models);
    let mut console = root.section("console");
    let shown = &[
        ("auto", None),
        ("live", Some(ShownContent::Live)),
        ("stored", Some(ShownContent::Stored)),
        ("off", Some(ShownContent::Off)),
    ];
    console.word("content", &mut config.console.content, shown);
    drop(console);
    compress(root.section("compress"), &mut config);
    loops(&mut root, &config);
    shared_store(&mut root, &config);
    kept_evicted(&mut root, &config);
    // Profiles are laid over the other sections, so these come first.
    profiles::read(root.section("profiles"), &mut config);
    profiles::split(root.section("split"), &mut config);
    drop(root);
    (config, check)
}

fn server(mut section: Section<'_>, server: &mut ServerSettings) {
    section.read("listen", &mut server.listen, address);
    section.read("admin", &mut server.admin, address);
    section.read("body_cap", &mut server.body_cap, size);
    section.read("body_budget", &mut server.body_budget, size);
    section.read("body_wait", &mut server.pace.wait, timeout);
    section.read("body_rate", &mut server.pace.rate, size);
    section.read("body_timeout", &mut server.pace.most, timeout);
    section.read("write_timeout", &mut server.write_timeout, timeout);
    section.read("cache_memory", &mut server.cache_memory, cache_memory);
    section.read("drain", &mut server.drain, duration);
    section.read("max_in_flight", &mut server.max_in_flight, at_least_one);
    section.read("hosts", &mut server.hosts, |list: Vec<_>| {
        Hosts::read(&list)
    });
    section.read("origins", &mut server.origins, |list: Vec<_>| {
        Origins::read(&list)
    });
    if server.listen == server.admin && server.listen.port() != 0 {
        section.problem("admin", "must not be the address of `server.listen`");
    }
}

fn admin(mut section: Section<'_>, token: &mut Option<AdminToken>) {
    let mut filed = None;
    section.read("token", token, admin_token);
    section.read("token_file", &mut filed, admin_token_file);
    if token.is_some() && filed.is_some() {
        let message = "stands beside `admin.token`; give one of them";
        section.problem("token_file", message);
    }
    *token = token.take().or(filed);
}

fn compress(mut section: Section<'_>, config: &mut Config) {
    let ours = &mut config.compress;
    section.read("listen", &mut ours.listen, listen_or_none);
    let (mut key, mut keys) = (None, Vec::new());
    section.read("key", &mut key, caller_key);
    section.read("keys", &mut keys, caller_keys);
    for (tenant, key) in keys {
        ours.keys.add_named(&tenant, key.expose());
    }
    if let Some(key) = key {
        ours.keys.add(key.expose());
    }
    if ours.keys.has_twins() {
        section.problem(
            "keys",
            "holds a key twice, so that it would name two tenants",
        );
    }
    section.read("tenant_header", &mut ours.tenant_header, header_name);
    section.read("tokens", &mut ours.tokens, |value| at_least(1000, value));
    section.read("floor", &mut ours.floor, fraction);
    section.read("keep", &mut ours.keep, Ok);
    let Some(listen) = ours.listen else {
        return;
    };
    if ours.keys.is_empty() {
        let message = "must be given where compress.listen is set, with at least 32 characters: set PLIMSOLL__COMPRESS__KEY";
        section.problem("key", message);
    }
    let server = &config.server;
    if listen.port() != 0 && [server.listen, server.admin].contains(&listen) {
        let message = "must not be the address of `server.listen` or `server.admin`";
        section.problem("listen", message);
    }
}

fn tenant(mut section: Section<'_>, config: &mut Config) {
    section.read("key", &mut config.tenant, tenant_key);
    // The two lists are read first and set afterwards, because a list that is not given keeps the default.
    let sources = &mut config.server.sources;
    let (mut headers, mut query) = (None, None);
    section.read("headers", &mut headers, |list: Vec<_>| {
        Sources::read_headers(&list).map(Some)
    });
    section.read("query", &mut query, |list: Vec<String>| Ok(Some(list)));
    section.read("claims", &mut sources.claims, Ok);
    if let Some(headers) = headers {
        sources.set_headers(headers);
    }
    if let Some(query) = query {
        sources.set_query(&query);
    }
}

/// Refuses a proxy that would send requests to itself without end.
fn loops(root: &mut Section<'_>, config: &Config) {
    // All listeners count, because the others would answer as well.
    let own = [
        ("server.listen", Some(config.server.listen)),
        ("server.admin", Some(config.server.admin)),
        ("compress.listen", config.compress.listen),
    ];
    for (key, address) in own.into_iter().filter_map(|(key, at)| Some((key, at?))) {
        if config.upstream.base_url.reaches(address) {
            let message = format!(
                "is the proxy's own address (`{key}`); give the provider's, like \"https://api.openai.com/v1\""
            );
            root.problem("upstream.base_url", &message);
        }
    }
}

fn upstream(mut section: Section<'_>, up: &mut UpstreamSettings) {
    section.read("base_url", &mut up.base_url, |text: String| {
        BaseUrl::parse(&text).map_err(|error| error.to_string())
    });
    section.read("connect_timeout", &mut up.connect_timeout, timeout);
    section.read("first_byte_timeout", &mut up.first_byte_timeout, timeout);
    section.read("idle_timeout", &mut up.idle_timeout, timeout);
    section.read("retries", &mut up.retries, |retries| match retries {
        0..=10 => Ok(retries),
        _ => Err("must be at most 10".to_owned()),
    });
    section.read("retry_statuses", &mut up.retry_statuses, retry_statuses);
    section.read("retry_for", &mut up.retry_for, retry_for);
    section.read("pool_idle", &mut up.pool_idle, Ok);
    section.read("pool_idle_timeout", &mut up.pool_idle_timeout, timeout);
    section.read("ask_models", &mut up.ask_models, Ok);
}

/// Reads the keys of `[budget]`, which stand in a profile itself as well.
pub(super) fn budget(section: &mut Section<'_>, budget: &mut Budget) {
    section.word("mode", &mut budget.mode, Mode::WORDS);
    section.refuse("ceiling", "is called `tokens` now");
    section.read("tokens", &mut budget.ceiling, ceiling);
    section.read("floor", &mut budget.floor, floor);
    section.read("min_floor", &mut budget.min_floor, fraction);
    section.read("protect_recent", &mut budget.protect_recent, protect_recent);
    section.read("implicit_tokens", &mut budget.implicit_tokens, |value| {
        at_least(500, value)
    });
    let words = &[("surface", Unmet::Surface), ("refuse", Unmet::Refuse)];
    section.word("unmet", &mut budget.unmet, words);
    section.read("strict_active", &mut budget.strict_active, Ok);
    section.word("thoughts", &mut budget.thoughts, Thoughts::WORDS);
    section.read("thought_value", &mut budget.thought_value, share);
    section.rename("policy", "policies");
    section.read("policies", &mut budget.ladder, ladder);
    section.word("order", &mut budget.order, Order::WORDS);
}

/// Refuses a tail that leaves nothing to evict.
pub(super) fn fits(section: &mut Section<'_>, budget: &Budget) {
    if let ProtectRecent::Tokens(tokens) = budget.protect_recent
        && tokens >= budget.ceiling
    {
        let message = "must be below the budget, or nothing could be evicted";
        section.problem("protect_recent", message);
    }
}

pub(super) fn repeat(mut section: Section<'_>, budget: &mut Budget) {
    section.read(
        "unchanged",
        &mut budget.unchanged,
        |texts: Vec<String>| match texts.iter().any(|text| text.trim().chars().count() < 8) {
            true => Err(
                "a text must have at least 8 characters, or ordinary results would have it"
                    .to_owned(),
            ),
            false => Ok(texts
                .iter()
                .map(|text| text.trim().to_lowercase())
                .collect()),
        },
    );
}

pub(super) fn admit(mut section: Section<'_>, admit: &mut AdmitSettings) {
    let limits = &mut admit.limits;
    section.read("tokens", &mut limits.tokens, |value| none_or(200, value));
    section.read("lines", &mut limits.lines, |lines| match lines {
        1..10 => Err("must be 0 or at least 10".to_owned()),
        _ => Ok(lines),
    });
    section.read("bytes", &mut limits.bytes, |value| match value {
        toml::Value::Integer(0) => Ok(0),
        _ => size(value).map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
    });
    section.read("reads", &mut admit.reads, Ok);
    section.read("except", &mut admit.except, name_globs);
}

pub(super) fn keep(mut section: Section<'_>, keep: &mut KeepSettings) {
    section.read("tools", &mut keep.tools, name_globs);
    section.read("files", &mut keep.files, file_names);
    section.word("errors", &mut keep.errors, KeepErrors::WORDS);
    section.read("texts", &mut keep.texts, |texts: Vec<String>| {
        match texts.iter().any(|text| text.trim().len() < 3) {
            true => Err(
                "a text must have at least 3 characters, or it keeps nearly everything".to_owned(),
            ),
            false => Ok(texts),
        }
    });
    section.read("newest", &mut keep.newest, |pairs| match pairs {
        1 | 2 => Err("must be 0 or at least 3".to_owned()),
        _ => Ok(pairs),
    });
    section.read("share", &mut keep.share, |share| match share {
        0.0..=0.5 => Ok(share),
        _ => Err("must be a share of the budget from 0 to 0.5".to_owned()),
    });
}

pub(super) fn partitions(section: &mut Section<'_>, parted: &mut Partitions) {
    let share = |share: f64| match share {
        0.0..=1.0 => Ok(share),
        _ => Err("must be a share of the window from 0 to 1".to_owned()),
    };
    section.read("system", parted.share(Partition::System), share);
    section.read("tools", parted.share(Partition::Tools), share);
    section.read("messages", parted.share(Partition::Messages), share);
    section.read("auxiliary", parted.share(Partition::Auxiliary), share);
    section.read("reserve", &mut parted.reserve, share);
    section.read("margin", &mut parted.margin, share);
}

/// Refuses shares that don't go together.
pub(super) fn shares(section: &mut Section<'_>, mut parted: Partitions) {
    let messages = *parted.share(Partition::Messages);
    let kept = parted.reserve + parted.margin > 0.0;
    if parted.sum() > 1.0 + 1e-9 {
        section.wrong("the shares must come to at most 1");
    } else if messages <= 0.0 && (parted.is_on() || kept) {
        let message = "must be above 0 where another share is; without partitions all are 0";
        section.problem("messages", message);
    }
}

/// What single rungs may touch, and how far down they evict.
pub(super) fn rungs(mut section: Section<'_>, rungs: &mut RungTable) {
    for (name, given) in section.take_all() {
        let policy = match rung_policy(&name) {
            Ok(policy) => policy,
            Err(message) => {
                section.problem(&name, &message);
                continue;
            }
        };
        let rung = rungs.entry(policy).or_default();
        let mut section = section.named(&name, given);
        section.read("tools", &mut rung.tools, name_globs);
        section.read("files", &mut rung.files, file_names);
        section.read("roles", &mut rung.roles, |names: Vec<String>| {
            let role = |name: &String| word(name, FilterRole::WORDS);
            names.iter().map(role).collect()
        });
        section.read("floor", &mut rung.floor, |share| match policy.evicts() {
            true => fraction(share).map(Some),
            false => Err(format!(
                "`{name}` evicts nothing in passes, so it has no floor"
            )),
        });
    }
}

/// When the hidden tools are offered and explained, which a profile sets beside its budget or in `delimiter`.
pub(super) fn guide(section: &mut Section<'_>, budget: &mut Budget) {
    section.word("offer", &mut budget.offer, Offer::WORDS);
    section.read("guide_at", &mut budget.guide_at, guide_at);
}

/// The part of `[delimiter]` that is decided once for the process.
fn streams(section: &mut Section<'_>, streams: &mut StreamSettings) {
    let [heartbeat, usage, finish_cancelled] = OF_THE_PROCESS;
    section.read(heartbeat, &mut streams.heartbeat, timeout);
    let words = &[("last", UsageMode::Last), ("sum", UsageMode::Sum)];
    section.word(usage, &mut streams.usage, words);
    section.read(finish_cancelled, &mut streams.finish_cancelled, Ok);
}

pub(super) fn delimiter(mut section: Section<'_>, delimiter: &mut DelimiterSettings) {
    section.read("enabled", &mut delimiter.enabled, Ok);
    section.read("auto_close", &mut delimiter.auto_close, Ok);
    section.read("hops", &mut delimiter.hops, |hops| match hops {
        1..=64 => Ok(hops),
        _ => Err("must be between 1 and 64".to_owned()),
    });
    section.read("guidance", &mut delimiter.guidance, guidance);
    section.read("nudge", &mut delimiter.nudge, Ok);
}

pub(super) fn recall(mut section: Section<'_>, recall: &mut RecallSettings) {
    section.read("enabled", &mut recall.enabled, Ok);
    section.read("dropped", &mut recall.dropped, Ok);
}

pub(super) fn compaction(mut section: Section<'_>, compaction: &mut CompactionSettings) {
    section.word("view", &mut compaction.view, CompactionView::WORDS);
    section.read(
        "requests",
        &mut compaction.requests,
        |texts: Vec<String>| match texts.iter().any(|text| text.trim().chars().count() < 16) {
            true => Err(
                "a beginning must have at least 16 characters, or ordinary messages would have it"
                    .to_owned(),
            ),
            false => Ok(texts.iter().map(|text| text.trim().to_owned()).collect()),
        },
    );
}

pub(super) fn cache(mut section: Section<'_>, cache: &mut CacheSettings) {
    let words = &[("auto", SetBreakpoints::Auto), ("off", SetBreakpoints::Off)];
    section.word("breakpoints", &mut cache.breakpoints, words);
    let words = &[("wait", Uncached::Wait), ("pass", Uncached::Pass)];
    section.word("none", &mut cache.none, words);
    let words = &[("off", Diagnose::Off), ("after_miss", Diagnose::AfterMiss)];
    section.word("diagnose", &mut cache.diagnose, words);
}

pub(super) fn tools(mut section: Section<'_>, tools: &mut ToolClasses, texts: &mut TextResults) {
    section.read("bulk", &mut tools.bulk, globs);
    section.read("read", &mut tools.read, globs);
    section.read("shell", &mut tools.shell, globs);
    section.read("write", &mut tools.write, globs);
    section.read("text_results", &mut texts.patterns, |list: Vec<String>| {
        list.iter().map(|text| pattern(text)).collect()
    });
    // `none` is the word for the default, so what stands there stays.
    let before = texts.profile;
    section.read("profile", &mut texts.profile, |name: String| {
        match name.as_str() {
            "none" => Ok(before),
            name => word(name, TextProfile::WORDS).map(Some),
        }
    });
}

/// Whoever has evicted content stored says for how long.
fn kept_evicted(root: &mut Section<'_>, config: &Config) {
    if config.store.keep_evicted && config.store.retention.content.is_none() {
        let message =
            "stores what is evicted on disk: say for how long, like store.keep_content = \"30d\"";
        root.problem("store.keep_evicted", message);
    }
}

/// A store that several proxies share needs a server, and a tenant key that they share too.
fn shared_store(root: &mut Section<'_>, config: &Config) {
    if config.store.backend != Backend::Redis {
        return;
    }
    if config.store.urls.is_empty() {
        let example =
            "must name the server, like redis://127.0.0.1:6379, where store.backend is \"redis\"";
        root.problem("store.url", example);
    } else if config.tenant == TenantKey::DataDirectory {
        let message = "must be given where store.backend is \"redis\", the same for all proxies that \
                       share the store: set PLIMSOLL__TENANT__KEY";
        root.problem("tenant.key", message);
    }
}

fn store(mut section: Section<'_>, store: &mut StoreSection) {
    let words = &[
        ("sled", Backend::Sled),
        ("memory", Backend::Memory),
        ("redis", Backend::Redis),
    ];
    section.word("backend", &mut store.backend, words);
    section.read("path", &mut store.path, |text: String| {
        Ok(PathBuf::from(text))
    });
    section.read("url", &mut store.urls, server_urls);
    section.read("prefix", &mut store.prefix, key_prefix);
    section.read("replicas", &mut store.replicas, Ok);
    section.read("wait", &mut store.wait, duration);
    section.read("read_wait", &mut store.read_wait, timeout);
    section.read("cache_mb", &mut store.cache_mb, store_cache);
    section.read("answer_cap", &mut store.answer_cap, answer_cap);
    let words = &[
        ("off", StoreContent::Off),
        ("asked", StoreContent::Asked),
        ("all", StoreContent::All),
    ];
    section.word("content", &mut store.content, words);
    section.read("keep_evicted", &mut store.keep_evicted, Ok);
    section.read("snapshots", &mut store.snapshots, |text: String| {
        Ok((!text.is_empty()).then(|| PathBuf::from(text)))
    });
    section.read("seal_key", &mut store.seal_key, seal_key);
    section.read("seal_key_previous", &mut store.seal_key_previous, seal_keys);
    let kept = &mut store.retention;
    section.read("keep_records", &mut kept.records, age);
    section.read("keep_content", &mut kept.content, age);
    section.read("max_bytes", &mut kept.most_bytes, store_bytes);
}
