//! The figures of the demo, taken where they can be trusted: sizes and cache shares as the
//! provider found them, beside the same session sent whole. Owns the sums and the checks; never
//! takes a figure from the proxy where the provider has one.

use plimsoll_scripted::cache::PrefixCache;
use plimsoll_scripted::size::{CountFn, Outline, Sizer};
use plimsoll_scripted::trace::Answer;
use plimsoll_scripted::{Received, Verdict};

use super::agent::Told;
use super::session::recorded_output;
use crate::model::Usage;
use crate::tokens::{self, Cost, Prices};

/// One turn as the picture shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Tokens of the agent's own history.
    pub agent: usize,
    /// Tokens that the provider received, in the largest of the turn's requests.
    pub sent: usize,
    /// Whether one of the turn's requests did not extend the one before it: a pass.
    pub passed: bool,
}

/// What one way of sending the session came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Account {
    /// Requests to the provider.
    pub requests: usize,
    /// Tokens of the largest.
    pub largest: usize,
    /// Input tokens of all.
    pub input: usize,
    /// Those of them that the provider's cache held.
    pub cached: usize,
    /// Output tokens of all.
    pub output: usize,
    /// All of it in US dollars.
    pub usd: f64,
}

impl Account {
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
        let cost = tokens::cost(&usage, prices).total();
        self.usd += Cost::usd(cost, prices).unwrap_or_default();
    }

    /// The cached share of the input.
    #[must_use]
    pub fn cached_share(&self) -> f64 {
        share(self.cached, self.input)
    }
}

/// One number in another; 0 of nothing.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

/// Everything that was measured so far.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// One for each turn played.
    pub samples: Vec<Sample>,
    /// The session as it was sent.
    pub sent: Account,
    /// The same session, had the agent's history been sent whole.
    pub whole: Account,
    /// Requests that did not extend the one before them.
    pub breaks: usize,
    /// Turns whose budget could not be met, and which said so.
    pub reported: usize,
    /// The proxy's own time in each turn, in milliseconds, as it tells it.
    pub overheads: Vec<f64>,
    /// What went wrong; empty at the end of a good run.
    pub faults: Vec<String>,
}

impl Figures {
    /// Dollars saved net: cache rewrites, hidden hops and annotations are paid for.
    #[must_use]
    pub fn saved(&self) -> f64 {
        self.whole.usd - self.sent.usd
    }

    /// The saving's share of what sending everything costs.
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

/// One turn as it went: what the agent said and heard, and what the provider received and sent.
pub struct TurnFacts<'a> {
    /// What the agent sent and heard.
    pub told: &'a Told,
    /// What the provider received.
    pub received: &'a [Received],
    /// What the agent was to hear.
    pub expected: &'a Answer,
    /// How many requests the turn was to take.
    pub hops: usize,
    /// Output tokens that the provider sent.
    pub output: usize,
}

/// Measures turn by turn.
pub struct Meter {
    ceiling: usize,
    prices: Prices,
    count: CountFn,
    sizer: Sizer,
    /// The same cache model as the provider's, for the history sent whole.
    cache: PrefixCache,
    /// The size of the request before.
    before: Option<usize>,
    figures: Figures,
}

impl Meter {
    /// A meter that has seen nothing yet.
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

    /// Takes in one turn.
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
        });
    }

    /// The agent's own request, as if it had gone to the provider.
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

    /// What the provider received: the largest size, and whether a prefix broke.
    fn sent(&mut self, facts: &TurnFacts<'_>) -> (usize, bool) {
        let (mut largest, mut passed) = (0, false);
        // Output is billed a turn; which of its requests bears it makes no difference.
        let mut output = facts.output;
        for request in facts.received {
            let added = std::mem::take(&mut output);
            let prices = &self.prices;
            let (size, cached) = (request.size, request.cached);
            self.figures.sent.add(size, cached, added, prices);
            // The ideal cache holds the whole request before, unless its prefix was rewritten.
            let broke = self.before.is_some_and(|before| cached < before);
            self.figures.breaks += usize::from(broke);
            passed |= broke;
            largest = largest.max(size);
            self.before = Some(size);
        }
        (largest, passed)
    }

    /// Holds the turn to what the proxy promises.
    fn check(&mut self, facts: &TurnFacts<'_>) {
        let turn = self.figures.samples.len() + 1;
        let mut faults = Vec::new();
        if let Some(stage) = &facts.told.fail_open {
            faults.push(format!("the proxy failed open at {stage}"));
        }
        let users = user_messages(facts.told.body.as_bytes());
        for request in facts.received {
            if request.size > self.ceiling && !facts.told.exceeded {
                let (size, ceiling) = (request.size, self.ceiling);
                faults.push(format!("{size} tokens passed τ = {ceiling} unreported"));
            }
            if let Verdict::Refused(refusal) = &request.verdict {
                faults.push(format!("the provider refused: {}", refusal.message));
            }
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

/// The user's messages of a body, as bytes. The pattern can't occur inside a string, where its
/// quotes would be escaped.
fn user_messages(body: &[u8]) -> Vec<&str> {
    let mut messages = Outline::read(body).messages;
    messages.retain(|message| message.contains(r#""role":"user""#));
    messages
}
