//! Tests of `tune`.

use proptest::prelude::*;

use super::super::outcome::Share;
use super::*;

/// A surface of settings: ceiling, cost, strings kept of a thousand, requests over of a
/// thousand.
fn surface(cells: &[(u32, f64, u64, u64)]) -> Surface {
    let cell = |(ceiling, cost, kept, over): &(u32, f64, u64, u64)| Cell {
        ceiling: *ceiling,
        floor: Floor::Auto,
        outcome: Outcome {
            requests: 1_000,
            passes: 1,
            over: *over,
            cost: *cost,
            visible: Share {
                part: *kept,
                whole: 1_000,
            },
            ..Outcome::default()
        },
    };
    Surface {
        cells: cells.iter().map(cell).collect(),
        ..Surface::default()
    }
}

#[test]
fn the_knee_is_the_cheapest_that_keeps_nearly_all() {
    for (what, cells, knee, thrifty, safe) in [
        (
            "a knee in the middle",
            &[
                (20, 10.0, 930, 0),
                (40, 14.0, 991, 0),
                (80, 20.0, 995, 0),
                (120, 30.0, 996, 0),
            ][..],
            1,
            0,
            3,
        ),
        (
            "just out of reach",
            &[(20, 10.0, 930, 0), (40, 14.0, 990, 0), (80, 20.0, 996, 0)],
            2,
            0,
            2,
        ),
        (
            "a higher budget that costs more and keeps less",
            &[(40, 14.0, 991, 0), (80, 20.0, 985, 0)],
            0,
            0,
            0,
        ),
        (
            "a budget that is not held is no bargain",
            &[(20, 5.0, 999, 51), (40, 14.0, 991, 50)],
            1,
            1,
            1,
        ),
        (
            "unless none is",
            &[(20, 5.0, 999, 51), (40, 14.0, 991, 52)],
            0,
            0,
            0,
        ),
        (
            "of equals the lower budget",
            &[(20, 5.0, 999, 0), (40, 5.0, 999, 0)],
            0,
            0,
            0,
        ),
    ] {
        let advice = surface(cells).advice().unwrap();
        let found = (advice.knee, advice.thrifty, advice.safe);
        assert_eq!(found, (knee, thrifty, safe), "{what}");
    }
    assert_eq!(surface(&[]).advice(), None);
}

#[test]
fn the_front_bends_where_money_begins_to_buy_less() {
    let cells = [
        (20, 10.0, 900, 0),
        (40, 12.0, 960, 0),
        (80, 20.0, 980, 0),
        (120, 30.0, 1_000, 0),
    ];
    assert_eq!(surface(&cells).advice().unwrap().bend, 1);
    assert_eq!(surface(&cells[..1]).advice().unwrap().bend, 0);
}

#[test]
fn ceilings_follow_the_long_sessions() {
    for (sizes, expect) in [
        (
            &[150_000; 4][..],
            &[30_000, 45_000, 60_000, 80_000, 110_000][..],
        ),
        (&[50_000], &[10_000, 15_000, 20_000, 28_000, 38_000]),
        (&[5_000, 9_000], &[8_000]),
        (
            &[10_000, 20_000, 30_000, 90_000],
            &[18_000, 27_000, 36_000, 50_000, 68_000, 80_000],
        ),
        (&[], &[8_000]),
    ] {
        assert_eq!(ceilings(sizes), expect, "{sizes:?}");
    }
}

proptest! {
    #[test]
    fn ceilings_rise_and_can_be_served(sizes in prop::collection::vec(1_u64..3_000_000, 1..40)) {
        let ceilings = ceilings(&sizes);
        prop_assert!(ceilings.is_sorted_by(|a, b| a < b));
        prop_assert!(ceilings.iter().all(|ceiling| *ceiling >= MIN_CEILING));
    }

    #[test]
    fn advice_lies_on_the_front(cells in prop::collection::vec((1_u32..99, 1.0..9.0_f64, 0_u64..=1_000), 1..30)) {
        let cells: Vec<_> = cells.into_iter().map(|(t, cost, kept)| (t, cost, kept, 0)).collect();
        let surface = surface(&cells);
        let (advice, front) = (surface.advice().unwrap(), surface.front());
        for at in [advice.knee, advice.thrifty, advice.safe, advice.bend] {
            prop_assert!(front.contains(&at));
        }
        let cost = |at: usize| surface.cells[at].outcome.cost;
        prop_assert!(cost(advice.thrifty) <= cost(advice.knee));
        prop_assert!(cost(advice.knee) <= cost(advice.safe));
    }
}
