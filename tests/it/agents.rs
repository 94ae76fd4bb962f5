//! `plimsoll replay` on what agents keep in a home: which sessions are found, and what is said of
//! those that can't be read.

use std::fs;
use std::path::Path;

use super::process::plimsoll;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/agents");

/// Where each agent keeps its sessions below a home.
const PLACES: [(&str, &str); 4] = [
    (
        "claude.jsonl",
        ".claude/projects/-home-user-project/0.jsonl",
    ),
    ("codex.jsonl", ".codex/sessions/2026/01/02/rollout-0.jsonl"),
    (
        "pi-compacted.jsonl",
        ".pi/agent/sessions/--home-user--/0.jsonl",
    ),
    ("opencode.db", ".local/share/opencode/opencode.db"),
];

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for (fixture, place) in PLACES {
        let place = home.path().join(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(Path::new(FIXTURES).join(fixture), place).unwrap();
    }
    home
}

/// The exit code, the output, and what was said on stderr.
fn run(home: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = plimsoll(home);
    let command = command.env_clear().env("HOME", home).args(arguments);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn sessions_of_all_agents_are_found_and_played() {
    let home = home();
    // What lies beside the sessions and is none is passed over.
    let beside = home
        .path()
        .join(".claude/projects/-home-user-project/1.jsonl");
    fs::write(beside, "{\"type\":\"summary\",\"summary\":\"x\"}\n").unwrap();
    let (code, table, said) = run(
        home.path(),
        &[
            "replay",
            "--policies",
            "cwl",
            "--budget",
            "8k",
            "--json",
            "out.json",
        ],
    );
    assert_eq!(code, 0, "{said}");
    for told in [
        "Claude Code: 2 sessions in ",
        "codex: 1 session in ",
        "pi: 1 session in ",
        "opencode: 2 sessions in ",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert!(said.contains("providers reported"), "{said}");
    assert!(table.contains("cwl"), "{table}");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(home.path().join("out.json")).unwrap()).unwrap();
    // Two of them were summarised: five conversations of pi's, and four of opencode's.
    assert!(report.to_string().contains("#5"), "{report}");
    let left: Vec<_> = fs::read_dir(home.path().join(".local/share/opencode"))
        .unwrap()
        .collect();
    assert_eq!(
        left.len(),
        1,
        "nothing is left beside the database: {left:?}"
    );
}

#[test]
fn some_agents_alone_can_be_asked_for_and_bad_lines_are_told() {
    let home = home();
    let file = home.path().join(PLACES[1].1);
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{whole}{{ torn")).unwrap();
    let arguments = ["replay", "--policies", "cwl", "--budget", "8k"];
    let (code, _, said) = run(
        home.path(),
        &[&arguments[..], &["--from", "codex"]].concat(),
    );
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("codex: 1") && !said.contains("Claude"),
        "{said}"
    );
    assert!(said.contains("1 lines are not chat messages"), "{said}");
    // A file that is named needs no home.
    let (code, _, said) = run(
        home.path(),
        &[&arguments[..], &[".local/share/opencode/opencode.db"]].concat(),
    );
    assert_eq!(code, 0, "{said}");
    let (code, _, said) = run(
        home.path(),
        &[
            "tune",
            "--from",
            "claude",
            "--budgets",
            "8k",
            "--floors",
            "auto",
        ],
    );
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_home_without_sessions_is_told_where_they_were_looked_for() {
    let home = tempfile::tempdir().unwrap();
    let (code, _, said) = run(home.path(), &["replay"]);
    assert_eq!(code, 1);
    assert!(
        said.contains(".claude/projects") && said.contains("name files"),
        "{said}"
    );
    // One that was begun and never answered has nothing to play.
    let file = home.path().join(".claude/projects/p/0.jsonl");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let begun = fs::read_to_string(Path::new(FIXTURES).join("claude.jsonl")).unwrap();
    fs::write(&file, begun.lines().take(4).collect::<Vec<_>>().join("\n")).unwrap();
    let (code, _, said) = run(home.path(), &["replay"]);
    assert!(code == 1 && said.contains("answered"), "{said}");
}
