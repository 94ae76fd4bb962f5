//! Gathers the facts of a turn as its stages return them. Owns the report until `record` gets it,
//! exactly once. Never writes a metric or a log line itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, Method, StatusCode};
use plimsoll_core::policy::{Pinned, Policy, Proposal, partitioned};
use plimsoll_core::turn::Mode;
use plimsoll_core::turn::hidden::HiddenCounts;
use plimsoll_core::turn::needed::Judged;
use plimsoll_core::turn::state::{HopContext, MiddleError, Prepared, TurnState};
use plimsoll_core::turn::told;
use plimsoll_model::{
    CacheFacts, Edits, MissCause, RecordId, TenantId, TurnAccount, TurnFacts, TurnSums,
};
use plimsoll_tokens::ledger::{Account, AnswerSizes, LedgerTerms};
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::Answer;
use plimsoll_wire::request::{Request, Unmanaged};

use super::app::App;
use super::erasing::Began;
use super::error::ProxyError;
use super::failures::{self, Failure, FailureCause};
use super::ledger_input::LedgerInput;
use super::listen::AnswerEnd;
use super::live::RecordedTurn;
use super::request_ids::{request_id, text_of};
use crate::record::{
    Abort, AbortPhase, AbortSide, Budget, CallRole, Context, Evicted, FailedStage, HopReport,
    PassReport, Phase, Projection, RetryReason, Route, TurnReport, Unrecorded, lossy,
    response_headers,
};

/// Gathers the report of a request from its head to its end, and hands it over once, however the
/// request ends.
pub struct Reporter {
    /// What is known so far.
    report: TurnReport,
    ledger: LedgerInput,
    begun: Instant,
    hop_begun: Instant,
    /// Whether this turn has been counted as one whose view is shown differently than before.
    otherwise: bool,
    /// The turn's record.
    record: Option<Box<RecordedTurn>>,
    /// Why the request fails, as far as that is known.
    cause: Option<Box<FailureCause>>,
    /// When it began, as far as erasures go.
    erased: Began,
    /// Where the report goes. `None` once it went there.
    app: Option<Arc<App>>,
}

impl Drop for Reporter {
    /// A turn that is dropped was left by its client, or lost by a panic.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.failed_open(FailedStage::Panic);
            // If a stream had begun, it breaks off. Otherwise the client gets an error.
            let begun = self.report.first_token.map(|_| StatusCode::OK);
            return self.finish(begun.or(Some(StatusCode::BAD_GATEWAY)));
        }
        if self.app.is_some() && self.report.abort.is_none() {
            self.aborted(AbortSide::Client);
        }
        self.finish(None);
    }
}

impl Reporter {
    /// Begins the report of a request whose head has arrived.
    #[must_use]
    pub fn begin(app: &Arc<App>, route: Route, method: Method) -> Self {
        let mut report = TurnReport::new(route, method);
        report.provider = app.provider;
        let now = Instant::now();
        Self {
            report,
            ledger: LedgerInput::default(),
            begun: now,
            hop_begun: now,
            otherwise: false,
            record: None,
            cause: None,
            erased: app.erasing.began(),
            app: Some(Arc::clone(app)),
        }
    }

    /// Notes what identifies the request in other logs.
    pub fn arrived(&mut self, path: &str, headers: &HeaderMap) {
        path.clone_into(&mut self.report.path);
        self.report.request_id = request_id(headers);
        self.report.traceparent = text_of(headers, "traceparent");
    }

    /// Notes a header that is named as one of the proxy's and is none.
    pub fn unknown_header(&mut self, name: HeaderName) {
        self.report.unknown_header = Some(name);
    }

    /// Ends the report of a request that gets only an answer of the proxy's own.
    pub fn refuse(mut self, status: StatusCode) {
        self.finish(Some(status));
    }

    /// Ends the report of a request that is answered with an error of the proxy's own.
    pub fn fail(mut self, error: &ProxyError) {
        self.cause().stopped(error);
        self.finish(Some(error.status()));
    }

    /// What is known of why the request fails, for whoever knows more.
    pub(super) fn cause(&mut self) -> &mut FailureCause {
        let shown = self.app.as_ref().map(|app| app.serving.shown);
        self.cause
            .get_or_insert_with(|| Box::new(FailureCause::new(shown.unwrap_or_default())))
    }

    /// Notes that a stage failed, so that the client's own bytes are sent.
    pub fn failed_open(&mut self, stage: FailedStage) {
        self.report.fail_open = Some(stage);
    }

