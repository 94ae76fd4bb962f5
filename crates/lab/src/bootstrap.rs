//! How sure a comparison of two groups of sessions is. The interval of a ratio of sums in each, and of the difference, is
//! that of the percentile bootstrap over sessions (Efron, "Bootstrap methods: another look at the jackknife", 1979).
//! How likely such a difference is by chance is counted over random groups of the same sizes (Fisher's permutation test):
//! where few sessions have anything, a bootstrap says too soon that two groups differ. A session is drawn as a whole, because
//! its turns depend on each other. Never knows what is compared.

use std::array;

use plimsoll_scripted::rng::Rng;

use super::outcome::Share;
use super::sample::shuffle;

/// How many samples are drawn.
pub const SAMPLES: usize = 2_000;
/// How much of them an interval holds.
pub const LEVEL: f64 = 0.99;

/// What a session came to: the sums by which groups are compared.
pub type Sums<const N: usize> = [f64; N];

/// A figure with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure of all sessions.
    pub figure: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end of its interval.
    pub high: f64,
}

/// A figure of two groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The figure of each.
    pub of: [Estimate; 2],
    /// That of the second less that of the first.
    pub difference: Estimate,
    /// The share of random groups of the same sizes that differ at least as much.
    pub chance: f64,
}

impl Compared {
    /// Whether the groups differ: by less than a chance of 1 %, and with an interval that leaves 0 out. The first alone
    /// says so of groups that differ in nothing but their spread, and the second of what few sessions have.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let apart = self.difference.low > 0.0 || self.difference.high < 0.0;
        apart && self.chance < 1.0 - LEVEL
    }
}

impl Estimate {
    /// Of the figure of all sessions, and of each sample. None where any of them is not defined.
    fn new(figure: f64, mut samples: Vec<f64>) -> Option<Self> {
        if !figure.is_finite() || samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        samples.sort_unstable_by(f64::total_cmp);
        let tail = (1.0 - LEVEL) / 2.0;
        Some(Self {
            figure,
            low: quantile(&samples, tail)?,
            high: quantile(&samples, 1.0 - tail)?,
        })
    }
}

/// The sample below which this share of the sorted samples lies.
fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let last = samples.len().checked_sub(1)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a small count"
    )]
    let at = (share * last as f64).round() as usize;
    samples.get(at).copied()
}

/// Compares two groups of sessions by figures, each of them one sum over another: `figures` has the places of both. A
/// figure is none where it can't be told: where fewer than `least` sessions of a group have anything in the lower sum, or
/// that is 0 in a sample. The same sessions give the same intervals.
#[must_use]
pub fn compare<const N: usize>(
    groups: [&[Sums<N>]; 2],
    figures: &[(usize, usize)],
    least: usize,
) -> Vec<Option<Compared>> {
    let mut random = Rng::new(1);
    let samples: Vec<[Sums<N>; 2]> = (0..SAMPLES)
        .map(|_| groups.map(|group| sample(group, &mut random)))
        .collect();
    let others = regrouped(groups, &mut random);
    let whole = groups.map(|group| group.iter().fold([0.0; N], added));
    let compared = |&places: &(usize, usize)| {
        let some = |sums: &&Sums<N>| sums.get(places.1).is_some_and(|under| *under > 0.0);
        let mut counts = groups.iter().map(|group| group.iter().filter(some).count());
        if counts.any(|count| count < least) {
            return None;
        }
        let of: [Vec<f64>; 2] = array::from_fn(|group| {
            let sums = samples.iter().filter_map(|sample| sample.get(group));
            sums.map(|sums| figure(places, sums)).collect()
        });
        let [first_figure, second_figure] = whole.each_ref().map(|sums| figure(places, sums));
        let pairs = of[1].iter().zip(&of[0]);
        let apart = pairs.map(|(second, first)| second - first).collect();
        let [firsts, seconds] = of;
        // A group that has nothing in the lower sum differs as much as can be.
        let apart_by_chance = |[first, second]: &[Sums<N>; 2]| {
            let apart = (figure(places, second) - figure(places, first)).abs();
            apart.is_nan() || apart >= (second_figure - first_figure).abs() * (1.0 - 1e-9)
        };
        let as_far = others.iter().filter(|one| apart_by_chance(one)).count();
        Some(Compared {
            of: [
                Estimate::new(first_figure, firsts)?,
                Estimate::new(second_figure, seconds)?,
            ],
            difference: Estimate::new(second_figure - first_figure, apart)?,
            // The groups as they are count among those that there may be.
            chance: Share {
                part: as_far as u64 + 1,
                whole: SAMPLES as u64 + 1,
            }
            .kept(),
        })
    };
    figures.iter().map(compared).collect()
}

/// One sum over another.
fn figure<const N: usize>((over, under): (usize, usize), sums: &Sums<N>) -> f64 {
    let sum = |at: usize| sums.get(at).copied().unwrap_or(f64::NAN);
    sum(over) / sum(under)
}

/// All sessions in random groups of the same sizes, as often as samples are drawn.
fn regrouped<const N: usize>(groups: [&[Sums<N>]; 2], random: &mut Rng) -> Vec<[Sums<N>; 2]> {
    let mut all: Vec<&Sums<N>> = groups.into_iter().flatten().collect();
    let first = groups.first().map_or(0, |first| first.len());
    let mut grouped = || {
        shuffle(&mut all, random);
        let (first, second) = all.split_at(first);
        [first, second].map(|group| group.iter().copied().fold([0.0; N], added))
    };
    (0..SAMPLES).map(|_| grouped()).collect()
}

