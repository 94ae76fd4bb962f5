//! One policy at one ceiling on one session: its requests go through the code that serves, and
//! what was sent is measured. Owns the path in memory, where a server has a store; never sends
//! anything.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use plimsoll_core::session::path::Path;
use plimsoll_core::session::transcript::Transcript;
use plimsoll_core::turn::ending::{self, Ending, Stands};
use plimsoll_core::turn::hidden::{self, Keep};
use plimsoll_core::turn::state::{HopContext, MiddleError, Prepared, TurnState};
use plimsoll_model::{Head, ItemNo, Shape, StoredHop};
use plimsoll_scripted::plan;
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::Answer;
use plimsoll_wire::message;
use plimsoll_wire::request::Request;

use super::anchors::{Ask, Needs};
use super::cache::{Asked, Meter, Pricing};
use super::contender::{Annotate, Contender, summary};
use super::holdings::Holdings;
use super::hop::{answer, array, marked};
use super::outcome::{Point, PolicyRun};
use super::over::{self, Over};
use super::passes::{self, Passed, shallow};
use super::plans::Plans;
use super::sent::{Change, Pool, Sent};
use super::shown::{self, SentView};

/// One request of the client's and what answers it; the same for all policies.
pub struct PlayedTurn<'a> {
    /// The request.
    pub request: &'a Request,
    /// The shapes of its messages.
    pub shapes: &'a [Arc<Shape>],
    /// The heads of its prefixes.
    pub heads: &'a [Head],
    /// The index of the answer among the session's messages.
    pub at: usize,
    /// What the answer's calls need.
    pub ask: &'a Ask,
    /// The number of the answer among the session's, from 0.
    pub answer: usize,
    /// Tokens of the thought that the lab has made up for it.
    pub thought: u32,
    /// Tokens of the recorded answer, where it is charged.
    pub written: u32,
    /// When it was asked and when it was answered, in milliseconds; 0 where that is not known.
    pub times: (u64, u64),
}

/// What the policies of a session share.
pub struct ForAllPolicies<'a> {
    /// Counters and classes.
    pub tools: HopContext<'a>,
    /// What calls need.
    pub needs: &'a Needs,
    /// The messages that were sent, by any of them.
    pub pool: &'a mut Pool,
    /// The numbers of the client's messages.
    pub clients: &'a [u32],
    /// What the model says.
    pub plans: &'a Plans<'a>,
}

/// A need that a view did not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The request, from 1.
    pub request: usize,
    /// The index of the message whose calls needed it.
    pub at: usize,
    /// The string by number.
    pub string: u32,
    /// Whether the view named something to bring it back by.
    pub named: bool,
}

/// What a view showed of an item behind a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The request, from 1.
    pub request: usize,
    /// The text of its result, where that is in view.
    pub text: Option<String>,
    /// The line that names it, where one does.
    pub named: Option<String>,
}

/// Plays one policy.
pub struct Player<'a> {
    /// Who.
    pub contender: &'a Contender,
    /// The records of its turns.
    pub path: Arc<Path>,
    /// The newest request's messages.
    pub sent: Sent,
    holdings: Holdings,
    meter: Meter,
    /// What was measured.
    pub run: PolicyRun,
    /// Passes in order.
    pub passes: Vec<Passed>,
    /// Needs that were not met.
    pub misses: Vec<Miss>,
    /// Calls that were made again: the request, and the message that had answered them.
    pub again: Vec<(usize, usize)>,
    /// The newest request's transcript.
    pub transcript: Arc<Transcript>,
    /// The client's messages of which the newest view shows a pointer to the same text.
    pointing: HashSet<usize>,
    /// The item whose story is told, if one is.
    follow: Option<ItemNo>,
    /// What the view showed of it after each pass.
    pub followed: Vec<Followed>,
    /// Tokens of the summary that each pass has written; 0 for a policy without one.
    summary: u64,
    /// The answer from which on the model is asked to annotate.
    asked: Option<usize>,
    /// Sizes of the view and of the client's request before, and of the tools.
    last: (u64, u64, u64),
}

/// What went upstream in one hop.
struct Hopped {
    array: Bytes,
    estimate: u64,
    passed: bool,
    /// What stands before each breakpoint of the proxy's: tokens and messages.
    marked: Vec<(u64, usize)>,
}

