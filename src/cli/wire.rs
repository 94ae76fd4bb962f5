//! From a configuration to the wired application. Owns which setting goes to which module. Never
//! serves anything.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use plimsoll_compress::{Engine, Limits, Sizing};
use plimsoll_console::Console;
use plimsoll_core::turn::memo::Memo;
use plimsoll_core::turn::{Classes, ContentSettings, Profile, Profiles, Settings};
use plimsoll_ingress::{Probes, Readiness};
use plimsoll_proxy::history::Readers;
use plimsoll_proxy::pipeline::find::Paths;
use plimsoll_proxy::pipeline::{
    ActiveSessions, App, Asked, Bodies, Erasing, Failures, Histories, Learned, Live, Proven,
    ServingSettings, ShownContent, Windows,
};
use plimsoll_proxy::record::{Metrics, provider_name, serves};
use plimsoll_proxy::upstream::UpstreamClient;
use plimsoll_store::{KeyMark, OpenedStore, Store};
use plimsoll_tokens::{Counter, Models};
use tokio_util::task::TaskTracker;

use super::erase::erase;
use super::tenant_key::ObtainedKey;
use crate::config::{Config, TurnSections};

/// Opens the store, loads the tokeniser and wires everything together.
///
/// # Errors
/// If the store belongs to another process, or a part can't be set up.
pub fn app(config: &Config) -> anyhow::Result<Arc<App>> {
    wired(config, &store_config(config))
}

/// Does the same, with the tenant key under which sessions are recorded.
///
/// # Errors
/// The errors of [`app`].
pub fn app_under(config: &Config, key: &ObtainedKey) -> anyhow::Result<Arc<App>> {
    wired(
        config,
        &plimsoll_store::StoreSettings {
            keepsake: key.keepsake.clone(),
            key_mark: Some(KeyMark::of(&key.key)),
            ..store_config(config)
        },
    )
}

fn wired(config: &Config, store: &plimsoll_store::StoreSettings) -> anyhow::Result<Arc<App>> {
    // The store comes first: if another process holds it, nothing else should begin.
    let opened = Store::open_or_stand_by(store)?;
    say(&opened);
    let tried = config.split.as_ref().map(|split| split.profile.as_str());
    let metrics = Metrics::new(&config.metrics.models, tried).context("can't register metrics")?;
    // Dashboards draw the ceiling as a line, before any request has come.
    metrics.set_ceiling(u64::from(config.budget.ceiling));
    let host = config.upstream.base_url.as_str();
    let host = url_host(host);
    let shown = config.console.shown(config.server.admin.ip());
    Ok(Arc::new(App {
        provider: provider_name(host),
        upstream: UpstreamClient::new(config.upstream.clone())?,
        settings: profiles(config)?,
        serving: ServingSettings {
            streams: config.streams,
            store_wait: config.store.wait,
            read_wait: config.store.read_wait,
            body_cap: config.server.body_cap,
            cache_memory: config.server.cache_memory,
            shown,
        },
        intercept: plimsoll_wire::stream::MachineSettings {
            usage: config.streams.usage,
            room: config.server.room(),
            answer_cap: config.store.answer_cap,
            ..Default::default()
        },
        watched: App::watched_in(config.server.cache_memory),
        proven: Proven::by(config.upstream.base_url.as_str()),
        readers: Readers::of(&opened.store),
        store: Arc::new(opened.store),
        learned: Learned::default(),
        windows: Arc::new(Windows::new(
            config.upstream.ask_models,
            serves(provider_name(host)),
        )),
        paths: Paths::new(config.server.cache_memory),
        active: ActiveSessions::new(config.server.cache_memory),
        asked: Asked::default(),
        erasing: Erasing::default(),
        live: Live::new(App::system_clock),
        failures: Failures::default(),
        histories: Histories::new(config.server.cache_memory),
        bodies: Bodies::new(config.server.cache_memory, shown == ShownContent::Live),
        memo: Memo::new(config.server.cache_memory),
        counter: Counter::load(),
        models: models(config)?,
        metrics,
        large: App::large_turns(),
        streams: TaskTracker::new(),
        clock: App::system_clock,
    }))
}

/// The settings of turns, by profile.
fn profiles(config: &Config) -> anyhow::Result<Profiles> {
    let settings = |turns: TurnSections| -> anyhow::Result<Settings> {
        Ok(Settings {
            classes: Classes::new(&turns.tools)?,
            budget: turns.budget,
            delimiter: turns.delimiter,
            recall: turns.recall,
            compaction: turns.compaction,
            cache: turns.cache,
            texts: Arc::new(turns.texts),
            content: ContentSettings {
                of: config.store.content,
                evicted: config.store.keep_evicted,
            },
            partitions: turns.partitions,
        })
    };
    let named = config.profiles.iter().map(|(name, section)| {
        let profile = Profile {
            when: section.when.clone(),
            settings: settings(section.turns.clone())?,
        };
        Ok((name.clone(), profile))
    });
    Ok(Profiles {
        base: settings(config.turns())?,
        named: named.collect::<anyhow::Result<_>>()?,
        split: config.split.clone(),
    })
}

