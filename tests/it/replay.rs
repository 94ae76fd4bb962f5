//! `plimsoll replay` and `plimsoll tune` as they are run by hand, on the session that the demo comes
//! with: tables, JSON, the page, the story of one item, a recommendation, and what they say where
//! they can't do what was asked.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn bundled() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/demo/session.jsonl.zst")
}

fn replay(arguments: &[&str]) -> Output {
    run("replay", arguments)
}

fn run(command: &str, arguments: &[&str]) -> Output {
    let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    plimsoll.arg(command).arg(bundled()).args(arguments);
    plimsoll.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The figures that every policy has.
const FIGURES: [&str; 18] = [
    "requests",
    "tokens_sent",
    "peak",
    "over_ceiling",
    "prune_rate",
    "passes",
    "passes_above_floor",
    "runs_above_floor",
    "prefix_breaks",
    "cached_share",
    "cost",
    "retention_visible",
    "retention_recoverable",
    "retention_lines",
    "retention_passages",
    "no_impact_rate",
    "refetches",
    "us_per_request",
];

#[test]
fn policies_are_compared_in_a_table_and_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    let output = replay(&[
        "--policies",
        "cwl,none",
        "--ceiling",
        "40000",
        "--json",
        file.to_str().unwrap(),
    ]);
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "no terminal, no progress");
    for row in ["policy", "cwl ", "none "] {
        assert!(
            shown.lines().any(|line| line.starts_with(row)),
            "{row}: {shown}"
        );
    }
    let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let session = &json["sessions"][0];
    assert!(session["name"].is_string() && session["tokens"].as_u64() > Some(100_000));
    for (policies, whose) in [(&json["policies"], "all"), (&session["policies"], "one")] {
        let names: Vec<&str> = policies
            .as_array()
            .unwrap()
            .iter()
            .map(|policy| policy["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["cwl", "none"], "{whose}");
        for figure in FIGURES {
            let number = |at: usize| policies[at][figure].as_f64();
            assert!(
                number(0).is_some() && number(1).is_some(),
                "{whose} {figure}"
            );
        }
    }
    let (cwl, none) = (&json["policies"][0], &json["policies"][1]);
    assert_eq!(none["retention_visible"], 1.0);
    assert!(cwl["passes"].as_u64() > Some(0) && cwl["peak"].as_u64() <= Some(40_000));
    assert!(cwl["cost"].as_f64() < none["cost"].as_f64());
}

#[test]
fn an_item_has_a_story() {
    let explain = |item| {
        let mut arguments = vec!["--policies", "cwl", "--ceiling", "40000"];
        arguments.extend(["--annotate", "none", "--explain", item]);
        replay(&arguments)
    };
    // The session's first read, and a large one.
    let story = text(&explain("read:10").stdout);
    for words in [
        "Read:10: ",
        "pass 1 (ceiling): ",
        "the view had ",
        "the pass took: ",
    ] {
        assert!(story.contains(words), "{words} not in {story}");
    }
    let output = explain("Read:100000");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no item Read:100000"));
}

#[test]
fn what_cannot_be_done_is_said_in_words() {
    for (arguments, code, words) in [
        (
            &["no-such-file.jsonl"][..],
            1,
            "can't read no-such-file.jsonl",
        ),
        (&["--min-tokens", "9000000"], 1, "lower --min-tokens"),
        (&["--prices", "gold"], 1, "no prices are named \"gold\""),
        (&["--explain", "Read:1"], 1, "one policy"),
        (
            &["--policies", "magic"],
            2,
            "possible values: none, recency",
        ),
        (&["--ceiling", "100"], 2, "at least 4000 tokens"),
        (&["--floor", "2"], 2, "at most 1"),
    ] {
        let output = replay(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_page_shows_every_policy_and_loads_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.html");
    let output = replay(&[
        "--policies",
        "none,recency,cwl",
        "--ceiling",
        "40000",
        "--html",
        file.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(file).unwrap();
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    let data: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(
        data["policies"],
        serde_json::json!(["none", "recency", "cwl"])
    );
    let session = &data["sessions"][0];
    assert!(session["requests"].as_u64() > Some(100));
    let passes = session["passes"][0][2].as_array().unwrap();
    assert!(!passes.is_empty(), "{session}");
    assert!(!page.contains("://"), "something is loaded from elsewhere");
}

#[test]
fn a_ceiling_and_a_floor_are_recommended_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("surface.json");
    let page = directory.path().join("surface.html");
    let output = run(
        "tune",
        &[
            "--ceilings",
            "60000,30000",
            "--floors",
            "0.6,auto,0.6",
            "--json",
            file.to_str().unwrap(),
            "--html",
            page.to_str().unwrap(),
        ],
    );
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "no terminal, no progress");
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<circle").count(), 4, "{page}");
    let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let settings = json["settings"].as_array().unwrap();
    let pairs: Vec<(u64, String)> = settings
        .iter()
        .map(|one| {
            let ceiling = one["ceiling"].as_u64().unwrap();
            (ceiling, one["floor"].to_string())
        })
        .collect();
    let expect = [
        (30_000, "0.6"),
        (30_000, "\"auto\""),
        (60_000, "0.6"),
        (60_000, "\"auto\""),
    ];
    assert_eq!(
        pairs,
        expect.map(|(ceiling, floor)| (ceiling, floor.to_owned()))
    );
    for one in settings {
        assert!(one["passes"].as_u64() > Some(0) && one["cost"].as_f64() > Some(0.0));
    }
    let taken = &json["recommended"];
    let lines = format!(
        "[budget]\nceiling = {}\nfloor = {}\n",
        taken["ceiling"], taken["floor"]
    );
    assert!(shown.ends_with(&lines), "{lines} not in {shown}");
    assert!(shown.contains("it is the cheapest whose K is within 0.005"));
    let config = directory.path().join("pasted.toml");
    std::fs::write(&config, lines).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let checked = check.arg("check").arg(&config).output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stdout));
}

#[test]
fn tune_says_what_it_cannot_do() {
    for (arguments, code, words) in [
        (&["--min-tokens", "9000000"][..], 1, "lower --min-tokens"),
        (&["--ceilings", "100"], 2, "at least 4000 tokens"),
        (&["--floors", "0.5,low"], 2, "a fraction above 0"),
    ] {
        let output = run("tune", arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
    // Nothing comes near this ceiling.
    let output = run("tune", &["--ceilings", "900000", "--floors", "auto"]);
    assert!(text(&output.stdout).contains("stay with the defaults"));
}
