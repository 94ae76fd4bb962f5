//! The order of eviction over episodes that the agent marked (paper 000 §4.4, design §5).

use super::say::{Say, act, call, done, end, expl, hop, text};
use super::sim::{Sim, check};
use crate::commit::Floor;

/// Two acts and two expls, the older act standing on the older expl.
fn four() -> Sim {
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([end("of a"), act("b", &["a"]), call("edit", 300)]);
    sim.turn([done(), expl("c"), call("read", 300)]);
    sim.turn([end("of c"), act("d", &[]), call("bash", 300)]);
    sim.turn([done(), text(10)]);
    sim.turn([text(10)]);
    sim
}

#[test]
fn acts_go_before_expls_and_the_oldest_first() {
    check(
        &four(),
        &[
            &["edit1", "=edit1"],
            &["bash1", "=bash1"],
            // It stands in the message that ended the second act.
            &["text1"],
            &["grep1", "=grep1"],
            &["read1", "=read1"],
        ],
    );
}

#[test]
fn an_expl_waits_until_every_act_on_it_is_gone() {
    let mut sim = Sim::finer();
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([end("of a"), expl("b"), call("read", 300)]);
    sim.turn([end("of b"), act("c", &["a"]), call("edit", 300)]);
    sim.turn([call("bash", 300)]);
    sim.turn([call("bash", 1)]);
    // The act is open: until nothing else is left to free it stays but for its results and calls, and so does what
    // it stands on. What it did lasts without its results, so those go before the results of what it stands on.
    check(
        &sim,
        &[
            &["=read1"],
            &["read1"],
            &["=edit1"],
            &["=bash1"],
            &["=grep1"],
            &["edit1"],
            &["bash1"],
            &["grep1"],
        ],
    );
    sim.turn([done(), text(10)]);
    sim.turn([text(10)]);
    check(
        &sim,
        &[
            &["=edit1"],
            &["=bash1"],
            &["=read1"],
            &["edit1"],
            &["bash1"],
            &["bash2", "=bash2"],
            &["text1"],
            &["=grep1"],
            &["grep1"],
            &["read1"],
        ],
    );
}

#[test]
fn an_act_in_the_protected_tail_holds_what_it_stands_on() {
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([end("of a"), act("b", &["a"]), call("edit", 300)]);
    sim.turn([done(), text(1)]);
    sim.turn([call("bash", 10)]);
    sim.settings.budget.protect_recent = crate::turn::settings::ProtectRecent::Tokens(450);
    // Only once the tail is freed may the act go, and the expl after it.
    let (sent, prepared) = sim.look();
    sim.ceiling(prepared.estimate - 1);
    let (after, prepared) = sim.look();
    assert!(prepared.pass.is_some() && sent.gist != after.gist);
    assert!(
        after.gist.contains(&"=grep1".to_owned()),
        "{:#?}",
        after.gist
    );
    assert!(
        !after.gist.contains(&"=edit1".to_owned()),
        "{:#?}",
        after.gist
    );
}

#[test]
fn each_step_is_the_least_that_meets_the_target() {
    let sim = four();
    let (_, all) = sim.look();
    for less in (1..700).step_by(37) {
        let mut low = sim.clone();
        low.ceiling(all.estimate - less);
        let (_, prepared) = low.look();
        // The largest step here is an act of some 450 tokens, so no pass frees much more than it must.
        assert!(prepared.estimate <= all.estimate - less);
        assert!(prepared.estimate + 450 > all.estimate - less, "{less}");
    }
}

#[test]
fn a_pass_goes_down_to_the_floor_in_the_same_order() {
    let mut sim = four();
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 1);
    for (floor, gone) in [
        (0.999, &["edit1"][..]),
        (0.75, &["edit1", "bash1"]),
        (0.5, &["edit1", "bash1", "grep1"]),
    ] {
        sim.settings.budget.floor = Floor::Fraction(floor);
        let (sent, prepared) = sim.look();
        assert!(prepared.estimate <= prepared.floor, "{floor}");
        for label in ["edit1", "bash1", "grep1", "read1"] {
            let stands = sent.gist.iter().any(|shown| shown == label);
            assert_eq!(stands, !gone.contains(&label), "{floor} {label}");
        }
    }
}

