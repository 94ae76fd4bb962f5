//! Whether a pass at a new user message pays, and whether the work that follows it would reach the ceiling. There a
//! pass interrupts no work. Pure arithmetic on what the session has shown so far. Never makes a pass.

use super::Growth;

/// What is known of a session when a new user message arrives.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The size of the view, in tokens.
    pub size: u64,
    /// Requests so far, this one included.
    pub requests: usize,
    /// New user messages so far, this one included.
    pub boundaries: usize,
}

/// What a pass would leave of a view, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// The size of the view behind it.
    pub size: u64,
    /// How much at the front it leaves as it was.
    pub cut: u64,
}

/// What a pass at a new user message saves by the next pass, in plain tokens: `N·(C − C′)·r − (C′ − cut)(w − r)`, less
/// the thoughts that it ends (paper 003, *Recoverability and Cache-Aware Commit*). Negative where it costs. N is the
/// session's own: as many requests as there were so far, and no more than there are until the ceiling forces a pass
/// anyway. `None` while the session's growth is not known.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^52"
)]
pub fn saves(moment: &Moment, after: Passed, growth: &Growth) -> Option<f64> {
    let per_turn = growth.per_turn.filter(|delta| *delta > 0.0)?;
    let left = growth.ceiling.saturating_sub(moment.size) as f64 / per_turn;
    let requests = left.min(moment.requests as f64);
    let freed = moment.size.saturating_sub(after.size) as f64;
    let written = after.size.saturating_sub(after.cut) as f64;
    let breaks = written * (growth.write - growth.read).max(0.0);
    Some(requests * freed * growth.read - breaks - growth.thoughts)
}

/// Whether the work until the next new user message would reach the ceiling, if it is as long as the work before it
/// was on average. `false` before there was any, and while the session's growth is not known.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^52"
)]
pub fn reaches(moment: &Moment, growth: &Growth) -> bool {
    let Some(per_turn) = growth.per_turn else {
        return false;
    };
    let before = moment.boundaries.saturating_sub(1);
    if before == 0 {
        return false;
    }
    let requests = moment.requests.saturating_sub(1) as f64 / before as f64;
    moment.size as f64 + requests * per_turn > growth.ceiling as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth() -> Growth {
        Growth {
            ceiling: 80_000,
            protected: 10_000,
            per_turn: Some(1_000.0),
            read: 0.1,
            write: 1.25,
            thoughts: 0.0,
        }
    }

    fn moment(size: u64, requests: usize, boundaries: usize) -> Moment {
        Moment {
            size,
            requests,
            boundaries,
        }
    }

    fn saves_of(moment: Moment, growth: &Growth) -> f64 {
        let after = Passed {
            size: 40_000,
            cut: 10_000,
        };
        saves(&moment, after, growth).unwrap()
    }

    #[test]
    fn a_pass_pays_by_what_is_not_read_until_the_ceiling() {
        // 20 requests that read 20,000 tokens less, for 30,000 that are written again.
        let paid = saves_of(moment(60_000, 50, 3), &growth());
        assert!((paid - (20.0 * 20_000.0 * 0.1 - 30_000.0 * 1.15)).abs() < 1e-6);
        // A young session is expected to be short.
        let young = saves_of(moment(60_000, 10, 3), &growth());
        assert!((young - (10.0 * 20_000.0 * 0.1 - 30_000.0 * 1.15)).abs() < 1e-6);
        // At the ceiling the next pass comes at once, and this one saves nothing.
        assert!(saves_of(moment(80_000, 50, 3), &growth()) < 0.0);
    }

    #[test]
    fn a_provider_that_discounts_nothing_always_pays_and_thoughts_count_against() {
        let plain = Growth {
            read: 1.0,
            write: 1.0,
            ..growth()
        };
        assert!(saves_of(moment(60_000, 2, 2), &plain) > 0.0);
        let bound = Growth {
            thoughts: 1e6,
            ..plain
        };
        assert!(saves_of(moment(60_000, 2, 2), &bound) < 0.0);
    }

    #[test]
    fn the_forecast_is_the_sessions_own() {
        // 40 requests in two stretches of work: the third is expected to take 20 more.
        assert!(reaches(&moment(61_000, 41, 3), &growth()));
        assert!(!reaches(&moment(59_000, 41, 3), &growth()));
        // The first message says nothing of how long work takes.
        assert!(!reaches(&moment(79_000, 41, 1), &growth()));
        let unknown = Growth {
            per_turn: None,
            ..growth()
        };
        assert!(!reaches(&moment(79_000, 41, 3), &unknown));
        let after = Passed { size: 1, cut: 0 };
        assert_eq!(saves(&moment(79_000, 41, 3), after, &unknown), None);
    }
}
