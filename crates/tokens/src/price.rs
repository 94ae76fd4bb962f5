//! What a hop costs, according to what the provider reported.
//!
//! Owns the arithmetic. Never estimates usage and never knows a price: prices belong to the family,
//! in `config/models.toml`.

use plimsoll_model::Usage;

/// The prices of a family per token, relative to an uncached input token: `plain` is 1.0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// An input token that was neither read from the cache nor written to it. Always 1.0.
    pub plain: f64,
    /// An input token that was read from the cache.
    pub read: f64,
    /// An input token that was written to the cache.
    pub write: f64,
    /// An input token that was written to the cache to be kept for an hour.
    pub hour_write: f64,
    /// An output token, including reasoning.
    pub output: f64,
    /// The price of a million `plain` tokens in US dollars, if it is known.
    pub usd_per_mtok: Option<f64>,
}

impl Default for Prices {
    /// The prices of a model about which nothing is known. They make cache breaks expensive.
    fn default() -> Self {
        Self {
            plain: 1.0,
            read: 0.1,
            write: 1.25,
            hour_write: 1.25,
            output: 5.0,
            usd_per_mtok: None,
        }
    }
}

/// What a hop cost, by kind of token, in units of one plain input token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// For input tokens that were neither read from nor written to the cache.
    pub plain: f64,
    /// For input tokens read from the cache.
    pub read: f64,
    /// For input tokens written to the cache.
    pub write: f64,
    /// For output tokens.
    pub output: f64,
}

impl Cost {
    /// The part that the management of a context can change.
    #[must_use]
    pub fn input(&self) -> f64 {
        self.plain + self.read + self.write
    }

    /// The whole cost, in units of one plain input token.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.input() + self.output
    }

    /// The price of `units` of this family's plain input tokens, in US dollars. `None` if it is not
    /// known.
    #[must_use]
    pub fn usd(units: f64, prices: &Prices) -> Option<f64> {
        prices.usd_per_mtok.map(|price| units * price / 1e6)
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            plain: self.plain + other.plain,
            read: self.read + other.read,
            write: self.write + other.write,
            output: self.output + other.output,
        }
    }
}

/// The cost of a hop. Cached and written tokens are parts of the prompt. If a report says that they
/// exceed it, they are reduced to it, written ones first, so that no token is paid for twice.
#[must_use]
pub fn cost(usage: &Usage, prices: &Prices) -> Cost {
    let read = usage.cached.min(usage.prompt);
    let write = usage.cache_write.min(usage.prompt - read);
    let hour = usage.hour_write.unwrap_or(0).min(write);
    let plain = usage.prompt - read - write;
    Cost {
        plain: plain as f64 * prices.plain,
        read: read as f64 * prices.read,
        write: (write - hour) as f64 * prices.write + hour as f64 * prices.hour_write,
        output: usage.completion as f64 * prices.output,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usage(prompt: u64, cached: u64, cache_write: u64, completion: u64) -> Usage {
        Usage {
            prompt,
            cached,
            cache_write,
            completion,
            reasoning: completion / 2,
            hour_write: None,
        }
    }

    #[test]
    fn kinds_are_priced_apart() {
        let prices = Prices {
            usd_per_mtok: Some(2.0),
            ..Prices::default()
        };
        let cost = cost(&usage(1000, 600, 200, 50), &prices);
        assert_eq!(
            cost,
            Cost {
                plain: 200.0,
                read: 60.0,
                write: 250.0,
                output: 250.0
            }
        );
        assert_eq!(cost.input(), 510.0);
        assert_eq!(Cost::usd(cost.total(), &prices), Some(760.0 * 2.0 / 1e6));
        assert_eq!(Cost::usd(cost.total(), &Prices::default()), None);
    }

    #[test]
    fn what_is_kept_for_an_hour_has_a_price_of_its_own() {
        let prices = Prices {
            hour_write: 2.0,
            ..Prices::default()
        };
        for (hour, expect) in [
            (None, 250.0),
            (Some(0), 250.0),
            (Some(80), 310.0),
            (Some(900), 400.0),
        ] {
            let usage = Usage {
                hour_write: hour,
                ..usage(1000, 600, 200, 0)
            };
            assert_eq!(cost(&usage, &prices).write, expect, "{hour:?}");
        }
    }

    #[test]
    fn a_report_that_exceeds_its_prompt_is_cut_down() {
        let cost = cost(&usage(100, 90, 90, 0), &Prices::default());
        assert_eq!((cost.plain, cost.read, cost.write), (0.0, 9.0, 12.5));
    }

    proptest! {
        /// Input never costs less than all-cached nor more than all-written.
        #[test]
        fn input_lies_between_the_cheapest_and_the_dearest(
            prompt in 0_u64..1 << 40, cached in 0_u64..1 << 40, write in 0_u64..1 << 40,
        ) {
            let prices = Prices::default();
            let input = cost(&usage(prompt, cached, write, 7), &prices).input();
            let prompt = prompt as f64;
            prop_assert!(input >= prompt * prices.read * 0.999_999);
            prop_assert!(input <= prompt * prices.write * 1.000_001);
        }
    }
}
