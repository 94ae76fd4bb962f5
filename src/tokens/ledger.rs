//! The account of one turn: what its upstream calls cost, and what the client's own request would
//! have cost under the same prices and with the same cache.
//!
//! Owns the arithmetic. What the provider reports is taken as it is, and the cost of the client's
//! request is derived from it: the same tokens for the same text, and the same luck with the cache.
//! Where nothing is reported, both sides are what the family's cache would hold. Never counts a
//! text and never sees a request.

use super::models::{CacheModel, Family};
use super::price::{Cost, Prices, cost};
use crate::model::Usage;

/// The sizes of a request as counted, before calibration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSizes {
    /// The whole request.
    pub tokens: u64,
    /// The request before it on the same side. 0 if there is none.
    pub before: u64,
    /// How much of that request stands unchanged at the front of this one.
    pub held: u64,
}

impl RequestSizes {
    /// Whether it rewrites a part of the request before it, and does not just extend it.
    #[must_use]
    pub fn breaks(&self) -> bool {
        self.held < self.before
    }
}

/// The sizes of an answer, in tokens as the proxy counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerSizes {
    /// Everything that the model wrote.
    pub all: u64,
    /// Its text, which the client sees.
    pub text: u64,
    /// Its hidden calls, which the client does not see.
    pub hidden: u64,
    /// Whether it has only hidden calls. Without these there would be no such answer.
    pub alone: bool,
}

/// One upstream call that was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LedgerCall {
    /// The request as it was sent.
    pub asked: RequestSizes,
    /// The size that it would have without any eviction.
    pub whole: u64,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// The answer.
    pub said: AnswerSizes,
}

/// A view that was not sent, because the client's own request was sent in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsentView {
    /// The request as it would have been sent.
    pub asked: RequestSizes,
    /// The size that it would have without any eviction.
    pub whole: u64,
    /// How much of it stands before the first answer. Other conversations may begin with the same.
    pub alike: u64,
}

/// What both sides of a turn have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LedgerTerms {
    /// The family's prices.
    pub prices: Prices,
    /// How the provider of the family caches.
    pub cache: CacheModel,
    /// Whether the provider still holds the request before.
    pub warm: bool,
    /// Whether the provider has ever reported cached tokens for this conversation.
    pub seen: bool,
    /// Whether the client's own request would be cached at all. It is not if the provider only
    /// caches at breakpoints and the client sets none.
    pub client_caches: bool,
    /// The same for a view, in which the proxy may set breakpoints.
    pub view_caches: bool,
    /// Reported over counted tokens, for a call without a report.
    pub ratio: f64,
}

impl Default for LedgerTerms {
    /// The terms of a model about which nothing is known.
    fn default() -> Self {
        Self::of(&Family::default())
    }
}

impl LedgerTerms {
    /// The terms of a family, for a conversation about which nothing is known.
    #[must_use]
    pub fn of(family: &Family) -> Self {
        Self {
            prices: family.prices,
            cache: family.cache,
            warm: true,
            seen: false,
            client_caches: true,
            view_caches: true,
            ratio: 1.0,
        }
    }

    /// How much of what the request before held the provider reads from its cache.
    fn in_steps(&self, held: u64) -> u64 {
        match self.cache {
            CacheModel::Automatic { step, .. } => {
                let step = u64::from(step.max(1));
                held / step * step
            }
            CacheModel::Breakpoints { .. } => held,
            CacheModel::None => 0,
        }
    }

    /// By how much a cache that holds a request may fall short of it.
    fn step(&self) -> u64 {
        match self.cache {
            CacheModel::Automatic { step, .. } => u64::from(step.max(1)),
            CacheModel::Breakpoints { .. } | CacheModel::None => 1,
        }
    }

    /// What a request costs according to the family's cache alone.
    fn modelled(&self, asked: RequestSizes, ratio: f64) -> Usage {
        let prompt = scaled(asked.tokens, ratio);
        let held = self.in_steps(scaled(asked.held, ratio)).min(prompt);
        let cached = if self.warm { held } else { 0 };
        let cache_write = match self.cache {
            CacheModel::None => 0,
            CacheModel::Automatic { .. } | CacheModel::Breakpoints { .. } => prompt - cached,
        };
        Usage {
            prompt,
            cached,
            cache_write,
            ..Usage::default()
        }
    }

    /// What a call cost, and the ratio of its tokens to those that were counted.
    fn sent(&self, call: &LedgerCall) -> (Usage, f64) {
        // A report without a prompt says nothing that could be compared.
        let reported = call.usage.filter(|usage| usage.prompt > 0);
        let Some(usage) = reported else {
            let completion = call.usage.map_or(call.said.all, |usage| usage.completion);
            let modelled = self.modelled(call.asked, self.ratio);
            return (
                Usage {
                    completion,
                    ..modelled
                },
                self.ratio,
            );
        };
        let cached = usage.cached.min(usage.prompt);
        let whole = Usage {
            cached,
            cache_write: usage.cache_write.min(usage.prompt - cached),
            ..usage
        };
        let ratio = if call.asked.tokens == 0 {
            self.ratio
        } else {
            wide(usage.prompt) / wide(call.asked.tokens)
        };
        (whole, ratio)
    }

