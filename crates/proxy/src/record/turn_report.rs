//! The report of one turn: the facts that its stages returned. Owns their shape and the sums over
//! hops. Holds sizes, durations, counts and words of closed sets. Never holds the text of a message,
//! the arguments of a tool or a credential, so that nothing downstream can leak one.

use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use plimsoll_core::commit::Trigger;
use plimsoll_core::intercept::delimiter::DelimiterCall;
use plimsoll_core::policy::{Level, Partition, PartitionUse, Pinned, Policy, Repetition};
use plimsoll_core::session::view::Parts;
use plimsoll_core::turn::needed::PassKept;
use plimsoll_core::turn::{Mode, PinReport};
use plimsoll_model::{
    CacheFacts, Edits, GuideReason, MissCause, NeededCounts, RecallCall, SplitPlace, Usage,
};
use plimsoll_tokens::Cost;
use plimsoll_tokens::ledger::Account;
use plimsoll_wire::Dialect;
use plimsoll_wire::request::Unmanaged;

use super::labels::{
    AbortPhase, AbortSide, Budget, CallRole, FailedStage, Label, LedgerSide, LedgerTokens, Phase,
    Projection, RetryReason, Route, UNKNOWN_PROVIDER, Unrecorded,
};

/// The report of one turn. A forwarded request has one as well, with at most one hop and no
/// context.
#[derive(Clone, Debug, Default)]
pub struct TurnReport {
    /// The route that the request took.
    pub route: Route,
    /// The request's method.
    pub method: Method,
    /// The request's path, for the log only.
    pub path: String,
    /// The client's id of the request, if it gave one, for the log only.
    pub request_id: Option<String>,
    /// The client's place in a trace (W3C Trace Context), if it gave one, for the log only.
    pub traceparent: Option<String>,
    /// A header that is named as one of the proxy's and is none.
    pub unknown_header: Option<HeaderName>,
    /// The upstream's id of a request that was only forwarded. Other hops have their own.
    pub forwarded_id: Option<String>,
    /// The status that the client got. `None` if it left before it got one.
    pub status: Option<StatusCode>,
    /// From the request's last header byte to the response's last byte.
    pub duration: Duration,
    /// From the same start to the first byte of an answer that the client could see.
    pub first_token: Option<Duration>,
    /// Whether the client asked for a stream.
    pub streamed: bool,
    /// The upstream, as [`provider_name`](super::provider_name) names it.
    pub provider: Label,
    /// The model as the client named it. It becomes a label only if the operator listed it.
    pub model: String,
    /// The model that answered, as the upstream named it.
    pub response_model: Option<String>,
    /// The wire format.
    pub dialect: Dialect,
    /// What in the request keeps it from being managed, if anything does.
    pub unmanaged: Option<Unmanaged>,
    /// The short hash of the tenant, for the log only.
    pub tenant: String,
    /// The short hash of the session, for the log and the client.
    pub session: String,
    /// The short hash of the parent session.
    pub parent_session: Option<String>,
    /// The number of the turn on its path, from 1. 0 if the request has no place in a session.
    pub number: u64,
    /// How the request was served.
    pub mode: Mode,
    /// The profile under which it was served, for the log only.
    pub profile: Option<String>,
    /// The place of its session in a split.
    pub split: Option<SplitPlace>,
    /// The upstream calls, in order: one for each hop.
    pub hops: Vec<HopReport>,
    /// The sizes and the budget. `None` if nothing was counted.
    pub context: Option<Context>,
    /// The proxy's own time.
    pub overhead: Overhead,
    /// The `delimiter` calls of all hops, in order.
    pub delimiter_calls: Vec<DelimiterCall>,
    /// The `recall` calls of all hops, in order.
    pub recalls: Vec<RecallCall>,
    /// What the answers needed of what had left the view.
    pub needed: NeededCounts,
    /// What each pass left in view, for those whose answers came.
    pub kept: Vec<PassKept>,
    /// How often this turn's requests did not extend the prefix that the provider has cached.
    pub prefix_breaks: u64,
    /// Whether the client changed its system text or its tools since the turn before.
    pub prologue_changed: bool,
    /// How many times running the client's newest call has brought the same result; 0 if no result
    /// is new.
    pub repetition: Repetition,
    /// How many results a pass could not keep although the settings ask for it.
    pub loosened: u32,
    /// The pins of the conversation, and what became of those that this turn was asked for.
    pub pins: PinReport,
    /// How the response broke off, if it did.
    pub abort: Option<Abort>,
    /// Why upstream calls were repeated, in order.
    pub retries: Vec<RetryReason>,
    /// Why the guidance came in with this turn, if it did.
    pub guided: Option<GuideReason>,
    /// Whether the client takes one call per message, so that each annotation costs a request.
    pub one_call: bool,
    /// The kinds of edits that the upstream refused in this turn.
    pub learned: Edits,
    /// The stage whose failure caused the client's own bytes to be sent.
    pub fail_open: Option<FailedStage>,
    /// At how many tokens the upstream is known to cut prompts without a word.
    pub cut: Option<u32>,
    /// Whether this turn's prompt was seen to be cut.
    pub was_cut: bool,
    /// Why the turn's record was not durable when the answer ended. The turn was served as it should be.
    pub unrecorded: Option<Unrecorded>,
    /// What the turn cost, and what the client's own request would have cost. `None` if the upstream
    /// accepted nothing, or if nothing is known of what it accepted.
    pub ledger: Option<Account>,
    /// What the request has in common with the one before it.
    pub cache: CacheFacts,
    /// Whether an answer passed whose cost could not be read.
    pub unread: bool,
    /// Whether the request offers no tools, so that it stands beside the session's work.
    pub aside: bool,
    /// What a watched turn would have cost as a managed one.
    pub projected: Option<Account>,
    /// How much is known about that.
    pub projection: Option<Projection>,
}