#[test]
fn a_lower_floor_breaks_the_prefix_less_often() {
    let passes = |floor: Floor| {
        let mut sim = Sim::new();
        sim.ceiling(2500);
        sim.settings.budget.floor = floor;
        for n in 0..20 {
            sim.turn([expl(&format!("e{n}")), call("grep", 200)]);
            sim.turn([end("found"), text(5)]);
        }
        sim.sent.iter().filter(|sent| sent.passed).count()
    };
    assert!(passes(Floor::Fraction(0.5)) * 2 < passes(Floor::Ceiling));
}

#[test]
fn what_was_evicted_stays_so_under_a_higher_ceiling_and_a_later_act() {
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 600)]);
    sim.turn([end("of a"), text(10)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 300);
    sim.turn([text(10)]);
    sim.ceiling(1_000_000);
    sim.turn([act("b", &["a"]), call("edit", 10)]);
    sim.turn([done(), text(1)]);
    let sent = sim.sent.last().unwrap();
    assert!(!sent.gist.contains(&"=grep1".to_owned()));
    // Judged at every hop: nothing came back, and no pass was needed again.
    assert_eq!(sim.sent.iter().filter(|sent| sent.passed).count(), 1);
}

#[test]
fn parallel_calls_of_two_episodes_in_one_message_go_apart() {
    let mut sim = Sim::new();
    sim.turn([text(5), expl("a"), call("read", 200)]);
    sim.turn([
        text(5),
        call("grep", 300),
        end("of a"),
        act("b", &["a"]),
        call("edit", 300),
        call("bash", 300),
    ]);
    sim.turn([done(), text(10)]);
    sim.turn([text(10)]);
    check(
        &sim,
        &[
            &["bash1", "=bash1"],
            // The act opened in that message, so the text before it is the act's.
            &["text2", "edit1", "=edit1", "text3"],
            &["grep1", "=grep1"],
            &["read1", "=read1"],
            &["text1"],
        ],
    );
}

#[test]
fn an_evicted_start_shares_its_message_with_calls_that_stay() {
    let mut sim = Sim::new();
    sim.turn([expl("x"), call("grep", 300)]);
    sim.turn([end("of x"), call("odd", 40), expl("y"), call("read", 40)]);
    sim.turn([text(3)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 330);
    let (sent, _) = sim.look();
    // The hidden call in front is gone, and the order of the others is as it was.
    let from = sent.gist.iter().position(|shown| shown == "odd1").unwrap();
    assert_eq!(sent.gist[from..from + 3], ["odd1", "+y", "read1"]);
    assert!(!sent.gist.contains(&"+end".to_owned()));
}

#[test]
fn a_message_that_becomes_empty_is_dropped_and_its_text_stays_until_the_end() {
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([call("read", 300)]);
    sim.turn([text(40), call("bash", 300)]);
    sim.turn([end("of a"), text(1)]);
    sim.turn([text(1)]);
    let (before, all) = sim.look();
    sim.ceiling(all.estimate - 900);
    let (after, _) = sim.look();
    assert!(
        after.gist.contains(&"text1".to_owned()),
        "{:#?}",
        after.gist
    );
    // Three results, and the message that held nothing but `read1`.
    assert_eq!(after.messages.len(), before.messages.len() - 4);
    // The text of the message that ended it is its own, too.
    check(&sim, &[&["text1", "text2"]]);
}

#[test]
fn refused_calls_go_with_their_episode() {
    let mut sim = Sim::new();
    let wrong = || Say::Delimit(serde_json::json!({"action": "end", "name": "z"}));
    sim.turn([expl("a"), wrong(), hop(), text(5), call("grep", 300)]);
    sim.turn([end("of a"), text(1)]);
    sim.turn([text(1)]);
    let (before, _) = sim.look();
    assert!(
        before
            .gist
            .iter()
            .any(|shown| shown.contains("is not open"))
    );
    sim.ceiling(sim.least());
    let (after, _) = sim.look();
    assert!(!after.gist.iter().any(|shown| shown.contains("is not open")));
    assert!(after.gist.contains(&"+a".to_owned()));
}
