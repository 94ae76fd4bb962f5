//! The order of eviction over episodes that the agent marked (paper 000 §4.4, design §5).

use super::say::{act, call, done, end, expl, text, think};
use super::sim::{Sim, steps};

/// What leaves the view step by step as the ceiling is lowered by the least that makes a pass.
#[track_caller]
fn check(sim: &Sim, expect: &[&[&str]]) {
    let got = steps(sim);
    let got: Vec<Vec<&str>> = got
        .iter()
        .map(|s| s.iter().map(String::as_str).collect())
        .collect();
    assert_eq!(got, expect);
}

#[test]
fn the_levels_of_an_expl_go_in_order() {
    let mut sim = Sim::new();
    sim.turn([
        think(30),
        text(30),
        expl("a"),
        call("read", 300),
        call("grep", 300),
        call("odd", 2500),
        call("odd", 200),
    ]);
    sim.turn([end("learned it"), call("bash", 50)]);
    sim.turn([text(10)]);
    check(
        &sim,
        &[
            &["think1"],
            &["grep1", "odd1", "=grep1", "=odd1"],
            &["read1", "odd2", "=read1", "=odd2"],
            &["text1"],
            &["=bash1"],
        ],
    );
}
