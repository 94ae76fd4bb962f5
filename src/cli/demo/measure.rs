//! The figures of the demo: sizes and cache shares as the provider found them, beside the same
//! session sent whole. Owns the sums and the checks. Never takes a figure from the proxy if the
//! provider has one.

use plimsoll_model::Usage;
use plimsoll_scripted::cache::PrefixCache;
use plimsoll_scripted::size::{CountFn, Outline, Sizer};
use plimsoll_scripted::trace::Answer;
use plimsoll_scripted::{Received, Verdict};
use plimsoll_tokens::{Cost, Prices};

use super::agent::TurnResult;
use super::session::recorded_output;
use crate::cli::closing::MetricsText;

/// One turn in the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Sample {
    /// How many tokens the agent's own history has.
    pub agent: usize,
    /// How many tokens the largest request of the turn had.
    pub sent: usize,
    /// Whether a request of the turn did not extend the one before it, which means a pass.
    pub passed: bool,
    /// The share that was saved up to the end of this turn, of what sending everything costs.
    pub saved: f64,
}

/// What one way of sending the session cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct SessionTotals {
    /// How many requests the provider got.
    pub requests: usize,
    /// How many tokens the largest request had.
    pub largest: usize,
    /// How many input tokens there were.
    pub input: usize,
    /// How many of those the provider's cache held.
    pub cached: usize,
    /// How many output tokens there were.
    pub output: usize,
    /// The cost in US dollars.
    pub usd: f64,
}

impl SessionTotals {
    fn add(&mut self, size: usize, cached: usize, output: usize, prices: &Prices) {
        self.requests += 1;
        self.largest = self.largest.max(size);
        self.input += size;
        self.cached += cached;
        self.output += output;
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let usage = Usage {
            prompt: wide(size),
            cached: wide(cached),
            completion: wide(output),
            ..Usage::default()
        };
        let cost = plimsoll_tokens::cost(&usage, prices).total();
        self.usd += Cost::usd(cost, prices).unwrap_or_default();
    }

    /// The cached share of the input.
    #[must_use]
    pub fn cached_share(&self) -> f64 {
        share(self.cached, self.input)
    }
}

/// The share of one number in another. 0 if the other is 0.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

/// Everything that was measured so far.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Figures {
    /// One for each turn played.
    pub samples: Vec<Sample>,
    /// The session as it was sent.
    pub sent: SessionTotals,
    /// The session as it is with the agent's whole history.
    pub whole: SessionTotals,
    /// How many requests did not extend the one before them.
    pub breaks: usize,
    /// How many turns reported that their budget could not be met.
    pub reported: usize,
    /// The proxy's own time in each turn, in milliseconds, as it reported it.
    pub overheads: Vec<f64>,
    /// What went wrong. Empty after a good run.
    pub faults: Vec<String>,
}

impl Figures {
    /// How many dollars were saved. What cache rewrites, hidden hops and annotations cost is
    /// subtracted.
    #[must_use]
    pub fn saved(&self) -> f64 {
        self.whole.usd - self.sent.usd
    }

    /// What was saved, as a share of what sending everything costs.
    #[must_use]
    pub fn saved_share(&self) -> f64 {
        if self.whole.usd > 0.0 {
            self.saved() / self.whole.usd
        } else {
            0.0
        }
    }

    /// The median of the proxy's own time, in milliseconds.
    #[must_use]
    pub fn overhead(&self) -> Option<f64> {
        let mut sorted = self.overheads.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

/// One turn: what the agent sent and received, and what the provider received and sent.
pub struct TurnFacts<'a> {
    /// What the agent sent and received.
    pub told: &'a TurnResult,
    /// What the provider received.
    pub received: &'a [Received],
    /// What the agent should have received.
    pub expected: &'a Answer,
    /// How many requests the turn should have taken.
    pub hops: usize,
    /// How many output tokens the provider sent.
    pub output: usize,
}

/// Measures the session turn by turn.
pub struct DemoMeter {
    ceiling: usize,
    prices: Prices,
    count: CountFn,
    sizer: Sizer,
    /// A model of a cache like the provider's, for the history that is sent whole.
    cache: PrefixCache,
    /// The size of the request before.
    before: Option<usize>,
    figures: Figures,
}

impl DemoMeter {
    /// A meter that has measured nothing yet.
    #[must_use]
    pub fn new(ceiling: u32, prices: Prices, count: CountFn) -> Self {
        Self {
            ceiling: usize::try_from(ceiling).unwrap_or(usize::MAX),
            prices,
            sizer: Sizer::new(CountFn::clone(&count)),
            count,
            cache: PrefixCache::default(),
            before: None,
            figures: Figures::default(),
        }
    }

