//! What a provider's prompt cache would hold of each request, and what the session would cost: a
//! model of a cache and of prices, by name. Owns the arithmetic; never reads a message.

use plimsoll_model::Usage;
use plimsoll_tokens::{CacheModel, Family, Models, Prices};
use plimsoll_wire::cached_for::CachedFor;

/// How prefixes are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Every exact prefix of the request before, message by message, and for ever.
    Ideal,
    /// As a provider does it.
    Provider(CacheModel),
}

/// Where requests have breakpoints, if their provider caches at those. Each stands with the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Markers {
    /// At the newest message, where OpenAI sets one by itself.
    Tail,
    /// At the end of the prologue, as agents do.
    #[default]
    Prologue,
    /// Behind the user's messages before the first answer and before what the next pass is expected to edit first, as
    /// the proxy does where the provider sets one at the newest message.
    Proxy,
}

impl Markers {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("tail", Self::Tail),
        ("prologue", Self::Prologue),
        ("proxy", Self::Proxy),
    ];
}

/// Prices and a cache by a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Pricing {
    /// The name.
    pub name: String,
    /// The family whose encoding and rules requests are served by.
    pub family: Family,
    /// The cache.
    pub cache: Cache,
    /// Where requests have breakpoints.
    pub markers: Markers,
}

/// A name that no prices go by.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no prices are named {0:?}: give ideal, automatic, breakpoint or a model such as gpt-5")]
pub struct PricesError(pub String);

impl Default for Pricing {
    fn default() -> Self {
        Self {
            name: "ideal".to_owned(),
            family: Family::default(),
            cache: Cache::Ideal,
            markers: Markers::default(),
        }
    }
}

impl Pricing {
    /// Prices by name: `ideal`, `automatic`, `breakpoint`, or a model or family of the table.
    ///
    /// # Errors
    /// [`PricesError`] where nothing is so named.
    pub fn named(name: &str) -> Result<Self, PricesError> {
        let anthropic = || Models::builtin().family("claude-opus-4-6");
        let (family, cache) = match name {
            "ideal" | "default" => (Family::default(), Cache::Ideal),
            "automatic" => (Family::default(), Cache::Provider(CacheModel::default())),
            "breakpoint" => {
                let (known, mut family) = (anthropic(), Family::default());
                family.prices.hour_write = known.prices.hour_write;
                (family, Cache::Provider(known.cache))
            }
            model => {
                let family = Models::builtin().family(model).clone();
                if family.name == Family::default().name {
                    return Err(PricesError(model.to_owned()));
                }
                let cache = Cache::Provider(family.cache);
                (family, cache)
            }
        };
        Ok(Self {
            name: name.to_owned(),
            family: Family {
                cache: match cache {
                    Cache::Ideal => family.cache,
                    Cache::Provider(cache) => cache,
                },
                ..family
            },
            cache,
            markers: Markers::default(),
        })
    }

    /// What a unit of a session is in dollars: a plain input token of the model that these prices are of,
    /// or else of the model that the session was recorded with. None if no price of it is known.
    #[must_use]
    pub fn unit(&self, recorded: &str) -> Option<f64> {
        let named = self.family.name != Family::default().name;
        let prices = if named {
            &self.family.prices
        } else {
            &Models::builtin().family(recorded).prices
        };
        plimsoll_tokens::Cost::usd(1.0, prices)
    }
}

/// One request as a cache sees it, in tokens.
#[derive(Clone, Debug)]
pub struct Asked {
    /// All of it.
    pub total: u64,
    /// Tools, and the system messages at the front.
    pub prologue: u64,
    /// What it has in common with the request before, at the front.
    pub common: u64,
    /// Messages in all, and those that are common.
    pub messages: (usize, usize),
    /// What stands before each breakpoint that the proxy sets: tokens and messages.
    pub marked: Vec<(u64, usize)>,
    /// When it is sent, in milliseconds; 0 where that was not recorded.
    pub now: u64,
    /// How long it asks to keep it.
    pub cached_for: CachedFor,
}

/// A prefix that a breakpoint cache holds.
#[derive(Clone, Copy, Debug)]
struct CachedPrefix {
    tokens: u64,
    messages: usize,
    /// Until when it is held, and for how long each use keeps it, in milliseconds.
    until: u64,
    kept: u64,
}

