//! A managed turn between its first hop and its end: what both forms of its answer ask of it, from the
//! hop that an answer makes to the record. Owns what such a turn is; never sends anything and reads no
//! body.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::app::App;
use super::books;
use super::error::ProxyError;
use super::finish::{self, Committed, Ended};
use super::learned::Whose;
use super::place::Place;
use super::report::Report;
use super::request::TurnRequest;
use crate::dialect::answer::{Answer, Verdict};
use crate::dialect::stream::Spec;
use crate::dialect::{ErrorSide, ErrorText};
use crate::model::{EditKind, Edits, StoredHop};
use crate::record::{Phase, Stage, StoreOp};
use crate::tokens::Family;
use crate::turn::ending::{self, Ending};
use crate::turn::hidden::{self, Keep};
use crate::turn::state::{MiddleError, Prepared, TurnState};
use crate::turn::{Mode, Unmet};
use crate::upstream::{self, Outbound, Payload};

/// What the client reads where a turn ended at the hop cap with nothing else said.
pub(super) const CAP_LINE: &str = "the model only annotated; send \"continue\"";

/// A turn whose first hop is ready.
pub(super) struct Turn {
    /// What it keeps between hops.
    pub state: TurnState,
    /// Its first hop.
    pub prepared: Prepared,
    /// The client's request.
    pub request: TurnRequest,
    /// Where its record belongs.
    pub place: Place,
    /// What is known of its model.
    pub family: Family,
    /// The report so far.
    pub report: Report,
}

impl Turn {
    /// Answers the hidden calls of a hop that the client never sees, and keeps the hop.
    pub(super) fn pend(&mut self, app: &App, answer: &Answer) {
        let hop = self.settle_hop(app, answer, Keep::Message);
        self.state.pending.push(hop);
    }

    /// Prepares the hop that follows one whose hidden calls are answered, streamed or not.
    ///
    /// # Errors
    /// [`ProxyError`] where the middle fails, or the budget can't be met and the operator refuses then.
    pub(super) fn next_hop(&mut self, app: &App) -> Result<(), ProxyError> {
        let prepared = self.prepare(app, None);
        let prepared = prepared.map_err(|error| ProxyError::Middle(Stage::of(&error).name()))?;
        self.report.prepared(&self.state, &prepared);
        if let Some(error) = over_budget(&self.state, &prepared) {
            return Err(error);
        }
        self.prepared = prepared;
        Ok(())
    }

    /// Notes the end of a hop.
    pub(super) fn heard(&mut self, app: &App, answer: &Answer) {
        let reader = app.reader(&self.family, self.place.tenant, self.state.request.dialect);
        let said = books::said(answer, &reader);
        self.report.ended(answer, said);
    }

    /// The hop that an answer makes, its hidden calls run and counted.
    pub(super) fn settle_hop(&mut self, app: &App, answer: &Answer, keep: Keep) -> StoredHop {
        let reader = app.reader(&self.family, self.place.tenant, self.state.request.dialect);
        let (state, prepared) = (&self.state, &self.prepared);
        let (hop, counted) = self.report.timed(Phase::Intercept, || {
            hidden::settle(state, prepared, answer, keep, &reader)
        });
        self.report.hidden(counted);
        hop
    }

    /// Begins to record the turn that ends with this answer. `None` where that failed, which the
    /// client never pays for.
    pub(super) fn commit(
        &mut self,
        app: &App,
        answers: &[Answer],
        closed: Option<Option<&str>>,
    ) -> Option<Committed> {
        self.guarded(app, |turn| turn.record(app, answers, closed))
    }

    /// As [`Turn::commit`], for a turn that ended behind hops that are settled already: the client
    /// has what they said and nothing else.
    pub(super) fn commit_settled(&mut self, app: &App, answers: &[Answer]) -> Option<Committed> {
        self.guarded(app, |turn| {
            let last = turn.state.pending.pop()?;
            turn.ended(app, answers, last, None)
        })
    }

