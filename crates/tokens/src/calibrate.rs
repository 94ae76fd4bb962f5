//! How far the estimate of a prompt differs from what the provider reports.
//!
//! Owns one ratio and its limits. Never decides which report to use: that is the newest on the
//! path, so that restarts and replicas agree.

/// The smallest ratio. A smaller one shows that the report is about something else.
pub const MIN_RATIO: f64 = 0.7;
/// The largest ratio.
pub const MAX_RATIO: f64 = 2.0;

/// `reported / estimated` prompt tokens of one hop, clamped to [`MIN_RATIO`]..=[`MAX_RATIO`]. It is 1.0 if
/// either is 0, which means that there is no report yet. The budget is compared with estimate ×
/// ratio. The borders of segments never depend on it.
#[must_use]
pub fn ratio(reported: u64, estimated: u64) -> f64 {
    if reported == 0 || estimated == 0 {
        return 1.0;
    }
    (reported as f64 / estimated as f64).clamp(MIN_RATIO, MAX_RATIO)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ratios() {
        for (reported, estimated, expected) in [
            (0, 0, 1.0),
            (0, 500, 1.0),
            (500, 0, 1.0),
            (1000, 1000, 1.0),
            (1200, 1000, 1.2),
            (100, 1000, MIN_RATIO),
            (9000, 1000, MAX_RATIO),
        ] {
            assert_eq!(
                ratio(reported, estimated),
                expected,
                "{reported} over {estimated}"
            );
        }
    }

    proptest! {
        #[test]
        fn always_within_the_clamp_and_rising(estimated: u64, low: u64, more: u64) {
            let (low, high) = (low.max(1), low.max(1).saturating_add(more));
            let (less, more) = (ratio(low, estimated), ratio(high, estimated));
            prop_assert!((MIN_RATIO..=MAX_RATIO).contains(&less) && (MIN_RATIO..=MAX_RATIO).contains(&more));
            prop_assert!(less <= more);
        }
    }
}
