//! How full a model's window is (paper 004 §4.2). Never looks at the ceiling, which has zones of its
//! own in headers.

use crate::model::label_set;

label_set!(
    /// How full the window is with what is sent.
    #[derive(PartialOrd, Ord)]
    WindowZone {
        /// Below 0.7 of it.
        Green => "green",
        /// From 0.7 to below 0.85 of it.
        Yellow => "yellow",
        /// From 0.85 of it on.
        Red => "red",
    }
);

impl WindowZone {
    /// The zone of so many tokens in a window, both in tokens. A window of 0 is full.
    #[must_use]
    pub const fn of(tokens: u64, window: u64) -> Self {
        let (tokens, window) = (tokens as u128, window as u128);
        if tokens * 10 < window * 7 {
            Self::Green
        } else if tokens * 20 < window * 17 {
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
    fn the_limits_are_the_papers() {
        for (tokens, zone) in [
            (0, WindowZone::Green),
            (89_599, WindowZone::Green),
            (89_600, WindowZone::Yellow),
            (108_799, WindowZone::Yellow),
            (108_800, WindowZone::Red),
            (u64::MAX, WindowZone::Red),
        ] {
            assert_eq!(WindowZone::of(tokens, 128_000), zone, "{tokens}");
        }
        assert_eq!(WindowZone::of(0, 0), WindowZone::Red);
    }
}
