//! The report of one turn: facts that the stages returned, in the words of the vocabulary.
//!
//! It holds sizes, durations, counts and names out of closed sets. It never holds text of a
//! message, a tool's arguments or a credential, so that nothing downstream can leak one.

use std::time::Duration;

use http::{Method, StatusCode};

use super::labels::{
    AbortPhase, Budget, CostKind, Label, Phase, Projection, RetryReason, Route, Side, Stage,
    UNKNOWN_PROVIDER,
};
use crate::commit::Trigger;
use crate::dialect::request::Unmanaged;
use crate::intercept::delimiter::DelimiterCall;
use crate::model::{Edits, GuideReason, RecallCall, Usage};
use crate::policy::{Level, Pinned, Policy};
use crate::session::view::Parts;
use crate::tokens::ledger::Account;

/// The report of one finished turn. Also used for a forwarded request, which has at most one hop
/// and no context.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The route that the request took.
    pub route: Route,
    /// The request's method.
    pub method: Method,
    /// The status that the client was answered; `None` if it left before there was one.
    pub status: Option<StatusCode>,
    /// From the request's last header byte to the response's last byte.
    pub duration: Duration,
    /// From the same start to the first byte of an answer that the client could see.
    pub first_token: Option<Duration>,
    /// Whether the client asked for a stream.
    pub streamed: bool,
    /// The upstream, as [`provider_name`](super::provider_name) names it.
    pub provider: Label,
    /// The model as the client named it; it becomes a label only if it is on the allow-list.
    pub model: String,
    /// The model that the upstream says has answered.
    pub response_model: Option<String>,
    /// The wire format: `chat`, `responses` or `messages`.
    pub dialect: Label,
    /// What in the request keeps it from being managed, where something does.
    pub unmanaged: Option<Unmanaged>,
    /// The tenant's short hash, for the log only.
    pub tenant: String,
    /// The session's short hash, for the log and the client.
    pub session: String,
    /// The short hash of the session that it is a child of.
    pub parent_session: Option<String>,
    /// The turn's number on its path, from 1; 0 for a request without a place in a session.
    pub number: u64,
    /// `manage`, `observe` or `off`.
    pub mode: Label,
    /// The upstream calls in order: one, and one more for each hidden hop.
    pub hops: Vec<Hop>,
    /// Sizes against the budget; `None` where nothing was counted.
    pub context: Option<Context>,
    /// The proxy's own time.
    pub overhead: Overhead,
    /// The `delimiter` calls of all hops, in order.
    pub delimiter_calls: Vec<DelimiterCall>,
    /// The `recall` calls of all hops, in order.
    pub recalls: Vec<RecallCall>,
    /// Evicted items that the agent fetched again by its own tools.
    pub refetches: u64,
    /// How often this turn's requests did not extend the prefix that the provider has cached.
    pub prefix_breaks: u64,
    /// Whether the client changed its system text or its tools since the turn before.
    pub prologue_changed: bool,
    /// How the stream was ended, if it was.
    pub abort: Option<Abort>,
    /// The reasons of upstream calls that were repeated, in order.
    pub retries: Vec<RetryReason>,
    /// Why the guidance came in with this turn, where it did.
    pub guided: Option<GuideReason>,
    /// Whether the client takes one call a message, so that each annotation costs a request.
    pub one_call: bool,
    /// Kinds of edits that this turn found the upstream to refuse.
    pub learned: Edits,
    /// The stage whose failure sent the client's original bytes upstream.
    pub fail_open: Option<Stage>,
    /// What it came to, beside what the client's own request would have; none where nothing was
    /// accepted, or nothing is known of what was.
    pub ledger: Option<Account>,
    /// What a turn that was only watched would have come to, had it been managed.
    pub projected: Option<Account>,
    /// How far that is known.
    pub projection: Option<Projection>,
}

