//! Tests of `settings`.

use super::*;

#[test]
fn a_window_holds_the_ceiling_and_what_follows_from_it() {
    let tokens = |tokens| Some(AskedBudget::Tokens(tokens));
    let share = Some(AskedBudget::WindowShare(0.5));
    for (asked, window, ceiling, windowed, recent) in [
        (None, None, 80_000, false, 8_000),
        (None, Some(80_000), 80_000, false, 8_000),
        (None, Some(8_192), 8_192, true, 1_638),
        (None, Some(2_000), 2_000, true, 400),
        (tokens(5_000), Some(8_192), 5_000, false, 1_000),
        (tokens(60_000), Some(8_192), 8_192, true, 1_638),
        (share, Some(20_000), 10_000, false, 2_000),
    ] {
        let overrides = Overrides {
            budget: asked,
            ..Overrides::default()
        };
        let terms = Terms::of(&Settings::default(), &overrides, window, "m").unwrap();
        let found = (terms.ceiling, terms.windowed, terms.protect_recent);
        assert_eq!(found, (ceiling, windowed, recent), "{asked:?} {window:?}");
    }
}

#[test]
fn a_parted_window_holds_the_ceiling_without_its_reserve() {
    let parted = Settings {
        partitions: Partitions {
            allocated: [0.5, 0.15, 0.1, 0.05],
            reserve: 0.15,
            margin: 0.05,
        },
        ..Settings::default()
    };
    let of = |window| Terms::of(&parted, &Overrides::default(), window, "m").unwrap();
    assert_eq!(of(Some(50_000)).ceiling, 40_000);
    assert!(of(Some(50_000)).windowed);
    assert_eq!(of(Some(200_000)).ceiling, 80_000, "the budget is lower");
    assert_eq!(of(None).ceiling, 80_000, "no window is known");
}
