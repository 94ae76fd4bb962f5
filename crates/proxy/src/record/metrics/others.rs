//! The metrics that no turn moves: connections, the store, memory, and what runs. Owns their names and handles. Never
//! reads what they show: whoever knows it sets it.

use std::sync::LazyLock;
use std::time::Duration;

use plimsoll_model::CacheName;
use plimsoll_store::Health;
use prometheus::{Error, Histogram, IntCounter, IntGauge};

use super::Metrics;
use super::buckets::OVERHEAD_BUCKETS;
use super::register::{Each, Registrar, members, opts};
use crate::record::labels::{AcceptError, ConnectionCut, StoreOp, StoreTrip};

/// The process has one, as it has one stderr. Lines are also lost where no registry is in reach.
static LOG_LINES_LOST: LazyLock<Result<IntCounter, Error>> = LazyLock::new(|| {
    IntCounter::with_opts(opts(
        "log_lines_lost_total",
        "Lines of the log that could not be written, or not soon enough",
    ))
});

/// What a store counts from its own start.
type StoreCount = (&'static str, &'static str, fn(&Health) -> u64);

const STORE_COUNTS: [StoreCount; 6] = [
    (
        "store_lost_total",
        "Records that were acknowledged and are gone",
        |health| health.lost,
    ),
    (
        "store_mismatched_total",
        "Blobs that did not match their id when they were read, and were taken as absent",
        |health| health.mismatched,
    ),
    (
        "store_rebuilt_total",
        "How often a damaged store was rebuilt from its copies",
        |health| health.rebuilt,
    ),
    (
        "store_wiped_total",
        "How often files of the store were removed or replaced while in use",
        |health| health.wiped,
    ),
    (
        "store_swept_total",
        "Blobs removed from the store because they were too old or took too much room",
        |health| health.swept,
    ),
    (
        "store_refused_total",
        "How often a server of the store refused or did not answer in time",
        |health| health.refused,
    ),
];

/// What a gauge of the store shows.
type StoreGauge = (&'static str, &'static str, fn(&Health) -> u64);

const STORE_GAUGES: [StoreGauge; 3] = [
    (
        "store_other_key",
        "1 if records have another tenant key",
        |health| u64::from(health.other_key),
    ),
    (
        "store_waiting",
        "Batches that wait to be written",
        |health| health.waiting as u64,
    ),
    (
        "store_cache_bytes",
        "Memory that the cache of a store on a server takes, in bytes",
        |health| health.cached,
    ),
];

/// The handles.
#[derive(Debug)]
pub(super) struct Others {
    in_flight: IntGauge,
    accept_errors: Each<AcceptError, IntCounter>,
    cut_connections: Each<ConnectionCut, IntCounter>,
    sessions_active: IntGauge,
    ceiling: IntGauge,
    store_ops: Each<StoreOp, Histogram>,
    store_bytes: IntGauge,
    store_free: IntGauge,
    store_durable: IntGauge,
    store_counts: Vec<IntCounter>,
    store_gauges: Vec<IntGauge>,
    store_trips: Each<StoreTrip, IntCounter>,
    cache_bytes: Each<CacheName, IntGauge>,
    cache_limits: Each<CacheName, IntGauge>,
}

