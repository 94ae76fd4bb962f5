//! Every metric's name, labels and buckets, in one place. It never observes anything. A label out
//! of a closed set is a type here, so that all of its series are present at zero from the start;
//! open are only statuses, methods, and the models of a provider.

use std::sync::LazyLock;

use prometheus::proto::MetricFamily;
use prometheus::{Counter, Error, Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

use super::process::Process;
use super::register::{Each, Pairs, Registrar, each, opts};
use crate::commit::Trigger;
use crate::dialect::request::Unmanaged;
use crate::intercept::delimiter;
use crate::model::{CacheName, DelimiterAction, EditKind, GuideReason, RecallOutcome};
use crate::policy::{Level, Policy};
use crate::record::labels::{
    AbortPhase, AcceptError, ConnectionCut, CostKind, LedgerSide, LedgerTokens, Phase, Projection,
    RetryReason, SavedPart, Side, Stage, StoreOp,
};
use crate::session::view::Part;

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
/// What was sent over its ceiling, closest around the line.
pub(super) const CEILING_BUCKETS: &[f64] = &[
    0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 5.0,
];
/// Hidden hops a turn, up to the default bound.
pub(super) const HOP_BUCKETS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0];

/// One for the process, as its stderr is: lines are lost where no registry is at hand.
pub(super) static LOG_LINES_LOST: LazyLock<Result<IntCounter, Error>> = LazyLock::new(|| {
    IntCounter::with_opts(opts(
        "log_lines_lost_total",
        "Lines of the log that could not be written, or not soon enough",
    ))
});

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
    pub process: Option<Process>,
}