    /// Notes whose request it is.
    pub(super) fn tenant(&mut self, tenant: TenantId) {
        self.report.tenant = tenant.0.short();
    }

    /// Notes the names of the session and of its parent.
    pub(super) fn session(&mut self, session: String, parent: Option<String>) {
        self.report.session = session;
        self.report.parent_session = parent;
    }

    /// Notes what in the request keeps it from being managed.
    pub(super) fn unmanaged(&mut self, why: Unmanaged) {
        self.report.unmanaged = Some(why);
    }

    /// Notes that the record is not durable yet.
    pub(super) fn unrecorded(&mut self, why: Unrecorded) {
        self.report.unrecorded = Some(why);
    }

    /// Notes which kinds of edits the upstream was found to refuse.
    pub(super) fn learned(&mut self, edits: Edits) {
        self.report.learned = self.report.learned.or(edits);
    }

    /// Notes that the upstream was seen to cut the turn's prompt at so many tokens.
    pub(super) fn cut(&mut self, at: u32) {
        (self.report.cut, self.report.was_cut) = (Some(at), true);
    }

    /// Notes how much is known about a watched turn.
    pub(super) fn projection(&mut self, projection: Projection) {
        self.report.projection = Some(projection);
    }

    /// Adds the time that a phase took.
    pub(super) fn took(&mut self, phase: Phase, time: Duration) {
        self.report.overhead.add(phase, time);
    }

    /// Notes what the body says.
    pub(super) fn asked(&mut self, request: &Request, mode: Mode) {
        self.report.model.clone_from(&request.model);
        self.report.streamed = request.stream;
        self.report.one_call = request.one_call;
        self.report.aside = !request.takes_tools();
        self.report.dialect = request.dialect;
        self.report.mode = mode;
    }

    /// Runs a phase and notes how long it took.
    pub(super) fn timed<T>(&mut self, phase: Phase, run: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let value = run();
        self.report.overhead.add(phase, begun.elapsed());
        value
    }

    /// Prepares a hop and notes how long its two halves took.
    pub(super) fn prepare(
        &mut self,
        state: &mut TurnState,
        tools: &HopContext<'_>,
        refused: Option<u64>,
    ) -> Result<Prepared, MiddleError> {
        let planned = self.timed(Phase::Policy, || state.plan(tools, refused))?;
        self.timed(Phase::Render, || state.render(planned))
    }

    /// Notes the terms under which the turn is accounted for.
    pub(super) fn account(&mut self, terms: LedgerTerms) {
        self.ledger.open(terms);
    }

    /// Why the first call read anew what the provider had cached. `None` if it did not.
    pub(super) fn missed_by(&self) -> Option<MissCause> {
        self.report.missed().map(|(_, cause)| cause)
    }

    /// Notes what the request has in common with the one before it.
    pub(super) fn cached(&mut self, facts: CacheFacts) {
        self.report.cache = facts;
    }

    /// Notes the place of the request and its next hop.
    pub(super) fn prepared(&mut self, state: &TurnState, prepared: &Prepared) {
        self.ledger.prepared(state, prepared);
        self.report.number = u64::from(state.path.next_turn());
        let choice = &state.terms.choice;
        self.report.profile.clone_from(&choice.profile);
        self.report.split.clone_from(&choice.split);
        self.report.cut = self.report.cut.or(state.terms.cut);
        // A watched turn commits no pass and breaks no prefix.
        let managed = state.terms.mode == Mode::Manage;
        let committed = prepared.pass.as_ref().filter(|_| managed);
        let pass = committed.map(|(trigger, proposal)| PassReport {
            trigger: *trigger,
            above_floor: prepared.estimate > prepared.floor,
            evicted: evicted(proposal),
        });
        let entered = prepared.entered.as_deref().filter(|_| managed);
        let proposals = entered
            .into_iter()
            .chain(committed.map(|(_, proposal)| &**proposal));
        let dropped = proposals.flat_map(|proposal| &proposal.dropped);
        let dropped: Vec<Policy> = dropped.map(|(policy, _)| *policy).collect();
        // A pass breaks what the provider has cached. So does text that the client changed, and so
        // does a change of what the view shows because of what was learned of the upstream.
        let cached = state.path.newest().is_some() || !state.pending.is_empty();
        let guided = prepared.guided.filter(|_| managed);
        // Guidance enters a conversation once, so the first reason of the turn stands.
        self.report.guided = self.report.guided.or(guided);
        self.report.prologue_changed = state.prologue_changed;
        // A view that was refused as too long goes up again with a pass.
        if state.pending.is_empty() && pass.is_some() {
            self.report.cache.cause.get_or_insert(MissCause::Pass);
        }
        if prepared.repetition.times > 0 {
            self.report.repetition = prepared.repetition;
        }
        self.report.loosened += prepared.loosened;
        self.report.pins = state.pin_report;
        self.report.prefix_breaks += u64::from((pass.is_some() || guided.is_some()) && cached);
        // Text that the client changed is seen again by each hop, and breaks the prefix only once.
        let first = state.pending.is_empty();
        self.report.prefix_breaks += u64::from(first && prepared.view.transcript().changed);
        if managed && !self.otherwise && state.shows_otherwise() {
            self.otherwise = true;
            self.report.prefix_breaks += 1;
        }
        let context = self.context(state, prepared);
        let (ceiling, out) = (context.ceiling, context.tokens_out);
        self.report.context = Some(context);
        // Most turns have one hop, and a list that grows by itself begins with room for four.
        self.report.hops.reserve_exact(1);
        // A watched turn is sent as it came, so its ratio says nothing.
        self.report.hops.push(HopReport {
            estimated: prepared.estimate,
            ceiling_ratio: managed.then(|| lossy(out) / lossy(ceiling.max(1))),
            entered: entered.map(evicted).unwrap_or_default(),
            pass,
            dropped,
            declined: prepared.declined,
            ..HopReport::default()
        });
        self.hop_begun = Instant::now();
    }