/// As many sessions as there are, each drawn from all of them.
fn sample<const N: usize>(group: &[Sums<N>], random: &mut Rng) -> Sums<N> {
    let drawn = (0..group.len()).filter_map(|_| random.pick(group));
    drawn.fold([0.0; N], added)
}

fn added<const N: usize>(mut sums: Sums<N>, one: &Sums<N>) -> Sums<N> {
    for (sum, own) in sums.iter_mut().zip(one) {
        *sum += own;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number from 0 to 1.
    fn unit(random: &mut Rng) -> f64 {
        f64::from(u32::try_from(random.below(1 << 30)).unwrap()) / f64::from(1 << 30)
    }

    /// Sessions of some turns each, of which about this share is expensive.
    fn sessions(count: usize, share: f64, random: &mut Rng) -> Vec<Sums<2>> {
        let one = |random: &mut Rng| {
            // Turns of a session are alike, so sessions differ more than single turns would.
            let turns = u32::try_from(1 + random.below(29)).unwrap();
            let own = share * 2.0 * unit(random);
            let dear = (0..turns).filter(|_| unit(random) < own).count();
            [f64::from(u32::try_from(dear).unwrap()), f64::from(turns)]
        };
        (0..count).map(|_| one(random)).collect()
    }

    fn shares(base: f64, tried: f64, random: &mut Rng) -> Compared {
        let groups = [sessions(200, base, random), sessions(60, tried, random)];
        let [base, tried] = &groups;
        compare([base, tried], &[(0, 1)], 20).remove(0).unwrap()
    }

    #[test]
    fn the_interval_holds_a_known_difference_nearly_always() {
        let mut random = Rng::new(7);
        let mut held = 0;
        for _ in 0..60 {
            let difference = shares(0.3, 0.2, &mut random).difference;
            held += usize::from(difference.low <= -0.1 && -0.1 <= difference.high);
            assert!(difference.low <= difference.figure && difference.figure <= difference.high);
        }
        assert!(held >= 57, "{held} of 60");
    }

    #[test]
    fn a_difference_is_told_and_none_is_not() {
        let mut random = Rng::new(8);
        let large = (0..20).filter(|_| shares(0.4, 0.1, &mut random).is_told());
        assert_eq!(large.count(), 20);
        let none = (0..60).filter(|_| shares(0.3, 0.3, &mut random).is_told());
        assert!(none.count() <= 3);
    }

    #[test]
    fn what_happens_seldom_is_not_told_from_few_sessions() {
        let mut random = Rng::new(9);
        // In one session of twenty-five, in both groups: the smaller one has often none at all.
        let some = |count: usize, random: &mut Rng| -> Vec<Sums<2>> {
            let one = |random: &mut Rng| [f64::from(u8::from(unit(random) < 0.04)), 9.0];
            (0..count).map(|_| one(random)).collect()
        };
        let (mut told, mut apart) = (0, 0);
        for _ in 0..60 {
            let groups = [some(180, &mut random), some(20, &mut random)];
            let compared = compare([&groups[0], &groups[1]], &[(0, 1)], 20)
                .remove(0)
                .unwrap();
            told += usize::from(compared.is_told());
            apart += usize::from(compared.difference.high < 0.0);
        }
        assert!(told <= 3, "{told} of 60");
        assert!(apart > 10, "the intervals alone would tell: {apart} of 60");
    }

    #[test]
    fn what_differs_in_its_spread_alone_is_not_told() {
        let mut random = Rng::new(10);
        // A session costs about 1 in both groups: in the smaller one most cost nearly nothing, and a quarter four times it.
        let base = |random: &mut Rng| [0.5 + unit(random), 1.0];
        let tried = |random: &mut Rng| match unit(random) < 0.25 {
            true => [3.9, 1.0],
            false => [0.1 / 3.0, 1.0],
        };
        let (mut told, mut by_chance) = (0, 0);
        for _ in 0..40 {
            let groups: [Vec<Sums<2>>; 2] = [
                (0..300).map(|_| base(&mut random)).collect(),
                (0..40).map(|_| tried(&mut random)).collect(),
            ];
            let compared = compare([&groups[0], &groups[1]], &[(0, 1)], 20)
                .remove(0)
                .unwrap();
            told += usize::from(compared.is_told());
            by_chance += usize::from(compared.chance < 1.0 - LEVEL);
        }
        assert!(told <= 4 && told < by_chance, "{told}, {by_chance} of 40");
    }

    #[test]
    fn what_can_not_be_told_is_none() {
        let some = [[1.0, 0.0], [2.0, 4.0]];
        // A sample may have the first session alone, of which no share of the second sum can be told.
        let compared = compare([&some, &some], &[(0, 1), (1, 0)], 1);
        assert!(compared[0].is_none() && compared[1].is_some());
        assert_eq!(compared, compare([&some, &some], &[(0, 1), (1, 0)], 1));
        assert_eq!(compare([&some, &some], &[(1, 0)], 3), [None]);
        assert_eq!(compare([&some, &[]], &[(1, 0)], 0), [None]);
    }
}