impl<'a> Player<'a> {
    /// A player before the first request, who notes what becomes of one item, if one is given.
    #[must_use]
    pub fn new(
        contender: &'a Contender,
        needs: &Needs,
        pricing: &Pricing,
        follow: Option<ItemNo>,
    ) -> Self {
        Self {
            contender,
            path: Arc::new(Path::default()),
            sent: Sent::default(),
            holdings: Holdings::new(needs.counts()),
            meter: Meter::new(pricing),
            run: PolicyRun {
                ceiling: contender.ceiling,
                ..PolicyRun::default()
            },
            passes: Vec::new(),
            misses: Vec::new(),
            again: Vec::new(),
            transcript: Arc::default(),
            pointing: HashSet::new(),
            follow,
            followed: Vec::new(),
            summary: u64::from(summary(&contender.ladder, contender.ceiling)),
            asked: None,
            last: (0, 0, 0),
        }
    }

    /// Plays one request and its answer.
    ///
    /// # Errors
    /// [`MiddleError`] where the middle fails; a server would forward the client's bytes.
    pub fn turn(
        &mut self,
        shared: &mut ForAllPolicies<'_>,
        turn: &PlayedTurn<'_>,
    ) -> Result<(), MiddleError> {
        let mut state = TurnState::new(
            turn.request.clone(),
            turn.shapes.to_vec(),
            turn.heads.to_vec(),
            self.path.clone(),
            self.contender.terms.clone(),
            &shared.tools.reader,
        );
        self.run.outcome.requests += 1;
        self.run.series.push(Point {
            client: 0,
            sent: 0,
            passed: false,
        });
        state.strip_if_asked(shared.tools.family);
        state.inject(&shared.tools)?;
        if state.is_managed() {
            self.hops(shared, turn, &mut state)?;
        } else {
            let body = &turn.request.body;
            let hopped = Hopped {
                array: body.slice(turn.request.messages_span.clone()),
                estimate: state.client_tokens,
                passed: false,
                marked: Vec::new(),
            };
            self.measure(shared, turn, &state, &hopped);
        }
        let before = self.meter.spent;
        self.meter.wrote(u64::from(turn.thought));
        self.run.outcome.thinking += self.meter.spent - before;
        self.meter.wrote(u64::from(turn.written));
        self.settle(shared, turn);
        Ok(())
    }

