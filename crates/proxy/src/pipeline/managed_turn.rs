//! A managed turn between its first hop and its end: answers hidden calls, prepares the next hop
//! and begins the record. Owns what streamed and unstreamed turns have in common. Never sends
//! anything and never reads a body.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use plimsoll_core::turn::ending::Ending;
use plimsoll_core::turn::hidden::{self, Keep};
use plimsoll_core::turn::state::{MiddleError, Prepared, TurnState};
use plimsoll_core::turn::{Mode, Unmet, needed, silent_cut};
use plimsoll_model::room::Held;
use plimsoll_model::{EditKind, Edits, Erased, Rope, SessionRow, StoredHop};
use plimsoll_tokens::Family;
use plimsoll_wire::answer::{Answer, Verdict};
use plimsoll_wire::one_text;
use plimsoll_wire::stream::Spec;
use plimsoll_wire::stream::unary::TurnEnd;
use plimsoll_wire::{ErrorSide, ErrorText};

use super::app::App;
use super::bodies::LiveBody;
use super::branch::Branching;
use super::changed;
use super::dropped;
use super::error::{Interruption, ProxyError};
use super::finish::{self, Committed, Ended};
use super::learned::TenantModel;
use super::ledger_input::answer_sizes;
use super::opening::aside;
use super::proven::Fact;
use super::record_place::RecordPlace;
use super::reporter::Reporter;
use super::request::TurnRequest;
use super::while_down::Failing;
use crate::record::{FailedStage, Phase, StoreOp, Unrecorded};
use crate::upstream::{self, Outbound, Payload, RetryUntil};

/// What the client reads if a turn ended at the bound on hops and nothing else was said.
pub(super) const CAP_LINE: &str = "the model only annotated; send \"continue\"";

/// A turn whose first hop is prepared.
pub(super) struct ManagedTurn {
    /// What the turn keeps between hops.
    pub state: TurnState,
    /// The hop in hand.
    pub prepared: Prepared,
    /// The client's request.
    pub request: TurnRequest,
    /// The place of its record.
    pub place: RecordPlace,
    /// What is known of its model. Boxed, so that the driver of a stream fits into a page.
    pub family: Box<Family>,
    /// Gathers the facts of the turn.
    pub reporter: Reporter,
    /// Whether the upstream was sent a call of the turn.
    pub sent: bool,
    /// Until when the calls of the hop in hand are tried again, if the settings give that a time.
    pub retry_until: RetryUntil,
    /// Its place among the branches of its session.
    pub branch: Branching,
    /// How many bytes each of its parts has to read.
    pub size: usize,
    /// The room that what is made of its messages takes.
    pub held: Held,
    /// Whether what the client has dropped was looked for.
    pub searched: bool,
    /// Told when one of its calls is tried again.
    pub failing: Failing,
}

impl ManagedTurn {
    /// Answers the hidden calls of a hop that the client never sees, and keeps that hop.
    pub(super) async fn pend(&mut self, app: &Arc<App>, answer: &Answer) {
        self.fetch_dropped(app, answer).await;
        let hop = self.settle_hop(app, answer, Keep::Message);
        self.state.pending.push(hop);
        if answer.handle.is_some() {
            self.state.later.handle.clone_from(&answer.handle);
        }
    }

    /// Prepares the hop that follows a hidden one.
    ///
    /// # Errors
    /// [`ProxyError`] if the middle fails, or if the budget can't be met and the operator refuses
    /// such requests.
    pub(super) fn next_hop(&mut self, app: &App) -> Result<(), ProxyError> {
        let prepared = self.prepare(app, None);
        let prepared = prepared.map_err(|error| {
            ProxyError::Interrupted(Interruption::Stage(FailedStage::of(&error)))
        })?;
        self.reporter.prepared(&self.state, &prepared);
        if let Some(error) = over_budget(&self.state, &prepared) {
            return Err(error);
        }
        self.prepared = prepared;
        Ok(())
    }

    /// Notes the end of a hop's answer.
    pub(super) fn heard(&mut self, app: &App, answer: &Answer) {
        let reader = app.reader(&self.family, self.place.tenant, self.state.request.dialect);
        let said = aside(answer.bytes(), || answer_sizes(answer, &reader));
        self.reporter.ended(answer, said);
        if answer.id.is_some() {
            self.state.answered.clone_from(&answer.id);
        }
        if let Some(usage) = answer.usage
            && let Some(size) = silent_cut::seen(&self.state, &self.prepared, usage)
        {
            self.note_cut(app, size);
        }
    }

