//! The account of one turn: what its upstream calls cost, and what the client's own request would
//! have cost under the same prices and with the same cache.
//!
//! Owns the arithmetic. What the provider reports is taken as it is, and the cost of the client's
//! request is derived from it: the same tokens for the same text, and the same luck with the cache.
//! Where nothing is reported, both sides are what the family's cache would hold. Never counts a
//! text and never sees a request.

mod added;

use plimsoll_model::Usage;

use super::models::{CacheModel, Family};
use super::price::{Cost, Prices, cost};
use added::Added;

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
    /// Tokens that the proxy added before the first message: hidden tools and guidance.
    pub front: u64,
    /// Whether anything of the conversation is not shown as the client has it: evicted, shortened, or left out
    /// because the provider refuses it.
    pub edited: bool,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// The answer.
    pub said: AnswerSizes,
}

impl LedgerCall {
    /// What the provider reported. A report without a prompt says nothing that could be compared.
    fn reported(&self) -> Option<Usage> {
        self.usage.filter(|usage| usage.prompt > 0)
    }
}

/// A view that was not sent, because the client's own request was sent in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsentView {
    /// The request as it would have been sent.
    pub asked: RequestSizes,
    /// The size that it would have without any eviction.
    pub whole: u64,
    /// As in [`LedgerCall`].
    pub edited: bool,
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
    /// Whether a view would be cached at all. The proxy may set breakpoints in it.
    pub view_caches: bool,
    /// Whether what is new in a request is kept for an hour, where the provider does not say.
    pub hourly: bool,
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
            hourly: false,
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
        if !self.view_caches {
            return plain(asked, ratio);
        }
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
            hour_write: self.hourly.then_some(cache_write),
            ..Usage::default()
        }
    }

    /// What a call cost, and the ratio of its tokens to those that were counted.
    fn sent(&self, call: &LedgerCall) -> (Usage, f64) {
        let Some(usage) = call.reported() else {
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
        let cache_write = usage.cache_write.min(usage.prompt - cached);
        let whole = Usage {
            cached,
            cache_write,
            hour_write: usage
                .hour_write
                .or(self.hourly.then_some(cache_write))
                .map(|hour| hour.min(cache_write)),
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
    /// by how much it read of the one that was sent, which had `added` in addition.
    fn unsent_cached(
        &self,
        unsent: RequestSizes,
        call: &LedgerCall,
        sent: &Usage,
        (ratio, added): (f64, &Added),
    ) -> u64 {
        let (due, own) = (scaled(call.asked.held, ratio), scaled(unsent.held, ratio));
        let got = sent.cached;
        // Where we did not change the prefix, the rest of it is the client's own.
        let broken = call.asked.breaks() && !unsent.breaks();
        if !broken && !call.edited {
            return got - added.within(got).min(got);
        }
        if call.reported().is_none() {
            return if self.warm { self.in_steps(own) } else { 0 };
        }
        if got == 0 {
            // After a pass, less may be left than providers cache at all. That says nothing about
            // the other request.
            let held = broken && self.seen && self.warm;
            return if held { self.in_steps(own) } else { 0 };
        }
        match got.checked_sub(due) {
            Some(_) if broken => own,
            // The provider read more than is known here: other conversations begin in the same way,
            // and so would this request.
            Some(more) => own + more - (added.within(got) - added.within(due)).min(more),
            None if broken || due - got < self.step() => self.in_steps(own),
            None => scaled(own, wide(got) / wide(due)),
        }
    }

    /// What a request that was not sent would have cost, judged by the call that was sent.
    fn unsent(
        &self,
        unsent: RequestSizes,
        call: &LedgerCall,
        sent: &Usage,
        (ratio, added): (f64, &Added),
    ) -> Usage {
        let prompt = scaled(unsent.tokens, ratio);
        let cached = self.unsent_cached(unsent, call, sent, (ratio, added));
        let cached = cached.min(prompt);
        let fresh = sent.prompt - sent.cached;
        let share = |part: u64, whole: u64| match whole {
            0 => 0.0,
            whole => wide(part) / wide(whole),
        };
        let cache_write = scaled(prompt - cached, share(sent.cache_write, fresh));
        let hourly = sent.hour_write.map(|hour| share(hour, sent.cache_write));
        Usage {
            prompt,
            cached,
            cache_write,
            hour_write: hourly.map(|share| scaled(cache_write, share)),
            ..Usage::default()
        }
    }

    /// What the client's request would have cost.
    fn client(
        &self,
        client: RequestSizes,
        call: &LedgerCall,
        sent: &Usage,
        by: (f64, &Added),
    ) -> Usage {
        // Where nobody sets a breakpoint, what the provider caches it caches by itself.
        let unasked = !self.view_caches && call.reported().is_some();
        if self.client_caches || unasked {
            return self.unsent(client, call, sent, by);
        }
        plain(client, by.0)
    }

    /// What a view would have cost in place of the client's request.
    fn view(&self, view: UnsentView, call: &LedgerCall, sent: &Usage, ratio: f64) -> Usage {
        let asked = view.asked;
        let unasked = !self.view_caches && call.reported().is_some();
        // A view is longer than the client's request where it adds anything.
        let judged = LedgerCall {
            edited: true,
            ..*call
        };
        let by = (ratio, &Added::default());
        let mut shown = match (self.view_caches, self.client_caches || unasked) {
            (_, true) => self.unsent(asked, &judged, sent, by),
            // A request that is never cached says nothing about one that is.
            (true, false) => self.modelled(asked, ratio),
            (false, false) => plain(asked, ratio),
        };
        // What the provider holds of the client's own requests would not help a view.
        let most = scaled(asked.held.max(view.alike), ratio);
        let too_much = shown.cached.saturating_sub(most);
        shown.cached -= too_much;
        if shown.cache_write > 0 {
            shown.cache_write += too_much;
            shown.hour_write = shown.hour_write.map(|hour| match hour {
                0 => 0,
                hour => hour + too_much,
            });
        }
        shown
    }

    /// What was paid beyond reads for each token that was not read from the cache.
    fn each_beyond_read(&self, usage: &Usage) -> f64 {
        let fresh = usage.prompt - usage.cached;
        match fresh {
            0 => 0.0,
            fresh => self.beyond_read(usage) / wide(fresh),
        }
    }

    /// What a step of the cache is worth that is read or not: so much may come of another length alone.
    fn step_beyond_read(&self, usage: &Usage) -> f64 {
        wide(self.step()) * self.each_beyond_read(usage)
    }

    /// What tokens cost that were not read from the cache, beyond the price of a read.
    fn beyond_read(&self, usage: &Usage) -> f64 {
        let cost = cost(usage, &self.prices);
        cost.input() - wide(usage.prompt) * self.prices.read
    }
}

/// What a turn cost, and what the client's own request would have cost.
///
/// `evicted + breakpoints − rewritten − annotated` is what was saved. With `unexplained` it is the whole difference
/// between the sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Account {
    /// The sum of all upstream calls, in the provider's tokens.
    pub sent: Usage,
    /// The client's own request and what it got.
    pub client: Usage,
    /// What the calls cost, in units of one plain input token.
    pub sent_cost: Cost,
    /// The part of it for calls that were answered by hidden calls alone.
    pub hidden_cost: f64,
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
            hidden_cost: 0.0,
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
    /// What was not paid for tokens that are out of the view, and by how much a cache that holds steps read more or
    /// less of it for its other length.
    pub evicted: f64,
    /// What was paid to write again what the provider held, because a pass changed something before
    /// it.
    pub rewritten: f64,
    /// What was paid for the hidden tools: their texts and calls, and hops that have nothing else.
    pub annotated: f64,
    /// What was not paid because the proxy set breakpoints where the client sets none.
    pub breakpoints: f64,
    /// What no cause explains. It is never part of a saving.
    pub unexplained: f64,
}

impl SavedParts {
    /// What was saved. It is negative if more was paid.
    #[must_use]
    pub fn net(&self) -> f64 {
        self.evicted + self.breakpoints - self.rewritten - self.annotated
    }

    /// Takes in what is left of a saving. No more than a step of the cache comes of the view's other length, by eviction
    /// or else by what was added; more than that has no cause.
    fn leave(&mut self, saved: f64, step: f64, edited: bool) {
        match (saved.abs() <= step, edited) {
            (true, true) => self.evicted += saved,
            (true, false) => self.annotated -= saved,
            (false, _) => self.unexplained = saved,
        }
    }
}

/// The account of a turn with these accepted calls, in order. `None` if there are none.
#[must_use]
pub fn account(terms: &LedgerTerms, client: RequestSizes, calls: &[LedgerCall]) -> Option<Account> {
    let first = calls.first()?;
    let (paid, ratio) = terms.sent(first);
    let added = Added::of(first, client, ratio);
    let mut own = terms.client(client, first, &paid, (ratio, &added));
    let shown = Shown {
        whole: wide(first.whole) * ratio,
        broken: first.asked.breaks() && !client.breaks(),
        edited: first.edited,
        fresh: added.all() - added.within(paid.cached).min(added.all()),
    };
    let mut parts = parts(terms, &shown, &paid, &own);
    let mut sent = paid;
    let mut before = first.whole;
    // Later hops exist only because of hidden calls, so all that they read is the price of
    // annotation.
    for call in calls.iter().skip(1) {
        let (paid, ratio) = terms.sent(call);
        let grown = wide(call.whole) - wide(before);
        let rewritten = match call.edited {
            true => again(terms, call, &paid, grown, ratio),
            false => 0.0,
        };
        parts.rewritten += rewritten;
        parts.annotated += cost(&paid, &terms.prices).input() - rewritten;
        sent = sent.plus(&paid);
        before = call.whole;
    }
    own.completion = calls.iter().map(|call| heard(terms, call)).sum();
    let silent = wide(sent.completion) - wide(own.completion);
    parts.annotated += terms.prices.output * silent;
    Some(Account {
        sent_cost: total(terms, calls.iter()),
        hidden_cost: total(terms, calls.iter().filter(|call| call.said.alone)).total(),
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
    let judged = Shown {
        whole: wide(view.whole) * ratio,
        broken: view.asked.breaks(),
        edited: view.edited,
        fresh: scaled(view.whole.saturating_sub(call.asked.tokens), ratio),
    };
    let parts = parts(terms, &judged, &shown, &paid);
    let shown = Usage {
        completion: paid.completion,
        reasoning: paid.reasoning,
        ..shown
    };
    Account::of(terms, shown, paid, parts)
}

/// What decides which part a difference belongs to.
struct Shown {
    /// The size that the view would have without any eviction, in the provider's tokens.
    whole: f64,
    /// Whether we changed the prefix that the provider held.
    broken: bool,
    /// As in [`LedgerCall`].
    edited: bool,
    /// Tokens of what was added that the provider did not read from its cache.
    fresh: u64,
}

/// The parts of what a first hop saved: its view against the client's own request.
fn parts(terms: &LedgerTerms, shown: &Shown, view: &Usage, own: &Usage) -> SavedParts {
    let read = terms.prices.read;
    let gone = match shown.edited {
        true => shown.whole - wide(view.prompt),
        false => 0.0,
    };
    let mut parts = SavedParts {
        evicted: read * gone,
        annotated: read * (wide(view.prompt) + gone - wide(own.prompt)),
        ..SavedParts::default()
    };
    // What is left is the difference of what was not read from the cache, which has few causes.
    let more = terms.beyond_read(view) - terms.beyond_read(own);
    let dear = wide(shown.fresh) * terms.each_beyond_read(view);
    let caches = terms.client_caches || !terms.view_caches;
    match (more < 0.0, shown.broken) {
        (false, true) if shown.edited => parts.rewritten += more,
        // Only the view is cached, and so only the view pays for writes.
        _ if !caches => {
            parts.annotated += dear;
            parts.breakpoints = dear - more;
        }
        // Only what was added can have changed the prefix.
        (false, true) => parts.annotated += more,
        (true, _) => {
            // A cold cache is filled with less.
            let less = (gone.max(0.0) * terms.each_beyond_read(own)).min(-more);
            parts.evicted += less;
            parts.leave(-more - less, terms.step_beyond_read(own), shown.edited);
        }
        (false, false) => {
            let added = dear.min(more);
            parts.annotated += added;
            parts.leave(added - more, terms.step_beyond_read(view), shown.edited);
        }
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
fn total<'a>(terms: &LedgerTerms, calls: impl Iterator<Item = &'a LedgerCall>) -> Cost {
    let costs = calls.map(|call| cost(&terms.sent(call).0, &terms.prices));
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