    /// How much of a request that was not sent the provider would have read from its cache, judged
    /// by how much it read of the one that was sent.
    fn unsent_cached(
        &self,
        unsent: RequestSizes,
        call: &LedgerCall,
        sent: &Usage,
        ratio: f64,
    ) -> u64 {
        let (due, own) = (scaled(call.asked.held, ratio), scaled(unsent.held, ratio));
        let got = sent.cached;
        if call.usage.is_none_or(|usage| usage.prompt == 0) {
            return if self.warm { self.in_steps(own) } else { 0 };
        }
        if got == 0 {
            // After a pass, less may be left than providers cache at all. That says nothing about
            // the other request.
            let held = call.asked.breaks() && self.seen && self.warm;
            return if held { self.in_steps(own) } else { 0 };
        }
        match got.checked_sub(due) {
            Some(_) if call.asked.breaks() => own,
            // The provider read more than is known here: other conversations begin in the same way,
            // and so would this request.
            Some(more) => own + more,
            None if call.asked.breaks() || due - got < self.step() => self.in_steps(own),
            None => scaled(own, wide(got) / wide(due)),
        }
    }

    /// What a request that was not sent would have cost, judged by the call that was sent.
    fn unsent(&self, unsent: RequestSizes, call: &LedgerCall, sent: &Usage, ratio: f64) -> Usage {
        let prompt = scaled(unsent.tokens, ratio);
        let cached = self.unsent_cached(unsent, call, sent, ratio).min(prompt);
        let fresh = sent.prompt - sent.cached;
        let written = if fresh == 0 {
            0.0
        } else {
            wide(sent.cache_write) / wide(fresh)
        };
        Usage {
            prompt,
            cached,
            cache_write: scaled(prompt - cached, written),
            ..Usage::default()
        }
    }

    /// What the client's request would have cost.
    fn client(&self, client: RequestSizes, call: &LedgerCall, sent: &Usage, ratio: f64) -> Usage {
        if !self.client_caches {
            return plain(client, ratio);
        }
        self.unsent(client, call, sent, ratio)
    }

    /// What a view would have cost in place of the client's request.
    fn view(&self, view: UnsentView, call: &LedgerCall, sent: &Usage, ratio: f64) -> Usage {
        let asked = view.asked;
        let mut shown = match (self.view_caches, self.client_caches) {
            (true, true) => self.unsent(asked, call, sent, ratio),
            // A request that is never cached says nothing about one that is.
            (true, false) => self.modelled(asked, ratio),
            (false, _) => plain(asked, ratio),
        };
        // What the provider holds of the client's own requests would not help a view.
        let most = scaled(asked.held.max(view.alike), ratio);
        let too_much = shown.cached.saturating_sub(most);
        shown.cached -= too_much;
        if shown.cache_write > 0 {
            shown.cache_write += too_much;
        }
        shown
    }

    /// What tokens cost that were not read from the cache, beyond the price of a read.
    fn beyond_read(&self, usage: &Usage) -> f64 {
        let cost = cost(usage, &self.prices);
        cost.input() - wide(usage.prompt) * self.prices.read
    }
}

/// What a turn cost, and what the client's own request would have cost.
///
/// `evicted − rewritten − annotated` is what was saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Account {
    /// The sum of all upstream calls, in the provider's tokens.
    pub sent: Usage,
    /// The client's own request and what it got.
    pub client: Usage,
    /// What the calls cost, in units of one plain input token.
    pub sent_cost: Cost,
    /// What the client's own request would have cost.
    pub client_cost: Cost,
    /// The parts of what was saved, in the same units.
    pub parts: SavedParts,
    /// The price of a unit in US dollars, if it is known.
    pub usd: Option<f64>,
}

impl Account {
    /// The account of these two sides.
    fn of(terms: &LedgerTerms, sent: Usage, client: Usage, parts: SavedParts) -> Self {
        Self {
            sent,
            client,
            sent_cost: cost(&sent, &terms.prices),
            client_cost: cost(&client, &terms.prices),
            parts,
            usd: Cost::usd(1.0, &terms.prices),
        }
    }

    /// What the calls cost in US dollars, if the price is known.
    #[must_use]
    pub fn sent_usd(&self) -> Option<f64> {
        Some(self.sent_cost.total() * self.usd?)
    }
}

/// Where a saving comes from, in units of one plain input token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SavedParts {
    /// What was not paid for tokens that are out of the view.
    pub evicted: f64,
    /// What was paid to write again what the provider held, because a pass changed something before
    /// it.
    pub rewritten: f64,
    /// What was paid for the hidden tools: their texts and calls, and hops that have nothing else.
    pub annotated: f64,
}

