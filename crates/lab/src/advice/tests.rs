//! Tests of `advice`.

use super::super::outcome::Share;
use super::*;

fn cell(ceiling: u32, floor: Floor, cost: f64, kept: u64, passes: u64) -> Cell {
    let share = Share {
        part: kept,
        whole: 1_000,
    };
    Cell {
        ceiling,
        floor,
        outcome: Outcome {
            requests: 100,
            cost,
            passes,
            visible: share,
            lines: share,
            recoverable: share,
            ..Outcome::default()
        },
    }
}

fn surface(passes: u64) -> Surface {
    Surface {
        cells: vec![
            cell(30_000, Floor::Auto, 4e6, 950, passes),
            cell(40_000, Floor::Fraction(0.6), 5e6, 990, passes),
            cell(80_000, Floor::Fraction(0.9), 8e6, 994, passes),
        ],
        untouched: cell(4_000, Floor::Auto, 1e7, 1_000, 0).outcome,
        sessions: 3,
        short: 2,
        models: Vec::new(),
    }
}

#[test]
fn the_choice_is_told_with_its_reason_and_its_lines() {
    let text = text(&surface(7), "ideal");
    for words in [
        "3 sessions (2 shorter ones left out); sent whole: 10.00. Prices: ideal.",
        "Take a budget of 40000 with floor 0.6: of 3 settings",
        "the best (0.9940 at a budget of 80000 with floor 0.9)",
        "costs 0.50 × sending everything, with 7 passes, and shows 0.9900",
        "The cheapest, a budget of 30000 with floor auto, would save another 20.0%, and lose 0.0400",
        "would cost 60.0% more for 0.0040 of K",
        "[budget]\ntokens = 40000\nfloor = 0.6\n",
    ] {
        assert!(text.contains(words), "{words} not in {text}");
    }
    let rows: Vec<&str> = text.lines().take(4).collect();
    let signs: Vec<char> = rows.iter().filter_map(|row| row.chars().next()).collect();
    assert_eq!(signs, [' ', '*', '→', '*'], "{text}");
}

#[test]
fn what_was_never_evicted_is_no_ground_for_a_choice() {
    let idle = surface(0);
    let text = text(&idle, "ideal");
    assert!(text.contains("stay with the defaults"), "{text}");
    assert!(!text.contains("[budget]"), "{text}");
    assert_eq!(json(&idle, "ideal")["recommended"], Value::Null);
}

#[test]
fn doubts_are_said() {
    let mut dear = surface(7);
    dear.untouched.cost = 1e6;
    dear.cells
        .iter_mut()
        .for_each(|cell| cell.outcome.over = 50);
    let text = text(&dear, "ideal");
    assert!(
        text.contains("Sending everything is cheaper still"),
        "{text}"
    );
    assert!(text.contains("No setting held its budget"), "{text}");
}

#[test]
fn lines_can_be_pasted() {
    for (floor, line) in [
        (Floor::Auto, "floor = \"auto\""),
        (Floor::Ceiling, "floor = \"budget\""),
        (Floor::Fraction(0.7), "floor = 0.7"),
    ] {
        let lines = lines(&cell(40_000, floor, 1.0, 1, 1));
        assert!(
            lines.ends_with(&format!("tokens = 40000\n{line}\n")),
            "{lines}"
        );
        assert!(toml::from_str::<toml::Table>(&lines).is_ok());
    }
}

#[test]
fn json_has_every_setting() {
    let value = json(&surface(7), "ideal");
    assert_eq!(value["settings"].as_array().map(Vec::len), Some(3));
    assert_eq!(value["settings"][1]["retention_visible"], 0.99);
    assert_eq!(
        value["recommended"],
        json!({"budget": 40_000, "floor": 0.6})
    );
    assert_eq!(value["thrifty"]["floor"], "auto");
}
