//! How full something is with what is sent: the model's window (paper 004 §4.2), or the ceiling.
//! Never starts a pass.

use plimsoll_model::label_set;

label_set!(
    /// How full a window or a budget is.
    #[derive(PartialOrd, Ord)]
    Zone {
        /// There is room.
        Green => "green",
        /// Little is left.
        Yellow => "yellow",
        /// Nearly nothing is left.
        Red => "red",
    }
);

impl Zone {
    /// The zone of so many tokens in a model's window, both in tokens: yellow from 0.7 of it on, and
    /// red from 0.85 (paper 004 §4.2). A window of 0 is red.
    #[must_use]
    pub const fn of_window(tokens: u64, window: u64) -> Self {
        Self::of(tokens, window, 70, 85)
    }

    /// The zone of so many tokens under a ceiling, both in tokens: yellow from 0.75 of it on, and red
    /// from 0.9. These lie above the default floor of 0.7, so a session is green after a pass and goes
    /// through yellow and red until the next. Under a ceiling of 0 every view is red.
    #[must_use]
    pub const fn of_ceiling(tokens: u64, ceiling: u64) -> Self {
        Self::of(tokens, ceiling, 75, 90)
    }

    /// The limits are in hundredths.
    const fn of(tokens: u64, whole: u64, yellow: u128, red: u128) -> Self {
        let (tokens, whole) = (tokens as u128 * 100, whole as u128);
        if tokens < whole * yellow {
            Self::Green
        } else if tokens < whole * red {
            Self::Yellow
        } else {
            Self::Red
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_the_limits_of_the_paper() {
        for (tokens, zone) in [
            (0, Zone::Green),
            (89_599, Zone::Green),
            (89_600, Zone::Yellow),
            (108_799, Zone::Yellow),
            (108_800, Zone::Red),
            (u64::MAX, Zone::Red),
        ] {
            assert_eq!(Zone::of_window(tokens, 128_000), zone, "{tokens}");
        }
        assert_eq!(Zone::of_window(0, 0), Zone::Red);
    }

    #[test]
    fn ceilings_have_limits_above_the_floor() {
        for (tokens, ceiling, zone) in [
            (0, 80_000, Zone::Green),
            (59_999, 80_000, Zone::Green),
            (60_000, 80_000, Zone::Yellow),
            (71_999, 80_000, Zone::Yellow),
            (72_000, 80_000, Zone::Red),
            (90_000, 80_000, Zone::Red),
            (0, 0, Zone::Red),
            (u64::MAX, u64::MAX, Zone::Red),
        ] {
            assert_eq!(
                Zone::of_ceiling(tokens, ceiling),
                zone,
                "{tokens} of {ceiling}"
            );
        }
    }
}
