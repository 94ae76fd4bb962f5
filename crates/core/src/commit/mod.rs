//! Decides when a pass may happen (design §6): forced at the ceiling, free while the provider's
//! cache is cold, and at a new user message where that pays. Also decides how deep it goes. Pure:
//! the time is an argument. Never chooses what is evicted.

pub mod moments;

use plimsoll_model::label_set;

/// How deep a pass evicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Floor {
    /// The highest floor whose cost is within a tenth of the cost at the lowest.
    Auto,
    /// The paper's behaviour: just below the ceiling.
    Ceiling,
    /// A fraction of the ceiling.
    Fraction(f64),
}

/// Settings of the floor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloorSettings {
    /// How deep a pass evicts.
    pub floor: Floor,
    /// The lowest floor that `Auto` may choose, as a fraction of the ceiling.
    pub min_floor: f64,
}

impl Default for FloorSettings {
    fn default() -> Self {
        Self {
            floor: Floor::Auto,
            min_floor: 0.5,
        }
    }
}

label_set!(
    /// What started a pass.
    #[derive(Hash)]
    Trigger {
        /// The view would exceed the ceiling.
        Ceiling => "budget",
        /// The provider's cache is cold, so that a pass is free.
        Cold => "cold",
        /// The guidance comes in and rewrites the prefix, so that a pass is free.
        Guidance => "guidance",
        /// The upstream refused the view as too long.
        Emergency => "emergency",
        /// An operator asked for it.
        Asked => "asked",
        /// A new user message has come, and the arithmetic says that a pass there pays.
        Boundary => "boundary",
        /// A new user message has come, and the work that follows is expected to reach the ceiling.
        Forecast => "forecast",
    }
);

/// What is known of a session when its floor is chosen, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// The ceiling.
    pub ceiling: u64,
    /// What no pass can evict at the front: system, tools, the first user turns.
    pub protected: u64,
    /// Tokens that the session gains each turn; none with fewer than eight turns of data.
    pub per_turn: Option<f64>,
    /// Price of a token read from the cache, relative to a plain one.
    pub read: f64,
    /// Price of a token written to the cache, relative to a plain one.
    pub write: f64,
    /// What the thoughts are worth that a pass ends, in plain tokens.
    pub thoughts: f64,
}

/// With fewer turns of data `Auto` takes its default.
pub const AUTO_TURNS: usize = 8;
/// The floor of `Auto` before there is enough data.
pub const AUTO_DEFAULT: f64 = 0.7;
/// The chosen floor may cost this many times as much as the lowest. What a pass leaves of items
/// keeps most of what a higher floor would.
const AUTO_SLACK: f64 = 1.1;

/// The floor in tokens.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "token counts are far below 2^52 and fractions lie in 0..=1"
)]
pub fn floor(config: FloorSettings, growth: &Growth) -> u64 {
    let fraction = match config.floor {
        Floor::Ceiling => return growth.ceiling,
        Floor::Fraction(fraction) => fraction,
        Floor::Auto => auto(config.min_floor, growth),
    };
    (growth.ceiling as f64 * fraction.clamp(0.0, 1.0)) as u64
}

fn auto(min_floor: f64, growth: &Growth) -> f64 {
    let Some(per_turn) = growth.per_turn.filter(|delta| *delta > 0.0) else {
        return AUTO_DEFAULT.max(min_floor);
    };
    let limit = cost(min_floor, per_turn, growth) * AUTO_SLACK;
    let steps = (0..).map(|step| 0.95 - 0.01 * f64::from(step));
    steps
        .take_while(|floor| *floor > min_floor)
        .find(|floor| cost(*floor, per_turn, growth) <= limit)
        .unwrap_or(min_floor)
}

/// The input cost for each turn of holding a session between a floor and the ceiling, in plain
/// tokens (design §6): `r(L + nΔ/2) + wΔ + (L − P)(w − r)/n`, and a share of the thoughts that each pass ends.
#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^52"
)]
fn cost(floor: f64, per_turn: f64, growth: &Growth) -> f64 {
    let (high, protected) = (growth.ceiling as f64, growth.protected as f64);
    let low = high * floor;
    let turns = ((high - low) / per_turn).max(1.0);
    growth.read * (low + turns * per_turn / 2.0)
        + growth.write * per_turn
        + ((low - protected).max(0.0) * (growth.write - growth.read) + growth.thoughts) / turns
}

