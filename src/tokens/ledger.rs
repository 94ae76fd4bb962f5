//! The account of one turn: what its upstream calls came to, beside what the client's own request
//! would have come to under the same prices and the same cache.
//!
//! Owns the arithmetic only. What the provider reports is taken as it is, and what the client's
//! request would have cost is read off it: the same tokens for the same text, and the same luck with
//! the cache. Where nothing is reported both sides are what the family's cache would hold. It never
//! counts a text and never sees a request.

use super::{CacheModel, Cost, Family, Prices, cost};
use crate::model::Usage;

/// A request as counted, before calibration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// All of it.
    pub tokens: u64,
    /// The request before it on the same side; 0 where there is none.
    pub before: u64,
    /// How much of it stood at the front of that one.
    pub held: u64,
}

impl Asked {
    /// Whether it does not go on from the request before, but rewrites a part of it.
    #[must_use]
    pub fn breaks(&self) -> bool {
        self.held < self.before
    }
}

/// What a call's answer holds, in tokens of our own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// All that the model wrote.
    pub all: u64,
    /// Its text, which the client hears.
    pub text: u64,
    /// Its hidden calls, which the client does not hear.
    pub hidden: u64,
    /// Whether it has hidden calls and no others: without them there would be no such answer.
    pub alone: bool,
}

/// One upstream call that was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Call {
    /// The request as it was sent.
    pub asked: Asked,
    /// Its size, had nothing been evicted.
    pub whole: u64,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// What was answered.
    pub said: Said,
}

/// What both sides of a turn have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The family's prices.
    pub prices: Prices,
    /// How its provider caches.
    pub cache: CacheModel,
    /// Whether the provider still holds the request before.
    pub warm: bool,
    /// Whether the provider has reported cached tokens of this conversation before.
    pub seen: bool,
    /// Whether the client's own request would be cached at all: not where the provider caches at
    /// breakpoints alone and the client sets none.
    pub client_caches: bool,
    /// Reported tokens over counted ones, for a call without a report.
    pub ratio: f64,
}

impl Default for Terms {
    /// The terms of a model that nothing is known of.
    fn default() -> Self {
        Self::of(&Family::default())
    }
}

impl Terms {
    /// The terms of a family, for a conversation that nothing is known of.
    #[must_use]
    pub fn of(family: &Family) -> Self {
        Self {
            prices: family.prices,
            cache: family.cache,
            warm: true,
            seen: false,
            client_caches: true,
            ratio: 1.0,
        }
    }

    /// How much of what stood in the request before the provider reads from its cache.
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

    /// The most by which a cache that holds a request falls short of it.
    fn step(&self) -> u64 {
        match self.cache {
            CacheModel::Automatic { step, .. } => u64::from(step.max(1)),
            CacheModel::Breakpoints { .. } | CacheModel::None => 1,
        }
    }

