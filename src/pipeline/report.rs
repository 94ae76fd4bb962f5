//! Facts of a turn as its stages return them, gathered for `record`. Never writes a metric or a
//! log line itself.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Method, StatusCode};

use super::app::App;
use super::books::Books;
use crate::dialect::answer::Answer;
use crate::dialect::request::Request;
use crate::policy::Pinned;
use crate::record::{
    Abort, AbortPhase, Budget, Context, Evicted, Hop, Pass, Phase, Projection, RetryReason, Route,
    Side, Stage, Turn, lossy, response_headers,
};
use crate::tokens::ledger::{Account, Said, Terms};
use crate::turn::Mode;
use crate::turn::hidden::HiddenCounts;
use crate::turn::state::{HopContext, MiddleError, Prepared, TurnState};
use crate::upstream::Retry;

/// The report of a request, from its head to its end. It is told once, whichever way that comes.
pub struct Report {
    /// What is known so far.
    pub(super) turn: Turn,
    books: Books,
    begun: Instant,
    hop_begun: Instant,
    /// Whether it was counted that views are shown otherwise than in the turn before.
    otherwise: bool,
    /// Where it is told; nowhere once it was.
    app: Option<Arc<App>>,
}

impl Drop for Report {
    /// A turn that is dropped on its way was left by its client, or lost by a mistake of ours.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.failed_open(Stage::Panic);
            // A stream had begun, and breaks; anything else is answered with an error.
            let begun = self.turn.first_token.map(|_| StatusCode::OK);
            return self.finish(begun.or(Some(StatusCode::BAD_GATEWAY)));
        }
        if self.app.is_some() && self.turn.abort.is_none() {
            self.aborted(Side::Client);
        }
        self.finish(None);
    }
}

impl Report {
    /// Begins the report of a request whose head has arrived.
    #[must_use]
    pub fn begin(app: &Arc<App>, route: Route, method: Method) -> Self {
        let mut turn = Turn::new(route, method);
        turn.provider = app.provider;
        let now = Instant::now();
        Self {
            turn,
            books: Books::default(),
            begun: now,
            hop_begun: now,
            otherwise: false,
            app: Some(Arc::clone(app)),
        }
    }

    /// Ends the report of a request that gets an answer of ours and nothing else.
    pub fn refuse(mut self, status: StatusCode) {
        self.finish(Some(status));
    }

    /// Notes that the client's own bytes are sent because a stage failed.
    pub fn failed_open(&mut self, stage: Stage) {
        self.turn.fail_open = Some(stage);
    }

    /// Notes what the body says.
    pub(super) fn asked(&mut self, request: &Request, mode: Mode) {
        self.turn.model.clone_from(&request.model);
        self.turn.streamed = request.stream;
        self.turn.one_call = request.one_call;
        self.turn.dialect = request.dialect.name();
        self.turn.mode = match mode {
            Mode::Manage => "manage",
            Mode::Observe => "observe",
            Mode::Off => "off",
        };
    }

    /// Runs a phase and notes the time that it took.
    pub(super) fn timed<T>(&mut self, phase: Phase, run: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let value = run();
        self.turn.overhead.add(phase, begun.elapsed());
        value
    }

    /// Prepares a hop and notes the time that its two halves took.
    pub(super) fn prepare(
        &mut self,
        state: &mut TurnState,
        tools: &HopContext<'_>,
        refused: Option<u64>,
    ) -> Result<Prepared, MiddleError> {
        let planned = self.timed(Phase::Policy, || state.plan(tools, refused))?;
        self.timed(Phase::Render, || state.render(planned))
    }

    /// Notes under which terms the turn is accounted for.
    pub(super) fn account(&mut self, terms: Terms) {
        self.books.open(terms);
    }

    /// Notes where the request stands and what its next hop is.
    pub(super) fn prepared(&mut self, state: &TurnState, prepared: &Prepared) {
        self.books.prepared(state, prepared);
        self.turn.number = u64::from(state.path.next_turn());
        // What is only watched commits no pass, and breaks no prefix.
        let managed = state.terms.mode == Mode::Manage;
        let committed = prepared.pass.as_ref().filter(|_| managed);
        let pass = committed.map(|(trigger, proposal)| Pass {
            trigger: *trigger,
            above_floor: prepared.estimate > prepared.floor,
            evicted: proposal
                .gone
                .iter()
                .map(|(level, gone)| Evicted {
                    policy: state.terms.policy,
                    level: *level,
                    tokens: u64::try_from(gone.tokens).unwrap_or(0),
                    items: u64::from(gone.items),
                })
                .collect(),
        });
        // A first pass breaks what the provider has cached; so does text that a client changed, and
        // what is found out of the upstream.
        let cached = state.path.newest().is_some() || !state.pending.is_empty();
        let guided = prepared.guided.filter(|_| managed);
        self.turn.guided = self.turn.guided.or(guided);
        self.turn.prologue_changed = state.prologue_changed;
        self.turn.prefix_breaks += u64::from((pass.is_some() || guided.is_some()) && cached);
        let first = state.pending.is_empty();
        self.turn.prefix_breaks += u64::from(first && prepared.view.transcript().changed);
        if managed && !self.otherwise && state.shows_otherwise() {
            self.otherwise = true;
            self.turn.prefix_breaks += 1;
        }
        let ceiling = u64::from(state.terms.ceiling);
        let out = prepared.calibrated(prepared.estimate);
        // A turn has kept its budget if each of its hops has.
        let earlier = self.turn.context.map(|context| context.budget);
        let met = prepared.pinned.is_none()
            && out <= ceiling
            && earlier.is_none_or(|budget| budget == Budget::Met);
        self.turn.context = Some(Context {
            tokens_in: prepared.calibrated(state.client_tokens),
            tokens_out: out,
            evicted: prepared.calibrated(prepared.whole.saturating_sub(prepared.estimate)),
            ceiling,
            floor: prepared.calibrated(prepared.floor),
            parts: state
                .parts(prepared)
                .map(|tokens| prepared.calibrated(tokens)),
            budget: if met { Budget::Met } else { Budget::Exceeded },
            pinned: prepared.pinned.map(|pinned| Pinned {
                fixed: prepared.calibrated(pinned.fixed),
                system: prepared.calibrated(pinned.system),
                user: prepared.calibrated(pinned.user),
                newest: prepared.calibrated(pinned.newest),
                opaque: prepared.calibrated(pinned.opaque),
                rest: prepared.calibrated(pinned.rest),
            }),
        });
        // What is only watched goes up as it came.
        self.turn.hops.push(Hop {
            estimated: prepared.estimate,
            ceiling_ratio: managed.then(|| lossy(out) / lossy(ceiling.max(1))),
            pass,
            declined: prepared.declined,
            ..Hop::default()
        });
        self.hop_begun = Instant::now();
    }

