//! What a policy came to: sums that add up over sessions and ceilings, and the shares that follow
//! from them. Owns the arithmetic; never measures anything.

use super::over::Over;
use super::passes::PassSizes;
use super::trace::Tools;

/// One number of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The part.
    pub part: u64,
    /// The whole.
    pub whole: u64,
}

impl Share {
    /// The share as a number; of nothing all is kept.
    #[must_use]
    pub fn kept(self) -> f64 {
        if self.whole == 0 {
            1.0
        } else {
            self.part as f64 / self.whole as f64
        }
    }

    /// Takes in another share.
    pub(super) fn add(&mut self, other: Self) {
        self.part += other.part;
        self.whole += other.whole;
    }

    /// The Wilson score interval of 95 % around the share.
    #[must_use]
    pub fn wilson(self) -> (f64, f64) {
        const Z: f64 = 1.959_963_984_540_054;
        if self.whole == 0 {
            return (0.0, 1.0);
        }
        let (n, p) = (self.whole as f64, self.kept());
        let middle = p + Z * Z / (2.0 * n);
        let spread = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        let low = (middle - spread) / scale;
        let high = (middle + spread) / scale;
        (low.clamp(0.0, 1.0), high.clamp(0.0, 1.0))
    }
}

/// Sums over requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Answers of the recording, each asked for by one request.
    pub requests: u64,
    /// Requests on top of them that the policy made: hops of annotations alone, and summaries.
    pub extra: u64,
    /// Tokens of all requests.
    pub sent: u64,
    /// Tokens of the largest.
    pub peak: u64,
    /// Requests above the ceiling.
    pub over: u64,
    /// Sum of 1 − |C′|/|C| over the requests whose untouched size |C| was above the ceiling.
    pub pruned: f64,
    /// How many those are.
    pub prunable: u64,
    /// Passes.
    pub passes: u64,
    /// Passes that stopped above the floor.
    pub shallow: u64,
    /// Those that were the third of their kind within ten turns, all three with the ceiling met.
    pub runs: u64,
    /// Passes after which nothing was missed that they took out of view.
    pub harmless: u64,
    /// Requests that did not extend the one before them.
    pub breaks: u64,
    /// Input tokens that the cache held.
    pub cached: u64,
    /// Input and what the policy had the model write, in units of one plain input token.
    pub cost: f64,
    /// What of that are thoughts that the lab has made up, as the model's output.
    pub thinking: f64,
    /// The cost in dollars, of sessions whose price is known.
    pub usd: f64,
    /// What of `cost` is of sessions whose price is not known.
    pub unpriced: f64,
    /// Distinctive strings that calls needed of what was said before, and those still visible.
    pub visible: Share,
    /// Those strings, and those of them visible or named in the view by an item or its episode.
    pub recoverable: Share,
    /// Lines that calls needed of what was said before, and those still visible.
    pub lines: Share,
    /// Passages that answers repeat of what was said before, and those still visible, each by its weight
    /// in thousandths.
    pub passages: Share,
    /// Calls that were made again though an evicted one had the same name and arguments.
    pub refetches: u64,
    /// Tokens that were thought, and those of them that passes took out of view.
    pub thoughts: Share,
    /// Time of the policy's part of all requests, in nanoseconds.
    pub nanos: u64,
}

impl Outcome {
    /// Takes in another session or ceiling.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.extra += other.extra;
        self.sent += other.sent;
        self.peak = self.peak.max(other.peak);
        self.over += other.over;
        self.pruned += other.pruned;
        self.prunable += other.prunable;
        self.passes += other.passes;
        self.shallow += other.shallow;
        self.runs += other.runs;
        self.harmless += other.harmless;
        self.breaks += other.breaks;
        self.cached += other.cached;
        self.cost += other.cost;
        self.thinking += other.thinking;
        self.usd += other.usd;
        self.unpriced += other.unpriced;
        self.visible.add(other.visible);
        self.recoverable.add(other.recoverable);
        self.lines.add(other.lines);
        self.passages.add(other.passages);
        self.refetches += other.refetches;
        self.thoughts.add(other.thoughts);
        self.nanos += other.nanos;
    }

    /// Takes in what a unit is in dollars.
    pub fn price(&mut self, unit: Option<f64>) {
        (self.usd, self.unpriced) = match unit {
            Some(unit) => (self.cost * unit, 0.0),
            None => (0.0, self.cost),
        };
    }

    /// The cost in dollars. None if a price is missing.
    #[must_use]
    pub fn dollars(&self) -> Option<f64> {
        (self.unpriced <= 0.0).then_some(self.usd)
    }

    /// The mean share that was pruned of requests that would have been above the ceiling.
    #[must_use]
    pub fn prune_rate(&self) -> f64 {
        if self.prunable == 0 {
            0.0
        } else {
            self.pruned / self.prunable as f64
        }
    }

    /// The mean size of what was sent, in tokens.
    #[must_use]
    pub fn mean_view(&self) -> f64 {
        self.sent as f64 / (self.requests + self.extra).max(1) as f64
    }

    /// The cached share of the input.
    #[must_use]
    pub fn cached_share(&self) -> f64 {
        if self.sent == 0 {
            0.0
        } else {
            self.cached as f64 / self.sent as f64
        }
    }

    /// Passes after which nothing was missed that they took, of all passes.
    #[must_use]
    pub fn no_impact(&self) -> Share {
        Share {
            part: self.harmless,
            whole: self.passes,
        }
    }

    /// The mean time of the policy's part of a request, in microseconds.
    #[must_use]
    pub fn micros(&self) -> f64 {
        let requests = (self.requests + self.extra).max(1);
        self.nanos as f64 / 1000.0 / requests as f64
    }
}