impl Others {
    pub fn register(r: &Registrar) -> Result<Self, Error> {
        let (what, version) = ("1, labelled with what runs", env!("CARGO_PKG_VERSION"));
        r.fact("build_info", what, "version", version)?;
        match &*LOG_LINES_LOST {
            Ok(counter) => r.add(counter.clone()).map(drop)?,
            Err(error) => return Err(Error::Msg(error.to_string())),
        }
        let store_ops = r.histograms(
            "store_op_seconds",
            "Time of the store's operations",
            "op",
            OVERHEAD_BUCKETS,
        )?;
        let counts = STORE_COUNTS
            .iter()
            .map(|(name, help, _)| r.counter(name, help));
        let gauges = STORE_GAUGES
            .iter()
            .map(|(name, help, _)| r.gauge(name, help));
        Ok(Self {
            in_flight: r.gauge("in_flight_requests", "Requests being answered now")?,
            accept_errors: r.counters(
                "accept_errors_total",
                "Connections of agents that the system did not let us accept",
                "why",
            )?,
            cut_connections: r.counters(
                "cut_connections_total",
                "Connections of agents that were cut: idle ones to make room, and those whose client did not read",
                "why",
            )?,
            sessions_active: r.gauge("sessions_active", "Sessions held in memory")?,
            ceiling: r.gauge(
                "budget_tokens",
                "The configured token budget; single requests may have their own",
            )?,
            store_ops: members(&store_ops),
            store_bytes: r.gauge(
                "store_bytes",
                "Bytes of the files in the data directory; 0 if the store is in memory",
            )?,
            store_free: r.gauge(
                "store_free_bytes",
                "Bytes that the disk of the data directory has free; 0 if the store is in memory",
            )?,
            store_durable: r.gauge(
                "store_durable",
                "1 if turns outlive a restart; 0 if they are kept in memory, or not at all",
            )?,
            store_counts: counts.collect::<Result<_, _>>()?,
            store_gauges: gauges.collect::<Result<_, _>>()?,
            store_trips: r.counters(
                "store_round_trips_total",
                "Round trips to a server of the store",
                "op",
            )?,
            cache_bytes: r.gauges(
                "cache_bytes",
                "Memory that each cache takes, in bytes",
                "cache",
            )?,
            cache_limits: r.gauges(
                "cache_limit_bytes",
                "The most that each cache may take: its share of server.cache_memory",
                "cache",
            )?,
        })
    }
}

impl Metrics {
    /// Counts one operation of the store, whoever waited for it.
    pub fn observe_store(&self, op: StoreOp, time: Duration) {
        self.others.store_ops.at(op).observe(time.as_secs_f64());
    }

    /// Counts a connection that could not be accepted.
    pub fn accept_failed(&self, why: AcceptError) {
        self.others.accept_errors.at(why).inc();
    }

    /// Counts a connection that was cut.
    pub fn connection_cut(&self, why: ConnectionCut) {
        self.others.cut_connections.at(why).inc();
    }

    /// Counts a request as in flight until the guard is dropped.
    #[must_use]
    pub fn in_flight(&self) -> InFlight {
        self.others.in_flight.inc();
        InFlight(self.others.in_flight.clone())
    }

    /// Takes over the state of the store. `durable` says whether turns outlive the process.
    pub fn set_store(&self, health: &Health, durable: bool) {
        let others = &self.others;
        for ((.., of), counter) in STORE_COUNTS.iter().zip(&others.store_counts) {
            catch_up(counter, of(health));
        }
        catch_up(others.store_trips.at(StoreTrip::Read), health.read_trips);
        catch_up(others.store_trips.at(StoreTrip::Write), health.write_trips);
        for ((.., of), gauge) in STORE_GAUGES.iter().zip(&others.store_gauges) {
            gauge.set(whole(of(health)));
        }
        others.store_durable.set(i64::from(durable));
    }

    /// Sets how many bytes the store's files hold, and how many more their disk takes.
    pub fn set_store_bytes(&self, bytes: u64, free: u64) {
        self.others.store_bytes.set(whole(bytes));
        self.others.store_free.set(whole(free));
    }

    /// Sets the number of sessions in memory.
    pub fn set_sessions_active(&self, sessions: usize) {
        self.others.sessions_active.set(whole(sessions as u64));
    }

    /// Sets the configured ceiling, which dashboards draw as a line.
    pub fn set_ceiling(&self, tokens: u64) {
        self.others.ceiling.set(whole(tokens));
    }

    /// Sets how many bytes a cache holds and how many it may hold.
    pub fn set_cache(&self, cache: CacheName, bytes: u64, limit: u64) {
        self.others.cache_bytes.at(cache).set(whole(bytes));
        self.others.cache_limits.at(cache).set(whole(limit));
    }
}

/// A request in flight. Dropping it ends the flight.
#[derive(Debug)]
pub struct InFlight(IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts log lines that were lost because nobody read them and there was no room to wait.
pub fn log_lines_lost(lines: u64) {
    if let Ok(counter) = &*LOG_LINES_LOST {
        counter.inc_by(lines);
    }
}

/// Moves a counter to what somebody else has counted from its own start.
fn catch_up(counter: &IntCounter, now: u64) {
    counter.inc_by(now.saturating_sub(counter.get()));
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
