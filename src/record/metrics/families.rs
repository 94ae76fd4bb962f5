//! Every metric's name, help, labels and buckets, in one place. Never observes anything. A label
//! from a closed set is a type here, so that all its series stand at zero from the start. Only
//! statuses, methods and names of models are open.

use std::sync::LazyLock;

use prometheus::proto::MetricFamily;
use prometheus::{Counter, Error, Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

use super::process::Process;
use super::register::{Each, Pairs, Registrar, each, opts};
use crate::commit::Trigger;
use crate::dialect::request::Unmanaged;
use crate::intercept::delimiter;
use crate::model::{
    CacheName, DelimiterAction, EditKind, GuideReason, MissCause, PinOutcome, RecallOutcome,
};
use crate::policy::{Level, Policy};
use crate::record::labels::{
    AbortPhase, AbortSide, AcceptError, CallRole, ConnectionCut, FailedStage, LedgerSide,
    LedgerTokens, Phase, Projection, RetryReason, SavedPart, StoreOp, StoreTrip, Unrecorded,
};
use crate::session::view::Part;

/// 50 µs to 1 s, for the proxy's and the store's own time.
pub(super) const OVERHEAD_BUCKETS: &[f64] = &[
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0,
];
/// 5 ms to 900 s, for whole answers of a model.
pub(super) const UPSTREAM_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    900.0,
];
/// 1 ms to 300 s, for the first byte of an answer.
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
/// Shares, densest where a good cache lies.
pub(super) const SHARE_BUCKETS: &[f64] = &[
    0.0, 0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0,
];
/// Reported over estimated tokens, densest in the range to which a session's ratio is clamped.
pub(super) const RATIO_BUCKETS: &[f64] = &[
    0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0,
];
/// Sent tokens over the ceiling, densest around 1.
pub(super) const CEILING_BUCKETS: &[f64] = &[
    0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 5.0,
];
/// Hidden hops per turn, up to the default limit.
pub(super) const HOP_BUCKETS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0];

/// The process has one, as it has one stderr. Lines are also lost where no registry is in reach.
pub(super) static LOG_LINES_LOST: LazyLock<Result<IntCounter, Error>> = LazyLock::new(|| {
    IntCounter::with_opts(opts(
        "log_lines_lost_total",
        "Lines of the log that could not be written, or not soon enough",
    ))
});

/// All handles, and the registry that renders them. The registry is not the global one, so that
/// tests share no counts.
#[derive(Debug)]
pub(super) struct Families {
    registry: Registry,
    pub http: HttpMetrics,
    pub upstream: UpstreamMetrics,
    pub view: ViewMetrics,
    pub hidden: HiddenMetrics,
    pub internal: InternalMetrics,
    pub process: Option<Process>,
}