/// The cache of one session.
#[derive(Clone, Debug)]
pub struct Meter {
    cache: Cache,
    markers: Markers,
    prices: Prices,
    standing: Vec<CachedPrefix>,
    /// Until when an automatic cache is warm, in milliseconds.
    until: u64,
    /// Input tokens so far that the cache held.
    pub cached: u64,
    /// What was spent so far, in units of one plain input token.
    pub spent: f64,
}

impl Meter {
    /// An empty cache.
    #[must_use]
    pub fn new(pricing: &Pricing) -> Self {
        Self {
            cache: pricing.cache,
            markers: pricing.markers,
            prices: pricing.family.prices,
            standing: Vec::new(),
            until: 0,
            cached: 0,
            spent: 0.0,
        }
    }

    /// Takes in a request.
    pub fn ask(&mut self, asked: &Asked) {
        let read = match self.cache {
            Cache::Ideal => asked.common,
            Cache::Provider(CacheModel::Automatic { step, ttl }) => {
                let cold = asked.now > self.until;
                let kept = asked.cached_for.longest.map_or(ttl, |asked| asked.max(ttl));
                self.until = self.until.max(asked.now.saturating_add(millis(kept)));
                let step = u64::from(step.max(1));
                if cold { 0 } else { asked.common / step * step }
            }
            Cache::Provider(CacheModel::Breakpoints { ttl, look_back, .. }) => {
                let kept = asked.cached_for.longest.unwrap_or(ttl);
                self.breakpoints(asked, millis(kept), look_back)
            }
            Cache::Provider(CacheModel::None) => 0,
        };
        self.cached += read;
        let written = match self.cache {
            Cache::Provider(CacheModel::None) => 0,
            Cache::Ideal | Cache::Provider(_) => asked.total - read,
        };
        self.pay(&Usage {
            prompt: asked.total,
            cached: read,
            cache_write: written,
            hour_write: asked.cached_for.ends_hourly().then_some(written),
            ..Usage::default()
        });
    }

    /// Takes in tokens that the model wrote because of the policy alone.
    pub fn wrote(&mut self, tokens: u64) {
        self.pay(&Usage {
            completion: tokens,
            ..Usage::default()
        });
    }

    /// Takes in a call that read a view from the cache and summed it up, both in tokens.
    pub fn summed_up(&mut self, view: u64, summary: u64) {
        self.cached += view;
        self.pay(&Usage {
            prompt: view,
            cached: view,
            completion: summary,
            ..Usage::default()
        });
    }

    fn pay(&mut self, usage: &Usage) {
        self.spent += plimsoll_tokens::cost(usage, &self.prices).total();
    }

