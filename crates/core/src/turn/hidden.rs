//! Answers the hidden calls of one hop and turns its answer into the hop that is recorded. Pure.
//! Never sends anything.

mod ids;

use plimsoll_model::{
    CallId, DelimiterAction, Effect, HiddenCall, HiddenTool, MESSAGE_TOKENS, RecallCall,
    RecallOutcome, StoredHop, raw,
};
use plimsoll_wire::answer::{Answer, Call, Reasoning};

use super::bounded;
use super::memo::Reader;
use super::recall::{self, Recalls};
use super::state::{Prepared, TurnState};
use super::told;
use crate::intercept::bounds;
use crate::intercept::delimiter::{DelimiterAnswer, DelimiterCall, DelimiterOutcome, EpisodeNames};
use crate::session::tombstone::thousands;

/// The usual size of a hidden call's result that brings nothing back, at most.
const SHORT_RESULT: u32 = 60;

/// Which part of a hop's message the record must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of it, because the client never sees this hop.
    Message,
    /// Its hidden calls, because the client resends the rest.
    HiddenCalls,
}

/// What is counted of a hop.
#[derive(Debug, Default)]
pub struct HiddenCounts {
    /// The calls of `delimiter`.
    pub delimiters: Vec<DelimiterCall>,
    /// The calls of `recall`.
    pub recalls: Vec<RecallCall>,
}

/// Runs the hidden calls of an answer, and returns the hop and what is counted of it.
#[must_use]
pub fn settle(
    state: &TurnState,
    prepared: &Prepared,
    answer: &Answer,
    keep: Keep,
    reader: &Reader<'_>,
) -> (StoredHop, HiddenCounts) {
    // Every later request sends the hop again, so its hidden calls are limited and get usable ids
    // first.
    let (few, many) = bounded::few(answer);
    let sent = few.as_ref();
    let bounded = bounded::answer(state.request.dialect, &state.injected, sent);
    let usable = ids::usable(state, &bounded);
    let answer = usable.as_ref();
    let message = state.request.dialect.message_of(answer);
    // It counts as it will when the message is read again.
    let shape = reader.shape(&message).ok();
    let (text, reasoning) = match &shape {
        Some(shape) => (shape.text, shape.reasoning),
        None => weigh(answer, reader),
    };
    let runner = Runner::new(state, prepared, sent, reader);
    let (mut calls, mut counted) = runner.run(answer, text + reasoning);
    if let Some(last) = calls.last_mut().filter(|_| !many.is_empty()) {
        add_line(last, &bounds::too_many(many.len(), bounded::CALLS), reader);
    }
    for call in many {
        match state.injected.of(&call.name) {
            Some(HiddenTool::Recall) => {
                let refused = recall::refused(RecallOutcome::Refused, String::new());
                counted.recalls.push(refused.counted);
            }
            Some(HiddenTool::Delimiter) | None => counted.delimiters.push(DelimiterCall {
                action: DelimiterAction::Other,
                outcome: DelimiterOutcome::Refused,
            }),
        }
    }
    let (marks, kept) = state.moved();
    let left = told::left(&prepared.view, &marks);
    let hop = StoredHop {
        message: (keep == Keep::Message).then(|| String::from_utf8_lossy(&message).into_owned()),
        text,
        reasoning,
        calls,
        marks,
        kept,
        estimate: prepared.estimate,
        usage: answer.usage,
        left,
        pass: told::pass(prepared).map(Box::new),
        bound_to: prepared.bound_to.clone().filter(|_| reasoning > 0),
        // The end of the turn decides.
        unshown: false,
        opaque: shape.is_some_and(|shape| shape.opaque),
    };
    (hop, counted)
}

/// Tokens of an answer's text and of its reasoning.
#[must_use]
pub fn weigh(answer: &Answer, reader: &Reader<'_>) -> (u32, u32) {
    let text = reader.count(&answer.text) + reader.count(&answer.refusal);
    let reasoning = answer.reasoning.iter();
    let reasoning = reasoning.map(|(_, reasoning)| match reasoning {
        Reasoning::Text(text) => reader.count(text),
        Reasoning::Items(raw) | Reasoning::Part(raw) => {
            std::str::from_utf8(raw).map_or(0, |raw| reader.count(raw))
        }
    });
    (text, reasoning.sum())
}

/// Runs the hidden calls of one hop: `delimiter` calls first, then `recall` calls, which have only
/// the room that is left beside those.
struct Runner<'a> {
    state: &'a TurnState,
    prepared: &'a Prepared,
    /// The answer as it came. It decides which calls are refused unread.
    sent: &'a Answer,
    reader: &'a Reader<'a>,
    names: EpisodeNames,
    said: String,
    recalls: Recalls<'a>,
    counted: HiddenCounts,
}