    /// What a request comes to by the family's cache alone.
    fn modelled(&self, asked: Asked, ratio: f64) -> Usage {
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

    /// What a call came to, and its tokens over those that were counted.
    fn sent(&self, call: &Call) -> (Usage, f64) {
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

    /// How much of the client's request the provider would have read from its cache, told by how much
    /// it read of ours.
    fn client_cached(&self, client: Asked, call: &Call, sent: &Usage, ratio: f64) -> u64 {
        let (due, own) = (scaled(call.asked.held, ratio), scaled(client.held, ratio));
        let got = sent.cached;
        if call.usage.is_none_or(|usage| usage.prompt == 0) {
            return if self.warm { self.in_steps(own) } else { 0 };
        }
        if got == 0 {
            // A pass may leave less than providers cache at all, which says nothing of the client's.
            let held = call.asked.breaks() && self.seen && self.warm;
            return if held { self.in_steps(own) } else { 0 };
        }
        match got.checked_sub(due) {
            Some(_) if call.asked.breaks() => own,
            // What we don't know of: other conversations begin alike, and so would the client's.
            Some(more) => own + more,
            None if call.asked.breaks() || due - got < self.step() => self.in_steps(own),
            None => scaled(own, wide(got) / wide(due)),
        }
    }

    /// What the client's request would have come to.
    fn client(&self, client: Asked, call: &Call, sent: &Usage, ratio: f64) -> Usage {
        let prompt = scaled(client.tokens, ratio);
        if !self.client_caches {
            return Usage {
                prompt,
                ..Usage::default()
            };
        }
        let cached = self.client_cached(client, call, sent, ratio).min(prompt);
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

    /// What tokens that were not read from the cache cost beyond a read.
    fn beyond_read(&self, usage: &Usage) -> f64 {
        let cost = cost(usage, &self.prices);
        cost.input() - wide(usage.prompt) * self.prices.read
    }
}

/// What a turn came to, and what the client's own request would have.
///
/// `evicted − rewritten − annotated` is what was saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Account {
    /// All upstream calls, in the provider's tokens.
    pub sent: Usage,
    /// The client's own request and what it heard.
    pub client: Usage,
    /// What the calls cost, in units of one plain input token.
    pub sent_cost: Cost,
    /// What the client's own request would have cost.
    pub client_cost: Cost,
    /// The parts of what was saved, in the same units.
    pub parts: Parts,
    /// US dollars for a unit, where the price in money is known.
    pub usd: Option<f64>,
}

impl Account {
    /// What the calls cost in US dollars, where the price is known.
    #[must_use]
    pub fn sent_usd(&self) -> Option<f64> {
        Some(self.sent_cost.total() * self.usd?)
    }
}

/// Where a saving comes from, in units of one plain input token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// What was not paid for tokens that are out of the view.
    pub evicted: f64,
    /// What was paid to write again what the provider held, because a pass changed what stands
    /// before it.
    pub rewritten: f64,
    /// What was paid for the hidden tools: their texts and calls, and hops that are nothing else.
    pub annotated: f64,
}

impl Parts {
    /// What was saved; less than nothing where it cost more.
    #[must_use]
    pub fn net(&self) -> f64 {
        self.evicted - self.rewritten - self.annotated
    }
}

/// The account of a turn with these accepted calls, in order; none where there is none.
#[must_use]
pub fn account(terms: &Terms, client: Asked, calls: &[Call]) -> Option<Account> {
    let first = calls.first()?;
    let (paid, ratio) = terms.sent(first);
    let mut own = terms.client(client, first, &paid, ratio);
    let whole = wide(first.whole) * ratio;
    let read = terms.prices.read;
    let mut parts = Parts {
        evicted: read * (whole - wide(paid.prompt)),
        rewritten: 0.0,
        annotated: read * (whole - wide(own.prompt)),
    };
    let more = terms.beyond_read(&paid) - terms.beyond_read(&own);
    if more < 0.0 {
        // A cold cache is filled with less.
        parts.evicted -= more;
    } else if first.asked.breaks() {
        parts.rewritten += more;
    } else {
        parts.annotated += more;
    }
    let mut sent = paid;
    let mut before = first.whole;
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
        sent,
        client: own,
        sent_cost: total(terms, calls),
        client_cost: cost(&own, &terms.prices),
        parts,
        usd: Cost::usd(1.0, &terms.prices),
    })
}

/// What a later hop paid to write again what the hop before it had written.
fn again(terms: &Terms, call: &Call, paid: &Usage, grown: f64, ratio: f64) -> f64 {
    let fresh = wide(paid.prompt - paid.cached);
    if !call.asked.breaks() || fresh <= 0.0 {
        return 0.0;
    }
    let lost = (fresh - grown.max(0.0) * ratio).max(0.0);
    terms.beyond_read(paid) * lost / fresh
}

/// The cost of all calls, each priced for itself.
fn total(terms: &Terms, calls: &[Call]) -> Cost {
    let costs = calls
        .iter()
        .map(|call| cost(&terms.sent(call).0, &terms.prices));
    costs.fold(Cost::default(), |sum, one| sum + one)
}