    /// What a cache holds that was written at the breakpoints of requests: the newest of them that
    /// the request still begins with, and that is not too far back from its end.
    fn breakpoints(&mut self, asked: &Asked, kept: u64, look_back: Option<u32>) -> u64 {
        let (messages, common) = asked.messages;
        let alive = |one: &CachedPrefix| one.messages <= common && asked.now <= one.until;
        self.standing.retain(alive);
        let near = |one: &&mut CachedPrefix| {
            let behind = messages - one.messages.min(messages);
            let marked =
                one.tokens == asked.prologue || asked.marked.contains(&(one.tokens, one.messages));
            marked || look_back.is_none_or(|most| behind <= most as usize)
        };
        let hit = self.standing.iter_mut().rev().find(near);
        let read = hit.map_or(0, |one| {
            one.until = asked.now.saturating_add(one.kept);
            one.tokens
        });
        let ours = asked.marked.iter().map(|place| (Markers::Proxy, *place));
        let wanted = [
            (Markers::Prologue, (asked.prologue, 0)),
            (Markers::Tail, (asked.total, messages)),
        ];
        let set = ours.chain(wanted).filter(|(kind, _)| *kind <= self.markers);
        for (_, (tokens, messages)) in set {
            if tokens > 0 && !self.standing.iter().any(|one| one.tokens == tokens) {
                self.standing.push(CachedPrefix {
                    tokens,
                    messages,
                    until: asked.now.saturating_add(kept),
                    kept,
                });
            }
        }
        self.standing.sort_by_key(|one| one.tokens);
        read
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use plimsoll_model::raw::Object;

    /// A session of tools and system (100 tokens) and messages of 50: how many messages each
    /// request has, how many are as before, and when it is sent.
    fn play(name: &str, requests: &[(usize, usize, u64)]) -> Meter {
        let mut meter = Meter::new(&Pricing::named(name).unwrap());
        for (index, (messages, common, now)) in requests.iter().enumerate() {
            let tokens = |messages: usize| 100 + 50 * messages as u64;
            meter.ask(&Asked {
                total: tokens(*messages),
                prologue: 100,
                common: if index == 0 { 0 } else { tokens(*common) },
                messages: (*messages, *common),
                marked: Vec::new(),
                now: *now,
                cached_for: CachedFor::default(),
            });
        }
        meter
    }

    #[test]
    fn what_is_cached_follows_the_model() {
        const MINUTE: u64 = 60_000;
        let grown = [(1, 0, 0), (3, 1, 0), (5, 3, 0)];
        let broken = [(1, 0, 0), (5, 1, 0), (4, 2, 0)];
        let late = [(1, 0, 0), (3, 1, 6 * MINUTE), (5, 3, 90 * MINUTE)];
        let far = [(1, 0, 0), (40, 1, 0), (41, 40, 0)];
        for (name, requests, cached) in [
            ("ideal", grown, 150 + 250),
            ("ideal", broken, 150 + 200),
            ("ideal", late, 150 + 250),
            ("automatic", grown, 128 + 128),
            ("automatic", broken, 128 + 128),
            ("automatic", late, 128),
            ("breakpoint", grown, 150 + 250),
            // The end of the first request is the newest breakpoint that is still a prefix.
            ("breakpoint", broken, 150 + 150),
            ("breakpoint", late, 0),
            // The newest breakpoint lies too far back: only that of the prologue is found.
            ("breakpoint", far, 100 + 2_100),
        ] {
            let meter = play(name, &requests);
            assert_eq!(meter.cached, cached, "{name} {requests:?}");
        }
    }

    /// What asks for an hour is held for one, and its writes cost twice a plain token.
    #[test]
    fn an_hour_is_held_and_paid_for() {
        let request = json!({"cache_control": {"type": "ephemeral", "ttl": "1h"}}).to_string();
        let request = Object::parse(request.as_bytes()).unwrap();
        let hour = CachedFor::of(&request, std::iter::empty());
        for (cached_for, minutes, cached, spent) in [
            (CachedFor::default(), 4, 150, 150.0 * 1.25 + 15.0 + 125.0),
            (CachedFor::default(), 50, 0, 150.0 * 1.25 + 250.0 * 1.25),
            (hour, 50, 150, 150.0 * 2.0 + 15.0 + 200.0),
            (hour, 70, 0, 150.0 * 2.0 + 250.0 * 2.0),
        ] {
            let mut meter = Meter::new(&Pricing::named("breakpoint").unwrap());
            for (total, common, messages, now) in
                [(150, 0, (1, 0), 1), (250, 150, (3, 1), minutes * 60_000)]
            {
                meter.ask(&Asked {
                    total,
                    prologue: 100,
                    common,
                    messages,
                    marked: Vec::new(),
                    now,
                    cached_for,
                });
            }
            assert_eq!(meter.cached, cached, "after {minutes} minutes");
            assert!((meter.spent - spent).abs() < 1e-9, "{}", meter.spent);
        }
    }

    #[test]
    fn the_ideal_cost_is_a_tenth_of_what_is_read_and_a_quarter_more_for_the_rest() {
        let meter = play("ideal", &[(1, 0, 0), (3, 1, 0)]);
        assert!((meter.spent - (1.25 * 150.0 + 0.1 * 150.0 + 1.25 * 100.0)).abs() < 1e-9);
        let mut meter = meter;
        let before = meter.spent;
        meter.summed_up(1_000, 2_000);
        assert!((meter.spent - before - (100.0 + 5.0 * 2_000.0)).abs() < 1e-9);
        meter.wrote(10);
        assert!((meter.spent - before - (10_100.0 + 50.0)).abs() < 1e-9);
    }

    #[test]
    fn unknown_prices_are_refused_in_words() {
        let error = Pricing::named("gold").unwrap_err().to_string();
        assert!(
            error.contains("\"gold\"") && error.contains("breakpoint"),
            "{error}"
        );
        let known = Pricing::named("gpt-5").unwrap();
        assert_ne!(known.family.prices, Prices::default());
    }
}