/// Logs what opening the store found.
fn say(opened: &OpenedStore) {
    let closed = &opened.report.closed;
    if let Some(first) = closed.first() {
        tracing::warn!(
            first = %first.display(),
            count = closed.len(),
            "others could read the data directory; it is now closed to them"
        );
    }
    let notes = opened.report.notes();
    // A store that stands by has notes that its report does not have.
    let now = opened.store.notes();
    for note in notes
        .iter()
        .chain(now.iter().filter(|note| !notes.contains(note)))
    {
        tracing::warn!("{note}");
    }
}

/// The paths of `[compress]`, which take `memory` bytes of what caches may take.
pub fn compress(app: &Arc<App>, config: &Config, secret: [u8; 32], memory: usize) -> Router {
    let (models, counts) = (Arc::clone(app), Arc::clone(app));
    let sizing = Sizing {
        encoding: Box::new(move |model| models.models.family(model.unwrap_or_default()).encoding),
        count: Box::new(move |encoding, text| counts.counter.count(encoding, text)),
    };
    let engine = Engine::new(config.compress.clone(), secret, sizing, memory);
    plimsoll_compress::router(engine, Limits::of(config.server.body_cap))
}

/// What the admin listener asks of the application, with the directory below which it may write
/// snapshots.
#[must_use]
pub fn probes(app: &Arc<App>, snapshots: Option<PathBuf>) -> Probes {
    let (copied, erasing) = (Arc::clone(&app.store), Arc::clone(app));
    let console = Arc::new(Console::new(Arc::clone(app)));
    let shown = Arc::clone(&console);
    let (metrics, ready) = (Arc::clone(app), Arc::clone(app));
    let (counted, swept) = (Arc::clone(&app.store), Arc::clone(&app.store));
    Probes {
        metrics: Arc::new(move || metrics.metrics_text()),
        ready: Arc::new(move || readiness(&ready.store)),
        stats: Arc::new(move || counted.stats()),
        gc: Arc::new(move || swept.sweep()),
        snapshot: Arc::new(move |name| copied.snapshot_below(snapshots.as_deref(), name)),
        erase: Arc::new(move |whose| {
            let forget = || shown.forget();
            erase(&erasing, whose, &forget).map_err(|error| error.to_string())
        }),
        console,
    }
}

/// Whether the store allows requests to be served, and its notes.
#[must_use]
pub fn readiness(store: &Store) -> Readiness {
    Readiness {
        ready: !store.degraded(),
        notes: store.notes(),
    }
}

/// How to open the store.
pub(super) fn store_config(config: &Config) -> plimsoll_store::StoreSettings {
    plimsoll_store::StoreSettings {
        backend: config.store.backend,
        path: config.store.path.clone(),
        redis: plimsoll_store::RedisSettings {
            urls: config
                .store
                .urls
                .iter()
                .map(|url| url.expose().to_owned())
                .collect(),
            prefix: config.store.prefix.clone(),
            replicas: config.store.replicas,
            // Whoever waits for a look-up has a little more patience, so that it learns the reason.
            patience: config.store.read_wait * 3 / 4,
        },
        cache_mb: config.store.cache_mb,
        retention: config.store.retention,
        seals: seals(config),
        ..plimsoll_store::StoreSettings::default()
    }
}

fn seals(config: &Config) -> plimsoll_store::Seals {
    let store = &config.store;
    let previous: Vec<&str> = store
        .seal_key_previous
        .iter()
        .map(|key| key.expose())
        .collect();
    plimsoll_store::Seals::new(store.seal_key.as_ref().map(|key| key.expose()), &previous)
}

/// How a command opens the same store: a data directory is not swept because somebody looks at it.
/// Redis needs its ages with everything that is written.
pub(super) fn unswept(settings: &plimsoll_store::StoreSettings) -> plimsoll_store::StoreSettings {
    let retention = match settings.backend {
        plimsoll_store::Backend::Redis => settings.retention,
        plimsoll_store::Backend::Memory | plimsoll_store::Backend::Sled => {
            plimsoll_store::Retention::default()
        }
    };
    plimsoll_store::StoreSettings {
        retention,
        ..settings.clone()
    }
}

/// The built-in families, with the operator's put over them.
fn models(config: &Config) -> anyhow::Result<Models> {
    let Some(file) = &config.models.families else {
        return Ok(Models::builtin().clone());
    };
    let named = || format!("can't read models.families from {}", file.display());
    let text = std::fs::read_to_string(file).with_context(named)?;
    let families = Models::parse(&text).with_context(named)?;
    Ok(Models::builtin().clone().overlay(families))
}

/// The host of a base URL that was checked before.
fn url_host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}