    /// The figures so far.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Measures one turn.
    pub fn turn(&mut self, facts: &TurnFacts<'_>) {
        let agent = self.whole(facts);
        let (sent, passed) = self.sent(facts);
        self.check(facts);
        self.figures.reported += usize::from(facts.told.exceeded);
        self.figures.overheads.extend(facts.told.overhead);
        self.figures.samples.push(Sample {
            agent,
            sent,
            passed,
            saved: self.figures.saved_share(),
        });
    }

    /// Checks the proxy's ledger against what was measured.
    pub fn ledger(&mut self, shown: &MetricsText<'_>) {
        let figures = &mut self.figures;
        for (side, account) in [("sent", &figures.sent), ("client", &figures.whole)] {
            for (kind, measured) in [
                ("input", account.input),
                ("cache_read", account.cached),
                ("output", account.output),
            ] {
                let told = shown.ledger(side, kind);
                if told != measured as f64 {
                    let fault =
                        format!("the ledger has {told} for {measured} tokens ({side} {kind})");
                    figures.faults.push(fault);
                }
            }
        }
    }

    /// Measures the agent's own request as if it had been sent to the provider.
    fn whole(&mut self, facts: &TurnFacts<'_>) -> usize {
        let body = facts.told.body.as_bytes();
        let size = self.sizer.request(body);
        let outline = Outline::read(body);
        let cached = self.cache.admit("", &outline, &self.sizer);
        let output = recorded_output(facts.expected, &self.count);
        let prices = &self.prices;
        self.figures.whole.add(size, cached, output, prices);
        size
    }

    /// Measures what the provider received. Returns the largest size, and whether a prefix broke.
    fn sent(&mut self, facts: &TurnFacts<'_>) -> (usize, bool) {
        let (mut largest, mut passed) = (0, false);
        // Output is billed per turn. It does not matter which of its requests bears it.
        let mut output = facts.output;
        for request in facts.received {
            let added = std::mem::take(&mut output);
            let prices = &self.prices;
            let (size, cached) = (request.size, request.cached);
            self.figures.sent.add(size, cached, added, prices);
            // The ideal cache holds the whole previous request, unless its prefix was rewritten.
            let broke = self.before.is_some_and(|before| cached < before);
            self.figures.breaks += usize::from(broke);
            passed |= broke;
            largest = largest.max(size);
            self.before = Some(size);
        }
        (largest, passed)
    }

    /// Checks the turn against what the proxy promises.
    fn check(&mut self, facts: &TurnFacts<'_>) {
        let turn = self.figures.samples.len() + 1;
        let mut faults = Vec::new();
        if let Some(stage) = &facts.told.fail_open {
            faults.push(format!("the proxy failed open at {stage}"));
        }
        let users = user_messages(facts.told.body.as_bytes());
        for request in facts.received {
            // A view above the budget breaks no promise if the proxy reported it.
            if request.size > self.ceiling && !facts.told.exceeded {
                let (size, ceiling) = (request.size, self.ceiling);
                faults.push(format!(
                    "{size} tokens passed the budget of {ceiling} unreported"
                ));
            }
            if let Verdict::Refused(refusal) = &request.verdict {
                faults.push(format!("the provider refused: {}", refusal.message));
            }
            // The user's own words are never evicted.
            if user_messages(&request.body) != users {
                faults.push("the user's messages were changed".to_owned());
            }
        }
        let heard = &facts.told.heard;
        let expected = facts.expected;
        if (&heard.text, &heard.calls) != (&expected.text, &expected.calls) {
            faults.push("the agent heard something else than the model said to it".to_owned());
        }
        let odd = heard.faults.iter();
        faults.extend(odd.map(|fault| format!("the agent's stream: {fault}")));
        // A turn that takes more or fewer requests was not played as planned.
        if facts.received.len() != facts.hops {
            let (took, planned) = (facts.received.len(), facts.hops);
            faults.push(format!("took {took} requests in place of {planned}"));
        }
        let named = faults
            .into_iter()
            .map(|fault| format!("turn {turn}: {fault}"));
        self.figures.faults.extend(named);
    }
}

/// The user's messages in a body, as bytes. The pattern can't occur inside a string, because its
/// quotes would be escaped there.
fn user_messages(body: &[u8]) -> Vec<&str> {
    let mut messages = Outline::read(body).messages;
    messages.retain(|message| message.contains(r#""role":"user""#));
    messages
}

#[cfg(test)]
mod tests;