impl TurnReport {
    /// The report of a request that has just arrived. The stages fill in the rest.
    #[must_use]
    pub fn new(route: Route, method: Method) -> Self {
        Self {
            route,
            method,
            provider: UNKNOWN_PROVIDER,
            mode: Mode::Off,
            ..Self::default()
        }
    }

    /// The sum of what the provider reported for each hop. `None` if it reported nothing.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.hops
            .iter()
            .filter_map(|hop| hop.usage)
            .reduce(|sum, hop| sum.plus(&hop))
    }

    /// How many tokens the first call read anew that the turn before had left in the provider's cache, and why. `None` if
    /// there are none.
    #[must_use]
    pub fn missed(&self) -> Option<(u64, MissCause)> {
        let usage = self.hops.first()?.usage?;
        Some((self.cache.missed(&usage)?, self.cache.why()))
    }

    /// What the turn paid for calls of a role, in units of one plain input token.
    #[must_use]
    pub fn role_units(&self, role: CallRole, account: &Account) -> f64 {
        let rest = account.sent_cost.total() - account.hidden_cost;
        match role {
            CallRole::Hidden => account.hidden_cost,
            CallRole::Main if !self.aside => rest,
            CallRole::Aside if self.aside => rest,
            CallRole::Main | CallRole::Aside => 0.0,
        }
    }

    /// The share of prompt tokens that came from the cache, over all hops. `None` if no prompt was
    /// reported.
    #[must_use]
    pub fn cached_ratio(&self) -> Option<f64> {
        let usage = self.usage().filter(|usage| usage.prompt > 0)?;
        Some((lossy(usage.cached) / lossy(usage.prompt)).clamp(0.0, 1.0))
    }

    /// What was paid for a kind of token, in US dollars. 0 if the price is not known.
    #[must_use]
    pub fn cost_usd(&self, kind: LedgerTokens) -> f64 {
        let Some(Account {
            sent_cost: cost,
            usd: Some(usd),
            ..
        }) = self.ledger
        else {
            return 0.0;
        };
        usd * match kind {
            LedgerTokens::Input => cost.plain,
            LedgerTokens::CacheRead => cost.read,
            LedgerTokens::CacheWrite => cost.write,
            LedgerTokens::Output => cost.output,
        }
    }

    /// The tokens and the cost of one side of the ledger, and the price of a unit in US dollars.
    #[must_use]
    pub fn side(&self, side: LedgerSide) -> Option<(&Usage, &Cost, Option<f64>)> {
        let account = match side {
            LedgerSide::Sent | LedgerSide::Client => self.ledger.as_ref()?,
            LedgerSide::Projected => self.projected.as_ref()?,
        };
        let (usage, cost) = match side {
            LedgerSide::Sent | LedgerSide::Projected => (&account.sent, &account.sent_cost),
            LedgerSide::Client => (&account.client, &account.client_cost),
        };
        Some((usage, cost, account.usd))
    }
    /// The number of hops after the first. Hidden calls caused each of them.
    #[must_use]
    pub fn hidden_hops(&self) -> usize {
        self.hops.len().saturating_sub(1)
    }

    /// The size of what was sent last: the view, or the client's own request if the turn was only
    /// watched.
    #[must_use]
    pub fn tokens_sent(&self) -> Option<u64> {
        let context = self.context.as_ref()?;
        Some(match self.mode {
            Mode::Observe => context.tokens_in,
            Mode::Manage | Mode::Off => context.tokens_out,
        })
    }

    /// The size of the view of a turn that was only watched.
    #[must_use]
    pub fn tokens_unsent(&self) -> Option<u64> {
        let context = self.context.as_ref()?;
        (self.mode == Mode::Observe).then_some(context.tokens_out)
    }

    /// How many tokens the passes of this turn evicted.
    #[must_use]
    pub fn evicted_now(&self) -> u64 {
        let evicted = self.hops.iter().flat_map(HopReport::evicted);
        evicted.map(|evicted| evicted.tokens).sum()
    }
}