    /// Notes that the upstream's reports stay at a size while what it is sent grows. If that is the size of a window, it
    /// cuts prompts there, and the next views stay below it.
    fn note_cut(&mut self, app: &App, size: u64) {
        let model = self.state.request.model.as_str();
        let table = app.models.family(model);
        let Some(cut) = app.windows.cut(self.place.tenant, (model, table), size) else {
            return;
        };
        self.reporter.cut(cut.at);
        if cut.is_new {
            tracing::warn!(
                model,
                at = cut.at,
                "the upstream cuts prompts at so many tokens without a word, so the model does not see all of what it is \
                 sent; views for the model stay below that until the next start; load it with a larger context if it can take one"
            );
        }
    }

    /// Runs and counts the hidden calls of an answer, and judges the view by it. Returns the hop to record.
    pub(super) fn settle_hop(&mut self, app: &App, answer: &Answer, keep: Keep) -> StoredHop {
        let reader = app.reader(&self.family, self.place.tenant, self.state.request.dialect);
        let profile = self.state.terms.choice.profile.as_deref();
        let classes = &app.settings.settings(profile).classes;
        let (state, prepared) = (&self.state, &self.prepared);
        let run = || {
            let (hop, counted) = hidden::settle(state, prepared, answer, keep, &reader);
            let recalls = counted.recalls.as_slice();
            // Nothing leaves the view of a watched turn.
            let manages = state.terms.mode == Mode::Manage;
            let judge = || needed::judge(state, prepared, (answer, recalls), reader, classes);
            // A mistake in it costs the figures of this answer, and nothing else.
            let judged = manages.then(|| catch_unwind(AssertUnwindSafe(judge)).ok());
            (hop, counted, judged.flatten())
        };
        let timed = || self.reporter.timed(Phase::Intercept, run);
        let (hop, counted, judged) = aside(self.size + answer.bytes(), timed);
        self.reporter.hidden(counted);
        self.reporter.judged(judged.unwrap_or_default());
        hop
    }