/// One request in the order of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Tokens of what the client sent.
    pub client: u64,
    /// Tokens of what was sent on, in the largest of the turn's hops.
    pub sent: u64,
    /// Whether a pass was made before one of them.
    pub passed: bool,
}

/// One policy at one ceiling on one session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyRun {
    /// The ceiling.
    pub ceiling: u32,
    /// The figures.
    pub outcome: Outcome,
    /// One point a request.
    pub series: Vec<Point>,
    /// Requests above the ceiling, in order.
    pub over: Vec<Over>,
    /// Passes in order.
    pub passes: Vec<PassSizes>,
}

/// One policy on one session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// The policy's name.
    pub policy: String,
    /// One for each ceiling.
    pub runs: Vec<PolicyRun>,
}

impl Played {
    /// The sum over the ceilings.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let mut sum = Outcome::default();
        self.runs.iter().for_each(|run| sum.add(&run.outcome));
        sum
    }
}

/// All policies on one session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionOutcome {
    /// The session's name.
    pub name: String,
    /// The model that it was recorded with.
    pub model: String,
    /// What a unit is in dollars, if that is known.
    pub unit: Option<f64>,
    /// Tokens of its texts, tool names and arguments, reasoning left out.
    pub tokens: u64,
    /// Where its tools come from.
    pub tools: Tools,
    /// In the order that was asked for.
    pub policies: Vec<Played>,
}

/// All policies on all sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The sessions in the order of their files.
    pub sessions: Vec<SessionOutcome>,
    /// Sessions that were left out because they are too short.
    pub short: usize,
}

impl Report {
    /// Each policy by name with its sum over sessions and ceilings.
    #[must_use]
    pub fn policies(&self) -> Vec<(&str, Outcome)> {
        self.sums(Played::outcome)
    }

    /// Each policy by name with its sum over sessions at one of the ceilings, by its place.
    #[must_use]
    pub fn policies_at(&self, ceiling: usize) -> Vec<(&str, Outcome)> {
        self.sums(|played| {
            let run = played.runs.get(ceiling);
            run.map(|run| run.outcome).unwrap_or_default()
        })
    }

    fn sums(&self, of: impl Fn(&Played) -> Outcome) -> Vec<(&str, Outcome)> {
        let mut sums: Vec<(&str, Outcome)> = Vec::new();
        for played in self.sessions.iter().flat_map(|session| &session.policies) {
            let outcome = of(played);
            match sums.iter_mut().find(|(name, _)| *name == played.policy) {
                Some((_, sum)) => sum.add(&outcome),
                None => sums.push((&played.policy, outcome)),
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        for (part, whole, low, high) in [
            (0, 0, 0.0, 1.0),
            (0, 10, 0.0, 0.2775),
            (10, 10, 0.7225, 1.0),
            (5, 10, 0.2366, 0.7634),
            (81, 263, 0.2553, 0.3662),
        ] {
            let (found_low, found_high) = Share { part, whole }.wilson();
            assert!(
                (found_low - low).abs() < 5e-5,
                "{part}/{whole}: {found_low}"
            );
            assert!(
                (found_high - high).abs() < 5e-5,
                "{part}/{whole}: {found_high}"
            );
        }
    }

    #[test]
    fn sums_keep_the_largest_peak_and_weigh_shares() {
        let one = |peak, part, whole, pruned| Outcome {
            peak,
            visible: Share { part, whole },
            pruned,
            prunable: u64::from(pruned > 0.0),
            ..Outcome::default()
        };
        let mut sum = one(7, 1, 1, 0.5);
        sum.add(&one(5, 0, 3, 0.0));
        assert_eq!((sum.peak, sum.visible.kept()), (7, 0.25));
        assert_eq!(sum.prune_rate(), 0.5);
        assert_eq!(Outcome::default().prune_rate(), 0.0);
        assert_eq!(Outcome::default().visible.kept(), 1.0);
    }

    #[test]
    fn a_sum_with_a_part_without_a_price_is_none_in_dollars() {
        let one = |cost, unit| {
            let mut one = Outcome {
                cost,
                ..Outcome::default()
            };
            one.price(unit);
            one
        };
        let mut sum = one(4e6, Some(5e-6));
        sum.add(&one(1e6, Some(1e-6)));
        assert_eq!(sum.dollars(), Some(21.0));
        sum.add(&one(2e6, None));
        assert_eq!(sum.dollars(), None);
        assert_eq!((sum.usd, sum.unpriced), (21.0, 2e6));
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_share(whole in 1_u64..5_000, part in 0_u64..5_000) {
            let share = Share { part: part.min(whole), whole };
            let (low, high) = share.wilson();
            prop_assert!(low <= share.kept() + 1e-12 && share.kept() <= high + 1e-12);
        }
    }
}