/// What is known of the provider's cache when a request arrives.
#[derive(Clone, Copy, Debug)]
pub struct Warmth {
    /// Now, in milliseconds since 1970.
    pub now: u64,
    /// When the last hop ended; none for a first turn.
    pub last: Option<u64>,
    /// How long the provider keeps a prefix, in milliseconds.
    pub ttl: u64,
    /// Whether the model or the prologue changed after at least three requests with the same.
    pub changed: bool,
}

/// Whether a pass breaks no cached prefix because the cache is cold. A clock that runs backwards
/// never makes it cold.
#[must_use]
pub fn is_cold(warmth: &Warmth) -> bool {
    let idle = warmth.last.map(|last| warmth.now.saturating_sub(last));
    // What is kept for no time at all is never held.
    idle.is_some_and(|idle| idle > warmth.ttl || warmth.ttl == 0 || warmth.changed)
}

/// Whether a pass that is not forced is worth taking: it frees at least a twentieth of the ceiling.
/// A forced pass that can't reach the ceiling is held to the same, so that a session whose user
/// text alone is too long keeps its cache between passes.
#[must_use]
pub fn is_worth(freed: u64, ceiling: u64) -> bool {
    freed * 20 >= ceiling
}

/// Whether a pass while the cache is cold pays for the thoughts that it ends: what it frees need not be written.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^52"
)]
pub fn pays_for_thoughts(freed: u64, write: f64, thoughts: f64) -> bool {
    freed as f64 * write >= thoughts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(per_turn: Option<f64>) -> Growth {
        Growth {
            ceiling: 80_000,
            protected: 10_000,
            per_turn,
            read: 0.1,
            write: 1.25,
            thoughts: 0.0,
        }
    }

    /// The four figures of design §6.
    #[test]
    fn cost_is_the_designs() {
        for (floor, expect) in [
            (0.9, 22_900.0),
            (0.7, 12_000.0),
            (0.5, 9_200.0),
            (0.3, 7_500.0),
        ] {
            let cost = cost(floor, 1500.0, &growth(None));
            assert!((cost - expect).abs() < 100.0, "{floor}: {cost}");
        }
    }

    #[test]
    fn the_auto_floor_is_within_a_tenth_of_the_lowest() {
        let config = FloorSettings::default();
        assert_eq!(floor(config, &growth(None)), 56_000);
        for delta in [100.0, 700.0, 1500.0, 4000.0, 30_000.0] {
            let chosen = floor(config, &growth(Some(delta)));
            assert!((40_000..=76_000).contains(&chosen), "{delta}: {chosen}");
            let fraction = chosen as f64 / 80_000.0;
            let g = growth(Some(delta));
            assert!(cost(fraction - 0.0001, delta, &g) <= cost(0.5, delta, &g) * 1.11);
        }
        assert_eq!(
            floor(
                FloorSettings {
                    floor: Floor::Ceiling,
                    ..config
                },
                &growth(None)
            ),
            80_000
        );
    }

    #[test]
    fn thoughts_that_a_pass_ends_make_passes_deeper_and_free_ones_rarer() {
        let config = FloorSettings {
            min_floor: 0.3,
            ..FloorSettings::default()
        };
        let with = |thoughts| Growth {
            thoughts,
            ..growth(Some(1500.0))
        };
        let chosen = |thoughts| floor(config, &with(thoughts));
        let (none, some, many) = (chosen(0.0), chosen(50_000.0), chosen(500_000.0));
        assert!(none >= some && some > many, "{none} {some} {many}");
        assert!(pays_for_thoughts(0, 1.25, 0.0));
        assert!(pays_for_thoughts(8_000, 1.25, 10_000.0));
        assert!(!pays_for_thoughts(7_999, 1.25, 10_000.0));
    }

    #[test]
    fn only_idleness_or_a_change_makes_the_cache_cold() {
        let warmth = Warmth {
            now: 1000,
            last: Some(900),
            ttl: 500,
            changed: false,
        };
        for (warmth, cold) in [
            (warmth, false),
            (
                Warmth {
                    now: 1500,
                    ..warmth
                },
                true,
            ),
            (
                Warmth {
                    changed: true,
                    ..warmth
                },
                true,
            ),
            (
                Warmth {
                    last: None,
                    changed: true,
                    ..warmth
                },
                false,
            ),
            (Warmth { now: 0, ..warmth }, false),
        ] {
            assert_eq!(is_cold(&warmth), cold, "{warmth:?}");
        }
    }
}