    fn guarded(
        &mut self,
        app: &App,
        end: impl FnOnce(&mut Self) -> Option<Ended>,
    ) -> Option<Committed> {
        let run = AssertUnwindSafe(|| {
            let ended = end(self)?;
            Some(finish::commit(app, &self.place, &self.state, ended))
        });
        catch_unwind(run).unwrap_or_else(|_| {
            tracing::error!("a turn could not be recorded: the proxy made a mistake");
            self.report.turn.fail_open = Some(Stage::Panic);
            None
        })
    }

    /// The record of the turn that ends with this answer.
    fn record(
        &mut self,
        app: &App,
        answers: &[Answer],
        closed: Option<Option<&str>>,
    ) -> Option<Ended> {
        let answer = answers.last()?;
        let keep = if closed.is_some() {
            Keep::Message
        } else {
            Keep::HiddenCalls
        };
        let last = self.settle_hop(app, answer, keep);
        self.ended(app, answers, last, closed)
    }

    fn ended(
        &self,
        app: &App,
        answers: &[Answer],
        last: StoredHop,
        closed: Option<Option<&str>>,
    ) -> Option<Ended> {
        let answer = answers.last()?;
        let line = closed.flatten();
        let transcript = self.prepared.view.transcript();
        let record = ending::record(
            &self.state,
            transcript.base,
            transcript.first_item,
            Ending {
                texts: answers.iter().map(|answer| answer.text.as_str()).collect(),
                answer,
                last,
                line,
                now: app.now(),
            },
        );
        let request = &self.state.request;
        let (stored, asked) = match self.state.terms.mode {
            Mode::Manage => self.state.terms.keeps(request.stored),
            // The provider's own copy is all that the client can refer to.
            Mode::Observe | Mode::Off => (false, false),
        };
        // What broke off has no end that a client could go on from.
        let whole = match answer.verdict() {
            Verdict::Done | Verdict::Mixed | Verdict::Cut => true,
            Verdict::HiddenOnly => closed.is_some(),
            Verdict::Broken => false,
        };
        // The client knows a turn by the id of its first hop.
        let first = answers.first().filter(|_| asked && whole);
        Some(Ended {
            record,
            said: stored.then(|| request.dialect.said(answers, line)),
            response: first.and_then(|first| first.id.clone()),
        })
    }

    /// Prepares the next hop.
    ///
    /// # Errors
    /// [`MiddleError`] where the middle fails.
    pub(super) fn prepare(
        &mut self,
        app: &App,
        refused: Option<u64>,
    ) -> Result<Prepared, MiddleError> {
        let dialect = self.state.request.dialect;
        let tools = app.tools(&self.family, self.place.tenant, dialect);
        self.report.prepare(&mut self.state, &tools, refused)
    }

    /// Prepares the hop in hand anew, without some edits.
    ///
    /// # Errors
    /// [`MiddleError`] where the middle fails.
    pub(super) fn prepare_without(
        &mut self,
        app: &App,
        edits: Edits,
    ) -> Result<Prepared, MiddleError> {
        let dialect = self.state.request.dialect;
        let tools = app.tools(&self.family, self.place.tenant, dialect);
        self.state.go_without(edits, &tools)?;
        self.report.prepare(&mut self.state, &tools, None)
    }