impl Turn {
    /// The report of a request that has just been read; the stages fill in the rest.
    #[must_use]
    pub fn new(route: Route, method: Method) -> Self {
        Self {
            route,
            method,
            status: None,
            duration: Duration::ZERO,
            first_token: None,
            streamed: false,
            provider: UNKNOWN_PROVIDER,
            model: String::new(),
            response_model: None,
            dialect: "chat",
            unmanaged: None,
            tenant: String::new(),
            session: String::new(),
            parent_session: None,
            number: 0,
            mode: "off",
            hops: Vec::new(),
            context: None,
            overhead: Overhead::default(),
            delimiter_calls: Vec::new(),
            recalls: Vec::new(),
            refetches: 0,
            prefix_breaks: 0,
            prologue_changed: false,
            abort: None,
            retries: Vec::new(),
            guided: None,
            one_call: false,
            learned: Edits::default(),
            fail_open: None,
            ledger: None,
            projected: None,
            projection: None,
        }
    }

    /// What the provider reported over all hops; `None` if it reported nothing.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.hops
            .iter()
            .filter_map(|hop| hop.usage)
            .reduce(|sum, hop| Usage {
                prompt: sum.prompt.saturating_add(hop.prompt),
                cached: sum.cached.saturating_add(hop.cached),
                cache_write: sum.cache_write.saturating_add(hop.cache_write),
                completion: sum.completion.saturating_add(hop.completion),
                reasoning: sum.reasoning.saturating_add(hop.reasoning),
            })
    }

    /// Cached tokens over prompt tokens of all hops, 0 to 1; `None` without a reported prompt.
    #[must_use]
    pub fn cached_ratio(&self) -> Option<f64> {
        let usage = self.usage().filter(|usage| usage.prompt > 0)?;
        Some((lossy(usage.cached) / lossy(usage.prompt)).clamp(0.0, 1.0))
    }

    /// What was paid for a kind of token, in US dollars; nothing where the price is not known.
    #[must_use]
    pub fn cost_usd(&self, kind: CostKind) -> f64 {
        let Some(Account {
            sent_cost: cost,
            usd: Some(usd),
            ..
        }) = self.ledger
        else {
            return 0.0;
        };
        usd * match kind {
            CostKind::Input => cost.plain,
            CostKind::CacheRead => cost.read,
            CostKind::CacheWrite => cost.write,
            CostKind::Output => cost.output,
        }
    }

    /// Hops beyond the first: each was caused by hidden calls alone.
    #[must_use]
    pub fn hidden_hops(&self) -> usize {
        self.hops.len().saturating_sub(1)
    }

    /// Tokens that the passes of this turn evicted, over all policies and levels.
    #[must_use]
    pub fn evicted_now(&self) -> u64 {
        let passes = self.hops.iter().filter_map(|hop| hop.pass.as_ref());
        passes
            .flat_map(|pass| &pass.evicted)
            .map(|evicted| evicted.tokens)
            .sum()
    }
}

/// One upstream call.
#[derive(Clone, Debug, Default)]
pub struct Hop {
    /// The upstream's status; `None` if it gave none.
    pub status: Option<StatusCode>,
    /// From sending to the last byte of the answer.
    pub duration: Duration,
    /// From sending to the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// Tokens of the request as counted, before the session's ratio is applied; 0 if not counted.
    pub estimated: u64,
    /// What was sent over the ceiling that held for it; `None` where it was not ours to hold.
    pub ceiling_ratio: Option<f64>,
    /// The pass that was committed before this hop.
    pub pass: Option<Pass>,
    /// What started a pass that was not committed, because it would have freed too little.
    pub declined: Option<Trigger>,
}

/// One run of the policies that was committed.
#[derive(Clone, Debug)]
pub struct Pass {
    /// Why it ran.
    pub trigger: Trigger,
    /// Whether it stopped above the floor, so that the next one comes sooner.
    pub above_floor: bool,
    /// What it evicted, a row for each policy and level.
    pub evicted: Vec<Evicted>,
}