/// Output tokens of a call that the client heard.
fn heard(terms: &Terms, call: &Call) -> u64 {
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
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Reads at a tenth, writes as plain, output at five; a unit is a dollar.
    fn terms() -> Terms {
        Terms {
            prices: Prices {
                write: 1.0,
                usd_per_mtok: Some(1e6),
                ..Prices::default()
            },
            cache: CacheModel::Automatic {
                step: 100,
                ttl: HOUR,
            },
            ..Terms::default()
        }
    }

    fn asked(tokens: u64, before: u64, held: u64) -> Asked {
        Asked {
            tokens,
            before,
            held,
        }
    }

    fn usage(prompt: u64, cached: u64, cache_write: u64, completion: u64) -> Option<Usage> {
        Some(Usage {
            prompt,
            cached,
            cache_write,
            completion,
            reasoning: 0,
        })
    }

    fn call(asked: Asked, whole: u64, usage: Option<Usage>) -> Call {
        Call {
            asked,
            whole,
            usage,
            said: Said::default(),
        }
    }

    #[track_caller]
    fn close(found: f64, expect: f64) {
        assert!((found - expect).abs() < 1e-6, "{found}, not {expect}");
    }

    /// A view of 400 in place of 1000, where each grew by 100.
    #[test]
    fn between_passes_the_reads_of_what_is_gone_are_saved() {
        let call = call(asked(400, 300, 300), 1_000, usage(400, 300, 0, 10));
        let account = account(&terms(), asked(1_000, 900, 900), &[call]).unwrap();
        let own = usage(1_000, 900, 0, 10);
        assert_eq!(
            (account.sent, Some(account.client)),
            (call.usage.unwrap(), own)
        );
        close(account.parts.evicted, 60.0);
        close(account.parts.rewritten, 0.0);
        close(account.parts.annotated, 0.0);
        close(account.sent_cost.total(), 130.0 + 50.0);
        close(account.client_cost.total(), 190.0 + 50.0);
        assert_eq!(account.usd, Some(1.0));
    }

    /// The pass leaves 100 of 900 in the cache and 400 in all, 100 of which are new.
    #[test]
    fn a_pass_pays_for_what_it_writes_again() {
        let call = call(asked(400, 900, 100), 1_000, usage(400, 100, 0, 0));
        let account = account(&terms(), asked(1_000, 900, 900), &[call]).unwrap();
        close(account.parts.evicted, 60.0);
        close(account.parts.rewritten, 200.0 * 0.9);
        close(account.parts.net(), 60.0 - 180.0);
    }

    /// The hidden tools are 50 tokens, a lone hop says 20, and the next one reads them again.
    #[test]
    fn a_lone_hop_is_paid_for_by_who_asked_for_it() {
        let lone = Call {
            said: Said {
                all: 20,
                text: 5,
                hidden: 15,
                alone: true,
            },
            ..call(asked(1_050, 950, 950), 1_050, usage(1_050, 950, 0, 20))
        };
        let last = Call {
            said: Said {
                all: 40,
                text: 10,
                hidden: 12,
                alone: false,
            },
            ..call(
                asked(1_080, 1_050, 1_050),
                1_080,
                usage(1_080, 1_050, 0, 40),
            )
        };
        let account = account(&terms(), asked(1_000, 900, 900), &[lone, last]).unwrap();
        assert_eq!(account.sent.prompt, 2_130);
        assert_eq!(account.client, usage(1_000, 900, 0, 5 + 28).unwrap());
        close(account.parts.evicted, 0.0);
        let input = 50.0 * 0.1 + (1_050.0 * 0.1 + 30.0);
        close(account.parts.annotated, input + 5.0 * 27.0);
        close(account.parts.net(), -(input + 5.0 * 27.0));
    }

    /// A pass before the second hop leaves 500 of 1080, of which it reads 100, and 30 are new.
    #[test]
    fn a_pass_between_hops_is_told_from_the_hop() {
        let first = call(asked(1_050, 950, 950), 1_050, usage(1_050, 950, 0, 0));
        let second = call(asked(500, 1_050, 100), 1_080, usage(500, 100, 0, 0));
        let account = account(&terms(), asked(1_000, 900, 900), &[first, second]).unwrap();
        close(account.parts.rewritten, 370.0 * 0.9);
        close(account.parts.annotated, 5.0 + 50.0 + 30.0 * 0.9);
    }

    #[test]
    fn the_client_has_the_luck_with_the_cache_that_we_had() {
        let client = asked(1_000, 900, 900);
        let grown = asked(400, 300, 300);
        let cut = asked(400, 900, 100);
        let seen = Terms {
            seen: true,
            ..terms()
        };
        let cold = Terms {
            warm: false,
            ..terms()
        };
        let silent = Terms {
            cache: CacheModel::None,
            ..terms()
        };
        let unmarked = Terms {
            client_caches: false,
            ..terms()
        };
        for (what, terms, ours, reported, expect) in [
            ("all of it", terms(), grown, usage(400, 300, 0, 0), 900),
            (
                "short of a step",
                terms(),
                grown,
                usage(400, 256, 0, 0),
                900,
            ),
            ("a third of it", terms(), grown, usage(400, 100, 0, 0), 300),
            ("nothing is cached", terms(), grown, usage(400, 0, 0, 0), 0),
            (
                "a cache that is not cold",
                cold,
                grown,
                usage(400, 300, 0, 0),
                900,
            ),
            (
                "less than is cached at all",
                seen,
                cut,
                usage(400, 0, 0, 0),
                900,
            ),
            ("never seen to cache", terms(), cut, usage(400, 0, 0, 0), 0),
            ("behind a cut", terms(), cut, usage(400, 60, 0, 0), 900),
            ("no report", terms(), grown, None, 900),
            ("no report of a cold cache", cold, grown, None, 0),
            ("no report and no cache", silent, grown, None, 0),
            (
                "no marker of the client's",
                unmarked,
                grown,
                usage(400, 300, 0, 0),
                0,
            ),
        ] {
            let account = account(&terms, client, &[call(ours, 1_000, reported)]).unwrap();
            assert_eq!(account.client.cached, expect, "{what}");
        }
        let first = call(asked(400, 0, 0), 400, usage(400, 200, 0, 0));
        let account = account(&terms(), asked(350, 0, 0), &[first]).unwrap();
        assert_eq!(
            account.client.cached, 200,
            "what other conversations began with"
        );
    }

    #[test]
    fn both_sides_are_calibrated_and_priced_alike() {
        let terms = Terms {
            prices: Prices::default(),
            ..terms()
        };
        // Twice the tokens that were counted; half of what is not read is written.
        let call = call(asked(400, 300, 300), 1_000, usage(800, 600, 100, 0));
        let account = account(&terms, asked(1_000, 900, 900), &[call]).unwrap();
        assert_eq!(account.client, usage(2_000, 1_800, 100, 0).unwrap());
        close(account.parts.evicted, 120.0);
        assert_eq!(account.usd, None);
    }

    #[test]
    fn a_cold_cache_is_filled_with_less() {
        let call = call(asked(400, 300, 300), 1_000, usage(400, 0, 0, 0));
        let account = account(&terms(), asked(1_000, 900, 900), &[call]).unwrap();
        close(account.parts.evicted, 600.0);
        assert!(super::account(&terms(), asked(1, 0, 0), &[]).is_none());
    }

    prop_compose! {
        fn any_call()(
            tokens in 1_u64..200_000, before in 0_u64..200_000, held in 0_u64..200_000,
            whole in 0_u64..900_000, reported: bool, prompt in 0_u64..300_000,
            cached in 0_u64..300_000, cache_write in 0_u64..300_000, said in 0_u64..5_000,
            text in 0_u64..5_000, hidden in 0_u64..5_000, alone: bool,
        ) -> Call {
            Call {
                asked: asked(tokens, before, held.min(before).min(tokens)),
                whole,
                usage: usage(prompt, cached, cache_write, said).filter(|_| reported),
                said: Said { all: said, text, hidden, alone },
            }
        }
    }

    proptest! {
        /// The parts are the whole of the difference, whatever was reported.
        #[test]
        fn the_parts_add_up(
            calls in prop::collection::vec(any_call(), 1..5), tokens in 0_u64..900_000,
            held in 0_u64..900_000, warm: bool, seen: bool, client_caches: bool,
            write in 0.5_f64..2.0, ratio in 0.7_f64..2.0,
        ) {
            let terms = Terms {
                prices: Prices { write, ..Prices::default() },
                warm, seen, client_caches, ratio,
                ..terms()
            };
            let client = asked(tokens, held.min(tokens), held.min(tokens));
            let account = account(&terms, client, &calls).unwrap();
            let saved = account.client_cost.total() - account.sent_cost.total();
            prop_assert!((account.parts.net() - saved).abs() < 1e-3, "{account:?}");
            prop_assert!(account.client.cached + account.client.cache_write <= account.client.prompt);
            let prompts: u64 = calls.iter().filter_map(|call| call.usage).map(|u| u.prompt).sum();
            prop_assert!(account.sent.prompt >= prompts);
            prop_assert!(account.parts.rewritten >= -1e-6);
        }
    }
}