impl<'a> Runner<'a> {
    fn new(
        state: &'a TurnState,
        prepared: &'a Prepared,
        sent: &'a Answer,
        reader: &'a Reader<'a>,
    ) -> Self {
        let mut names = EpisodeNames::of(&prepared.view.transcript().graph);
        let mut recalls = Recalls::new(state, prepared, reader);
        for call in state.pending.iter().flat_map(|hop| &hop.calls) {
            match call.tool {
                HiddenTool::Delimiter if call.effect == Effect::Refused => {}
                HiddenTool::Delimiter => names.note(&call.arguments),
                HiddenTool::Recall => recalls.note(&call.arguments),
            }
        }
        Self {
            state,
            prepared,
            sent,
            reader,
            names,
            said: context(state, prepared),
            recalls,
            counted: HiddenCounts::default(),
        }
    }

    /// Runs the hidden calls of an answer, and returns them in their order. `said` is the size of
    /// its text and reasoning.
    fn run(mut self, answer: &Answer, said: u32) -> (Vec<HiddenCall>, HiddenCounts) {
        // Only names that are injected are hidden.
        let tool = |call: &Call| self.state.injected.of(&call.name).unwrap_or_default();
        // What is marked decides how much room there is, so recalls run after.
        let (marks, recalls): (Vec<_>, Vec<_>) = answer
            .hidden_calls()
            .partition(|(_, call)| tool(call) == HiddenTool::Delimiter);
        let mut ran: Vec<HiddenCall> = Vec::new();
        for (place, call) in marks {
            let (effect, result) = match refusal(self.sent, place, HiddenTool::Delimiter) {
                Some(why) => self.unread(why),
                None => self.delimiter(call),
            };
            ran.push(self.ran(answer, place, call, HiddenTool::Delimiter, effect, result));
        }
        // The reminder goes with the last result of `delimiter`.
        let nudge = nudge(self.state, self.prepared);
        if let (Some(nudge), Some(last)) = (nudge, ran.last_mut()) {
            add_line(last, nudge, self.reader);
            last.nudge = true;
        }
        // What is recalled has the room that this line leaves.
        let told = self.told();
        let line = told.as_ref().map_or(0, |line| self.reader.count(line));
        let adds = adds(answer, said, &ran, self.reader) + u64::from(line);
        self.recalls.beside(adds, &ran);
        for (place, call) in recalls {
            let outcome = match refusal(self.sent, place, HiddenTool::Recall) {
                Some(why) => recall::refused(RecallOutcome::Refused, why),
                None => self.recalls.run(&call.arguments),
            };
            self.counted.recalls.push(outcome.counted);
            let mut done = self.ran(
                answer,
                place,
                call,
                HiddenTool::Recall,
                outcome.effect,
                outcome.result,
            );
            let (pictures, tokens) = outcome.pictures;
            done.pictures = pictures;
            done.result_tokens += tokens;
            self.recalls.ran(&done);
            ran.push(done);
        }
        // The message has its calls in the order in which the model wrote them.
        ran.sort_by_key(|call| call.place);
        if let (Some(line), Some(last)) = (told, ran.last_mut()) {
            add_line(last, &line, self.reader);
            last.tells = true;
        }
        (ran, self.counted)
    }

    /// What the first result since the client dropped a history says of that.
    fn told(&self) -> Option<String> {
        let recall = self.state.injected.name(HiddenTool::Recall)?;
        let told = self
            .state
            .dropped
            .told()
            .filter(|_| !self.state.has_told())?;
        let how = "by id, by path, or by a search without an id";
        Some(format!("{recall} still has {told}: {how}"))
    }

    fn ran(
        &self,
        answer: &Answer,
        place: usize,
        call: &Call,
        tool: HiddenTool,
        effect: Effect,
        result: String,
    ) -> HiddenCall {
        HiddenCall {
            id: CallId(call.id.clone()),
            place: u32::try_from(place).unwrap_or(u32::MAX),
            bytes: self.state.request.dialect.call_of(call),
            arguments: call.arguments.clone(),
            tokens: self.reader.call(&call.name, &call.arguments),
            result_tokens: self.reader.count(&result),
            result,
            pictures: Vec::new(),
            effect,
            nudge: false,
            tells: false,
            tool,
            block: answer.block_of(place),
            signed: self.sent.calls.get(place).is_some_and(|call| {
                let dialect = self.state.request.dialect;
                dialect.signs(self.sent, &call.id)
            }),
        }
    }

    /// Refuses a call of `delimiter` unread.
    fn unread(&mut self, why: String) -> (Effect, String) {
        self.counted.delimiters.push(DelimiterCall {
            action: DelimiterAction::Other,
            outcome: DelimiterOutcome::Refused,
        });
        (Effect::Refused, why)
    }