    /// Notes that the client's own request is what goes up next.
    pub(super) fn own(&mut self) {
        self.books.own();
    }

    /// Notes that the client's own request is what goes up, because the turn is only watched.
    pub(super) fn watched(&mut self, state: &TurnState, projection: Projection) {
        self.books.watched(state, projection == Projection::Anew);
        self.turn.projection = Some(projection);
        if let Some(hop) = self.turn.hops.last_mut() {
            hop.estimated = state.client_tokens;
        }
    }

    /// What a turn that is only watched would have come to.
    pub(super) fn projected(&self) -> Option<Account> {
        self.books.projected()
    }

    /// Notes that the last hop went up again, as long as the client had made it, and was answered.
    pub(super) fn unshortened(&mut self, status: StatusCode) {
        self.books.own();
        self.books.answered(status.is_success());
        let Some(context) = self.turn.context else {
            return;
        };
        if let Some(hop) = self.turn.hops.last_mut() {
            let whole = lossy(context.tokens_in) / lossy(context.ceiling.max(1));
            hop.ceiling_ratio = hop.ceiling_ratio.map(|_| whole);
        }
    }

    /// Notes that the upstream answered.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.books.answered(status.is_success());
        let waited = self.hop_begun.elapsed();
        if let Some(hop) = self.turn.hops.last_mut() {
            hop.status = Some(status);
            hop.first_byte.get_or_insert(waited);
        }
    }

    /// Notes the first byte that the client may see.
    pub(super) fn spoken(&mut self) {
        let since = self.begun.elapsed();
        self.turn.first_token.get_or_insert(since);
    }

    /// Notes that an upstream call is tried again.
    pub(super) fn retried(&mut self, retry: Retry) {
        self.turn.retries.push(match retry {
            Retry::Connect => RetryReason::Connect,
            Retry::Status => RetryReason::Status,
        });
    }

    /// Notes the end of a hop.
    pub(super) fn ended(&mut self, answer: &Answer, said: Said) {
        let usage = answer.usage;
        self.books.ended(usage, said);
        if answer.model.is_some() {
            self.turn.response_model.clone_from(&answer.model);
        }
        let took = self.hop_begun.elapsed();
        if let Some(hop) = self.turn.hops.last_mut() {
            hop.duration = took;
            hop.usage = usage;
        }
    }

    /// Notes what hidden calls did, and what was fetched again.
    pub(super) fn hidden(&mut self, counted: HiddenCounts) {
        // Of what is only watched nothing is hidden, and nothing gone.
        if self.books.is_watched() {
            return;
        }
        self.turn.delimiter_calls.extend(counted.delimiters);
        self.turn.recalls.extend(counted.recalls);
        self.turn.refetches += counted.refetches;
    }

    /// Notes that the stream ended before its end.
    pub(super) fn aborted(&mut self, side: Side) {
        let phase = match (self.turn.first_token, self.turn.hops.len()) {
            (None, _) => AbortPhase::FirstByte,
            (Some(_), 0 | 1) => AbortPhase::Body,
            (Some(_), _) => AbortPhase::BetweenHops,
        };
        self.turn.abort = Some(Abort { side, phase });
    }

    /// The response headers for what is known so far; none where the upstream did not accept the
    /// credential, because whoever sent it may not be whose session this is.
    #[must_use]
    pub(super) fn headers(&self) -> HeaderMap {
        let refused = |hop: &Hop| matches!(hop.status.map(|s| s.as_u16()), Some(401 | 403));
        if self.turn.hops.iter().any(refused) {
            return HeaderMap::new();
        }
        response_headers(&self.turn)
    }

    /// Tells everybody who wants to know, the first time that it is called.
    pub(super) fn finish(&mut self, status: Option<StatusCode>) {
        let Some(app) = self.app.take() else { return };
        self.turn.status = status;
        self.turn.duration = self.begun.elapsed();
        // A view that was only counted costs nothing.
        if self.turn.route != Route::CountTokens {
            self.turn.ledger = self.books.account();
            self.turn.projected = self.books.projected();
        }
        app.active.touch(&self.turn.session);
        crate::record::finish(&app.metrics, &self.turn);
    }
}
