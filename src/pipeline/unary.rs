//! The response half of an unstreamed turn: whole bodies, hop after hop, until one has nothing
//! hidden. Never holds a stream.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Limited};

use super::app::App;
use super::books;
use super::error::ProxyError;
use super::finish::{self, Committed, Ended};
use super::incoming::Incoming;
use super::open::{Turn, over_budget};
use super::send::{Served, again, failed, note_accepted, prepare, reply, send, spec};
use crate::dialect::answer::{Answer, Verdict};
use crate::dialect::stream::unary::{self, Unstreamed};
use crate::model::Hop;
use crate::record::{Phase, Stage};
use crate::turn::ending::{self, Ending};
use crate::turn::hidden::{self, Keep};
use crate::upstream::{self, ResponseBody};

/// The most that is held of one answer.
const ANSWER: usize = 256 << 20;

/// What the client reads where a turn ended at the hop cap with nothing else said.
pub(super) const CAP_LINE: &str = "the model only annotated; send \"continue\"";

/// Reads the answer of the first hop and goes on until the turn is whole.
///
/// # Errors
/// [`ProxyError`] if an upstream's answer was cut before the client saw anything.
pub(super) async fn answer(
    app: &Arc<App>,
    mut turn: Turn,
    head: Parts,
    body: Incoming,
) -> Result<Served, ProxyError> {
    match hops(app, &mut turn, head, body).await {
        Ok(Some((status, headers, body))) => Ok(Served::Answer(reply(turn, status, headers, body))),
        Ok(None) => Ok(Served::Own(Box::new(turn))),
        Err(error) => Err(failed(turn, error)),
    }
}

/// The client's answer.
type Whole = (StatusCode, HeaderMap, Bytes);

/// Goes from hop to hop until one is the client's answer; `None` where one can't be read and may hold
/// hidden calls.
async fn hops(
    app: &Arc<App>,
    turn: &mut Turn,
    head: Parts,
    body: Incoming,
) -> Result<Option<Whole>, ProxyError> {
    let spec = spec(turn);
    let (status, mut headers) = (head.status, head.headers);
    let mut last = collect(turn, body).await?;
    let first = last.clone();
    let mut answers: Vec<Answer> = Vec::new();
    loop {
        let Some(answer) = unary::read(&last, &spec) else {
            // No choice with a message: whatever it is, it is the upstream's own.
            let own = !unary::may_hide(&last, &spec);
            return Ok(own.then_some((status, headers, last)));
        };
        turn.heard(app, &answer);
        let verdict = answer.verdict();
        answers.push(answer);
        let capped = turn.state.pending.len() + 1 >= turn.state.terms.hops;
        if verdict != Verdict::HiddenOnly || capped {
            let closed = (verdict == Verdict::HiddenOnly).then(|| cap_line(&answers));
            let ended = Unstreamed {
                config: &app.intercept,
                spec: &spec,
                first: &first,
                last: &last,
                hops: &answers,
                closed,
            };
            let composed = ended.compose();
            if unary::still_hides(&composed, &spec) {
                return Ok(None);
            }
            // What failed said nothing that a client could send back.
            if verdict != Verdict::Broken {
                settle(app, turn, &answers, closed).await;
            }
            return Ok(Some((status, headers, composed)));
        }
        match next(app, turn, &answers).await? {
            Next::Body(new, body) => (headers, last) = (*new, body),
            Next::Refused(status, headers, body) => {
                return Ok(Some((status, *headers, body)));
            }
            Next::Coded => return Ok(None),
        }
    }
}

/// The line for a turn that ended at the hop cap, where nothing visible was said.
pub(super) fn cap_line(answers: &[Answer]) -> Option<&'static str> {
    answers
        .iter()
        .all(|answer| answer.text.is_empty())
        .then_some(CAP_LINE)
}

enum Next {
    Body(Box<HeaderMap>, Bytes),
    Refused(StatusCode, Box<HeaderMap>, Bytes),
    /// An answer that can't be read at all.
    Coded,
}

/// Answers the hidden calls of the newest hop and sends the next one. The client has seen nothing
/// yet, so a refusal is simply its answer.
async fn next(app: &Arc<App>, turn: &mut Turn, answers: &[Answer]) -> Result<Next, ProxyError> {
    if let Some(answer) = answers.last() {
        turn.pend(app, answer);
    }
    let prepared =
        prepare(app, turn, None).map_err(|error| ProxyError::Middle(Stage::of(&error).name()))?;
    turn.report.prepared(&turn.state, &prepared);
    if let Some(error) = over_budget(&turn.state, &prepared) {
        return Err(error);
    }
    turn.prepared = prepared;
    let response = send(app, turn).await?;
    turn.report.answered(response.status());
    if response.status().is_success() {
        note_accepted(app, turn);
        return whole(turn, response).await;
    }
    let (head, body) = Incoming::of(response);
    let body = collect(turn, body).await?;
    match again(app, turn, (head, body)).await? {
        Ok(response) => whole(turn, response).await,
        Err((head, body)) => Ok(Next::Refused(head.status, Box::new(head.headers), body)),
    }
}

/// Reads the answer of a later hop that was accepted.
async fn whole(turn: &mut Turn, response: Response<ResponseBody>) -> Result<Next, ProxyError> {
    let (head, body) = Incoming::of(response);
    Ok(if body.coded {
        Next::Coded
    } else {
        let body = collect(turn, body).await?;
        Next::Body(Box::new(head.headers), body)
    })
}

impl Turn {
    /// Answers the hidden calls of a hop that the client never sees, and keeps the hop.
    pub(super) fn pend(&mut self, app: &App, answer: &Answer) {
        let hop = self.settle_hop(app, answer, Keep::Message);
        self.state.pending.push(hop);
    }

    /// Notes the end of a hop.
    pub(super) fn heard(&mut self, app: &App, answer: &Answer) {
        let reader = app.reader(&self.family, self.place.tenant, self.state.request.dialect);
        let said = books::said(answer, &reader);
        self.report.ended(answer, said);
    }

    /// The hop that an answer makes, its hidden calls run and counted.
    pub(super) fn settle_hop(&mut self, app: &App, answer: &Answer, keep: Keep) -> Hop {
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
        last: Hop,
        closed: Option<Option<&str>>,
    ) -> Option<Ended> {
        let answer = answers.last()?;
        let line = closed.flatten();
        let transcript = &self.prepared.transcript;
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
        let (stored, asked) = self.state.terms.keeps(request.stored);
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
}

/// Records the turn and waits until it is durable, as long as the settings allow.
async fn settle(app: &Arc<App>, turn: &mut Turn, answers: &[Answer], closed: Option<Option<&str>>) {
    if let Some(committed) = turn.commit(app, answers, closed) {
        turn.durable(app, committed).await;
    }
}

async fn collect(turn: &mut Turn, body: Incoming) -> Result<Bytes, ProxyError> {
    match Limited::new(body, ANSWER).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => {
            tracing::warn!(%error, "the upstream's answer was cut");
            turn.report.aborted(crate::record::Side::Upstream);
            Err(ProxyError::Upstream(upstream::Error::Broken {
                cause: error.to_string(),
            }))
        }
    }
}
