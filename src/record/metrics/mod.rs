//! The Prometheus metrics: their handles, and how a turn moves them. Names, labels and buckets
//! stand in `families`. Never has a session, user, request or key as a label, and a model only if
//! the operator listed it.

mod error;
mod families;
mod models;
mod process;
mod register;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http::{Method, StatusCode};
use prometheus::{IntGauge, TextEncoder};

pub use self::error::MetricsError;
use self::families::{Families, LOG_LINES_LOST};
use self::models::{ModelLabels, OTHER};
use super::labels::{
    AcceptError, Budget, CallRole, ConnectionCut, LedgerSide, LedgerTokens, Phase, Route,
    SavedPart, StoreOp, StoreTrip, TokenKind,
};
use super::turn_report::{Abort, Context, Evicted, HopReport, PassReport, TurnReport, lossy};
use crate::intercept::delimiter::DelimiterCall;
use crate::model::{CacheName, PinOutcome};
use crate::session::view::Part;
use crate::store::Health;

/// The status label of a request or hop that got no status.
const NO_STATUS: &str = "none";

/// Counts log lines that were lost because nobody read them and there was no room to wait.
pub fn log_lines_lost(lines: u64) {
    if let Ok(counter) = &*LOG_LINES_LOST {
        counter.inc_by(lines);
    }
}

/// All metrics of the process. They are shared by reference, and only looking up a label takes a
/// lock.
#[derive(Debug)]
pub struct Metrics {
    families: Families,
    models: ModelLabels,
}

impl Metrics {
    /// Registers every metric. `models` are the names, and globs of names, that may be the label
    /// `model`. All others count as `other`.
    ///
    /// # Errors
    /// [`MetricsError`] if an entry of `models` is not a glob, or if this module names a metric
    /// twice.
    pub fn new<S: AsRef<str>>(models: &[S]) -> Result<Self, MetricsError> {
        let (families, models) = (Families::register()?, ModelLabels::new(models)?);
        // A series that first appears with a value looks to Prometheus as if it had not moved.
        for model in models.listed() {
            for kind in TokenKind::ALL {
                let labels = [kind.name(), &*model];
                families.upstream.tokens.with_label_values(&labels);
            }
        }
        Ok(Self { families, models })
    }

    /// Counts a finished turn.
    pub fn observe(&self, turn: &TurnReport) {
        let f = &self.families;
        // A name that no upstream answered to may be anything, so it does not become a label.
        let answered = turn
            .hops
            .iter()
            .any(|hop| hop.status.is_some_and(|status| status.is_success()));
        let model = &*self.models.label(&turn.model, answered);
        f.http
            .requests
            .with_label_values(&[
                turn.route.name(),
                method(&turn.method),
                status(&turn.status),
            ])
            .inc();
        f.http.duration.observe(turn.duration.as_secs_f64());
        if let Some(time) = turn.first_token {
            f.http.first_token.observe(time.as_secs_f64());
        }
        if turn.route == Route::CountTokens {
            // A view that was only counted is not a turn: nothing was sent to be answered.
            return;
        }
        for hop in &turn.hops {
            self.observe_hop(turn, hop, model);
        }
        match turn.route {
            // Only managed turns can have hidden hops.
            Route::Chat | Route::Responses | Route::Messages if !turn.hops.is_empty() => {
                let hidden = turn.hidden_hops() as u64;
                f.hidden.hops.observe(lossy(hidden));
                f.hidden
                    .serial_hops
                    .inc_by(if turn.one_call { hidden } else { 0 });
            }
            Route::Chat
            | Route::Responses
            | Route::Messages
            | Route::CountTokens
            | Route::Forward => {}
        }
        if let Some(context) = &turn.context {
            self.observe_context(context);
        }
        if let Some(ratio) = turn.cached_ratio() {
            f.upstream.cache_hit_ratio.observe(ratio);
        }
        f.view.prefix_breaks.inc_by(turn.prefix_breaks);
        if let Some((tokens, cause)) = turn.missed() {
            f.view.cache_missed.at(cause).inc_by(tokens);
        }
        f.view
            .prologue_changes
            .inc_by(u64::from(turn.prologue_changed));
        // Each run is counted once, when it becomes one.
        f.view.loops.inc_by(u64::from(turn.repetition.begins()));
        f.view.keep_loosened.inc_by(u64::from(turn.loosened));
        for outcome in PinOutcome::ALL {
            let count = turn.pins.count(outcome);
            f.view.pins.at(outcome).inc_by(u64::from(count));
        }
        self.observe_overhead(turn);
        self.observe_events(turn);
        for kind in LedgerTokens::ALL {
            f.upstream.cost.at(kind).inc_by(turn.cost_usd(kind));
        }
        self.observe_ledger(turn);
    }

