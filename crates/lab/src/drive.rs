//! One session through the middle: each answer of the recording is one request of the messages
//! before it, decoded once and played by every policy, unless an earlier conversation asked for it. Owns the bodies; never decides anything.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::session::chain;
use plimsoll_core::turn::memo::Reader;
use plimsoll_core::turn::state::HopContext;
use plimsoll_model::{CALL_TOKENS, Digest, ItemNo, Role, Shape, TenantId, raw};
use plimsoll_wire::Dialect;
use plimsoll_wire::request::Request;

use super::anchors::Needs;
use super::cache::Pricing;
use super::contender::Contender;
use super::outcome::{Played, SessionOutcome};
use super::plans::Plans;
use super::player::{ForAllPolicies, PlayedTurn, Player};
use super::sent::Pool;
use super::trace::{Trace, TraceMessage};
use super::{Lab, Options, ReplayError};

/// All sessions are played as one tenant's: nothing is looked up by it.
const TENANT: TenantId = TenantId(Digest([0; 32]));

/// A session that was played, with the players as they stood at its end.
pub struct PlayedSession<'a> {
    /// One player for each contender.
    pub players: Vec<Player<'a>>,
    /// What calls needed.
    pub needs: Needs,
    /// The session's size in tokens.
    pub tokens: u64,
    /// For each request the index of its answer among the session's messages.
    pub answers: Vec<usize>,
}

/// The shapes of a session's messages.
///
/// # Errors
/// [`ReplayError`] for the first message that can't be read.
pub fn shapes(lab: &Lab, trace: &Trace) -> Result<Vec<Arc<Shape>>, ReplayError> {
    let reader = reader(lab);
    let shape = |(at, message): (usize, &TraceMessage)| {
        reader
            .shape(&message.raw)
            .map_err(|cause| ReplayError::Message {
                session: trace.name.clone(),
                message: at + 1,
                cause: cause.to_string(),
            })
    };
    trace.messages.iter().enumerate().map(shape).collect()
}

/// Reads messages as all of the lab does.
pub fn reader(lab: &Lab) -> Reader<'_> {
    let encoding = lab.options.pricing.family.encoding;
    lab.memo
        .reader(&lab.counter, encoding, TENANT, Dialect::Chat)
}

/// The size of a session: tokens of its texts, tool names and arguments.
#[must_use]
pub fn size(shapes: &[Arc<Shape>]) -> u64 {
    let one = |shape: &Arc<Shape>| {
        let calls = shape.calls.iter();
        let calls: u32 = calls
            .map(|call| call.tokens.saturating_sub(CALL_TOKENS))
            .sum();
        u64::from(shape.text + calls)
    };
    shapes.iter().map(one).sum()
}

/// Plays a session for each contender, and follows one item of it, if one is given.
///
/// # Errors
/// [`ReplayError`] where a message can't be read or the middle fails.
pub fn play<'a>(
    lab: &Lab,
    trace: &Trace,
    contenders: &'a [Contender],
    follow: Option<ItemNo>,
) -> Result<PlayedSession<'a>, ReplayError> {
    watched(lab, trace, contenders, follow, &mut |_, _| {})
}

/// Plays a session while somebody looks at the players behind every request; the number is the answer's
/// among the session's messages.
///
/// # Errors
/// As [`play`].
pub fn watched<'a>(
    lab: &Lab,
    trace: &Trace,
    contenders: &'a [Contender],
    follow: Option<ItemNo>,
    each: &mut dyn FnMut(usize, &[Player<'a>]),
) -> Result<PlayedSession<'a>, ReplayError> {
    let shapes = shapes(lab, trace)?;
    let needs = Needs::of(trace);
    let pricing = &lab.options.pricing;
    let player = |contender| Player::new(contender, &needs, pricing, follow);
    let mut players: Vec<Player<'a>> = contenders.iter().map(player).collect();
    let plans = Plans::new(&trace.recording, lab.options.habits);
    let mut pool = Pool::default();
    let mut clients: Vec<u32> = Vec::with_capacity(shapes.len());
    let mut body = Body::new(trace, cached_for(trace, &lab.options));
    let mut answers = 0;
    let mut asked = Vec::new();
    for (at, (message, shape)) in trace.messages.iter().zip(&shapes).enumerate() {
        if message.role == Role::Assistant {
            let answer = answers;
            answers += 1;
            // Nobody asks with nothing.
            if at > 0 && at >= trace.history {
                let request = request(trace, &body)?;
                let before = shapes.get(..at).unwrap_or_default();
                let heads = chain::heads(TENANT, before);
                let empty = super::anchors::Ask::default();
                let turn = PlayedTurn {
                    request: &request,
                    shapes: before,
                    heads: &heads,
                    at,
                    ask: needs.asks.get(at).unwrap_or(&empty),
                    answer,
                    thought: match trace.made_up {
                        true => shape.reasoning,
                        false => 0,
                    },
                    written: match lab.options.bill {
                        true => written(shape, trace.made_up),
                        false => 0,
                    },
                    times: times(&trace.messages, at),
                };
                let mut shared = ForAllPolicies {
                    tools: HopContext {
                        reader: reader(lab),
                        classes: &lab.classes,
                        family: &pricing.family,
                        now: turn.times.0,
                    },
                    needs: &needs,
                    pool: &mut pool,
                    clients: &clients,
                    plans: &plans,
                };
                for player in &mut players {
                    let played = player.turn(&mut shared, &turn);
                    played.map_err(|cause| failed(trace, at, &cause))?;
                }
                asked.push(at);
                each(at, &players);
            }
        }
        clients.push(pool.client(&message.raw, &needs, shape));
        body.push(&message.raw);
    }
    players.iter_mut().for_each(Player::finish);
    Ok(PlayedSession {
        players,
        needs,
        tokens: size(&shapes),
        answers: asked,
    })
}