    fn timed<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.run.outcome.nanos += took;
        done
    }

    /// All hops of a turn, each answered as planned, and its record.
    fn hops(
        &mut self,
        shared: &mut ForAllPolicies<'_>,
        turn: &PlayedTurn<'_>,
        state: &mut TurnState,
    ) -> Result<(), MiddleError> {
        // The view of the first hop may be the one that asks for annotations.
        let mut prepared = self.prepare(shared, turn, state)?;
        let annotate = self.contender.annotate;
        let asked = match annotate {
            Annotate::None => false,
            Annotate::Inferred => true,
            Annotate::Scripted | Annotate::Obedient => {
                state.injected.delimiter.is_some() && !state.guide.is_waiting()
            }
        };
        if asked {
            self.asked.get_or_insert(match annotate {
                // What costs nothing is known of all that was said.
                Annotate::None | Annotate::Inferred => 0,
                Annotate::Scripted | Annotate::Obedient => turn.answer,
            });
        }
        let plan = shared.plans.of(annotate, self.asked);
        let Some((last, before)) = plan.hops(turn.answer).split_last() else {
            return Ok(());
        };
        for hop in before {
            let hop = self
                .answered(shared, state, &prepared, hop, Keep::Message)
                .1;
            state.pending.push(hop);
            self.run.outcome.extra += 1;
            prepared = self.prepare(shared, turn, state)?;
        }
        let (answer, hop) = self.answered(shared, state, &prepared, last, Keep::HiddenCalls);
        let mut texts: Vec<&str> = before.iter().map(|hop| hop.text.as_str()).collect();
        texts.push(&answer.text);
        let transcript = prepared.view.transcript();
        let record = ending::record(
            state,
            transcript,
            Ending {
                texts,
                skips: false,
                answer: &answer,
                last: hop,
                line: None,
                now: turn.times.1,
            },
            Stands::default(),
        );
        let (id, _) = ending::named(&record);
        self.path = Arc::new(self.path.extend(id, Arc::new(record)));
        self.transcript = prepared.view.shared();
        self.pointing = shown::pointing(&prepared.view);
        Ok(())
    }

    /// Prepares a hop as a server does, and measures what it would send.
    fn prepare(
        &mut self,
        shared: &mut ForAllPolicies<'_>,
        turn: &PlayedTurn<'_>,
        state: &mut TurnState,
    ) -> Result<Prepared, MiddleError> {
        let marks = state.marks.clone();
        let prepared = self.timed(|| state.prepare(&shared.tools, None))?;
        if let Some((trigger, proposal)) = &prepared.pass {
            let (view, client, _) = self.last;
            let before = (view + state.client_tokens).saturating_sub(client);
            if self.summary > 0 {
                self.meter.summed_up(before, self.summary);
                self.run.outcome.sent += before;
                self.run.outcome.extra += 1;
            }
            let moved = state.marks.iter();
            self.passes.push(Passed {
                request: self.run.series.len(),
                trigger: *trigger,
                before,
                after: prepared.estimate,
                floor: prepared.floor,
                last: proposal.last.freed,
                unmet: proposal.pinned.is_some(),
                moves: moved.filter(|(no, mark)| marks.get(*no) < *mark).collect(),
                gone: proposal
                    .gone
                    .iter()
                    .map(|((_, level), gone)| (*level, gone.items, gone.tokens))
                    .collect(),
            });
            self.run.outcome.passes += 1;
            self.run.outcome.thoughts.part += shown::ended(&prepared.view, &marks);
            self.holdings.pass();
            if let Some(point) = self.run.series.last_mut() {
                point.passed = true;
            }
        }
        let hopped = Hopped {
            array: array(state, &prepared),
            estimate: prepared.estimate,
            passed: prepared.pass.is_some(),
            marked: marked(state, &prepared),
        };
        self.measure(shared, turn, state, &hopped);
        if let (Some(number), Some(_)) = (self.follow, &prepared.pass) {
            self.look(shared, state, prepared.view.transcript(), number);
        }
        Ok(prepared)
    }

    /// Notes what the view shows of an item.
    fn look(
        &mut self,
        shared: &ForAllPolicies<'_>,
        state: &TurnState,
        transcript: &Transcript,
        no: ItemNo,
    ) {
        let bytes = |at: usize| Some(state.request.message(at).to_vec());
        let id = shown::call_id(transcript, no, bytes);
        let result = id.and_then(|id| {
            let parsed = self
                .sent
                .messages()
                .filter_map(|bytes| Dialect::Chat.parse(bytes).ok());
            let mut results = parsed.filter(|parsed| parsed.result_of.is_some());
            results.find(|parsed| parsed.result_of.as_ref().is_some_and(|own| own.0 == id))
        });
        let text = result.map(|parsed| {
            let texts = parsed.parts.iter().filter_map(|part| match part {
                message::Part::Text(text) | message::Part::Quoted(text) => Some(text.as_ref()),
                message::Part::Image { .. }
                | message::Part::Picture(_)
                | message::Part::Other(_) => None,
            });
            texts.collect::<Vec<_>>().join("\n")
        });
        let view = SentView {
            pool: shared.pool,
            ids: &self.sent.ids,
            transcript,
        };
        let named = view.line_of(no);
        self.followed.push(Followed {
            request: self.run.series.len(),
            text,
            named,
        });
    }

    /// The hop that a planned answer makes, its hidden calls run by the code that serves.
    fn answered(
        &mut self,
        shared: &ForAllPolicies<'_>,
        state: &TurnState,
        prepared: &Prepared,
        planned: &plan::Hop,
        keep: Keep,
    ) -> (Answer, StoredHop) {
        let answer = answer(planned, state.injected.delimiter.as_deref());
        let reader = &shared.tools.reader;
        let (mut hop, _) = hidden::settle(state, prepared, &answer, keep, reader);
        self.run.outcome.thoughts.whole += u64::from(hop.reasoning);
        match self.contender.annotate {
            Annotate::None => {}
            // What costs nothing has no size, and nothing to read but what notes put there.
            Annotate::Inferred => hop.calls.iter_mut().for_each(|call| {
                (call.tokens, call.result_tokens) = (0, 0);
                call.result.clear();
            }),
            Annotate::Scripted | Annotate::Obedient => {
                let written: u32 = hop.calls.iter().map(|call| call.tokens).sum();
                self.meter.wrote(u64::from(written));
            }
        }
        (answer, hop)
    }

    /// Takes in what was sent.
    fn measure(
        &mut self,
        shared: &mut ForAllPolicies<'_>,
        turn: &PlayedTurn<'_>,
        state: &TurnState,
        hop: &Hopped,
    ) {
        let ForAllPolicies {
            tools, needs, pool, ..
        } = shared;
        let first = self.sent.ids.is_empty();
        let before = self.sent.ids.len();
        let next = |bytes: &[u8]| pool.sent(bytes, needs, &tools.reader);
        let Some(Change { kept, gone }) = self.sent.next(&hop.array, next) else {
            return;
        };
        self.holdings
            .change(pool, &gone, self.sent.ids.get(kept..).unwrap_or_default());
        let sizes = self
            .sent
            .ids
            .iter()
            .map(|id| pool.get(*id).map_or(0, |one| one.tokens));
        let sizes: Vec<u64> = sizes.map(u64::from).collect();
        let spoken: u64 = sizes.iter().sum();
        // What is no message of the view: the tools.
        let fixed = hop.estimate.saturating_sub(spoken);
        let summary = if self.passes.is_empty() {
            0
        } else {
            self.summary
        };
        let size = hop.estimate + summary;
        let same_tools = !first && fixed == self.last.2;
        let common: u64 = sizes.iter().take(kept).sum();
        let common = common + if hop.passed { 0 } else { summary };
        let system = turn
            .shapes
            .iter()
            .take_while(|s| s.role == plimsoll_model::Role::System);
        let prologue: u64 = sizes.iter().take(system.count()).sum();
        self.meter.ask(&Asked {
            total: size,
            prologue: fixed + prologue,
            common: if same_tools { fixed + common } else { 0 },
            messages: (sizes.len(), kept),
            marked: hop.marked.clone(),
            now: turn.times.0,
            cached_for: state.request.cached_for,
        });
        let client = state.client_tokens;
        self.last = (size, client, fixed);
        let outcome = &mut self.run.outcome;
        outcome.sent += size;
        outcome.peak = outcome.peak.max(size);
        outcome.breaks += u64::from(!first && (kept < before || !same_tools));
        if size > u64::from(self.contender.ceiling) {
            outcome.over += 1;
            let sent = self.sent.ids.iter().filter_map(|id| pool.get(*id));
            self.run.over.push(Over {
                request: self.run.series.len(),
                sent: size,
                kept: fixed + prologue + over::kept(turn.shapes),
                thoughts: sent.map(|one| u64::from(one.thoughts)).sum(),
            });
        }
        if client > u64::from(self.contender.ceiling) {
            outcome.prunable += 1;
            outcome.pruned += 1.0 - size as f64 / client as f64;
        }
        if let Some(point) = self.run.series.last_mut() {
            point.client = client;
            point.sent = point.sent.max(size);
        }
    }

    /// Holds the view against what the answer's calls needed.
    fn settle(&mut self, shared: &ForAllPolicies<'_>, turn: &PlayedTurn<'_>) {
        let request = self.run.series.len();
        let (mut visible, mut named) = (0, 0);
        for string in &turn.ask.strings {
            if self.holdings.holds(*string) {
                visible += 1;
                continue;
            }
            self.holdings.missed(*string);
            let view = SentView {
                pool: shared.pool,
                ids: &self.sent.ids,
                transcript: &self.transcript,
            };
            let holders = shared.needs.holders(*string, turn.at);
            let is_named = view.names_any(holders);
            named += u64::from(is_named);
            self.misses.push(Miss {
                request,
                at: turn.at,
                string: *string,
                named: is_named,
            });
        }
        let outcome = &mut self.run.outcome;
        let whole = turn.ask.strings.len() as u64;
        outcome.visible.part += visible;
        outcome.visible.whole += whole;
        outcome.recoverable.part += visible + named;
        outcome.recoverable.whole += whole;
        let lines = turn.ask.lines.iter();
        outcome.lines.part += lines
            .filter(|line| self.holdings.holds_line(**line))
            .count() as u64;
        outcome.lines.whole += turn.ask.lines.len() as u64;
        for (passage, weight) in &turn.ask.passages {
            let held = self.holdings.holds_passage(*passage);
            outcome.passages.part += u64::from(held) * u64::from(*weight);
            outcome.passages.whole += u64::from(*weight);
        }
        for message in &turn.ask.again {
            let client = shared.clients.get(*message);
            let told = self.pointing.contains(message);
            if client.is_some_and(|id| !self.holdings.shows(*id) && !told) {
                self.run.outcome.refetches += 1;
                self.again.push((request, *message));
            }
        }
    }

    /// Closes the account.
    pub fn finish(&mut self) {
        let outcome = &mut self.run.outcome;
        outcome.harmless = self.holdings.harmless();
        (outcome.shallow, outcome.runs) = shallow(&self.passes);
        outcome.cached = self.meter.cached;
        outcome.cost = self.meter.spent;
        self.run.passes = passes::sizes(&self.passes, &self.run.series);
    }
}