    fn observe_hop(&self, turn: &TurnReport, hop: &HopReport, model: &str) {
        let f = &self.families;
        f.upstream
            .requests
            .with_label_values(&[turn.provider, model, status(&hop.status)])
            .inc();
        f.upstream.duration.observe(hop.duration.as_secs_f64());
        if let Some(usage) = hop.usage {
            let counts = [
                (TokenKind::Input, usage.prompt),
                (TokenKind::Output, usage.completion),
                (TokenKind::CacheRead, usage.cached),
                (TokenKind::CacheWrite, usage.cache_write),
                (TokenKind::Reasoning, usage.reasoning),
            ];
            for (kind, count) in counts {
                f.upstream
                    .tokens
                    .with_label_values(&[kind.name(), model])
                    .inc_by(count);
            }
            // A ratio needs both sides. A hop that was not counted or not reported has none.
            if hop.estimated > 0 && usage.prompt > 0 {
                f.upstream
                    .estimate_ratio
                    .observe(lossy(usage.prompt) / lossy(hop.estimated));
            }
        }
        if let Some(ratio) = hop.ceiling_ratio {
            f.view.ceiling_ratio.observe(ratio);
        }
        if let Some(pass) = &hop.pass {
            self.observe_pass(pass);
        }
        // Several policies may evict at several levels, and each is counted for itself.
        for row in hop.evicted() {
            let Evicted { policy, level, .. } = *row;
            f.view.evicted_tokens.at(policy, level).inc_by(row.tokens);
            f.view.evicted_items.at(policy, level).inc_by(row.items);
        }
        for policy in &hop.dropped {
            f.view.moves_dropped.at(*policy).inc();
        }
        if let Some(trigger) = hop.declined {
            f.view.passes_declined.at(trigger).inc();
        }
    }

    fn observe_pass(&self, pass: &PassReport) {
        let f = &self.families;
        f.view.passes.at(pass.trigger).inc();
        if pass.above_floor {
            f.view.passes_above_floor.at(pass.trigger).inc();
        }
    }

    fn observe_context(&self, context: &Context) {
        let f = &self.families;
        f.view.tokens_in.observe(lossy(context.tokens_in));
        f.view.tokens_out.observe(lossy(context.tokens_out));
        for part in Part::ALL {
            let tokens = lossy(context.parts.get(part));
            f.view.parts.at(part).observe(tokens);
        }
        match context.budget {
            Budget::Met => {}
            Budget::Exceeded => f.view.budget_unmet.inc(),
        }
    }

    fn observe_ledger(&self, turn: &TurnReport) {
        let f = &self.families.upstream.ledger;
        for side in LedgerSide::ALL {
            let Some((usage, cost, usd)) = turn.side(side) else {
                continue;
            };
            for kind in LedgerTokens::ALL {
                f.tokens.at(side, kind).inc_by(kind.of(usage));
            }
            let units = cost.total();
            f.units.at(side).inc_by(units);
            // Units without a price have a metric of their own, so that the sum in dollars does not
            // look complete.
            match usd {
                Some(usd) => f.usd.at(side).inc_by(usd * units),
                None => f.unpriced.at(side).inc_by(units),
            }
        }
        if let Some(account) = &turn.ledger {
            for role in CallRole::ALL {
                let units = turn.role_units(role, account);
                f.role_units.at(role).inc_by(units);
                let usd = account.usd.unwrap_or_default();
                f.role_usd.at(role).inc_by(usd * units);
            }
        }
        f.unread.inc_by(u64::from(turn.unread));
        let kept = [
            (&turn.ledger, &f.saved_units, &f.saved_usd),
            (&turn.projected, &f.projected_units, &f.projected_usd),
        ];
        for (account, in_units, in_usd) in kept {
            let Some(account) = account else { continue };
            for part in SavedPart::ALL {
                let units = part.of(&account.parts);
                in_units.at(part).add(units);
                in_usd.at(part).add(account.usd.unwrap_or_default() * units);
            }
        }
        if let Some(projection) = turn.projection {
            f.projections.at(projection).inc();
        }
    }

    fn observe_overhead(&self, turn: &TurnReport) {
        let f = &self.families;
        for phase in Phase::ALL {
            if let Some(time) = turn.overhead.get(phase) {
                f.internal.phases.at(phase).observe(time.as_secs_f64());
            }
        }
        if let Some(total) = turn.overhead.total() {
            f.internal.total.observe(total.as_secs_f64());
        }
    }