impl Families {
    pub fn register() -> Result<Self, Error> {
        let registrar = Registrar(Registry::new());
        let r = &registrar;
        let (what, version) = ("1, labelled with what runs", env!("CARGO_PKG_VERSION"));
        r.fact("build_info", what, "version", version)?;
        log_lines_lost(r)?;
        Ok(Self {
            http: HttpMetrics::register(r)?,
            upstream: UpstreamMetrics::register(r)?,
            view: ViewMetrics::register(r)?,
            hidden: HiddenMetrics::register(r)?,
            internal: InternalMetrics::register(r)?,
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
pub(super) struct HttpMetrics {
    pub requests: IntCounterVec,
    pub duration: Histogram,
    pub first_token: Histogram,
    pub in_flight: IntGauge,
    pub stream_aborts: Pairs<AbortSide, AbortPhase>,
    pub fail_open: Each<FailedStage, IntCounter>,
    pub unmanaged: Each<Unmanaged, IntCounter>,
    pub unrecorded: Each<Unrecorded, IntCounter>,
    pub accept_errors: Each<AcceptError, IntCounter>,
    pub cut_connections: Each<ConnectionCut, IntCounter>,
}

impl HttpMetrics {
    fn register(r: &Registrar) -> Result<Self, Error> {
        Ok(Self {
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
            requests: r.open(
                "http_requests_total",
                "Requests answered; status=\"none\" if the client left before its answer",
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
                "Responses that broke off, by who broke them off and when",
                ["side", "phase"],
            )?,
            fail_open: r.counters(
                "fail_open_total",
                "Requests that were sent as the client made them, because a stage of the proxy failed",
                "stage",
            )?,
            unmanaged: r.counters(
                "unmanaged_total",
                "Requests that could not be managed, by what in them is the reason",
                "why",
            )?,
            unrecorded: r.counters(
                "unrecorded_total",
                "Turns that were managed, but whose record was not durable when the answer ended",
                "why",
            )?,
        })
    }
}

/// What providers did and reported.
#[derive(Debug)]
pub(super) struct UpstreamMetrics {
    pub requests: IntCounterVec,
    pub duration: Histogram,
    pub retries: Each<RetryReason, IntCounter>,
    pub learned: Each<EditKind, IntCounter>,
    pub cut_prompts: IntCounter,
    pub tokens: IntCounterVec,
    pub estimate_ratio: Histogram,
    pub cache_hit_ratio: Histogram,
    pub cost: Each<LedgerTokens, Counter>,
    pub ledger: LedgerMetrics,
}

impl UpstreamMetrics {
    fn register(r: &Registrar) -> Result<Self, Error> {
        Ok(Self {
            requests: r.open(
                "upstream_requests_total",
                "Upstream calls; status=\"none\" if there was no answer",
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
            cut_prompts: r.counter(
                "cut_prompts_total",
                "Turns whose prompt the upstream was seen to cut without a word",
            )?,
            tokens: r.open(
                "tokens_total",
                "Tokens as providers reported them; input includes cache_read and cache_write, \
                 output includes reasoning",
                &["type", "model"],
            )?,
            estimate_ratio: r.histogram(
                "token_estimate_ratio",
                "Prompt tokens as the provider reported them over those that the proxy counted, by hop",
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
            ledger: LedgerMetrics::register(r)?,
        })
    }
}

/// What turns cost, and what the clients' own requests would have cost.
#[derive(Debug)]
pub(super) struct LedgerMetrics {
    pub tokens: Pairs<LedgerSide, LedgerTokens>,
    pub units: Each<LedgerSide, Counter>,
    pub usd: Each<LedgerSide, Counter>,
    pub saved_units: Each<SavedPart, Gauge>,
    pub saved_usd: Each<SavedPart, Gauge>,
    pub unpriced: Each<LedgerSide, Counter>,
    pub role_units: Each<CallRole, Counter>,
    pub role_usd: Each<CallRole, Counter>,
    pub unread: IntCounter,
    pub projected_units: Each<SavedPart, Gauge>,
    pub projected_usd: Each<SavedPart, Gauge>,
    pub projections: Each<Projection, IntCounter>,
}

impl LedgerMetrics {
    fn register(r: &Registrar) -> Result<Self, Error> {
        Ok(Self {
            tokens: r.pairs(
                "ledger_tokens_total",
                "Tokens of all upstream calls (sent), of the clients' own requests if they had \
                 been forwarded as they were (client), and of the views that watched turns would have \
                 sent (projected); input includes cache_read and cache_write",
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
                "What was saved so far, in units of one plain input token: net is evicted and \
                 breakpoints less rewritten and annotated; unexplained is no part of it; may fall",
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
            role_units: r.sums(
                "ledger_role_units_total",
                "The same as ledger_units_total of the side sent, by what calls were for: the session's work \
                 (main), hops that only hidden calls answered (hidden), requests without tools (aside)",
                "role",
            )?,
            role_usd: r.sums(
                "ledger_role_usd_total",
                "The same in US dollars, where the model's price is known",
                "role",
            )?,
            unread: r.counter(
                "unread_answers_total",
                "Answers that passed in a form or at a size that is not read, so that their cost is not known",
            )?,
            projected_units: r.balances(
                "projected_saved_units",
                "What watched turns would have saved so far if they were managed, as saved_units; \
                 none of it was saved",
                "part",
            )?,
            projected_usd: r.balances(
                "projected_saved_usd",
                "The same in US dollars, where the model's price is known",
                "part",
            )?,
            projections: r.counters(
                "projections_total",
                "Turns that were only watched, by how much is known about them as managed turns",
                "outcome",
            )?,
        })
    }
}

/// Contexts, budgets and passes.
#[derive(Debug)]
pub(super) struct ViewMetrics {
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
    pub moves_dropped: Each<Policy, IntCounter>,
    pub loops: IntCounter,
    pub keep_loosened: IntCounter,
    pub pins: Each<PinOutcome, IntCounter>,
    pub prefix_breaks: IntCounter,
    pub cache_missed: Each<MissCause, IntCounter>,
    pub prologue_changes: IntCounter,
    pub sessions_active: IntGauge,
}

const CACHE_MISSED: &str = "Tokens that the turn before had left in the provider's cache and that were read anew, by what \
                            changed in between; provider stands for nothing";

impl ViewMetrics {
    fn register(r: &Registrar) -> Result<Self, Error> {
        let context = r.histograms(
            "context_tokens",
            "Tokens of a request as the client sent it (in) and as it was sent upstream (out)",
            "stage",
            TOKEN_BUCKETS,
        )?;
        Ok(Self {
            tokens_in: context.with_label_values(&["in"]),
            tokens_out: context.with_label_values(&["out"]),
            parts: each(&r.histograms(
                "context_part_tokens",
                "Tokens of a request as it was sent upstream, by what they are",
                "part",
                TOKEN_BUCKETS,
            )?),
            ceiling_ratio: r.histogram(
                "context_ceiling_ratio",
                "Tokens of a managed upstream call over its ceiling, as a ratio",
                CEILING_BUCKETS,
            )?,
            ceiling: r.gauge(
                "ceiling_tokens",
                "The configured token budget; single requests may have their own",
            )?,
            budget_unmet: r.counter(
                "budget_unmet_total",
                "Turns over the ceiling although everything that may be evicted was",
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
                "Tokens that passes, and rungs for new results, took out of views",
                ["policy", "level"],
            )?,
            evicted_items: r.pairs(
                "evicted_items_total",
                "Items whose mark a pass, or a rung for new results, moved",
                ["policy", "level"],
            )?,
            moves_dropped: r.counters(
                "moves_dropped_total",
                "Moves that a policy proposed against a rule: each was dropped, the rest was made",
                "policy",
            )?,
            loops: r.counter(
                "loops_total",
                "Times that a client's call brought the same result for the third time running",
            )?,
            keep_loosened: r.counter(
                "keep_loosened_total",
                "Results that a pass could not keep as [keep] asks, because they were too much",
            )?,
            pins: r.counters(
                "pins_total",
                "Pins that were asked for, by what became of them",
                "outcome",
            )?,
            cache_missed: r.counters("cache_missed_tokens_total", CACHE_MISSED, "cause")?,
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
pub(super) struct HiddenMetrics {
    pub delimiter_calls: Pairs<DelimiterAction, delimiter::DelimiterOutcome>,
    pub hops: Histogram,
    pub serial_hops: IntCounter,
    pub guided: Each<GuideReason, IntCounter>,
    pub recalls: Each<RecallOutcome, IntCounter>,
    pub recalled_tokens: IntCounter,
    pub refetches: IntCounter,
}

impl HiddenMetrics {
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
                "Conversations that got the guidance late, by reason",
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

/// The proxy's own time, store and memory.
#[derive(Debug)]
pub(super) struct InternalMetrics {
    pub phases: Each<Phase, Histogram>,
    pub total: Histogram,
    pub store_ops: Each<StoreOp, Histogram>,
    pub store_bytes: IntGauge,
    pub store_lost: IntCounter,
    pub store_mismatched: IntCounter,
    pub store_rebuilt: IntCounter,
    pub store_wiped: IntCounter,
    pub store_swept: IntCounter,
    pub store_durable: IntGauge,
    pub store_other_key: IntGauge,
    pub store_refused: IntCounter,
    pub store_trips: Each<StoreTrip, IntCounter>,
    pub store_waiting: IntGauge,
    pub store_cache_bytes: IntGauge,
    pub cache_bytes: Each<CacheName, IntGauge>,
    pub cache_limits: Each<CacheName, IntGauge>,
}

impl InternalMetrics {
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
                "Memory that each cache takes, in bytes",
                "cache",
            )?,
            cache_limits: r.gauges(
                "cache_limit_bytes",
                "The most that each cache may take: its share of server.cache_memory",
                "cache",
            )?,
            store_bytes: r.gauge(
                "store_bytes",
                "Bytes of the files in the data directory; 0 if the store is in memory",
            )?,
            store_lost: r.counter(
                "store_lost_total",
                "Records that were acknowledged and are gone",
            )?,
            store_mismatched: r.counter(
                "store_mismatched_total",
                "Blobs that did not match their id when they were read, and were taken as absent",
            )?,
            store_rebuilt: r.counter(
                "store_rebuilt_total",
                "How often a damaged store was rebuilt from its copies",
            )?,
            store_wiped: r.counter(
                "store_wiped_total",
                "How often files of the store were removed or replaced while in use",
            )?,
            store_swept: r.counter(
                "store_swept_total",
                "Blobs removed from the store because they were too old or took too much room",
            )?,
            store_durable: r.gauge(
                "store_durable",
                "1 if turns outlive a restart; 0 if they are kept in memory, or not at all",
            )?,
            store_other_key: r.gauge("store_other_key", "1 if records have another tenant key")?,
            store_refused: r.counter(
                "store_refused_total",
                "How often a server of the store refused or did not answer in time",
            )?,
            store_trips: r.counters(
                "store_round_trips_total",
                "Round trips to a server of the store",
                "op",
            )?,
            store_waiting: r.gauge("store_waiting", "Batches that wait to be written")?,
            store_cache_bytes: r.gauge(
                "store_cache_bytes",
                "Memory that the cache of a store on a server takes, in bytes",
            )?,
        })
    }
}

/// Registers the counter of the process in this registry.
fn log_lines_lost(r: &Registrar) -> Result<(), Error> {
    match &*LOG_LINES_LOST {
        Ok(counter) => r.add(counter.clone()).map(drop),
        Err(error) => Err(Error::Msg(error.to_string())),
    }
}