    fn delimiter(&mut self, call: &Call) -> (Effect, String) {
        let protocol = self.state.terms.protocol;
        let outcome = self.names.run(&call.arguments, protocol, &self.said);
        self.counted.delimiters.push(count(call, &outcome));
        let hint = self.hint(&outcome.effect).unwrap_or_default();
        (outcome.effect, outcome.result + &hint)
    }

    /// What an act is told that begins on evicted exploration: a mark never moves back, so neither
    /// does its content.
    fn hint(&self, effect: &Effect) -> Option<String> {
        let Effect::Started { dependencies, .. } = effect else {
            return None;
        };
        let recall = self.state.injected.name(HiddenTool::Recall)?;
        let graph = &self.prepared.view.transcript().graph;
        let evicted = |name: &&String| {
            let episode = graph.named(name);
            let mut items = episode.into_iter().flat_map(|episode| &episode.items);
            items.any(|index| self.recalls.is_gone(*index))
        };
        let calls: Vec<String> = dependencies
            .iter()
            .filter(evicted)
            .map(|name| format!("{recall}({})", raw::quote(name)))
            .collect();
        (!calls.is_empty()).then(|| format!("\nevicted originals: {}", calls.join(", ")))
    }
}

/// Adds a line to the result of a call.
fn add_line(call: &mut HiddenCall, line: &str, reader: &Reader<'_>) {
    let others = call.result_tokens - reader.count(&call.result);
    call.result = format!("{}\n{line}", call.result);
    call.result_tokens = others + reader.count(&call.result);
}

/// Why a call is refused unread.
fn refusal(sent: &Answer, place: usize, tool: HiddenTool) -> Option<String> {
    bounds::refusal(tool, &sent.calls.get(place)?.arguments)
}

/// Tokens that an answer adds to the view: its text and reasoning, its calls, the results of the
/// calls that ran, and for each recall a result that brings nothing back.
fn adds(answer: &Answer, said: u32, ran: &[HiddenCall], reader: &Reader<'_>) -> u64 {
    let calls = answer.calls.iter();
    let calls = calls.map(|call| reader.call(&call.name, &call.arguments) + MESSAGE_TOKENS);
    let results = ran.iter().map(|call| call.result_tokens);
    let recalls = answer.hidden_calls().count().saturating_sub(ran.len());
    let recalls = (0..recalls).map(|_| SHORT_RESULT);
    let all = calls.chain(results).chain(recalls).map(u64::from);
    u64::from(MESSAGE_TOKENS + said) + all.sum::<u64>()
}

fn count(call: &Call, outcome: &DelimiterAnswer) -> DelimiterCall {
    let action = match &outcome.effect {
        Effect::Started { .. } => DelimiterAction::Start,
        Effect::Ended { .. } => DelimiterAction::End,
        Effect::Recalled { .. } | Effect::Refused => {
            if call.arguments.contains("\"start\"") {
                DelimiterAction::Start
            } else if call.arguments.contains("\"end\"") {
                DelimiterAction::End
            } else {
                DelimiterAction::Other
            }
        }
    };
    DelimiterCall {
        action,
        outcome: outcome.label,
    }
}

/// What the result of a successful call says about the budget: `context 61k/80k`.
fn context(state: &TurnState, prepared: &Prepared) -> String {
    let size = u32::try_from(prepared.calibrated(prepared.estimate)).unwrap_or(u32::MAX);
    format!(
        "context {}/{}",
        thousands(size),
        thousands(state.terms.ceiling)
    )
}

/// The reminder that is given when unannotated or open content passes half the ceiling, at most
/// once between passes.
fn nudge(state: &TurnState, prepared: &Prepared) -> Option<&'static str> {
    let passed = prepared.pass.is_some();
    let given = state.path.newest().is_some_and(|record| record.nudged) && !passed;
    let earlier = state
        .pending
        .iter()
        .flat_map(|hop| &hop.calls)
        .any(|call| call.nudge);
    if !state.terms.nudge || given || earlier {
        return None;
    }
    let graph = &prepared.view.transcript().graph;
    // Content from before the guidance doesn't count: nobody asked the model to mark it.
    let transcript = prepared.view.transcript();
    let from = state.guided_from(transcript.first_item)?;
    let asked = |episode: &&crate::session::graph::Episode| {
        let first = episode
            .items
            .first()
            .and_then(|at| transcript.items.get(*at));
        first.is_some_and(|item| item.no >= from)
    };
    let shown =
        |episode: &&crate::session::graph::Episode| !prepared.view.marked().is_removed(episode);
    let loose: u64 = graph
        .episodes
        .iter()
        .filter(|episode| !episode.closed || episode.name.is_empty())
        .filter(asked)
        .filter(shown)
        .map(|episode| u64::from(episode.tokens))
        .sum();
    (prepared.calibrated(loose) * 2 > u64::from(state.terms.ceiling)).then_some(
        "over half of the context is outside closed episodes: end what is done, and keep episodes short",
    )
}
