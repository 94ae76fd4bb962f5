//! Tests of `delimiter`.

use super::*;

/// Runs calls in order and checks the start of each result.
#[track_caller]
fn check(auto_close: bool, calls: &[(&str, &str)]) {
    let mut names = EpisodeNames::default();
    for (arguments, expect) in calls {
        let got = names.run(arguments, Protocol { auto_close }, "context 1k/80k");
        assert!(
            got.result.starts_with(expect),
            "{arguments}: {}",
            got.result
        );
    }
}

#[test]
fn the_four_canonical_calls() {
    check(
        false,
        &[
            (
                r#"{"action":"start","name":"a","type":"expl","mood":1}"#,
                "opened expl \"a\" · context 1k/80k",
            ),
            (
                r#"{"action":"end","description":"learned"}"#,
                "closed expl \"a\" · ",
            ),
            (
                r#"{"action":"start","name":"b","type":"act","dependencies":["a"]}"#,
                "opened act \"b\"",
            ),
            (r#"{"action":"end"}"#, "closed act \"b\""),
            (
                r#"{"action":"start","name":"c","type":"act"}"#,
                "opened act \"c\"",
            ),
        ],
    );
}

#[test]
fn each_refusal_says_what_to_do() {
    check(
        false,
        &[
            ("nonsense", "send the arguments"),
            ("{}", "set action"),
            (r#"{"action":7}"#, "send action as text"),
            (r#"{"action":"end"}"#, "nothing is open"),
            (
                r#"{"action":"start","type":"expl"}"#,
                "give the episode a name",
            ),
            (r#"{"action":"start","name":"a"}"#, "set type"),
            (
                r#"{"action":"start","name":"a","type":"act","dependencies":["x"]}"#,
                "\"x\" is no closed expl episode; there is none",
            ),
            (
                r#"{"action":"start","name":"a","type":"act","dependencies":"x"}"#,
                "give dependencies as a list",
            ),
            (r#"{"action":"start","name":"a","type":"expl"}"#, "opened"),
            (
                r#"{"action":"start","name":"b","type":"expl"}"#,
                "end \"a\" first",
            ),
            (r#"{"action": "end"}"#, "add a description"),
            (
                r#"{"action":"end","description":"d","name":"z"}"#,
                "\"z\" is not open",
            ),
            (r#"{"action":"end","description":"d"}"#, "closed"),
            (r#"{"action":"end","description":"d"}"#, "already done"),
            (r#"{"action":"end"}"#, "nothing is open"),
            (
                r#"{"action":"start","name":"a","type":"act"}"#,
                "choose another name",
            ),
            (
                r#"{"action":"start","name":"b","type":"act","dependencies":["q"]}"#,
                "\"q\" is no closed expl episode; closed are: a",
            ),
            (
                r#"{"action":"start","name":"b","type":"act","dependencies":["a","a"]}"#,
                "opened act",
            ),
        ],
    );
}

#[test]
fn an_expl_that_names_dependencies_is_opened_without() {
    let mut names = EpisodeNames::default();
    let start = r#"{"action":"start","name":"a","type":"expl","dependencies":["x"]}"#;
    let outcome = names.run(start, Protocol { auto_close: false }, "");
    assert!(outcome.result.starts_with("opened expl \"a\""));
    let Effect::Started { dependencies, .. } = outcome.effect else {
        panic!("{:?}", outcome.effect);
    };
    assert_eq!(dependencies, Vec::<String>::new());
}

#[test]
fn an_act_that_is_described_is_ended() {
    let mut names = EpisodeNames::default();
    let protocol = Protocol { auto_close: false };
    let mut run = |arguments| names.run(arguments, protocol, "");
    run(r#"{"action":"start","name":"b","type":"act"}"#);
    let outcome = run(r#"{"action":"end","description":"wrote it"}"#);
    assert!(outcome.result.starts_with("closed act \"b\""));
    let ended = Effect::Ended {
        name: "b".to_owned(),
        description: None,
    };
    assert_eq!(outcome.effect, ended);
}

#[test]
fn a_call_that_was_refused_is_judged_again() {
    let start = |name: &str| format!(r#"{{"action":"start","name":"{name}","type":"act"}}"#);
    let (a, b, end) = (start("a"), start("b"), r#"{"action":"end"}"#);
    check(
        false,
        &[
            (end, "nothing is open"),
            (&a, "opened act \"a\""),
            (&b, "end \"a\" first"),
            (&a, "already done"),
            (end, "closed act \"a\""),
            (end, "already done"),
            (&b, "opened act \"b\""),
            (end, "closed act \"b\""),
        ],
    );
}

#[test]
fn auto_close_closes_what_is_open() {
    check(
        true,
        &[
            (r#"{"action":"start","name":"a","type":"expl"}"#, "opened"),
            (
                r#"{"action":"start","name":"b","type":"act","dependencies":[]}"#,
                "opened",
            ),
            (r#"{"action":"end"}"#, "closed act \"b\""),
        ],
    );
}
