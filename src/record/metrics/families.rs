//! Every metric's name, labels and buckets, in one place. It never observes anything. Handles
//! with labels out of closed sets are resolved here, once, and so are present at zero from the
//! start; the others are looked up when a turn is counted.

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry,
};

use crate::record::labels::{CacheName, CostKind, Phase, StoreOp};

/// 50 µs to 1 s: the proxy's own time and the store's.
pub(super) const OVERHEAD_BUCKETS: &[f64] = &[
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0,
];
/// 5 ms to 900 s: whole answers of a model.
pub(super) const UPSTREAM_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    900.0,
];
/// 1 ms to 300 s: the first sign of an answer.
pub(super) const FIRST_TOKEN_BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0,
];
/// Powers of four from 1 to 4,194,304.
pub(super) const TOKEN_BUCKETS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
];
/// Shares, closest where a good cache lives.
pub(super) const SHARE_BUCKETS: &[f64] = &[
    0.0, 0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0,
];
/// Reported over estimated tokens, around the span to which the session's ratio is clamped.
pub(super) const RATIO_BUCKETS: &[f64] = &[
    0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0,
];
/// Hidden hops a turn, up to the default bound.
pub(super) const HOP_BUCKETS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0];

/// All handles, and the registry that they are rendered from. The registry is the process' own
/// and no global, so that tests share no counts.
#[derive(Debug)]
pub(super) struct Families {
    registry: Registry,
    pub http: Http,
    pub upstream: Upstream,
    pub view: View,
    pub hidden: Hidden,
    pub own: Own,
}

