//! What `plimsoll replay` says first: what the session of the demo would have cost with Plimsoll, at one budget and at others,
//! and what it would have lost.

use std::process::{Command, Output};

use serde_json::Value;

fn replay(arguments: &[&str]) -> Output {
    let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let session = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo/session.jsonl.zst");
    plimsoll.args(["replay", session]).args(arguments);
    plimsoll.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The rows of budgets in what a replay says: each cell by column.
fn budgets(shown: &str) -> Vec<Vec<String>> {
    let rows = shown
        .lines()
        .skip_while(|line| !line.starts_with("budget "));
    let rows = rows.skip(1).take_while(|line| !line.is_empty());
    let cells = |row: &str| {
        let cells = row
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn what_is_served_is_judged_first_and_told_at_five_budgets() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    let output = replay(&[]);
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let first = shown.lines().next().unwrap();
    assert!(
        first.starts_with("1 session, which grows past 80k. $"),
        "{first}"
    );
    assert!(first.contains(" % less. "), "{first}");
    assert!(
        first.ends_with(" of what calls needed later was in view."),
        "{first}"
    );
    let rows = budgets(&shown);
    let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["40k", "60k", "80k", "120k", "160k"]);
    // What the sentence says is what the row says, and the file.
    assert!(
        first.contains(&format!(" → {}: ", rows[2][1])),
        "{first} {:?}",
        rows[2]
    );
    let output = replay(&["--json", file.to_str().unwrap()]);
    assert_eq!(budgets(&text(&output.stdout)), rows[2..3]);
    let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let names: Vec<&Value> = json["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["none", "repeat+keep+cwl"]);
    assert_eq!(json["settings"]["annotate"], "obedient");
    assert_eq!(json["settings"]["budgets"], serde_json::json!([80_000]));
    let usd = json["policies"][1]["usd"].as_f64().unwrap();
    assert_eq!(format!("${usd:.2}"), rows[2][1]);
    assert!(
        !shown.contains("in view: of distinctive strings"),
        "{shown}"
    );

    // Other budgets, of which the first is judged, and what the columns mean.
    let output = replay(&["--budget", "60k,20k", "--explain-figures"]);
    let shown = text(&output.stdout);
    assert!(
        shown.starts_with("1 session, which grows past 60k. "),
        "{shown}"
    );
    assert_eq!(budgets(&shown).len(), 2, "{shown}");
    assert!(shown.contains("in view: of distinctive strings"), "{shown}");
}

#[test]
fn a_session_that_never_reaches_the_budget_costs_what_is_offered() {
    let output = replay(&["--budget", "1000k"]);
    let shown = text(&output.stdout);
    let first = shown.lines().next().unwrap();
    assert!(
        first.starts_with("1 session, whose largest request has "),
        "{first}"
    );
    assert!(
        first.contains(": nothing reaches a budget of 1000k. Plimsoll would cost "),
        "{first}"
    );
    let (_, tried) = first.split_once("Try --budget ").unwrap();
    let (tried, _) = tried.split_once(',').unwrap();
    let again = replay(&["--budget", tried]);
    let again = text(&again.stdout);
    assert!(again.starts_with("1 session, which grows past "), "{again}");
    assert!(again.contains(" % less. "), "what is advised pays: {again}");
}

#[test]
fn all_policies_are_compared_by_one_word_and_a_bad_name_is_refused() {
    let output = replay(&["--policies", "all,none,cwl", "--budget", "40k"]);
    let shown = text(&output.stdout);
    for row in ["cwl ", "cwl-paper ", "recency ", "keep-recent ", "none "] {
        let rows = shown.lines().filter(|line| line.starts_with(row)).count();
        assert_eq!(rows, 1, "{row}: {shown}");
    }
    assert!(!shown.contains("K+named: visible"), "{shown}");
    let output = replay(&["--policies", "cwl", "--budget", "40k", "--explain-figures"]);
    assert!(text(&output.stdout).contains("K+named: visible"));
    let output = replay(&["--policies", "every"]);
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("every"),
        "{said}"
    );
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_played() {
    for flag in ["--json", "--html", "--views"] {
        let output = replay(&[flag, "/nonexistent/file", "--policies", "cwl"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("can't write /nonexistent/file"), "{said}");
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    }
}

#[test]
fn a_file_that_is_there_keeps_its_text_until_all_is_played_and_none_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let (file, link) = (
        directory.path().join("kept.json"),
        directory.path().join("link.json"),
    );
    std::fs::write(&file, "kept").unwrap();
    std::os::unix::fs::symlink(directory.path().join("later.json"), &link).unwrap();
    for named in [&file, &link, &directory.path().join("new.json")] {
        let output = replay(&["--json", named.to_str().unwrap(), "--min-tokens", "9000000"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    let mut left: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|one| one.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["kept.json", "link.json"]);
    let output = replay(&["--json", link.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(directory.path().join("later.json").exists() && link.is_symlink());
}

#[test]
fn what_a_finding_is_worth_is_asked_where_nobody_marks_and_something_evicts() {
    for (arguments, why) in [
        (["--annotate", "scripted"], "nobody marked"),
        (["--policies", "none"], "a policy that evicts"),
    ] {
        let mut all = vec!["--worth", "--views", "never.jsonl", "--budget", "8k"];
        all.extend(arguments);
        let said = text(&replay(&all).stderr);
        assert!(said.contains(why), "{said}");
    }
}