impl SavedParts {
    /// What was saved. It is negative if more was paid.
    #[must_use]
    pub fn net(&self) -> f64 {
        self.evicted - self.rewritten - self.annotated
    }
}

/// The account of a turn with these accepted calls, in order. `None` if there are none.
#[must_use]
pub fn account(terms: &LedgerTerms, client: RequestSizes, calls: &[LedgerCall]) -> Option<Account> {
    let first = calls.first()?;
    let (paid, ratio) = terms.sent(first);
    let mut own = terms.client(client, first, &paid, ratio);
    let mut parts = parts(
        terms,
        (&paid, &first.asked),
        &own,
        wide(first.whole) * ratio,
    );
    let mut sent = paid;
    let mut before = first.whole;
    // Later hops exist only because of hidden calls, so all that they read is the price of
    // annotation.
    for call in calls.iter().skip(1) {
        let (paid, ratio) = terms.sent(call);
        let rewritten = again(terms, call, &paid, wide(call.whole) - wide(before), ratio);
        parts.rewritten += rewritten;
        parts.annotated += cost(&paid, &terms.prices).input() - rewritten;
        sent = sum(&sent, &paid);
        before = call.whole;
    }
    own.completion = calls.iter().map(|call| heard(terms, call)).sum();
    let silent = wide(sent.completion) - wide(own.completion);
    parts.annotated += terms.prices.output * silent;
    Some(Account {
        sent_cost: total(terms, calls),
        ..Account::of(terms, sent, own, parts)
    })
}

/// The account of a turn that was sent as the client made it: what was paid, and nothing saved.
#[must_use]
pub fn untouched(terms: &LedgerTerms, call: &LedgerCall) -> Account {
    let (paid, _) = terms.sent(call);
    Account::of(terms, paid, paid, SavedParts::default())
}

/// The account that such a turn would have had with a view, if the model had answered it in the
/// same way.
#[must_use]
pub fn projected(terms: &LedgerTerms, view: UnsentView, call: &LedgerCall) -> Account {
    let (paid, ratio) = terms.sent(call);
    let shown = terms.view(view, call, &paid, ratio);
    let parts = parts(
        terms,
        (&shown, &view.asked),
        &paid,
        wide(view.whole) * ratio,
    );
    let shown = Usage {
        completion: paid.completion,
        reasoning: paid.reasoning,
        ..shown
    };
    Account::of(terms, shown, paid, parts)
}

/// The parts of what a first hop saved: its view against the client's own request. `whole` is the
/// size that the view would have without any eviction.
fn parts(
    terms: &LedgerTerms,
    (view, asked): (&Usage, &RequestSizes),
    own: &Usage,
    whole: f64,
) -> SavedParts {
    let read = terms.prices.read;
    let mut parts = SavedParts {
        evicted: read * (whole - wide(view.prompt)),
        rewritten: 0.0,
        annotated: read * (whole - wide(own.prompt)),
    };
    let more = terms.beyond_read(view) - terms.beyond_read(own);
    if more < 0.0 {
        // A cold cache is filled with less.
        parts.evicted -= more;
    } else if asked.breaks() {
        parts.rewritten += more;
    } else {
        parts.annotated += more;
    }
    parts
}

/// The usage of a request that is not cached at all.
fn plain(asked: RequestSizes, ratio: f64) -> Usage {
    Usage {
        prompt: scaled(asked.tokens, ratio),
        ..Usage::default()
    }
}

/// What a later hop paid to write again what the hop before it had written.
fn again(terms: &LedgerTerms, call: &LedgerCall, paid: &Usage, grown: f64, ratio: f64) -> f64 {
    let fresh = wide(paid.prompt - paid.cached);
    if !call.asked.breaks() || fresh <= 0.0 {
        return 0.0;
    }
    let lost = (fresh - grown.max(0.0) * ratio).max(0.0);
    terms.beyond_read(paid) * lost / fresh
}

/// The cost of all calls, each with its own price.
fn total(terms: &LedgerTerms, calls: &[LedgerCall]) -> Cost {
    let costs = calls
        .iter()
        .map(|call| cost(&terms.sent(call).0, &terms.prices));
    costs.fold(Cost::default(), |sum, one| sum + one)
}

/// How many output tokens of a call the client saw.
fn heard(terms: &LedgerTerms, call: &LedgerCall) -> u64 {
    let completion = terms.sent(call).0.completion;
    if call.said.alone {
        call.said.text.min(completion)
    } else {
        completion.saturating_sub(call.said.hidden)
    }
}

fn sum(one: &Usage, other: &Usage) -> Usage {
    Usage {
        prompt: one.prompt + other.prompt,
        cached: one.cached + other.cached,
        cache_write: one.cache_write + other.cache_write,
        completion: one.completion + other.completion,
        reasoning: one.reasoning + other.reasoning,
    }
}

fn wide(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "token counts are far below 2^52 and ratios are positive"
)]
fn scaled(count: u64, ratio: f64) -> u64 {
    (count as f64 * ratio).round() as u64
}

#[cfg(test)]
mod tests;