    fn observe_events(&self, turn: &TurnReport) {
        let f = &self.families;
        for call in &turn.delimiter_calls {
            let DelimiterCall { action, outcome } = *call;
            f.hidden.delimiter_calls.at(action, outcome).inc();
        }
        for call in &turn.recalls {
            f.hidden.recalls.at(call.outcome).inc();
            f.hidden.recalled_tokens.inc_by(call.tokens);
        }
        f.hidden.refetches.inc_by(turn.refetches);
        for reason in &turn.retries {
            f.upstream.retries.at(*reason).inc();
        }
        if let Some(reason) = turn.guided {
            f.hidden.guided.at(reason).inc();
        }
        for kind in turn.learned.iter() {
            f.upstream.learned.at(kind).inc();
        }
        f.upstream.cut_prompts.inc_by(u64::from(turn.was_cut));
        if let Some(Abort { side, phase }) = turn.abort {
            f.http.stream_aborts.at(side, phase).inc();
        }
        if let Some(stage) = turn.fail_open {
            f.http.fail_open.at(stage).inc();
        }
        if let Some(why) = turn.unmanaged {
            f.http.unmanaged.at(why).inc();
        }
        if let Some(why) = turn.unrecorded {
            f.http.unrecorded.at(why).inc();
        }
    }

    /// Counts one operation of the store, whoever waited for it.
    pub fn observe_store(&self, op: StoreOp, time: Duration) {
        let histogram = self.families.internal.store_ops.at(op);
        histogram.observe(time.as_secs_f64());
    }

    /// Counts a connection that could not be accepted.
    pub fn accept_failed(&self, why: AcceptError) {
        self.families.http.accept_errors.at(why).inc();
    }

    /// Counts a connection that was cut.
    pub fn connection_cut(&self, why: ConnectionCut) {
        self.families.http.cut_connections.at(why).inc();
    }

    /// Takes over the state of the store. `durable` says whether turns outlive the process.
    pub fn set_store(&self, health: &Health, durable: bool) {
        let internal = &self.families.internal;
        let counts = [
            (&internal.store_lost, health.lost),
            (&internal.store_mismatched, health.mismatched),
            (&internal.store_rebuilt, health.rebuilt),
            (&internal.store_wiped, health.wiped),
            (&internal.store_swept, health.swept),
            (&internal.store_refused, health.refused),
            (internal.store_trips.at(StoreTrip::Read), health.read_trips),
            (
                internal.store_trips.at(StoreTrip::Write),
                health.write_trips,
            ),
        ];
        // The store counts from its own start, so the counter moves by the difference.
        for (counter, now) in counts {
            counter.inc_by(now.saturating_sub(counter.get()));
        }
        internal.store_durable.set(i64::from(durable));
        internal.store_other_key.set(i64::from(health.other_key));
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        internal.store_waiting.set(whole(health.waiting as u64));
        internal.store_cache_bytes.set(whole(health.cached));
    }

    /// Counts a request as in flight until the guard is dropped.
    #[must_use]
    pub fn in_flight(&self) -> InFlight {
        InFlight::new(self.families.http.in_flight.clone())
    }

    /// Sets the number of sessions in memory.
    pub fn set_sessions_active(&self, sessions: usize) {
        self.families
            .view
            .sessions_active
            .set(i64::try_from(sessions).unwrap_or(i64::MAX));
    }

    /// Sets how many bytes a cache holds and how many it may hold.
    pub fn set_cache(&self, cache: CacheName, bytes: u64, limit: u64) {
        let internal = &self.families.internal;
        let whole = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        internal.cache_bytes.at(cache).set(whole(bytes));
        internal.cache_limits.at(cache).set(whole(limit));
    }

    /// Sets the configured ceiling, which dashboards draw as a line.
    pub fn set_ceiling(&self, tokens: u64) {
        self.families
            .view
            .ceiling
            .set(i64::try_from(tokens).unwrap_or(i64::MAX));
    }

    /// Sets how many bytes the store's files hold.
    pub fn set_store_bytes(&self, bytes: u64) {
        let gauge = &self.families.internal.store_bytes;
        gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Renders everything in Prometheus' text format, with fresh values about the process.
    ///
    /// # Errors
    /// [`MetricsError`] if a metric has no samples, which a registered one always has.
    pub fn render(&self) -> Result<String, MetricsError> {
        if let Some(process) = &self.families.process {
            process.refresh();
        }
        Ok(TextEncoder::new().encode_to_string(&self.families.gather())?)
    }
}

/// A request in flight. Dropping it ends the flight.
#[derive(Debug)]
pub struct InFlight(IntGauge);

impl InFlight {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The method if it is a standard one. An extension method is the client's own word.
fn method(method: &Method) -> &str {
    const STANDARD: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
        Method::CONNECT,
    ];
    // Any word can be a method. Without this list, clients could make as many series as they like.
    if STANDARD.contains(method) {
        method.as_str()
    } else {
        OTHER
    }
}

fn status(status: &Option<StatusCode>) -> &str {
    status.as_ref().map_or(NO_STATUS, StatusCode::as_str)
}
