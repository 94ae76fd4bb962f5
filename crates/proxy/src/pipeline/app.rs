//! What all requests share: connections, settings, the store and the caches. Owns nothing that
//! changes with a single request, and never reads a configuration.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::turn::memo::{Memo, Reader};
use plimsoll_core::turn::state::HopContext;
use plimsoll_core::turn::{Mode, Profiles};
use plimsoll_model::{CacheName, Erased, TenantId, caches};
use plimsoll_store::Store;
use plimsoll_tokens::{Counter, Family, Models};
use plimsoll_wire::Dialect;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::active_sessions::ActiveSessions;
use super::asked::Asked;
use super::bodies::Bodies;
use super::dropped::Histories;
use super::erasing::Erasing;
use super::failures::Failures;
use super::find::Paths;
use super::learned::Learned;
use super::live::Live;
use super::proven::Proven;
use super::settings::ServingSettings;
use super::windows::Windows;
use crate::history::Readers;
use crate::record::{Label, Metrics};
use crate::upstream;

/// What every request may use.
pub struct App {
    /// The connections to the upstream.
    pub upstream: upstream::UpstreamClient,
    /// The upstream's name in metrics.
    pub provider: Label,
    /// What decides turns.
    pub settings: Profiles,
    /// How long requests and streams wait, and how much is taken in.
    pub serving: ServingSettings,
    /// The stream machine's settings.
    pub intercept: plimsoll_wire::stream::MachineSettings,
    /// The store of turn records.
    pub store: Arc<Store>,
    /// The records of turns that are only watched, in memory. The oldest are dropped first.
    pub watched: Arc<Store>,
    /// What the upstream has shown for good.
    pub proven: Proven,
    /// Runs look-ups in the store off the async workers.
    pub readers: Readers,
    /// What the upstream was found to refuse.
    pub learned: Learned,
    /// How much models take, as the upstream said.
    pub windows: Arc<Windows>,
    /// Folded paths.
    pub paths: Paths,
    /// Sessions that were served lately.
    pub active: ActiveSessions,
    /// What an operator asked of sessions and what waits for a turn.
    pub asked: Asked,
    /// What was erased, so that no turn under way brings it back.
    pub erasing: Erasing,
    /// What happens, for those who look on.
    pub live: Live,
    /// The newest requests that failed.
    pub failures: Failures,
    /// The newest requests of sessions.
    pub bodies: Bodies,
    /// Requests from which something was evicted.
    pub histories: Histories,
    /// Shapes of messages.
    pub memo: Memo,
    /// The tokeniser.
    pub counter: Counter,
    /// What is known of models.
    pub models: Models,
    /// Where turns are counted.
    pub metrics: Metrics,
    /// Turns for requests with much to be read: one fewer than there are processors, and at least one.
    pub large: Arc<Semaphore>,
    /// Tasks that drive streams. A shutdown waits for them, because they write records.
    pub streams: TaskTracker,
    /// The time in milliseconds since 1970: [`App::system_clock`], or the clock of a test.
    pub clock: fn() -> u64,
}

impl App {
    /// The turns of [`App::large`], all free.
    #[must_use]
    pub fn large_turns() -> Arc<Semaphore> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Semaphore::new(processors.saturating_sub(1).max(1)))
    }

    /// The metrics, in Prometheus' text format.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        self.metrics.set_sessions_active(self.active.count());
        self.metrics
            .set_store_bytes(self.store.disk_bytes(), self.store.disk_free());
        // Gauges show the moment, so they are set when somebody reads the metrics.
        let health = self.store.health();
        self.metrics
            .set_store(&health, self.store.is_durable(&health));
        for cache in CacheName::ALL {
            let held = match cache {
                CacheName::Paths => self.paths.weight(),
                CacheName::Sessions => self.active.weight(),
                CacheName::Watched => self.watched.memory_bytes(),
                CacheName::Bodies => self.bodies.weight(),
                CacheName::Histories => self.histories.weight(),
                CacheName::Console => self.live.read_weight(),
                CacheName::Shapes
                | CacheName::Sizes
                | CacheName::Words
                | CacheName::Gone
                | CacheName::Lefts
                | CacheName::Notes
                | CacheName::Fronts => self.memo.weight(cache),
            };
            let limit = caches::share(cache, self.serving.cache_memory);
            self.metrics.set_cache(cache, held, limit as u64);
        }
        self.metrics.render().unwrap_or_else(|error| {
            tracing::warn!(%error, "metrics could not be written");
            String::new()
        })
    }

    /// Forgets all that is remembered of a session or a tenant. What can't be told apart is forgotten of
    /// everybody, which costs time alone: the store has the same.
    pub fn forget(&self, whose: &Erased) {
        self.paths.forget();
        self.memo.forget();
        self.active.forget(whose);
        self.asked.forget(whose);
        self.bodies.forget();
        self.histories.forget();
        self.failures.forget(whose);
    }

    /// The store that holds the records of a mode.
    #[must_use]
    pub fn records(&self, mode: Mode) -> &Arc<Store> {
        match mode {
            Mode::Observe => &self.watched,
            Mode::Manage | Mode::Off => &self.store,
        }
    }

    /// A store for the records of turns that are only watched. It gets its share of `all`, the
    /// memory of all caches.
    #[must_use]
    pub fn watched_in(all: usize) -> Arc<Store> {
        Arc::new(Store::forgetful(caches::share(CacheName::Watched, all)))
    }

    /// Reads the messages of a tenant's conversation.
    #[must_use]
    pub fn reader(&self, family: &Family, tenant: TenantId, dialect: Dialect) -> Reader<'_> {
        self.memo
            .reader(&self.counter, family.encoding, tenant, dialect)
    }

    /// What a tenant's conversation under a profile needs to prepare its hops.
    #[must_use]
    pub fn tools<'a>(
        &'a self,
        family: &'a Family,
        tenant: TenantId,
        dialect: Dialect,
        profile: Option<&str>,
    ) -> HopContext<'a> {
        HopContext {
            reader: self.reader(family, tenant, dialect),
            classes: &self.settings.settings(profile).classes,
            family,
            now: self.now(),
        }
    }

    /// Now, in milliseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// The time of the system's clock in milliseconds since 1970. A clock that stands before 1970
    /// reads as zero, which only makes the provider's cache look warm.
    #[must_use]
    pub fn system_clock() -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