    /// The sizes of a hop that is sent next, and whether the turn has met its budget so far.
    fn context(&self, state: &TurnState, prepared: &Prepared) -> Context {
        let ceiling = u64::from(state.terms.ceiling);
        let out = prepared.calibrated(prepared.estimate);
        // A turn meets its budget only if each of its hops does.
        let earlier = self.report.context.map(|context| context.budget);
        let met = prepared.pinned.is_none()
            && out <= ceiling
            && earlier.is_none_or(|budget| budget == Budget::Met);
        let parts = state
            .parts(prepared)
            .map(|tokens| prepared.calibrated(tokens));
        let window = state.terms.window.map(u64::from);
        let partitions = state.terms.partitions.zip(window);
        Context {
            tokens_in: prepared.calibrated(state.client_tokens),
            tokens_out: out,
            evicted: prepared.calibrated(prepared.whole.saturating_sub(prepared.estimate)),
            ceiling,
            window,
            floor: prepared.calibrated(prepared.floor),
            parts,
            partitions: partitions.map(|(parted, window)| parted.lend(window, partitioned(&parts))),
            budget: if met { Budget::Met } else { Budget::Exceeded },
            pinned: prepared.pinned.map(|pinned| Pinned {
                fixed: prepared.calibrated(pinned.fixed),
                system: prepared.calibrated(pinned.system),
                user: prepared.calibrated(pinned.user),
                newest: prepared.calibrated(pinned.newest),
                opaque: prepared.calibrated(pinned.opaque),
                rest: prepared.calibrated(pinned.rest),
            }),
        }
    }

    /// Notes that the client's own request is sent next.
    pub(super) fn own(&mut self) {
        self.ledger.own();
    }

    /// Notes that the client's own request is sent, because the turn is only watched.
    pub(super) fn watched(&mut self, state: &TurnState, projection: Projection) {
        self.ledger.watched(state, projection == Projection::Anew);
        self.report.projection = Some(projection);
        if let Some(hop) = self.report.hops.last_mut() {
            hop.estimated = state.client_tokens;
        }
    }

    /// The account that a watched turn would have had as a managed one.
    pub(super) fn projected(&self) -> Option<Account> {
        self.ledger.projected()
    }

    /// Notes that the hop was sent again as the client had made it, and was answered with this
    /// status.
    pub(super) fn unshortened(&mut self, status: StatusCode) {
        self.ledger.own();
        self.ledger.answered(status.is_success());
        self.went_on(status);
        let Some(context) = self.report.context else {
            return;
        };
        if let Some(hop) = self.report.hops.last_mut() {
            let whole = lossy(context.tokens_in) / lossy(context.ceiling.max(1));
            hop.ceiling_ratio = hop.ceiling_ratio.map(|_| whole);
        }
    }