impl Families {
    pub fn register() -> Result<Self, Error> {
        let registrar = Registrar(Registry::new());
        let r = &registrar;
        let version = env!("CARGO_PKG_VERSION");
        r.fact(
            "build_info",
            "1, labelled with what runs",
            "version",
            version,
        )?;
        log_lines_lost(r)?;
        Ok(Self {
            http: Http::register(r)?,
            upstream: Upstream::register(r)?,
            view: View::register(r)?,
            hidden: Hidden::register(r)?,
            own: Own::register(r)?,
            process: Process::register(r)?,
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
    pub stream_aborts: Pairs<Side, AbortPhase>,
    pub fail_open: Each<Stage, IntCounter>,
    pub unmanaged: Each<Unmanaged, IntCounter>,
    pub accept_errors: Each<AcceptError, IntCounter>,
    pub cut_connections: Each<ConnectionCut, IntCounter>,
}

impl Http {
    fn register(r: &Registrar) -> Result<Self, Error> {
        Ok(Self {
            accept_errors: r.counters(
                "accept_errors_total",
                "Connections of agents that the system did not let us accept",
                "why",
            )?,
            cut_connections: r.counters(
                "cut_connections_total",
                "Connections of agents that were cut: idle ones for others, and those of who did not read",
                "why",
            )?,
            requests: r.open(
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
            stream_aborts: r.pairs(
                "stream_aborts_total",
                "Responses that ended before their end, by who ended them and when",
                ["side", "phase"],
            )?,
            fail_open: r.counters(
                "fail_open_total",
                "Turns whose original bytes were sent because a stage failed",
                "stage",
            )?,
            unmanaged: r.counters(
                "unmanaged_total",
                "Requests that could not be managed as they stood, by what of them it was",
                "why",
            )?,
        })
    }
}

/// What providers did and reported.
#[derive(Debug)]
pub(super) struct Upstream {
    pub requests: IntCounterVec,
    pub duration: Histogram,
    pub retries: Each<RetryReason, IntCounter>,
    pub learned: Each<EditKind, IntCounter>,
    pub tokens: IntCounterVec,
    pub estimate_ratio: Histogram,
    pub cache_hit_ratio: Histogram,
    pub cost: Each<CostKind, Counter>,
    pub ledger: Ledger,
}

impl Upstream {
    fn register(r: &Registrar) -> Result<Self, Error> {
        Ok(Self {
            requests: r.open(
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
                "reason",
            )?,
            learned: r.counters(
                "rules_learned_total",
                "Kinds of edits that the upstream was found to refuse for a tenant's model; its \
                 views go without them from then on",
                "kind",
            )?,
            tokens: r.open(
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
            cost: r.sums(
                "cost_usd_total",
                "Money paid to providers, in US dollars",
                "kind",
            )?,
            ledger: Ledger::register(r)?,
        })
    }
}

/// What turns came to, beside what the clients' own requests would have.
#[derive(Debug)]
pub(super) struct Ledger {
    pub tokens: Pairs<LedgerSide, LedgerTokens>,
    pub units: Each<LedgerSide, Counter>,
    pub usd: Each<LedgerSide, Counter>,
    pub saved_units: Each<SavedPart, Gauge>,
    pub saved_usd: Each<SavedPart, Gauge>,
    pub unpriced: Each<LedgerSide, Counter>,
    pub projected_units: Each<SavedPart, Gauge>,
    pub projected_usd: Each<SavedPart, Gauge>,
    pub projections: Each<Projection, IntCounter>,
}

impl Ledger {
    fn register(r: &Registrar) -> Result<Self, Error> {
        Ok(Self {
            tokens: r.pairs(
                "ledger_tokens_total",
                "Tokens of all upstream calls (sent), and of the clients' own requests had they \
                 gone up as they were (client); of turns that are only watched what they would have \
                 been by views (projected); input includes cache_read and cache_write",
                ["side", "type"],
            )?,
            units: r.sums(
                "ledger_units_total",
                "What those tokens cost by the model's prices, in units of one plain input token",
                "side",
            )?,
            usd: r.sums(
                "ledger_usd_total",
                "What those tokens cost in US dollars, where the model's price is known",
                "side",
            )?,
            saved_units: r.balances(
                "saved_units",
                "What was saved so far, in units of one plain input token: net is evicted less \
                 rewritten and annotated; may fall",
                "part",
            )?,
            saved_usd: r.balances(
                "saved_usd",
                "The same in US dollars, where the model's price is known",
                "part",
            )?,
            unpriced: r.sums(
                "ledger_unpriced_units_total",
                "The part of ledger_units_total whose price in US dollars is not known",
                "side",
            )?,
            projected_units: r.balances(
                "projected_saved_units",
                "What would have been saved so far in turns that were only watched, as saved_units; \
                 nothing of it was saved",
                "part",
            )?,
            projected_usd: r.balances(
                "projected_saved_usd",
                "The same in US dollars, where the model's price is known",
                "part",
            )?,
            projections: r.counters(
                "projections_total",
                "Turns that were only watched, by how far it is known what they would have come to",
                "outcome",
            )?,
        })
    }
}

/// Contexts, budgets and passes.
#[derive(Debug)]
pub(super) struct View {
    pub tokens_in: Histogram,
    pub tokens_out: Histogram,
    pub parts: Each<Part, Histogram>,
    pub ceiling_ratio: Histogram,
    pub ceiling: IntGauge,
    pub budget_unmet: IntCounter,
    pub passes: Each<Trigger, IntCounter>,
    pub passes_above_floor: Each<Trigger, IntCounter>,
    pub passes_declined: Each<Trigger, IntCounter>,
    pub evicted_tokens: Pairs<Policy, Level>,
    pub evicted_items: Pairs<Policy, Level>,
    pub prefix_breaks: IntCounter,
    pub prologue_changes: IntCounter,
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
            parts: each(&r.histograms(
                "context_part_tokens",
                "Tokens of a request as the upstream was sent it, by what they are",
                "part",
                TOKEN_BUCKETS,
            )?),
            ceiling_ratio: r.histogram(
                "context_ceiling_ratio",
                "What a managed upstream call was sent over the ceiling that held for it",
                CEILING_BUCKETS,
            )?,
            ceiling: r.gauge(
                "ceiling_tokens",
                "The configured token budget; single requests may have their own",
            )?,
            budget_unmet: r.counter(
                "budget_unmet_total",
                "Turns over the ceiling after everything that may be evicted was",
            )?,
            passes: r.counters("passes_total", "Passes committed", "trigger")?,
            passes_above_floor: r.counters(
                "passes_above_floor_total",
                "Passes that stopped above the floor, so that the next one comes sooner",
                "trigger",
            )?,
            passes_declined: r.counters(
                "passes_declined_total",
                "Passes that would have freed too little for the prefix that they break",
                "trigger",
            )?,
            evicted_tokens: r.pairs(
                "evicted_tokens_total",
                "Tokens that passes took out of views",
                ["policy", "level"],
            )?,
            evicted_items: r.pairs(
                "evicted_items_total",
                "Items whose mark a pass moved",
                ["policy", "level"],
            )?,
            prefix_breaks: r.counter(
                "prefix_breaks_total",
                "Requests that did not extend the prefix that the provider had cached",
            )?,
            prologue_changes: r.counter(
                "prologue_changes_total",
                "Turns whose client had changed its system text or its tools since the turn before",
            )?,
            sessions_active: r.gauge("sessions_active", "Sessions held in memory")?,
        })
    }
}

/// Hidden tools.
#[derive(Debug)]
pub(super) struct Hidden {
    pub delimiter_calls: Pairs<DelimiterAction, delimiter::DelimiterOutcome>,
    pub hops: Histogram,
    pub serial_hops: IntCounter,
    pub guided: Each<GuideReason, IntCounter>,
    pub recalls: Each<RecallOutcome, IntCounter>,
    pub recalled_tokens: IntCounter,
    pub refetches: IntCounter,
}

impl Hidden {
    fn register(r: &Registrar) -> Result<Self, Error> {
        Ok(Self {
            delimiter_calls: r.pairs(
                "delimiter_calls_total",
                "Calls of the hidden tool delimiter",
                ["action", "outcome"],
            )?,
            hops: r.histogram(
                "hidden_hops",
                "Upstream calls of a managed turn beyond its first",
                HOP_BUCKETS,
            )?,
            serial_hops: r.counter(
                "serial_hops_total",
                "Hidden hops of requests that allow one call a message, where every annotation \
                 costs an upstream call",
            )?,
            guided: r.counters(
                "guided_total",
                "Conversations into which the guidance came late, by why",
                "reason",
            )?,
            recalls: r.counters("recall_total", "Calls of the hidden tool recall", "outcome")?,
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
    pub phases: Each<Phase, Histogram>,
    pub total: Histogram,
    pub store_ops: Each<StoreOp, Histogram>,
    pub store_bytes: IntGauge,
    pub store_lost: IntCounter,
    pub store_rebuilt: IntCounter,
    pub store_wiped: IntCounter,
    pub store_durable: IntGauge,
    pub cache_bytes: Each<CacheName, IntGauge>,
    pub cache_limits: Each<CacheName, IntGauge>,
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
            phases: each(&overhead),
            total: overhead.with_label_values(&["total"]),
            store_ops: each(&store_ops),
            cache_bytes: r.gauges(
                "cache_bytes",
                "Memory that is taken by what is remembered between requests, in bytes",
                "cache",
            )?,
            cache_limits: r.gauges(
                "cache_limit_bytes",
                "The most that each cache may take: its share of server.cache_memory",
                "cache",
            )?,
            store_bytes: r.gauge(
                "store_bytes",
                "Bytes of the files in the data directory; 0 where the store is in memory",
            )?,
            store_lost: r.counter(
                "store_lost_total",
                "Records that were acknowledged and are gone",
            )?,
            store_rebuilt: r.counter(
                "store_rebuilt_total",
                "Times a damaged store was put together anew from its copies",
            )?,
            store_wiped: r.counter(
                "store_wiped_total",
                "Times files of the store were removed or replaced while in use",
            )?,
            store_durable: r.gauge(
                "store_durable",
                "1 where turns outlive a restart; 0 where they are kept in memory, or not at all",
            )?,
        })
    }
}

/// The counter of the process becomes one of this registry's.
fn log_lines_lost(r: &Registrar) -> Result<(), Error> {
    match &*LOG_LINES_LOST {
        Ok(counter) => r.add(counter.clone()).map(drop),
        Err(error) => Err(Error::Msg(error.to_string())),
    }
}
