//! How sure a comparison of two groups of sessions is: the interval of a ratio of sums in each, and of the difference, by
//! the percentile bootstrap over sessions (Efron, "Bootstrap methods: another look at the jackknife", 1979). A session
//! is drawn as a whole, because its turns depend on each other. Never knows what is compared.

use std::array;

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
/// figure is none where it can't be told: where the lower sum is 0 in any sample. The same sessions give the same
/// intervals.
#[must_use]
pub fn compare<const N: usize>(
    groups: [&[Sums<N>]; 2],
    figures: &[(usize, usize)],
) -> Vec<Option<Compared>> {
    let mut random = fastrand::Rng::with_seed(1);
    let samples: Vec<[Sums<N>; 2]> = (0..SAMPLES)
        .map(|_| groups.map(|group| sample(group, &mut random)))
        .collect();
    let whole = groups.map(|group| group.iter().fold([0.0; N], added));
    let figure = |(over, under): (usize, usize), sums: &Sums<N>| {
        let sum = |at: usize| sums.get(at).copied().unwrap_or(f64::NAN);
        sum(over) / sum(under)
    };
    let compared = |&places: &(usize, usize)| {
        let of: [Vec<f64>; 2] = array::from_fn(|group| {
            let sums = samples.iter().filter_map(|sample| sample.get(group));
            sums.map(|sums| figure(places, sums)).collect()
        });
        let [first, second] = whole.each_ref().map(|sums| figure(places, sums));
        let pairs = of[1].iter().zip(&of[0]);
        let apart = pairs.map(|(second, first)| second - first).collect();
        let [firsts, seconds] = of;
        Some(Compared {
            of: [
                Estimate::new(first, firsts)?,
                Estimate::new(second, seconds)?,
            ],
            difference: Estimate::new(second - first, apart)?,
        })
    };
    figures.iter().map(compared).collect()
}

/// As many sessions as there are, each drawn from all of them.
fn sample<const N: usize>(group: &[Sums<N>], random: &mut fastrand::Rng) -> Sums<N> {
    let drawn = (0..group.len()).filter_map(|_| group.get(random.usize(..group.len())));
    drawn.fold([0.0; N], added)
}

fn added<const N: usize>(sums: Sums<N>, one: &Sums<N>) -> Sums<N> {
    array::from_fn(|at| sums[at] + one[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sessions of some turns each, of which about this share is expensive.
    fn sessions(count: usize, share: f64, random: &mut fastrand::Rng) -> Vec<Sums<2>> {
        let one = |random: &mut fastrand::Rng| {
            // Turns of a session are alike, so sessions differ more than single turns would.
            let (turns, own) = (random.u32(1..30), share * 2.0 * random.f64());
            let dear = (0..turns).filter(|_| random.f64() < own).count();
            [f64::from(u32::try_from(dear).unwrap()), f64::from(turns)]
        };
        (0..count).map(|_| one(random)).collect()
    }

    fn shares(base: f64, tried: f64, random: &mut fastrand::Rng) -> Compared {
        let groups = [sessions(200, base, random), sessions(60, tried, random)];
        let [base, tried] = &groups;
        compare([base, tried], &[(0, 1)]).remove(0).unwrap()
    }

    #[test]
    fn the_interval_holds_a_known_difference_nearly_always() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut held = 0;
        for _ in 0..40 {
            let difference = shares(0.3, 0.2, &mut random).difference;
            held += usize::from(difference.low <= -0.1 && -0.1 <= difference.high);
            assert!(difference.low <= difference.figure && difference.figure <= difference.high);
        }
        assert!(held >= 37, "{held} of 40");
    }

    #[test]
    fn a_difference_is_told_and_none_is_not() {
        let mut random = fastrand::Rng::with_seed(8);
        let told = |one: Compared| one.difference.low > 0.0 || one.difference.high < 0.0;
        let large = (0..20).filter(|_| told(shares(0.4, 0.1, &mut random)));
        assert_eq!(large.count(), 20);
        let none = (0..40).filter(|_| told(shares(0.3, 0.3, &mut random)));
        assert!(none.count() <= 2);
    }

    #[test]
    fn what_can_not_be_told_is_none() {
        let some = [[1.0, 0.0], [2.0, 4.0]];
        // A sample may have the first session alone.
        assert_eq!(compare([&some, &some], &[(0, 1)]), [None]);
        assert_eq!(compare([&some, &[]], &[(1, 0)]), [None]);
        let same = compare([&some, &some], &[(1, 1), (1, 0)]);
        assert!(same.iter().all(Option::is_none) || same[1].is_some());
        assert_eq!(
            compare([&some, &some], &[(1, 0)]),
            compare([&some, &some], &[(1, 0)])
        );
    }
}