    /// The prepared hop with the client's headers, ready to be sent.
    ///
    /// # Errors
    /// [`ProxyError`] if the client's path leaves the base.
    pub(super) fn outbound(&self, app: &App) -> Result<Outbound, ProxyError> {
        let url = app.upstream.target(&self.request.asked)?;
        let mut headers = self.request.headers.clone();
        upstream::to_upstream(&mut headers);
        // The body was decompressed, and the answer must be readable.
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

    /// What the interceptor must know of the turn.
    pub(super) fn spec(&self) -> Spec {
        Spec {
            dialect: self.state.request.dialect,
            hidden: self.state.hidden_names(),
            usage_wish: self.state.request.usage_wish,
            echo: self.state.request.echo.clone(),
        }
    }

    /// The client's own request: as it came, or where it names a turn with hidden calls in it, with what
    /// it refers to in its place. The provider has kept those calls, and nothing answers them there.
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

    /// Whether the client's own request is shorter than ours: then what was added to it may be all that
    /// makes it too long.
    pub(super) fn is_shorter(&self) -> bool {
        let fewer_tokens = self.state.client_tokens < self.prepared.estimate;
        fewer_tokens || self.own().len() < self.prepared.body.len()
    }

    /// Whose habits a turn meets.
    pub(super) fn whose(&self) -> Whose {
        let request = &self.state.request;
        Whose::new(self.place.tenant, request.dialect, &request.model)
    }

    /// Notes that the upstream accepted the view in hand.
    pub(super) fn note_accepted(&self, app: &App) {
        app.learned.accepted(&self.whose(), self.prepared.edits);
    }

    /// Notes what a turn found out of its upstream.
    pub(super) fn teach(&mut self, learned: Edits) {
        let new = learned.without(self.state.known);
        if new.is_empty() {
            return;
        }
        self.state.known = self.state.known.or(new);
        self.report.turn.learned = self.report.turn.learned.or(new);
        let kinds: Vec<&str> = new.iter().map(EditKind::name).collect();
        tracing::warn!(
            model = self.state.request.model,
            kinds = kinds.join(","),
            "the upstream refuses these edits; views for the model go without them: in sessions that know \
             it for good, in others until the next start"
        );
    }

    /// Waits until a record is durable, as long as the settings allow; past that it is written
    /// late and the client does not wait.
    pub(super) async fn durable(&mut self, app: &Arc<App>, committed: Committed) {
        let begun = Instant::now();
        let waited = tokio::time::timeout(app.serving.store_wait, committed.durable()).await;
        app.metrics.observe_store(StoreOp::Commit, begun.elapsed());
        self.report.turn.overhead.add(Phase::Store, begun.elapsed());
        match waited {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "a turn could not be recorded");
                self.report.turn.fail_open.get_or_insert(Stage::Record);
            }
            Err(_) => {
                tracing::warn!("a turn's record is late; the client did not wait for it");
                self.report.turn.fail_open.get_or_insert(Stage::Record);
            }
        }
    }

    /// Records the turn and waits until it is durable, as long as the settings allow.
    pub(super) async fn settle(
        &mut self,
        app: &Arc<App>,
        answers: &[Answer],
        closed: Option<Option<&str>>,
    ) {
        if let Some(committed) = self.commit(app, answers, closed) {
            self.durable(app, committed).await;
        }
    }

    /// An error of ours in the dialect's shape.
    pub(super) fn upstream_error(&self, cause: &str) -> Bytes {
        self.state.request.dialect.error(&ErrorText {
            status: StatusCode::BAD_GATEWAY.as_u16(),
            side: ErrorSide::Upstream,
            message: cause,
            param: None,
            code: "upstream_stream_failed",
        })
    }

    /// Ends the report of a turn that gets an answer of ours.
    pub(super) fn failed(self, error: ProxyError) -> ProxyError {
        self.report.refuse(error.status());
        error
    }

    /// Passes a response on as it comes and ends the report.
    pub(super) fn forward(self, response: Response<upstream::ResponseBody>) -> Response<Body> {
        let mut report = self.report;
        let mut response = response.map(Body::new);
        upstream::to_client(response.headers_mut());
        response.headers_mut().extend(report.headers());
        report.finish(Some(response.status()));
        response
    }

    /// Answers with bytes that were read whole, under the upstream's own status and headers.
    pub(super) fn reply(
        mut self,
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Response<Body> {
        upstream::to_client(&mut headers);
        headers.extend(self.report.headers());
        // The length is computed anew, because the body may not be the upstream's.
        headers.remove(http::header::CONTENT_LENGTH);
        self.report.finish(Some(status));
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// The line for a turn that ended at the hop cap, where nothing visible was said.
pub(super) fn cap_line(answers: &[Answer]) -> Option<&'static str> {
    answers
        .iter()
        .all(|answer| answer.text.is_empty())
        .then_some(CAP_LINE)
}

/// The refusal of a hop that can't be brought under its ceiling, where the operator refuses such.
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
