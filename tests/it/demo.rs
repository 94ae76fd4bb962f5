//! `plimsoll demo` as a newcomer runs it, but without a terminal: it ends by itself, says that the
//! line was held, and draws what it measured.

use std::process::{Command, Output};

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("demo").args(arguments);
    command.output().unwrap()
}

/// A file of the repository.
fn file(name: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(name)).unwrap()
}

/// The README's table says what the demo measures, and its pictures are of such a run.
fn readme(text: &str, pictures: [&str; 2]) {
    let readme = file("README.md");
    let rows = readme
        .lines()
        .skip_while(|line| *line != "| | sent whole | with plimsoll |");
    let mut told = 0;
    for row in rows.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(cells[0]));
        let line = line.unwrap_or_else(|| panic!("no {:?} in\n{text}", cells[0]));
        let (_, figures) = line.split_once(cells[0]).unwrap();
        let figures = figures.split_whitespace().collect::<Vec<_>>().join(" ");
        let expect = format!("{} {}", cells[1], cells[2]);
        assert!(
            figures.starts_with(&expect),
            "README has {expect}, the demo {figures}"
        );
        told += 1;
    }
    assert!(told >= 6, "{told} rows");
    for (name, picture) in ["docs/demo.svg", "docs/curve.svg"].iter().zip(pictures) {
        assert!(
            file(name) == picture,
            "{name} is of another run: `just pictures` draws it anew"
        );
    }
}

/// The numbers of a row of the table: sent whole, and with plimsoll.
fn row(text: &str, name: &str) -> (usize, usize) {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name))
        .unwrap_or_else(|| panic!("no row {name:?} in\n{text}"));
    let mut numbers = line
        .split_whitespace()
        .map(|word| word.replace(',', "").parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn the_demo_holds_the_line_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("demo.svg");
    let curve = directory.path().join("curve.svg");
    let files = [&picture, &curve].map(|file| file.to_str().unwrap());
    let output = demo(&["--svg", files[0], "--curve", files[1]]);
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(!text.contains('\u{1b}'), "no terminal, no escapes: {text}");

    let cut = |name| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        line.split("τ").next().unwrap().to_owned()
    };
    let (whole, sent) = row(&cut("largest request"), "largest request");
    assert!(whole > 100_000 && sent <= 40_000, "{text}");
    let progress = text.lines().filter(|line| line.starts_with("turn "));
    assert!(progress.count() > 10, "{text}");
    assert!(text.contains("✓ No request passed τ = 40,000."), "{text}");

    let picture = std::fs::read_to_string(picture).unwrap();
    let curve = std::fs::read_to_string(curve).unwrap();
    assert!(
        curve.contains("pays from"),
        "the losing side is shown: {curve}"
    );
    readme(&text, [&picture, &curve]);
    let line = |colour: &str| picture.lines().find(|line| line.contains(colour)).unwrap();
    let (agent, area) = (line("stroke=\"#b45309\""), line("fill=\"#a5e8f5\""));
    // Two corners a turn for the agent; the area also goes back to the axis.
    assert_eq!(
        agent.matches('L').count() + 1,
        area.matches('L').count() - 1
    );
}

#[test]
fn a_budget_that_no_agent_fits_in_is_wrong_usage() {
    let output = demo(&["--budget", "3999"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("4000"));
}