/// One upstream call.
#[derive(Clone, Debug, Default)]
pub struct HopReport {
    /// The upstream's status. `None` if it gave none.
    pub status: Option<StatusCode>,
    /// From sending the request to the last byte of the answer.
    pub duration: Duration,
    /// From sending the request to the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// The upstream's id of the request, if it gave one.
    pub request_id: Option<String>,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// The tokens of the request as the proxy counted them, without the session's ratio. 0 if it did
    /// not count them.
    pub estimated: u64,
    /// The size of the request over its ceiling. `None` if the proxy did not hold it under one.
    pub ceiling_ratio: Option<f64>,
    /// What the rungs for new results took out of them.
    pub entered: Vec<Evicted>,
    /// The pass that was committed before this hop.
    pub pass: Option<PassReport>,
    /// The policies of which a move was dropped because it broke a rule, once for each move.
    pub dropped: Vec<Policy>,
    /// What started a pass that was then declined, because it would have freed too little.
    pub declined: Option<Trigger>,
}

impl HopReport {
    /// Prompt tokens as the provider reported them over those that the proxy counted. `None` if either is missing.
    #[must_use]
    pub fn estimate_ratio(&self) -> Option<f64> {
        let usage = self.usage?;
        (self.estimated > 0 && usage.prompt > 0)
            .then(|| lossy(usage.prompt) / lossy(self.estimated))
    }

    /// What its view lost by rungs for new results and by its pass.
    pub fn evicted(&self) -> impl Iterator<Item = &Evicted> {
        let pass = self.pass.iter().flat_map(|pass| &pass.evicted);
        self.entered.iter().chain(pass)
    }
}

/// One committed pass.
#[derive(Clone, Debug)]
pub struct PassReport {
    /// Why it ran.
    pub trigger: Trigger,
    /// Whether it stopped above the floor, which brings the next pass closer.
    pub above_floor: bool,
    /// What it evicted, by policy and level.
    pub evicted: Vec<Evicted>,
}

/// What one policy evicted at one level.
#[derive(Clone, Debug)]
pub struct Evicted {
    /// The policy.
    pub policy: Policy,
    /// The level.
    pub level: Level,
    /// How many tokens the view lost.
    pub tokens: u64,
    /// How many items were marked anew.
    pub items: u64,
}

/// The sizes of a turn's last request, in calibrated tokens.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The size of the client's request.
    pub tokens_in: u64,
    /// The size of the request that was sent upstream.
    pub tokens_out: u64,
    /// How much the marks of all passes so far keep out of the view.
    pub evicted: u64,
    /// The ceiling that held for this request.
    pub ceiling: u64,
    /// The prompt size that the model takes, if that is known.
    pub window: Option<u64>,
    /// The floor that held for this request.
    pub floor: u64,
    /// The size of the request that was sent upstream, by part.
    pub parts: Parts,
    /// The partitions of the window, if it is parted.
    pub partitions: Option<[PartitionUse; Partition::ALL.len()]>,
    /// Whether the budget was met.
    pub budget: Budget,
    /// What keeps the view above the ceiling, if the budget was not met.
    pub pinned: Option<Pinned>,
}

/// How a response broke off.
#[derive(Clone, Copy, Debug)]
pub struct Abort {
    /// Who broke it off.
    pub side: AbortSide,
    /// How far it had come.
    pub phase: AbortPhase,
}

/// The proxy's own time by phase. A phase that did not run has no time, which differs from zero.
#[derive(Clone, Debug, Default)]
pub struct Overhead([Option<Duration>; Phase::ALL.len()]);

impl Overhead {
    /// Adds time to a phase. A phase that runs in each hop adds up.
    pub fn add(&mut self, phase: Phase, time: Duration) {
        if let Some(slot) = self.0.get_mut(phase as usize) {
            *slot = Some(slot.unwrap_or_default().saturating_add(time));
        }
    }

    /// The time of a phase. `None` if it did not run.
    #[must_use]
    pub fn get(&self, phase: Phase) -> Option<Duration> {
        self.0.get(phase as usize).copied().flatten()
    }

    /// The time of all phases together. `None` if none ran.
    #[must_use]
    pub fn total(&self) -> Option<Duration> {
        self.0
            .iter()
            .flatten()
            .copied()
            .reduce(Duration::saturating_add)
    }
}

/// Converts a count for a measurement. This is exact up to 2^53, far beyond any number of tokens.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tokens stay far below 2^53"
)]
pub const fn lossy(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