fn failed(trace: &Trace, at: usize, cause: &dyn std::fmt::Display) -> ReplayError {
    ReplayError::Message {
        session: trace.name.clone(),
        message: at + 1,
        cause: cause.to_string(),
    }
}

fn request(trace: &Trace, body: &Body) -> Result<Request, ReplayError> {
    Dialect::Chat
        .decode(body.whole())
        .map_err(|cause| failed(trace, body.count, &cause))
}

/// The tokens of an answer as its model wrote it. A thought that the lab has made up is charged by itself.
fn written(shape: &Shape, made_up: bool) -> u32 {
    let calls: u32 = shape.calls.iter().map(|call| call.tokens).sum();
    let thought = if made_up { 0 } else { shape.reasoning };
    shape.text + calls + thought
}

/// When a request is made and answered: the newest time before it, and that of its answer.
fn times(messages: &[TraceMessage], at: usize) -> (u64, u64) {
    let before = messages.get(..at).unwrap_or_default().iter().rev();
    let asked = before
        .filter_map(|message| message.time)
        .next()
        .unwrap_or(0);
    let answered = messages.get(at).and_then(|message| message.time);
    (asked, answered.unwrap_or(asked))
}

/// A session's result, in dollars too where its price is known.
#[must_use]
pub fn outcome(trace: &Trace, played: &PlayedSession<'_>, pricing: &Pricing) -> SessionOutcome {
    let unit = pricing.unit(&trace.model);
    let mut policies: Vec<Played> = Vec::new();
    for player in &played.players {
        let name = player.contender.ladder.to_string();
        let mut run = player.run.clone();
        run.outcome.price(unit);
        match policies.iter_mut().find(|played| played.policy == name) {
            Some(played) => played.runs.push(run),
            None => policies.push(Played {
                policy: name,
                runs: vec![run],
            }),
        }
    }
    SessionOutcome {
        name: trace.name.clone(),
        model: trace.model.clone(),
        unit,
        tokens: played.tokens,
        tools: trace.tools_from,
        policies,
    }
}

/// How long requests ask to keep what is cached: as the options say, or else for an hour where the agent had that.
fn cached_for(trace: &Trace, options: &Options) -> Option<Duration> {
    let hourly = trace.usage.is_some_and(|usage| usage.hour_write > 0);
    let recorded = hourly.then_some(Duration::from_secs(3_600));
    options.cached_for.or(recorded)
}

/// The body of a request in the making: it only grows, so that nothing is written twice.
struct Body {
    bytes: Vec<u8>,
    count: usize,
}

impl Body {
    fn new(trace: &Trace, cached_for: Option<Duration>) -> Self {
        let mut text = format!("{{\"model\":{}", raw::quote(&trace.model));
        if let Some(time) = cached_for {
            let seconds = time.as_secs();
            text +=
                &format!(",\"cache_control\":{{\"type\":\"ephemeral\",\"ttl\":\"{seconds}s\"}}");
        }
        if let Some(tools) = &trace.tools {
            text.push_str(",\"tools\":");
            text.push_str(tools);
        }
        text.push_str(",\"messages\":[");
        Self {
            bytes: text.into_bytes(),
            count: 0,
        }
    }

    fn push(&mut self, message: &[u8]) {
        if self.count > 0 {
            self.bytes.push(b',');
        }
        self.count += 1;
        self.bytes.extend_from_slice(message);
    }

    fn whole(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.bytes.len() + 2);
        bytes.extend_from_slice(&self.bytes);
        bytes.extend_from_slice(b"]}");
        Bytes::from(bytes)
    }
}