    /// Notes that the upstream answered.
    pub(super) fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.ledger.answered(status.is_success());
        self.went_on(status);
        let waited = self.hop_begun.elapsed();
        let id = request_id(headers);
        match self.report.hops.last_mut() {
            Some(hop) => {
                hop.status = Some(status);
                hop.first_byte.get_or_insert(waited);
                hop.request_id = id;
            }
            None => self.report.forwarded_id = id,
        }
    }

    /// What an accepted call takes the place of failed no more.
    fn went_on(&mut self, status: StatusCode) {
        if status.is_success() {
            self.cause = None;
        }
    }

    /// Notes when the client could see a first byte.
    pub(super) fn spoken(&mut self, at: Instant) {
        let since = at.duration_since(self.begun);
        self.report.first_token.get_or_insert(since);
    }

    /// Notes that an upstream call is tried again.
    pub(super) fn retried(&mut self, reason: impl Into<RetryReason>) {
        self.report.retries.push(reason.into());
    }

    /// The wire format of the answer, if it may say what it cost.
    pub(super) fn hears(&self) -> Option<Dialect> {
        match self.report.route {
            Route::Chat => Some(Dialect::Chat),
            Route::Responses => Some(Dialect::Responses),
            Route::Messages => Some(Dialect::Messages),
            Route::CountTokens | Route::Forward => None,
        }
    }

    /// Notes how an answer ended that was read as it passed.
    pub(super) fn left(&mut self, end: AnswerEnd, answer: Option<&Answer>) {
        let complete = answer.is_some_and(|answer| answer.complete);
        match end {
            AnswerEnd::Cut => self.aborted(AbortSide::Upstream),
            AnswerEnd::Left if !complete => self.aborted(AbortSide::Client),
            AnswerEnd::Left | AnswerEnd::Whole => {}
        }
    }

    /// Notes what the answer to a forwarded request says of its cost. It has the prices of the model that was
    /// asked or, if that was not read, of the one that answered.
    pub(super) fn told(&mut self, app: &App, status: StatusCode, answer: &Answer) {
        if self.report.model.is_empty() {
            self.report.model = answer.model.clone().unwrap_or_default();
        }
        let terms = LedgerTerms::of(app.models.family(&self.report.model));
        self.ledger.forwarded(terms, answer.usage);
        if self.report.hops.is_empty() {
            self.report.hops.push(HopReport {
                status: Some(status),
                ..HopReport::default()
            });
        }
        self.hop_ended(answer);
    }

    /// Notes that nothing is known of what a forwarded answer cost.
    pub(super) fn unread(&mut self) {
        self.report.unread = true;
    }

    /// Notes the end of a hop.
    pub(super) fn ended(&mut self, answer: &Answer, said: AnswerSizes) {
        self.ledger.ended(answer.usage, said);
        self.hop_ended(answer);
    }

    fn hop_ended(&mut self, answer: &Answer) {
        if let Some(error) = &answer.error {
            self.cause().refused(error);
        }
        // The first call is the one that the cache's figures are of.
        if self.report.hops.len() == 1 {
            self.report.cache.said.clone_from(&answer.diagnosis);
        }
        if answer.model.is_some() {
            self.report.response_model.clone_from(&answer.model);
        }
        let took = self.hop_begun.elapsed();
        if let Some(hop) = self.report.hops.last_mut() {
            hop.duration = took;
            hop.usage = answer.usage;
        }
    }

    /// What the turn cost so far. Of a watched turn, what it would have cost as a managed one.
    pub(super) fn cost(&self) -> Option<TurnAccount> {
        let projected = self.ledger.projected();
        let account = projected.or_else(|| self.ledger.account())?;
        let report = &self.report;
        Some(TurnAccount {
            paid: account.sent_cost.total(),
            whole: account.client_cost.total(),
            evicted: account.parts.evicted,
            rewritten: account.parts.rewritten,
            annotated: account.parts.annotated,
            breakpoints: account.parts.breakpoints,
            unexplained: account.parts.unexplained,
            hidden: report.role_units(CallRole::Hidden, &account),
            aside: report.role_units(CallRole::Aside, &account),
            usd: account.usd,
            sent: (account.sent.prompt, account.sent.cached),
            client: (account.client.prompt, account.client.cached),
        })
    }

    /// What the record says of the turn for those who look at it later.
    pub(super) fn facts(&self, state: &TurnState, prepared: &Prepared) -> TurnFacts {
        let report = &self.report;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let named = report.hops.iter().any(|hop| hop.request_id.is_some());
        let ids = report.hops.iter().map(|hop| hop.request_id.clone());
        let ids = ids.filter(|_| named).map(Option::unwrap_or_default);
        let context = report.context;
        let (items, tools) = told::items(state, prepared);
        TurnFacts {
            tokens_in: context.map_or(0, |context| context.tokens_in),
            tokens_out: context.map_or(0, |context| context.tokens_out),
            ceiling: context.map_or(0, |context| context.ceiling),
            floor: context.map_or(0, |context| context.floor),
            over: context.is_some_and(|context| context.budget != Budget::Met),
            dialect: (report.dialect != Dialect::Chat).then(|| report.dialect.name().to_owned()),
            fixed: state.fixed,
            cache: CacheFacts {
                answer: state.comparable(report.missed().is_some()),
                ..report.cache.clone()
            },
            watched: state.terms.mode != Mode::Manage,
            own_us: micros(report.overhead.total().unwrap_or_default()),
            first_us: report.first_token.map(micros),
            request_ids: ids.collect(),
            fail_open: report.fail_open.map(|stage| stage.name().to_owned()),
            cut: report.cut,
            account: self.ledger.is_heard().then(|| self.cost()).flatten(),
            branch: None,
            sums: TurnSums::default(),
            needed: report.needed,
            items,
            tools,
        }
    }

    /// Notes the turn's record, and the name of the row that it counts in.
    pub(super) fn recorded(&mut self, tenant: TenantId, record: RecordId, row: String) {
        self.record = Some(Box::new(RecordedTurn {
            tenant,
            record,
            row,
            own: self.report.overhead.total(),
        }));
    }

    /// Notes what an answer needed of what had left its view, and what the pass before it left there.
    pub(super) fn judged(&mut self, judged: Judged) {
        self.report.needed.add(&judged.needed);
        self.report.kept.extend(judged.kept);
    }

    /// Notes what hidden calls did.
    pub(super) fn hidden(&mut self, counted: HiddenCounts) {
        // A watched turn hides nothing.
        if self.ledger.is_watched() {
            return;
        }
        self.report.delimiter_calls.extend(counted.delimiters);
        self.report.recalls.extend(counted.recalls);
    }

    /// Notes that the answer stopped before its end.
    pub(super) fn aborted(&mut self, side: AbortSide) {
        let phase = match (self.report.first_token, self.report.hops.len()) {
            (None, _) => AbortPhase::FirstByte,
            (Some(_), 0 | 1) => AbortPhase::Body,
            (Some(_), _) => AbortPhase::BetweenHops,
        };
        self.report.abort = Some(Abort { side, phase });
    }

    /// The response headers for what is known so far. There are none if the upstream did not accept
    /// the credential, because its sender may not be the owner of the session.
    #[must_use]
    pub(super) fn headers(&self) -> HeaderMap {
        let refused = |hop: &HopReport| matches!(hop.status.map(|s| s.as_u16()), Some(401 | 403));
        if self.report.hops.iter().any(refused) {
            return HeaderMap::new();
        }
        response_headers(&self.report)
    }

    /// Notes the status of an answer that the client got in place of a stream.
    pub(super) fn replied(&mut self, status: StatusCode) {
        self.report.status = Some(status);
    }

    /// Hands the report over. `answered` is the status if none was noted before.
    pub(super) fn close(&mut self, answered: Option<StatusCode>) {
        self.finish(self.report.status.or(answered));
    }

    /// Hands the report over. Only the first call does anything.
    pub(super) fn finish(&mut self, status: Option<StatusCode>) {
        let Some(app) = self.app.take() else { return };
        self.report.status = status;
        self.report.duration = self.begun.elapsed();
        // A view that was only counted costs nothing.
        if self.report.route != Route::CountTokens {
            self.report.ledger = self.ledger.account();
            self.report.projected = self.ledger.projected();
        }
        app.active.touch(&self.report.session);
        crate::record::finish(&app.metrics, &self.report);
        let recorded = self.record.take().map(|record| *record);
        let cost = self.cost().filter(|_| self.report.ledger.is_some());
        let row = recorded.as_ref().map(|recorded| recorded.row.as_str());
        let failure = Failure::of(&self.report, self.cause.take(), row);
        let failed = failure.map(|failure| failures::keep(&app, failure, self.erased));
        app.live.turn(&self.report, recorded, cost.as_ref(), failed);
    }
}

/// What a proposal takes out of a view, by policy and level.
fn evicted(proposal: &Proposal) -> Vec<Evicted> {
    let rows = proposal.gone.iter();
    rows.map(|((policy, level), gone)| Evicted {
        policy: *policy,
        level: *level,
        tokens: u64::try_from(gone.tokens).unwrap_or(0),
        items: u64::from(gone.items),
    })
    .collect()
}