impl Families {
    pub fn register() -> Result<Self, Error> {
        let registrar = Registrar(Registry::new());
        let r = &registrar;
        build_info(r)?;
        Ok(Self {
            http: Http::register(r)?,
            upstream: Upstream::register(r)?,
            view: View::register(r)?,
            hidden: Hidden::register(r)?,
            own: Own::register(r)?,
            registry: registrar.0,
        })
    }

    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

/// What clients see.
#[derive(Debug)]
pub(super) struct Http {
    pub requests: IntCounterVec,
    pub duration: Histogram,
    pub first_token: Histogram,
    pub in_flight: IntGauge,
    pub stream_aborts: IntCounterVec,
    pub fail_open: IntCounterVec,
    pub unmanaged: IntCounterVec,
}

impl Http {
    fn register(r: &Registrar) -> Result<Self, Error> {
        Ok(Self {
            requests: r.counters(
                "http_requests_total",
                "Requests answered; status=\"none\" where the client left before",
                &["route", "method", "status"],
            )?,
            duration: r.histogram(
                "http_request_duration_seconds",
                "From a request's head to its response's last byte",
                UPSTREAM_BUCKETS,
            )?,
            first_token: r.histogram(
                "time_to_first_token_seconds",
                "From a request's head to the first byte of an answer that the client could see",
                FIRST_TOKEN_BUCKETS,
            )?,
            in_flight: r.gauge("in_flight_requests", "Requests being answered now")?,
            stream_aborts: r.counters(
                "stream_aborts_total",
                "Responses that ended before their end, by who ended them and when",
                &["side", "phase"],
            )?,
            fail_open: r.counters(
                "fail_open_total",
                "Turns whose original bytes were sent because a stage failed",
                &["stage"],
            )?,
            unmanaged: r.counters(
                "unmanaged_total",
                "Requests that could not be managed as they stood, by what of them it was",
                &["why"],
            )?,
        })
    }
}

/// What providers did and reported.
#[derive(Debug)]
pub(super) struct Upstream {
    pub requests: IntCounterVec,
    pub duration: Histogram,
    pub retries: IntCounterVec,
    pub tokens: IntCounterVec,
    pub estimate_ratio: Histogram,
    pub cache_hit_ratio: Histogram,
    /// In the order of `CostKind::ALL`.
    pub cost: Vec<Counter>,
}

impl Upstream {
    fn register(r: &Registrar) -> Result<Self, Error> {
        let cost = r.add(CounterVec::new(
            opts("cost_usd_total", "Money paid to providers, in US dollars"),
            &["kind"],
        )?)?;
        Ok(Self {
            requests: r.counters(
                "upstream_requests_total",
                "Upstream calls; status=\"none\" where there was no answer",
                &["provider", "model", "status"],
            )?,
            duration: r.histogram(
                "upstream_duration_seconds",
                "From sending an upstream call to its answer's last byte",
                UPSTREAM_BUCKETS,
            )?,
            retries: r.counters(
                "retries_total",
                "Upstream calls that were repeated",
                &["reason"],
            )?,
            tokens: r.counters(
                "tokens_total",
                "Tokens as providers reported them; input includes cache_read and cache_write, \
                 output includes reasoning",
                &["type", "model"],
            )?,
            estimate_ratio: r.histogram(
                "token_estimate_ratio",
                "Prompt tokens that the provider reported over tokens counted, by hop",
                RATIO_BUCKETS,
            )?,
            cache_hit_ratio: r.histogram(
                "cache_hit_ratio",
                "Cached over prompt tokens as the provider reported them, by turn",
                SHARE_BUCKETS,
            )?,
            cost: CostKind::ALL
                .iter()
                .map(|kind| cost.with_label_values(&[kind.as_str()]))
                .collect(),
        })
    }
}

/// Contexts, budgets and passes.
#[derive(Debug)]
pub(super) struct View {
    pub tokens_in: Histogram,
    pub tokens_out: Histogram,
    pub ceiling: IntGauge,
    pub budget_unmet: IntCounter,
    pub passes: IntCounterVec,
    pub evicted_tokens: IntCounterVec,
    pub evicted_items: IntCounterVec,
    pub prefix_breaks: IntCounter,
    pub sessions_active: IntGauge,
}

impl View {
    fn register(r: &Registrar) -> Result<Self, Error> {
        let context = r.histograms(
            "context_tokens",
            "Tokens of a request as the client sent it (in) and as the upstream was sent it (out)",
            "stage",
            TOKEN_BUCKETS,
        )?;
        Ok(Self {
            tokens_in: context.with_label_values(&["in"]),
            tokens_out: context.with_label_values(&["out"]),
            ceiling: r.gauge(
                "ceiling_tokens",
                "The configured token budget; single requests may have their own",
            )?,
            budget_unmet: r.counter(
                "budget_unmet_total",
                "Turns over the ceiling after everything that may be evicted was",
            )?,
            passes: r.counters("passes_total", "Passes committed", &["trigger"])?,
            evicted_tokens: r.counters(
                "evicted_tokens_total",
                "Tokens that passes took out of views",
                &["policy", "level"],
            )?,
            evicted_items: r.counters(
                "evicted_items_total",
                "Items whose mark a pass moved",
                &["policy", "level"],
            )?,
            prefix_breaks: r.counter(
                "prefix_breaks_total",
                "Requests that did not extend the prefix that the provider had cached",
            )?,
            sessions_active: r.gauge("sessions_active", "Sessions held in memory")?,
        })
    }
}

/// Hidden tools.
#[derive(Debug)]
pub(super) struct Hidden {
    pub delimiter_calls: IntCounterVec,
    pub hops: Histogram,
    pub recalls: IntCounterVec,
    pub recalled_tokens: IntCounter,
    pub refetches: IntCounter,
}

impl Hidden {
    fn register(r: &Registrar) -> Result<Self, Error> {
        Ok(Self {
            delimiter_calls: r.counters(
                "delimiter_calls_total",
                "Calls of the hidden tool delimiter",
                &["action", "outcome"],
            )?,
            hops: r.histogram(
                "hidden_hops",
                "Upstream calls of a managed turn beyond its first",
                HOP_BUCKETS,
            )?,
            recalls: r.counters(
                "recall_total",
                "Calls of the hidden tool recall",
                &["outcome"],
            )?,
            recalled_tokens: r
                .counter("recalled_tokens_total", "Tokens that recall brought back")?,
            refetches: r.counter(
                "refetch_total",
                "Evicted items that an agent fetched again by its own tools",
            )?,
        })
    }
}

/// The proxy's own time.
#[derive(Debug)]
pub(super) struct Own {
    /// In the order of `Phase::ALL`.
    pub phases: Vec<Histogram>,
    pub total: Histogram,
    /// In the order of `StoreOp::ALL`.
    pub store_ops: Vec<Histogram>,
    /// In the order of `CacheName::ALL`.
    pub cache_bytes: Vec<IntGauge>,
    /// In the order of `CacheName::ALL`.
    pub cache_limits: Vec<IntGauge>,
}

impl Own {
    fn register(r: &Registrar) -> Result<Self, Error> {
        let overhead = r.histograms(
            "overhead_seconds",
            "The proxy's own time by phase; phase=\"total\" is the sum of a turn",
            "phase",
            OVERHEAD_BUCKETS,
        )?;
        let store_ops = r.histograms(
            "store_op_seconds",
            "Time of the store's operations",
            "op",
            OVERHEAD_BUCKETS,
        )?;
        Ok(Self {
            phases: Phase::ALL
                .iter()
                .map(|phase| overhead.with_label_values(&[phase.as_str()]))
                .collect(),
            total: overhead.with_label_values(&["total"]),
            store_ops: StoreOp::ALL
                .iter()
                .map(|op| store_ops.with_label_values(&[op.as_str()]))
                .collect(),
            cache_bytes: caches(
                r,
                "cache_bytes",
                "Memory that is taken by what is remembered between requests, in bytes",
            )?,
            cache_limits: caches(
                r,
                "cache_limit_bytes",
                "The most that each cache may take: its share of server.cache_memory",
            )?,
        })
    }
}

/// A gauge for each cache.
fn caches(r: &Registrar, name: &str, help: &str) -> Result<Vec<IntGauge>, Error> {
    let gauges = r.add(IntGaugeVec::new(opts(name, help), &["cache"])?)?;
    let named = CacheName::ALL.iter().map(|cache| cache.as_str());
    Ok(named
        .map(|name| gauges.with_label_values(&[name]))
        .collect())
}

/// `plimsoll_build_info` is 1 for ever; its label tells which version runs.
fn build_info(r: &Registrar) -> Result<(), Error> {
    let gauge = r.add(IntGaugeVec::new(
        opts("build_info", "1, labelled with what runs"),
        &["version"],
    )?)?;
    gauge.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    Ok(())
}

/// Every name gets the prefix here, and nowhere else.
fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("plimsoll")
}

/// Makes a metric and registers it in one step, so that none is made and forgotten.
struct Registrar(Registry);

impl Registrar {
    fn add<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, Error> {
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.add(IntCounter::with_opts(opts(name, help))?)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        self.add(IntCounterVec::new(opts(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.add(IntGauge::with_opts(opts(name, help))?)
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
        self.add(Histogram::with_opts(opts)?)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        label: &str,
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
        self.add(HistogramVec::new(opts, &[label])?)
    }
}