/// What one policy evicted at one level.
#[derive(Clone, Debug)]
pub struct Evicted {
    /// The policy.
    pub policy: Policy,
    /// The level.
    pub level: Level,
    /// Tokens by which the view shrank.
    pub tokens: u64,
    /// Items whose mark moved.
    pub items: u64,
}

/// Sizes of a turn's last request, in calibrated tokens.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// What the client sent.
    pub tokens_in: u64,
    /// What the upstream was sent.
    pub tokens_out: u64,
    /// What the marks of all passes so far keep out of the view.
    pub evicted: u64,
    /// The budget that held for this request.
    pub ceiling: u64,
    /// The low-water mark that held for this request.
    pub floor: u64,
    /// What the upstream was sent, by part.
    pub parts: Parts,
    /// Whether the budget was met.
    pub budget: Budget,
    /// What keeps the view above it, where it was not.
    pub pinned: Option<Pinned>,
}

/// A stream that ended before its end.
#[derive(Clone, Copy, Debug)]
pub struct Abort {
    /// Who ended it.
    pub side: Side,
    /// How far it had come.
    pub phase: AbortPhase,
}

/// The proxy's own time by phase. A phase that never ran is no measurement of zero.
#[derive(Clone, Debug, Default)]
pub struct Overhead([Option<Duration>; Phase::ALL.len()]);

impl Overhead {
    /// Adds time to a phase; phases that run once a hop add up.
    pub fn add(&mut self, phase: Phase, time: Duration) {
        if let Some(slot) = self.0.get_mut(phase as usize) {
            *slot = Some(slot.unwrap_or_default().saturating_add(time));
        }
    }

    /// The time of a phase, if it ran.
    #[must_use]
    pub fn get(&self, phase: Phase) -> Option<Duration> {
        self.0.get(phase as usize).copied().flatten()
    }

    /// All phases together, if any ran.
    #[must_use]
    pub fn total(&self) -> Option<Duration> {
        self.0
            .iter()
            .flatten()
            .copied()
            .reduce(Duration::saturating_add)
    }
}

/// A count as a measurement. Exact to 2^53, far beyond any number of tokens.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tokens stay far below 2^53"
)]
pub const fn lossy(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_adds_up_over_hops_and_keeps_its_absence() {
        let mut turn = Turn::new(Route::Chat, Method::POST);
        turn.hops.push(Hop::default());
        assert_eq!(turn.usage(), None);
        assert_eq!(turn.cached_ratio(), None);
        let one = Usage {
            prompt: 100,
            cached: 0,
            cache_write: 4,
            completion: 10,
            reasoning: 3,
        };
        let two = Usage {
            prompt: 300,
            cached: 100,
            cache_write: 1,
            completion: 5,
            reasoning: 2,
        };
        turn.hops.push(Hop {
            usage: Some(one),
            ..Hop::default()
        });
        turn.hops.push(Hop {
            usage: Some(two),
            ..Hop::default()
        });
        let sum = Usage {
            prompt: 400,
            cached: 100,
            cache_write: 5,
            completion: 15,
            reasoning: 5,
        };
        assert_eq!(turn.usage(), Some(sum));
        assert_eq!(turn.cached_ratio(), Some(0.25));
        assert_eq!(turn.hidden_hops(), 2);
    }

    #[test]
    fn a_phase_that_never_ran_is_not_zero() {
        let mut overhead = Overhead::default();
        assert_eq!(overhead.total(), None);
        overhead.add(Phase::Parse, Duration::from_micros(3));
        overhead.add(Phase::Parse, Duration::from_micros(4));
        overhead.add(Phase::Store, Duration::ZERO);
        assert_eq!(overhead.get(Phase::Parse), Some(Duration::from_micros(7)));
        assert_eq!(overhead.get(Phase::Store), Some(Duration::ZERO));
        assert_eq!(overhead.get(Phase::Render), None);
        assert_eq!(overhead.total(), Some(Duration::from_micros(7)));
    }
}