    /// Begins to write the record of a turn that ends with the last of `answers`. Returns `None` if
    /// that failed, or if the session was erased meanwhile. The client never pays for such a failure.
    pub(super) fn commit<'a>(
        &mut self,
        app: &App,
        answers: &'a [Answer],
        end: TurnEnd<'a>,
    ) -> Option<Committed> {
        self.guarded(app, answers, |turn| turn.record(app, answers, end))
    }

    /// Does the same for a turn that ends after its hidden calls were answered. The client has what the
    /// hops said and nothing else.
    pub(super) fn commit_settled<'a>(
        &mut self,
        app: &App,
        answers: &'a [Answer],
        end: TurnEnd<'a>,
    ) -> Option<Committed> {
        self.guarded(app, answers, |turn| {
            let last = turn.state.pending.pop()?;
            turn.ended(app, answers, last, end)
        })
    }

    fn guarded<'a>(
        &mut self,
        app: &App,
        answers: &'a [Answer],
        ended: impl FnOnce(&mut Self) -> Option<Ended<'a>>,
    ) -> Option<Committed> {
        if answers.iter().any(|answer| answer.forgotten) {
            tracing::warn!("an answer is longer than what is recorded of one (store.answer_cap)");
            self.reporter.unrecorded(Unrecorded::Long);
            return None;
        }
        let said = answers.iter().map(Answer::bytes);
        let size = self.size + said.sum::<usize>();
        let run = AssertUnwindSafe(|| {
            let ended = ended(self)?;
            let transcript = self.prepared.view.transcript();
            let committed = finish::commit(
                app,
                &self.place,
                (&self.state, transcript),
                &self.branch,
                ended,
            )?;
            let row = committed.row().to_owned();
            self.keep_body(app, &committed, &row);
            let tenant = self.place.tenant;
            self.reporter.recorded(tenant, committed.id(), row);
            Some(committed)
        });
        aside(size, || catch_unwind(run)).unwrap_or_else(|_| {
            tracing::error!("a turn could not be recorded: the proxy made a mistake");
            self.reporter.failed_open(FailedStage::Panic);
            None
        })
    }

    /// Keeps the request in memory, for those who may look at it.
    fn keep_body(&self, app: &App, committed: &Committed, row: &str) {
        let tenant = self.place.tenant;
        let request = &self.state.request;
        // The request before stands here until this one takes its place, so a change is found now or never.
        let before = app.bodies.get(&SessionRow::identity(tenant, row));
        let change = before.as_ref().zip(self.reporter.missed_by());
        let turn = self.state.path.next_turn();
        let change = change
            .and_then(|(before, cause)| changed::change(cause, turn, &before.body, &request.body));
        let changes = before.map(|before| before.changes).unwrap_or_default();
        let live = LiveBody {
            record: committed.id(),
            body: request.body.clone(),
            dialect: request.dialect,
            changes: changes.with(change),
        };
        let means = |erased: &Erased| erased.means(tenant, &self.place.session);
        // Between the record and this its session may have been erased.
        if let Some(_leave) = app.erasing.leave(self.place.began, means) {
            app.bodies.keep(tenant, row, live);
        }
    }

    /// Whether these answers are the last: the bound on hops is reached, which counts those that the model answered and
    /// the one in hand, or one was forgotten, and nobody can go on from that.
    pub(super) fn is_last(&self, answers: &[Answer]) -> bool {
        let bound = self.state.settled() + 1 >= self.state.terms.hops;
        bound || answers.iter().any(|answer| answer.forgotten)
    }

    /// The first of these hops that the client is shown. Nearly always that is the first of all.
    pub(super) fn first_shown(&self, answers: &[Answer]) -> usize {
        match self.state.says_one_text() {
            true => one_text::first_shown(answers),
            false => 0,
        }
    }

    /// A turn that ends with the last of `answers`.
    fn record<'a>(
        &mut self,
        app: &App,
        answers: &'a [Answer],
        end: TurnEnd<'a>,
    ) -> Option<Ended<'a>> {
        let answer = answers.last()?;
        // A capped turn shows the client none of the last hop, so the hop is kept whole.
        let keep = match end {
            TurnEnd::HopCap { .. } => Keep::Message,
            TurnEnd::Upstream => Keep::HiddenCalls,
        };
        let last = self.settle_hop(app, answer, keep);
        self.ended(app, answers, last, end)
    }

    fn ended<'a>(
        &self,
        app: &App,
        answers: &'a [Answer],
        last: StoredHop,
        end: TurnEnd<'a>,
    ) -> Option<Ended<'a>> {
        let answer = answers.last()?;
        let line = end.line();
        let skipped = self.first_shown(answers);
        let answers = answers.get(skipped..)?;
        let ending = Ending {
            texts: answers.iter().map(|answer| answer.text.as_str()).collect(),
            skips: skipped > 0,
            answer,
            last,
            line,
            now: app.now(),
        };
        let request = &self.state.request;
        let (stored, asked) = match self.state.terms.mode {
            Mode::Manage => self.state.terms.keeps(request.stored),
            // A watched client can refer only to the copy that the provider keeps.
            Mode::Observe | Mode::Off => (false, false),
        };
        let evicted = self.state.terms.content.evicted && dropped::has_evicted(&self.state);
        // A client can't go on from an answer that broke off.
        let whole = match answer.verdict() {
            Verdict::Done | Verdict::Mixed | Verdict::Cut => true,
            Verdict::HiddenOnly => end != TurnEnd::Upstream,
            Verdict::Broken => false,
        };
        // The client knows the turn by the id of its first hop.
        let first = answers.first().filter(|_| asked && whole);
        Some(Ended {
            ending,
            facts: self.reporter.facts(&self.state, &self.prepared),
            said: (stored || evicted).then(|| request.dialect.said(answers, line)),
            response: first.and_then(|first| first.id.clone()),
        })
    }

    /// Prepares the next hop. `refused` is the size that the upstream refused as too long.
    ///
    /// # Errors
    /// [`MiddleError`] if the middle fails.
    pub(super) fn prepare(
        &mut self,
        app: &App,
        refused: Option<u64>,
    ) -> Result<Prepared, MiddleError> {
        let dialect = self.state.request.dialect;
        let profile = self.state.terms.choice.profile.as_deref();
        let tools = app.tools(&self.family, self.place.tenant, dialect, profile);
        let (reporter, state) = (&mut self.reporter, &mut self.state);
        aside(self.size, || reporter.prepare(state, &tools, refused))
    }

    /// Prepares the hop in hand again, without some edits.
    ///
    /// # Errors
    /// [`MiddleError`] if the middle fails.
    pub(super) fn prepare_without(
        &mut self,
        app: &App,
        edits: Edits,
    ) -> Result<Prepared, MiddleError> {
        let dialect = self.state.request.dialect;
        let profile = self.state.terms.choice.profile.as_deref();
        let tools = app.tools(&self.family, self.place.tenant, dialect, profile);
        let (reporter, state) = (&mut self.reporter, &mut self.state);
        aside(self.size, || {
            state.go_without(edits, &tools)?;
            reporter.prepare(state, &tools, None)
        })
    }

    /// Prepares the hop in hand again, without thoughts that lost their place, or without any.
    ///
    /// # Errors
    /// [`MiddleError`] if the middle fails.
    pub(super) fn prepare_without_thoughts(
        &mut self,
        app: &App,
        all: bool,
    ) -> Result<Prepared, MiddleError> {
        if all {
            self.state.end_thoughts(&self.prepared.view);
        }
        self.prepare_without(app, Edits::from_iter([EditKind::Thoughts]))
    }

    /// Notes that the upstream refuses thoughts that something changed before, for all sessions with the model.
    pub(super) fn teach_bound(&mut self, app: &App) {
        let whose = self.whose();
        self.teach(app.learned.binds(&whose));
        if self.state.terms.mode == Mode::Manage {
            app.proven.note(&app.store, Fact::Binds(&whose));
        }
    }

    /// The prepared hop with the client's headers, ready to be sent.
    ///
    /// # Errors
    /// [`ProxyError`] if the client's path leaves the base URL.
    pub(super) fn outbound(&self, app: &App) -> Result<Outbound, ProxyError> {
        let url = app.upstream.target(&self.request.asked)?;
        let mut headers = self.request.headers.to_map();
        upstream::to_upstream(&mut headers);
        upstream::to_view(&mut headers);
        if self.sent {
            upstream::to_next_call(&mut headers);
        }
        // The body was decompressed, and the proxy must be able to read the answer.
        headers.remove(CONTENT_ENCODING);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let method = self.request.method.clone();
        Ok(Outbound {
            method,
            url,
            headers,
            payload: Payload::Whole(self.prepared.body.clone()),
        })
    }

    /// What the stream machine must know of the turn.
    pub(super) fn spec(&self) -> Spec {
        Spec {
            dialect: self.state.request.dialect,
            hidden: self.state.hidden_names(),
            usage_wish: self.state.usage_wish(),
            echo: self.state.request.echo(),
            asked: self.state.who_asks(),
            one_text: self.state.says_one_text(),
        }
    }

    /// The client's own request. That is the body as it came. If the conversation has hidden calls
    /// that the provider keeps, it is the expanded body: nobody would answer those calls at the
    /// provider.
    pub(super) fn own(&self) -> &Bytes {
        let hops = self
            .state
            .path
            .entries
            .iter()
            .map(|entry| &entry.record.hops);
        if hops.flatten().any(|hop| !hop.calls.is_empty()) {
            &self.state.request.body
        } else {
            &self.request.body
        }
    }

    /// Whether the client's own request is shorter than the view. The view may then be too long
    /// only because of what the proxy added.
    pub(super) fn is_shorter(&self) -> bool {
        let fewer_tokens = self.state.client_tokens < self.prepared.estimate;
        fewer_tokens || self.own().len() < self.prepared.body.len()
    }

    /// The model whose habits this turn meets.
    pub(super) fn whose(&self) -> TenantModel {
        let request = &self.state.request;
        TenantModel::new(self.place.tenant, request.dialect, &request.model)
    }

    /// Notes that the upstream accepted the hop in hand, whose bytes are not needed again.
    pub(super) fn note_accepted(&mut self, app: &App) {
        self.prepared.body = Rope::default();
        app.learned.accepted(&self.whose(), self.prepared.edits);
    }

    /// Notes what the turn learned of its upstream, for this session and for the report.
    pub(super) fn teach(&mut self, learned: Edits) {
        let new = learned.without(self.state.known);
        if new.is_empty() {
            return;
        }
        self.state.known = self.state.known.or(new);
        self.reporter.learned(new);
        let kinds: Vec<&str> = new.iter().map(EditKind::name).collect();
        tracing::warn!(
            model = self.state.request.model,
            kinds = kinds.join(","),
            "the upstream refuses these edits; views for the model go without them: in sessions that know \
             it for good, in others until the next start"
        );
    }

    /// Waits until a record is durable, as long as the settings allow. After that the record is
    /// written late and the client does not wait.
    pub(super) async fn durable(&mut self, app: &Arc<App>, committed: Committed) {
        let begun = Instant::now();
        // A slow disk may delay the client for a while, but not for as long as it likes.
        let waited = tokio::time::timeout(app.serving.store_wait, committed.durable()).await;
        app.metrics.observe_store(StoreOp::Commit, begun.elapsed());
        self.reporter.took(Phase::Store, begun.elapsed());
        match waited {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "a turn was served, but could not be recorded");
                self.reporter.unrecorded(Unrecorded::Failed);
            }
            Err(_) => {
                tracing::warn!(
                    "a turn's record is late and is written later; the client did not wait for it"
                );
                self.reporter.unrecorded(Unrecorded::Late);
            }
        }
    }

    /// Records the turn and waits until it is durable, as long as the settings allow.
    pub(super) async fn settle(&mut self, app: &Arc<App>, answers: &[Answer], end: TurnEnd<'_>) {
        self.branch.learn().await;
        if let Some(answer) = answers.last() {
            self.fetch_dropped(app, answer).await;
        }
        if let Some(committed) = self.commit(app, answers, end) {
            self.durable(app, committed).await;
        }
    }

    /// The body of an error about the upstream, in the dialect's shape.
    pub(super) fn upstream_error(&self, cause: &str) -> Bytes {
        self.state.request.dialect.error(&ErrorText {
            status: StatusCode::BAD_GATEWAY.as_u16(),
            side: ErrorSide::Upstream,
            message: cause,
            param: None,
            code: "upstream_stream_failed",
        })
    }

    /// Ends the report of a turn that fails.
    pub(super) fn failed(self, error: ProxyError) -> ProxyError {
        self.reporter.fail(&error);
        error
    }

    /// Passes a response on unread, and ends the report.
    pub(super) fn forward(self, response: Response<upstream::ResponseBody>) -> Response<Body> {
        let mut reporter = self.reporter;
        let mut response = response.map(Body::new);
        upstream::to_client(response.headers_mut());
        response.headers_mut().extend(reporter.headers());
        if reporter.hears().is_some() && response.status().is_success() {
            reporter.unread();
        }
        reporter.finish(Some(response.status()));
        response
    }

    /// Answers with bytes that were read whole, under the upstream's status and headers.
    pub(super) fn reply(
        mut self,
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Response<Body> {
        upstream::to_client(&mut headers);
        headers.extend(self.reporter.headers());
        // The server computes the length again, because the body may not be the upstream's.
        headers.remove(http::header::CONTENT_LENGTH);
        if !status.is_success() {
            self.reporter.cause().refused(&body);
        }
        self.reporter.finish(Some(status));
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// The end of a turn that reached the bound on hops with these answers: the client reads a line if
/// nothing else was said.
pub(super) fn at_hop_cap(answers: &[Answer]) -> TurnEnd<'static> {
    let mut answers = answers.iter();
    let silent = answers.all(|answer| answer.text.is_empty() && !answer.forgotten);
    TurnEnd::HopCap {
        line: silent.then_some(CAP_LINE),
    }
}

/// The error for a hop that stays above its ceiling, if the operator refuses such requests.
pub(super) fn over_budget(state: &TurnState, prepared: &Prepared) -> Option<ProxyError> {
    let pinned = prepared
        .pinned
        .filter(|_| state.terms.unmet == Unmet::Refuse)?;
    Some(ProxyError::Budget {
        ceiling: u64::from(state.terms.ceiling),
        windowed: state.terms.windowed,
        size: prepared.calibrated(prepared.estimate),
        pinned,
    })
}
